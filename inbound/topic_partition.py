"""The name of a partition, and the largest offset, for all rooms."""

from __future__ import annotations

from typing import NamedTuple

#: Kafka counts offsets with 64 bits, and its clients fail at larger ones.
MOST_OFFSET = (1 << 63) - 1


class TopicPartition(NamedTuple):
    """A partition of a topic; sorts by topic, prints as `orders/3`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"
