"""Publishes CloudEvents to a topic or an ingress, with acknowledgements.

Begin with `sources.py` (lines and numbered events). `publisher.py` writes to Kafka, `posting.py` posts to an ingress; both
keep to a rate, and both report how many events were acknowledged, and where to go on after an error. Used by `inbound publish` and
the demo; this room prints nothing and knows no command.
"""

from inbound.kafka.python.topics import log_ends, prepare_topic
from inbound.publishing.posting import Posting, with_key
from inbound.publishing.publisher import Published, PublishError, publisher_to
from inbound.publishing.sources import (
    Encoded,
    Format,
    NumberedEvent,
    check_lines,
    lines_in,
    lines_of,
    numbered,
    read_ahead,
    records_of,
)

__all__ = [
    "Encoded",
    "Format",
    "NumberedEvent",
    "Posting",
    "PublishError",
    "Published",
    "check_lines",
    "lines_in",
    "lines_of",
    "log_ends",
    "numbered",
    "prepare_topic",
    "publisher_to",
    "read_ahead",
    "records_of",
    "with_key",
]
