"""Partitions being read: back-pressure, and problems that a client misses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from inbound.errors import UnreadableBatchError
from inbound.kafka.base import LogClient, LogRange
from inbound.partition.journal import Journal
from inbound.partition.partition import Partition
from inbound.partition.schedule import Schedule
from inbound.partition.service import Settings
from inbound.partition.topics import Topics
from inbound.topic_partition import TopicPartition

#: The smallest fetch in bytes, however many partitions share the prefetch.
SMALLEST_FETCH = 16 * 1024
#: Refetches of a broken batch before its partition is held.
BROKEN_AGAIN = 2


@dataclass(frozen=True, slots=True)
class Outside:
    """A position outside the log."""

    offset: int
    cut: int | None = None  # the offset from which the log holds other records than were read, if known


@dataclass(eq=False)
class Stream:
    """A partition that is being read."""

    partition: Partition
    generation: int
    paused: bool = False
    next_offset: int = 0  # after the last record in the buffer
    heard_at: float = 0.0  # clock time of the last answer about the log's end
    outside: Outside | None = None  # paused until the log's fate is known
    question: int | None = None  # the number of the question to the brokers whether the topic is the same
    broken: int = 0  # broken fetches of the same batch in a row

    def is_to_be_fetched_again(self, error: UnreadableBatchError, journal: Journal) -> bool:
        """Whether to refetch a broken batch: another broker may have it whole."""
        if not error.broken or self.broken >= BROKEN_AGAIN:
            return False
        self.broken += 1
        self._say(journal, f"{error.what}; fetching it again", error.offset)
        return True

    def is_same_topic(self, topics: Topics) -> bool:
        """Whether the brokers confirm that the topic is still the claimed one.

        Asked before a log counts as cut. If it is not, the controller releases or reclaims the partition.
        """
        if self.question is None and self.partition.topic_id is not None:
            self.question = topics.ask()
        if self.question is not None and not topics.answered(self.question):
            return False
        return topics.found.get(self.partition.tp.topic) is not None and not topics.is_another(self.partition)

    def fails(self, error: Exception, journal: Journal) -> None:
        """Note that the partition could not be read, and is retried."""
        partition, said = self.partition, f"{type(error).__name__}: {error}"
        if partition.stall.read_error != said:
            self._say(journal, f"cannot be read: {error}; trying again", partition.position.delivered)
        partition.failure.last_error, partition.stall.read_error = str(error), said

    def _say(self, journal: Journal, text: str, offset: int) -> None:
        tp, epoch = self.partition.tp, self.partition.fence.epoch
        journal.note("unreadable", text, tp, offset=offset, epoch=epoch, level=logging.WARNING)


class Throttle:
    """Pauses partitions with full buffers, resumes others. Used by the reading thread."""

    def __init__(self, settings: Settings, schedule: Schedule) -> None:
        self._settings = settings
        self._schedule = schedule
        self._fetch_bytes = 0
        self.read_ahead = 0  # bytes in memory of buffers and of records that the client has put aside, at the last look
        #: A paused partition may resume at this buffer size; infinity: it depends on other partitions, too.
        self.resumes_at = float("inf")

    def another_client(self) -> None:
        """Forget the settings of the previous client."""
        self._fetch_bytes = 0

    def apply(
        self,
        client: LogClient,
        streams: Mapping[TopicPartition, Stream],
        may_be_read: Callable[[Stream], bool],
    ) -> None:
        """Pause and resume partitions. A stream's `paused` is the client's state.

        The client may raise at any call. The bound is for the whole channel, less what the client itself holds. Half of
        it is room to read ahead, the other half is for what fetches may still bring: one fetch brings at most `share`
        of a partition. While there is room, a busy partition may take a quarter of it; when it is crowded, each is held
        to its share. So stalled partitions never keep the others from being read, and all together stay within the
        bound, with eight partitions as with a thousand.
        """
        settings = self._settings.now.reader
        if not streams:
            return
        room = (settings.prefetch_bytes - client.held_bytes) // 2
        share = room // len(streams)
        buffers = [stream.partition.buffer for stream in streams.values()]
        buffered = sum(b.size for b in buffers) + client.record_bytes * sum(b.records for b in buffers)
        self.read_ahead = buffered + client.aside_bytes
        crowded = buffered >= room
        limit = share if crowded else max(share, room // 4)
        fetch_bytes = max(SMALLEST_FETCH, min(settings.batch_bytes, share))
        if fetch_bytes != self._fetch_bytes:
            client.limit_fetches(fetch_bytes)
            self._fetch_bytes = fetch_bytes
        pause, resume = [], []
        # A fetch brings whole record batches, however large, so a thousand partitions with one each can be beyond the
        # bound. While every worker is busy more records help no partition; with one to spare, records that others have ahead and
        # cannot deliver must not keep a partition from being read.
        full = self._schedule.full and self.read_ahead >= 2 * room
        channel_paused = self._schedule.paused or full
        self.resumes_at = float("inf") if crowded or full else limit // 2
        for tp, stream in streams.items():
            buffer, held = stream.partition.buffer, channel_paused or stream.partition.failure.held is not None
            # Small records take more memory than their bytes: that counts while crowded.
            size = buffer.size + (client.record_bytes * buffer.records if crowded else 0)
            if not stream.paused and (size >= limit or held):
                pause.append(tp)
            elif stream.paused and size <= limit // 2 and not held and may_be_read(stream):
                resume.append(tp)
        if pause:
            client.pause(pause)
        for tp in pause:
            streams[tp].paused = True
        if resume:
            client.resume(resume)
        for tp in resume:
            streams[tp].paused = False


#: Seconds between questions for the end of a log without fetches, and between looks for due ones.
ENDS_INTERVAL, ENDS_LOOK = 5.0, 1.0


class Read(Protocol):
    """A partition that is being read: see `inbound.channel.reader.Stream`."""

    heard_at: float

    @property
    def partition(self) -> Partition: ...
    @property
    def paused(self) -> bool: ...


class Watching:
    """Looks for log ends, unfetched records and silent leaders.

    Writes them to `stall` of the partitions, and to `unled`. The reading thread's, but for `ask`.
    """

    def __init__(self) -> None:
        self._asked: Collection[TopicPartition] = ()
        self._ends_due = 0.0
        #: Partitions whose leader does not answer, and since when (clock time). Replaced as a whole, read by any thread.
        self.unled: Mapping[TopicPartition, float] = {}

    def ask(self, partitions: Collection[TopicPartition]) -> None:
        """Find out, with the next step, about unfetched records. Any thread."""
        self._asked = partitions

    def look(
        self,
        client: LogClient,
        streams: Mapping[TopicPartition, Read],
        now: float,
        wake: Callable[[], None],
    ) -> None:
        """Take in answers about unfetched records; `wake` is called for later ones."""
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
        """Ask for the log ends of paused partitions, to know their lag."""
        if now < self._ends_due:
            return
        self._ends_due = now + ENDS_LOOK
        stale = [tp for tp, stream in streams.items() if stream.paused and now >= stream.heard_at + ENDS_INTERVAL]
        for tp, limits in ask(stale).items():
            streams[tp].partition.stall.log_end, streams[tp].heard_at = limits.end, now

    def look_at_leaders(self, client: LogClient, now: float) -> None:
        """Note the partitions whose leader did not answer the last poll."""
        unled = client.unled()
        if unled or self.unled:
            self.unled = {tp: self.unled.get(tp, now) for tp in unled}
