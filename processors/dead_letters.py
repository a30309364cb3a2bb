"""The headers by which a dead letter names its origin. Pure.

The dispatcher, and a channel with `on_error: {then: dead-letter}`, add them behind the record's own headers. A record that was a
dead letter before has several sets; the last one counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from inbound.config.values import topic_name
from inbound.topic_partition import MOST_OFFSET

#: Begins all names of a set.
PREFIX: Final = "inbound-dead-letter-"
#: Begins a set: the group that gave the record up.
GROUP: Final = PREFIX + "group"
TOPIC: Final = PREFIX + "topic"
PARTITION: Final = PREFIX + "partition"
OFFSET: Final = PREFIX + "offset"
#: Why, in words. Only from `on_error`: the dispatcher writes Knative's attributes.
REASON: Final = PREFIX + "reason"
#: `reply`: the letter is the subscriber's reply to the record at that place. Only from the dispatcher.
KIND: Final = PREFIX + "kind"
REPLY: Final = "reply"
#: How often a record was redriven; not part of a set.
REDRIVES: Final = "inbound-redrives"


class Origin(NamedTuple):
    """The record that an event was first read from."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


def origin_headers(group: str, topic: str, partition: int, offset: int) -> list[tuple[str, bytes]]:
    """Return the headers with a record's place and its group."""
    values = {GROUP: group, TOPIC: topic, PARTITION: partition, OFFSET: offset}
    return [(name, str(value).encode()) for name, value in values.items()]


def origin_in(headers: Mapping[str, str], topic: str, partition: str, offset: str) -> Origin | None:
    """Return the place in three headers; None unless all are usable."""
    name, number, at = headers.get(topic, ""), number_in(headers, partition), number_in(headers, offset)
    return None if number is None or at is None or not topic_name.matches(name) else Origin(name, number, at)


def number_in(headers: Mapping[str, str], name: str) -> int | None:
    """Return a header's number, at most the largest offset; None: no number."""
    text = headers.get(name, "")
    if text.isascii() and text.isdigit() and len(text) <= len(str(MOST_OFFSET)):
        return min(int(text), MOST_OFFSET)
    return None
