"""Writing CloudEvents to a topic: where they come from, how they are sent, and whether they arrived."""

from inbound.publishing.publisher import Published, Publisher, PublishError
from inbound.publishing.sources import Encoded, check_lines, lines_of, numbered, records_of
from inbound.publishing.topics import log_ends, prepare_topic

__all__ = [
    "Encoded",
    "PublishError",
    "Published",
    "Publisher",
    "check_lines",
    "lines_of",
    "log_ends",
    "numbered",
    "prepare_topic",
    "records_of",
]
