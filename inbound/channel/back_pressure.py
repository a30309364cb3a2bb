"""Which partitions are fetched: those whose buffers have room, within the bound of the channel."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from inbound.channel.partition import Partition
from inbound.channel.schedule import Schedule
from inbound.channel.settings import Settings
from inbound.errors import UnreadableBatchError
from inbound.journal import Journal
from inbound.kafka.base import LogClient
from inbound.topic_partition import TopicPartition

#: Fetches are not made smaller than this, in bytes, however many partitions share the prefetch.
SMALLEST_FETCH = 16 * 1024
#: How often a batch that comes broken is fetched again before its partition is held.
BROKEN_AGAIN = 2


@dataclass(frozen=True, slots=True)
class Outside:
    """A position that cannot be read on from, as the client told."""

    offset: int
    cut: int | None = None  # from where on the log holds other records than were read, if the brokers can tell


@dataclass(eq=False)
class Stream:
    """A partition that is being read."""

    partition: Partition
    generation: int
    paused: bool = False
    next_offset: int = 0  # where the client reads on, of what came into the buffer
    heard_at: float = 0.0  # clock time at which the log's end was heard last
    outside: Outside | None = None  # paused until it is found out what became of the log
    question: int | None = None  # asked because of that: is it the same topic still?
    broken: int = 0  # how often in a row the batch there came broken

    def is_to_be_fetched_again(self, error: UnreadableBatchError, journal: Journal) -> bool:
        """Say whether a batch that came broken may be whole the next time: broken on its way, or in one broker alone."""
        if not error.broken or self.broken >= BROKEN_AGAIN:
            return False
        self.broken += 1
        self._say(journal, f"{error.what}; fetching it again", error.offset)
        return True

    def fails(self, error: Exception, journal: Journal) -> None:
        """Take note that it could not be read, and is tried again."""
        partition, said = self.partition, f"{type(error).__name__}: {error}"
        if partition.stall.read_error != said:
            self._say(journal, f"cannot be read: {error}; trying again", partition.position.delivered)
        partition.failure.last_error, partition.stall.read_error = str(error), said

    def _say(self, journal: Journal, text: str, offset: int) -> None:
        tp, epoch = self.partition.tp, self.partition.fence.epoch
        journal.note("unreadable", text, tp, offset=offset, epoch=epoch, level=logging.WARNING)


class Throttle:
    """Pauses what has enough read ahead, resumes what ran low. For the one thread that uses the client."""

    def __init__(self, *, settings: Settings, schedule: Schedule) -> None:
        self._settings = settings
        self._schedule = schedule
        self._fetch_bytes = 0
        self.read_ahead = 0  # bytes that buffers and what the client has put aside take in memory, as of the last turn
        #: A paused partition whose buffer has no more bytes than this may go on; infinity: that depends on the others', too.
        self.resumes_at = float("inf")

    def another_client(self) -> None:
        """Forget what the client before was told."""
        self._fetch_bytes = 0

    def apply(
        self,
        client: LogClient,
        streams: Mapping[TopicPartition, Stream],
        may_be_read: Callable[[Stream], bool],
    ) -> None:
        """Pause and resume. What is noted of a stream is what the client has been told: it may raise at any call.

        The bound is for the whole channel, less what the client itself holds. Half of it is room to read ahead, the other
        half is for what fetches may still bring: one fetch brings at most `share` of a partition. While there is room, a
        busy partition may take a quarter of it; when it is crowded, each is held to its share. So stalled partitions never
        keep the others from being read, and all together stay within the bound, with eight partitions as with a thousand.
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
        # bound. While every worker is busy more records help nobody; with one to spare, what others have read ahead and
        # cannot hand out must not keep a partition from being read.
        full = self._schedule.full and self.read_ahead >= 2 * room
        channel_paused = self._schedule.paused or full
        self.resumes_at = float("inf") if crowded or full else limit // 2
        for tp, stream in streams.items():
            buffer, held = stream.partition.buffer, channel_paused or stream.partition.failure.held is not None
            # Small records take more than their bytes: where it is crowded, that counts.
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
