"""The headers by which a dead letter says where its record came from. Pure.

Both writers of dead letter topics add them behind the record's own headers: the dispatcher, and a channel with
`on_error: {then: dead-letter}`. A record that was a dead letter before has several sets; the last one counts.
"""

from __future__ import annotations

from typing import Final

#: What all names of a set begin with.
PREFIX: Final = "inbound-dead-letter-"
#: Begins a set: the group that gave the record up.
GROUP: Final = PREFIX + "group"
TOPIC: Final = PREFIX + "topic"
PARTITION: Final = PREFIX + "partition"
OFFSET: Final = PREFIX + "offset"
#: Why, in words. Only from `on_error`: the dispatcher writes Knative's attributes.
REASON: Final = PREFIX + "reason"
#: `reply` where the letter is the subscriber's reply to the record at that place. Only from the dispatcher.
KIND: Final = PREFIX + "kind"
REPLY: Final = "reply"
#: How often a record was redriven: it travels with the record.
REDRIVES: Final = "inbound-redrives"


def origin_headers(group: str, topic: str, partition: int, offset: int) -> list[tuple[str, bytes]]:
    """Return the headers that name the place of a record and the group that gave it up."""
    return [
        (GROUP, group.encode()),
        (TOPIC, topic.encode()),
        (PARTITION, str(partition).encode()),
        (OFFSET, str(offset).encode()),
    ]
