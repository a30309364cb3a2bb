"""The reading part of a channel: one client, one thread, all of the channel's partitions."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from inbound.buffer import Chunk
from inbound.committer import Committer, Pending
from inbound.errors import BrokerUnavailableError, OffsetOutOfRangeError
from inbound.kafka.base import LogClient, LogRange, Poll, TopicMeta
from inbound.partition import Fate, Partition, Place
from inbound.parts import Parts
from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)

#: How often the topics' partitions are looked up, in seconds.
METADATA_INTERVAL = 5.0
#: A poll never waits longer than this, so that a newly claimed partition need not either.
MAX_POLL = 0.1
POLL_WHILE_PAUSED = 0.025
#: While partitions are being claimed, polls are shorter for so long: what is claimed is read at once. Seconds.
EXPECTING, POLL_WHILE_EXPECTING = 1.0, 0.02
#: How soon brokers that did not answer a question are asked again, in seconds.
ASK_AGAIN = 1.0
#: Fetches are not made smaller than this, in bytes, however many partitions share the prefetch.
SMALLEST_FETCH = 16 * 1024
RETRY = 0.5


@dataclass(eq=False)
class Stream:
    """A partition that is being read."""

    partition: Partition
    generation: int
    paused: bool = False
    question: int | None = None  # asked because the position is not in the log: is it the same topic still?


class Reader:
    """Fills the partitions' buffers: see `inbound.driver.Part`. Only `expect`, `open` and `jump` come from other threads."""

    def __init__(
        self, parts: Parts, committer: Committer, connect: Callable[[], LogClient], on_topics: Callable[[], None]
    ) -> None:
        self._parts = parts
        self._committer = committer
        self._connect = connect
        self._client: LogClient | None = None
        self._on_topics = on_topics
        self._lock = threading.Lock()
        self._opening: deque[Partition] = deque()
        self._jumps: deque[Partition] = deque()
        self._streams: dict[TopicPartition, Stream] = {}
        self._metadata_due = 0.0
        self._retry_at = 0.0
        self._ask_at = 0.0
        self._fetch_bytes = 0
        self._expecting_until = 0.0
        #: What the brokers last said; empty until they answered. Replaced as a whole, read by any thread.
        self.topics: Mapping[str, TopicMeta] = {}
        self.came_later: frozenset[str] = frozenset()  # topics that did not exist at an earlier look of ours
        self.topics_known = False  # whether they ever answered: that no topic exists is an answer, too
        self._questions = 0  # how often the topics were asked for anew, and up to which question they are answered
        self._answered = 0
        self._asking: tuple[int, Callable[[], bool]] | None = None
        self._told_missing: set[str] = set()
        self.problem: str | None = None  # why Kafka cannot be read; None while it can

    # -- called by others --------------------------------------------------------------------------------------------

    def expect(self) -> None:
        """Partitions are about to be claimed."""
        self._expecting_until = self._parts.clock.now() + EXPECTING

    def open(self, partition: Partition) -> None:
        """Begin to read a partition that was just claimed."""
        with self._lock:
            self._expecting_until = 0.0
            self._opening.append(partition)
        self._parts.reader_wakeup.set()

    def jump(self, partition: Partition) -> None:
        """Read on from `partition.position`; its buffer has jumped."""
        with self._lock:
            self._jumps.append(partition)
        self._parts.reader_wakeup.set()

    def ask_topics(self) -> int:
        """Have the brokers asked for their topics again, soon. Returns a number for `answered`. Any thread."""
        with self._lock:
            self._questions += 1
            number = self._questions
        self._parts.reader_wakeup.set()
        return number

    def answered(self, number: int) -> bool:
        """Whether `topics` is what the brokers said after that call of `ask_topics`. Any thread."""
        return self._answered >= number

    def is_another(self, partition: Partition) -> bool:
        """Whether the topic was deleted, and created anew, since `partition` was claimed; as far as the brokers said."""
        meta = self.topics.get(partition.tp.topic)
        return (
            meta is not None and None not in (meta.topic_id, partition.topic_id) and meta.topic_id != partition.topic_id
        )

    def close(self) -> None:
        """Close the client; after the reader's thread has ended."""
        if self._client is not None:
            self._client.close()

    # -- the part ----------------------------------------------------------------------------------------------------

    def run_once(self) -> float | None:
        now = self._parts.clock.now()
        if now < self._retry_at:
            return self._retry_at
        try:
            if self._client is None:
                self._client = self._connect()
            self._refresh_topics(now)
            self._forget_left()
            self._open_new()
            self._apply_jumps()
            self._throttle()
            paused = sum(stream.paused for stream in self._streams.values())
            reading = paused < len(self._streams)
            if reading:
                # What is paused can only be resumed between two polls.
                longest = POLL_WHILE_PAUSED if paused else MAX_POLL
                if now < self._expecting_until:
                    longest = POLL_WHILE_EXPECTING
                self._feed(self._client.poll(min(longest, self._parts.config.reader.idle_wait)))
        except BrokerUnavailableError as error:
            self._unavailable(error)
            return self._retry_at
        if self.problem is not None and self._client.reachable():
            log.info("channel %s: Kafka answers again", self._parts.name)
            self.problem = None
        if reading:
            return self._parts.clock.now()
        waiting = self._streams or self._opening or self._asking  # what is being opened waits for an answer
        return min(self._metadata_due, self._parts.clock.now() + MAX_POLL) if waiting else self._metadata_due

    def _unavailable(self, error: BrokerUnavailableError) -> None:
        self._retry_at = self._parts.clock.now() + RETRY
        if self.problem is None:
            log.warning("channel %s: %s; trying again every %s s", self._parts.name, error, RETRY)
        self.problem = str(error)

    def _refresh_topics(self, now: float) -> None:
        assert self._client is not None
        if self._asking is None and self._questions > self._answered:
            self._asking = (self._questions, self._client.ask_topics())
        answer = self._asking
        if answer is not None and answer[1]():
            self._asking = None
        else:
            answer = None
        if now < self._metadata_due and answer is None:
            return
        config = self._parts.config
        found = dict(self._client.topics(config.topics or (), config.topics_pattern))
        self._metadata_due = now + (METADATA_INTERVAL if found else RETRY)
        missing = set(config.topics or ()) - set(found)
        if missing - self._told_missing:
            log.warning(
                "channel %s: topic %s does not exist on these brokers; create it, or correct `topics`; looking again",
                self._parts.name,
                ", ".join(sorted(missing)),
            )
        self._told_missing = missing
        changed = found != self.topics or not self.topics_known
        if self.topics_known:
            self.came_later |= set(found) - set(self.topics)
        self.topics, self.topics_known = found, True
        if answer is not None:
            self._answered = answer[0]
        if changed or answer is not None:
            self._on_topics()

    # -- which partitions --------------------------------------------------------------------------------------------

    def _forget_left(self) -> None:
        left = [
            tp
            for tp, stream in self._streams.items()
            if stream.partition.place in (Place.GONE, Place.LEAVING, Place.ABANDONED)
        ]
        if left:
            assert self._client is not None
            self._client.forget(left)
            for tp in left:
                del self._streams[tp]

    def _open_new(self) -> None:
        with self._lock:
            opening, self._opening = list(self._opening), deque()
        if not opening:
            return
        try:
            self._start([p for p in opening if p.place is Place.STARTING and not self._is_read(p)])
        except Exception:
            with self._lock:  # whatever it was: they are tried again
                self._opening.extend(p for p in opening if p not in self._opening and not self._is_read(p))
            raise

    def _is_read(self, partition: Partition) -> bool:
        stream = self._streams.get(partition.tp)
        return stream is not None and stream.partition is partition

    def _start(self, opening: list[Partition]) -> None:
        known = [p for p in opening if p.committed is not None]
        for partition in known:
            partition.position = partition.committed or 0
        self._read_from_position(known)
        for partition in known:
            self._parts.schedule.start(partition)
        unknown = [p for p in opening if p.committed is None]
        ranges = self._ask_ranges([p.tp for p in unknown])
        resolved = []
        for partition in unknown:
            limits = ranges.get(partition.tp)
            if limits is None:
                with self._lock:
                    self._opening.append(partition)  # no leader at the moment, or no answer: next round
                continue
            latest = self._parts.config.auto_offset_reset == "latest" and not partition.added_later
            partition.position = limits.end if latest else limits.start
            partition.high_watermark = limits.end
            resolved.append(partition)
        self._read_from_position(resolved)
        for partition in resolved:
            # Committed before the first batch. With `latest`, a crash before the first commit would else let the
            # next owner begin at a later end, and everything between would be lost.
            self._committer.submit(Pending(partition, partition.fence, partition.position, first=True))

    def _read_from_position(self, partitions: list[Partition]) -> None:
        if not partitions:
            return
        assert self._client is not None
        self._client.read({p.tp: p.position for p in partitions})
        for partition in partitions:
            self._streams[partition.tp] = Stream(partition, partition.buffer.generation)

    def _ask_ranges(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        """Ask for the logs' limits, but not again and again while a broker does not answer: the others are read on."""
        assert self._client is not None
        now = self._parts.clock.now()
        if not partitions or now < self._ask_at:
            return {}
        try:
            return self._client.log_ranges(partitions)
        except BrokerUnavailableError as error:
            self._ask_at = now + ASK_AGAIN
            log.warning("channel %s: %s; asking again in %.0f s", self._parts.name, error, ASK_AGAIN)
            return {}

    def _apply_jumps(self) -> None:
        with self._lock:
            jumps, self._jumps = list(self._jumps), deque()
        positions = {}
        for partition in jumps:
            stream = self._streams.get(partition.tp)
            # One entry may already have brought what a second one asks for: read it twice, and records come twice.
            wanted = partition.buffer.generation
            if stream is not None and stream.partition is partition and stream.generation != wanted:
                stream.generation = wanted
                positions[partition.tp] = partition.position
        if positions:
            assert self._client is not None
            self._client.read(positions)
            for tp in positions:
                self._streams[tp].paused = False

    def _throttle(self) -> None:
        """Pause what has enough read ahead, resume what ran low.

        The bound is for the whole channel. Half of it is room to read ahead, the other half is for what fetches may still
        bring: one fetch brings at most `share` of a partition. While there is room, a busy partition may take a quarter of
        it; when it is crowded, each is held to its share. So stalled partitions never keep the others from being read, and
        all together stay within the bound, with eight partitions as with a thousand.
        """
        assert self._client is not None
        settings = self._parts.config.reader
        if not self._streams:
            return
        room = settings.prefetch_bytes // 2
        share = room // len(self._streams)
        crowded = sum(stream.partition.buffer.size for stream in self._streams.values()) >= room
        limit = share if crowded else max(share, room // 4)
        fetch_bytes = max(SMALLEST_FETCH, min(settings.batch_bytes, share))
        if fetch_bytes != self._fetch_bytes:
            self._fetch_bytes = fetch_bytes
            self._client.limit_fetches(fetch_bytes)
        pause, resume = [], []
        channel_paused = self._parts.schedule.paused
        for tp, stream in self._streams.items():
            size, held = stream.partition.buffer.size, channel_paused or stream.partition.held is not None
            if not stream.paused and (size >= limit or held):
                pause.append(tp)
            elif stream.paused and size <= limit // 2 and not held and self._may_be_read(stream.partition):
                resume.append(tp)
        for tp in pause:
            self._streams[tp].paused = True
        for tp in resume:
            self._streams[tp].paused = False
        if pause:
            self._client.pause(pause)
        if resume:
            self._client.resume(resume)

    def _may_be_read(self, partition: Partition) -> bool:
        return partition.problem is None and not self.is_another(partition)

    # -- what came ---------------------------------------------------------------------------------------------------

    def _feed(self, poll: Poll) -> None:
        ready = []
        for tp, fetched in poll.fetched.items():
            stream = self._streams.get(tp)
            if stream is None or stream.generation != stream.partition.buffer.generation:
                continue  # read for a position that is not wanted any more; the jump is in the queue
            stream.partition.high_watermark = fetched.high_watermark
            chunk = Chunk(fetched.records, fetched.next_offset, fetched.size)
            if fetched.records and stream.partition.buffer.add(chunk, stream.generation):
                ready.append(stream.partition)
        for tp, offset in poll.out_of_range.items():
            self._out_of_range(tp, offset, ready)
        for tp, error in poll.failed.items():
            stream = self._streams.get(tp)
            if stream is not None:
                if stream.partition.last_error != str(error):
                    log.warning("%s: cannot be read: %s; trying again", tp, error)
                stream.partition.last_error = str(error)
        if ready:
            self._parts.schedule.hurry(ready)

    def _out_of_range(self, tp: TopicPartition, offset: int, ready: list[Partition]) -> None:
        assert self._client is not None
        stream = self._streams.get(tp)
        if stream is None or stream.partition.problem is not None:
            return
        limits = self._ask_ranges([tp]).get(tp)
        if (
            limits is None
            or stream.generation != stream.partition.buffer.generation
            or stream.partition.fate is Fate.DROP
        ):
            return  # asked again with the next poll
        if limits.start <= offset <= limits.end:
            self._client.read({tp: offset})  # the log has grown to it meanwhile
            return
        if stream.question is None and stream.partition.topic_id is not None:
            stream.question = self.ask_topics()  # before it is called truncation: it may be another topic by now
        if stream.question is not None and not self.answered(stream.question):
            return  # comes again with the next poll
        meta = self.topics.get(tp.topic)
        stream.question = None
        if meta is None or self.is_another(stream.partition):
            stream.paused = True
            self._client.pause([tp])
            return  # the controller releases it, or claims it anew
        stream.paused = True
        self._client.pause([tp])
        stream.partition.problem = OffsetOutOfRangeError(*tp, offset, *limits)
        ready.append(stream.partition)
