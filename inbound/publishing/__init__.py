"""Writing CloudEvents to a topic: where they come from, how they are sent, and whether they arrived."""

from inbound.publishing.posting import Event, Posting, read_ahead, with_key
from inbound.publishing.publisher import Published, PublishError, publisher_to
from inbound.publishing.sources import Encoded, Format, check_lines, lines_in, lines_of, numbered, records_of
from inbound.publishing.topics import log_ends, prepare_topic

__all__ = [
    "Encoded",
    "Event",
    "Format",
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
