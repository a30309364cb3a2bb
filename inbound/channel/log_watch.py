"""Looks after what a Kafka client may not notice itself: records that it does not fetch, leaders that do not answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from inbound.channel.partition import Partition
from inbound.kafka.base import LogClient, LogRange
from inbound.topic_partition import TopicPartition

#: How often it is asked where a log ends of which nothing is fetched, and how often it is looked whether one is due. Seconds.
ENDS_INTERVAL, ENDS_LOOK = 5.0, 1.0


class Read(Protocol):
    """A partition that is being read: see `inbound.channel.reader.Stream`."""

    heard_at: float

    @property
    def partition(self) -> Partition: ...
    @property
    def paused(self) -> bool: ...


class Watching:
    """What it finds stands in `stall` of the partitions, and in `unled`. Used by who reads, but for `ask`."""

    def __init__(self) -> None:
        self._asked: Collection[TopicPartition] = ()
        self._ends_due = 0.0
        #: Partitions whose leader does not answer, and since when (clock time). Replaced as a whole, read by any thread.
        self.unled: Mapping[TopicPartition, float] = {}

    def ask(self, partitions: Collection[TopicPartition]) -> None:
        """Find out, with the next step, whether there is something to read of these that is not fetched. Any thread."""
        self._asked = partitions

    def look(
        self,
        client: LogClient,
        streams: Mapping[TopicPartition, Read],
        now: float,
        wake: Callable[[], None],
    ) -> None:
        """Find out about those that were asked for, as far as the answers are there; `wake` is called when others come."""
        if not self._asked:
            return
        read = [tp for tp in self._asked if (stream := streams.get(tp)) is not None and not stream.paused]
        found = client.peek(read, wake)
        self._asked = [tp for tp in read if tp not in found]
        for tp, (position, end) in found.items():
            partition, stall = streams[tp].partition, streams[tp].partition.stall
            if position >= end or partition.buffer:
                stall.unread_since = None
            elif stall.unread_since is None or (position, partition.position.delivered) != (
                stall.log_position,
                stall.unread_at,
            ):
                stall.unread_since, stall.unread_at = now, partition.position.delivered
            stall.log_position, stall.log_end = position, end

    def look_at_ends(
        self,
        streams: Mapping[TopicPartition, Read],
        now: float,
        ask: Callable[[list[TopicPartition]], Mapping[TopicPartition, LogRange]],
    ) -> None:
        """Ask where the logs of paused partitions end: their lag grows although nothing of them is fetched."""
        if now < self._ends_due:
            return
        self._ends_due = now + ENDS_LOOK
        stale = [tp for tp, stream in streams.items() if stream.paused and now >= stream.heard_at + ENDS_INTERVAL]
        for tp, limits in ask(stale).items():
            streams[tp].partition.stall.log_end, streams[tp].heard_at = limits.end, now

    def look_at_leaders(self, client: LogClient, now: float) -> None:
        """Take note of the leaders as the last poll saw them."""
        unled = client.unled()
        if unled or self.unled:
            self.unled = {tp: self.unled.get(tp, now) for tp in unled}
