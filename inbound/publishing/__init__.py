"""Writing CloudEvents to a topic: where they come from, how they are sent, and whether they arrived."""

from inbound.publishing.posting import Event, Posting, read_ahead, with_key
from inbound.publishing.publisher import Published, Publisher, PublishError
from inbound.publishing.sources import Encoded, Format, check_lines, lines_in, lines_of, numbered, records_of
from inbound.publishing.topics import log_ends, prepare_topic

__all__ = [
    "Encoded",
    "Event",
    "Format",
    "Posting",
    "PublishError",
    "Published",
    "Publisher",
    "check_lines",
    "lines_in",
    "lines_of",
    "log_ends",
    "numbered",
    "prepare_topic",
    "read_ahead",
    "records_of",
    "with_key",
]
