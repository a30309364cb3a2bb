"""Reads all of a channel's partitions with one client.

One thread at a time uses it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping

from inbound.channel.commit import Pending
from inbound.channel.parts import Parts
from inbound.channel.streams import Outside, Stream, Throttle, Watching
from inbound.errors import BrokerUnavailableError, OffsetOutOfRangeError
from inbound.kafka.base import BrokerFigures, LogClient, LogRange, Poll, ReadTo, read_to
from inbound.partition.buffer import Chunk
from inbound.partition.partition import Fate, Partition, Place
from inbound.partition.topics import Topics
from inbound.topic_partition import TopicPartition

#: The longest poll in seconds, as a newly claimed partition waits for its end.
MAX_POLL = 0.1
POLL_WHILE_PAUSED = 0.025
#: Seconds for which polls are shorter while partitions are being claimed, to read these at once, and their length.
EXPECTING, POLL_WHILE_EXPECTING = 1.0, 0.02
#: Seconds until silent brokers are asked again.
ASK_AGAIN = 1.0
RETRY = 0.5
#: Seconds between looks at the partitions while records come: which are gone, which have full buffers. A command, or a
#: partition with records in its buffer already, is looked at with the next poll.
LOOK = 0.01
#: Seconds without records after which the client is left alone until it wakes us, or for the longer time.
IDLE_AFTER, IDLE_LOOK = 1.0, 2.0


class Reader:
    """Fills the partitions' buffers. The leader steps it (see `inbound.partition.leader`)."""

    def __init__(self, parts: Parts, connect: Callable[[], LogClient], on_topics: Callable[[], None]) -> None:
        """`on_topics` is called when the brokers' list of topics changes."""
        self._parts = parts
        self._clock = parts.clock
        self._schedule = parts.schedule
        self._connect = connect
        self._client: LogClient | None = None
        self.topics = Topics(parts.settings, parts.journal, self._command, on_topics, parts.ledger_notes.ledger.topic)
        self._lock = threading.Lock()
        self._opening: deque[Partition] = deque()
        self._jumps: deque[Partition] = deque()
        self._streams: dict[TopicPartition, Stream] = {}
        self._retry_at = 0.0
        self._look_at = 0.0
        self._look_soon = True  # a command has come, or a buffer may be full
        self._some_outside = False  # some positions outside the log are not judged yet
        self._reading = False  # whether a partition is fetched
        self._ask_at = 0.0
        self._throttle = Throttle(parts.settings, parts.schedule)
        self._expecting_until = 0.0
        self.some_paused = False  # whether partitions wait for room in their buffers
        self._active_at = 0.0  # when records last came, or were asked for
        self.watching = Watching()
        self.problem: str | None = None  # why Kafka cannot be read; None while it can
        self._other: Callable[[], LogClient] | None = None  # makes the client that replaces this one
        self._read_on = self._reconnected = False  # positions must be set again; because the client is new

    # -- called by others --------------------------------------------------------------------------------------------

    def expect(self) -> None:
        """Poll shortly for a while: partitions are about to be claimed."""
        self._expecting_until = self._clock.now() + EXPECTING

    def open(self, partition: Partition) -> None:
        """Begin to read a claimed partition.

        A processor that gives starts is asked for its start first.
        """
        if self._parts.service.gives_starts and not partition.position.placed:
            partition.position.delivered = partition.committed or 0
            self._schedule.start(partition)  # to a worker, and from there to here again
            return
        with self._lock:
            self._expecting_until = 0.0
            self._opening.append(partition)
        self._command()

    def jump(self, partition: Partition) -> None:
        """Read on from `partition.position`; its buffer has jumped."""
        with self._lock:
            self._jumps.append(partition)
        self._command()

    def reconnect(self, connect: Callable[[], LogClient]) -> None:
        """Read on with another client; partitions and buffers stay. Any thread."""
        with self._lock:
            self._other = connect
        self._command()

    @property
    def trouble(self) -> str | None:
        """The newest client's problem; None: records come. Any thread."""
        if self._client is None or self._other is not None or not self.topics.known:
            return self.problem or "not connected to Kafka yet"
        return self.problem

    def _command(self) -> None:
        self._look_soon = True
        self._schedule.read_soon()

    def taken(self, partition: Partition) -> None:
        """Look for room after records left a buffer. Any thread.

        Small batches do not wake the reader each time.
        """
        bound = self._throttle.resumes_at
        if self.some_paused and partition.buffer.size <= bound:
            stream = self._streams.get(partition.tp)
            if stream is None or stream.paused or bound == float("inf"):
                self._schedule.read_soon()

    def stream_of(self, partition: Partition) -> Stream | None:
        """Return a partition's stream, read-only; None: not read. Any thread."""
        stream = self._streams.get(partition.tp)
        return stream if stream is not None and stream.partition is partition else None

    @property
    def read_ahead(self) -> int:
        """Bytes that are read ahead, before the last turn's poll. Any thread."""
        return self._throttle.read_ahead

    def brokers(self) -> list[BrokerFigures]:
        """Return the client's measurements of its requests, by broker. Any thread."""
        return list(client.figures()) if (client := self._client) is not None else []

    def close(self) -> None:
        """Close the client; after the polling thread has ended."""
        if self._client is not None:
            self._client.close()

    # -- the part ----------------------------------------------------------------------------------------------------

    def run_once(self, seconds: float = MAX_POLL) -> float | None:
        """Read for at most so many seconds. Returns when to read again."""
        now = self._clock.now()
        if self._other is not None:
            self._let_go()
        if now < self._retry_at:
            return self._retry_at
        left_alone = False
        try:
            if self._look_soon or now >= self._look_at or self.some_paused or self._client is None:
                self._look_around(now)
            if self._reading:
                left_alone = self._poll(now, seconds)
            if self._some_outside:
                self._judge_outside()
        except BrokerUnavailableError as error:
            self._retry_at = self._clock.now() + RETRY
            if self.problem is None:
                self._parts.journal.note("broker-away", f"{error}; trying again every {RETRY} s", level=logging.WARNING)
            self.problem = str(error)
            return self._retry_at
        if self.problem is not None and self._client is not None and self._client.reachable():
            self._parts.journal.note("broker-back", "Kafka answers again")
            self.problem = None
        if self._reading:
            asking = self._opening or self.topics.asking
            longest = POLL_WHILE_EXPECTING if asking else MAX_POLL if self.some_paused else IDLE_LOOK
            return min(self.topics.due, now + longest) if left_alone else self._clock.now()
        waiting = self._streams or self._opening or self.topics.asking  # what is being opened waits for an answer
        return min(self.topics.due, self._clock.now() + MAX_POLL) if waiting else self.topics.due

    def _look_around(self, now: float) -> None:
        """Refresh topics, streams and back-pressure between two polls."""
        self._look_soon = False
        try:
            if self._client is None:
                self._client = self._connect()
            self.topics.refresh(self._client, now)
            if self._read_on:
                self._go_on()
            self._forget(self._left())
            self._open_new()
            self._apply_jumps()
            self._throttle.apply(self._client, self._streams, self._may_be_read)
            self.watching.look(self._client, self._streams, now, self._schedule.read_soon)
            paused = sum(stream.paused for stream in self._streams.values())
            self.some_paused, self._reading = bool(paused), paused < len(self._streams)
            self.watching.look_at_ends(self._streams, now, self._ask_ranges)
        except BaseException:
            self._look_soon = True
            raise
        self._look_at = now + LOOK

    def _let_go(self) -> None:
        """Close the client. The next one reads on where it was."""
        with self._lock:
            connect, self._other = self._other, None
        assert connect is not None
        client, self._client = self._client, None
        self._connect = connect
        self._read_on = self._reconnected = bool(self._streams)
        self._retry_at = 0.0
        self.topics.restart()
        self._throttle.another_client()
        if client is not None:
            client.close()  # at the end: it may raise

    def _go_on(self) -> None:
        assert self._client is not None
        if not self._reconnected:
            self._forget(self._left())
        for tp in self._left():  # a new client does not know them
            del self._streams[tp]
        self._read({tp: (stream.partition, stream.next_offset) for tp, stream in self._streams.items()})
        self._client.pause([tp for tp, stream in self._streams.items() if stream.paused])
        if self._reconnected:
            self._parts.journal.note("reconnected", "Kafka is read with the new settings; partitions stay")
        self._read_on = self._reconnected = False

    def _poll(self, now: float, seconds: float) -> bool:
        """Take in fetched records. Returns whether the client wakes us for more."""
        assert self._client is not None
        asking = self.some_paused or self._opening or self.topics.asking
        idle = self._client.pushes or (self._client.wakes and not asking and now >= self._active_at + IDLE_AFTER)
        # A paused partition can only be resumed between two polls.
        longest = POLL_WHILE_PAUSED if self.some_paused else MAX_POLL
        if now < self._expecting_until:
            longest = POLL_WHILE_EXPECTING
        wait, wake = min(longest, seconds, self._parts.settings.now.reader.idle_wait), self._schedule.read_soon
        try:
            polled = self._client.poll(0.0, wake) if idle else self._client.poll(wait)
        except BaseException as error:  # other than BrokerUnavailableError, a defect: records in hand are lost
            self._read_on |= not isinstance(error, BrokerUnavailableError)
            self._look_soon = True
            raise
        told = polled.fetched or polled.out_of_range or polled.diverged or polled.failed
        if told or (idle and not polled.will_wake):
            self._active_at = self._clock.now()
        self._feed(polled)
        self.watching.look_at_leaders(self._client, now)
        return polled.will_wake

    # -- which partitions --------------------------------------------------------------------------------------------

    def _left(self) -> list[TopicPartition]:
        gone = (Place.GONE, Place.LEAVING, Place.ABANDONED)
        return [tp for tp, stream in self._streams.items() if stream.partition.place in gone]

    def _forget(self, partitions: list[TopicPartition]) -> None:
        if partitions:
            assert self._client is not None
            self._client.forget(partitions)
            for tp in partitions:
                del self._streams[tp]

    def _open_new(self) -> None:
        with self._lock:
            opening, self._opening = list(self._opening), deque()
        if not opening:
            return
        try:
            again = [p for p in opening if p.reopened]
            self._forget([p.tp for p in again if self._is_read(p)])
            for partition in again:
                partition.reopened = False
            self._start([p for p in opening if p.place is Place.STARTING and not self._is_read(p)])
        except Exception:
            with self._lock:  # after any error they are tried again
                kept = [p for p in opening if p.reopened or not self._is_read(p)]
                self._opening.extend(p for p in kept if p not in self._opening)
            raise

    def _is_read(self, partition: Partition) -> bool:
        stream = self._streams.get(partition.tp)
        return stream is not None and stream.partition is partition

    def _start(self, opening: list[Partition]) -> None:
        known: list[Partition] = []
        unknown: list[Partition] = []
        for partition in opening:
            given = partition.position.given_start
            as_committed = partition.committed is not None and given in (None, partition.committed)
            (known if as_committed else unknown).append(partition)
        for partition in known:
            partition.position.delivered, partition.position.given_start = partition.committed or 0, None
        self._read_from_position(known)
        for partition in known:
            self._schedule.start(partition)
        ranges = self._ask_ranges([p.tp for p in unknown])
        resolved = []
        for partition in unknown:
            limits = ranges.get(partition.tp)
            if limits is None:
                with self._lock:
                    self._opening.append(partition)  # no leader at the moment, or no answer: next round
                continue
            partition.position.high_watermark = limits.end
            if partition.position.given_start is not None:
                partition.position.delivered = partition.position.given_start
            else:
                from_start = partition.added_later or partition.tp.topic in self._parts.service.own_topics
                latest = self._parts.settings.now.auto_offset_reset == "latest" and not from_start
                partition.position.delivered = limits.end if latest else limits.start
            resolved.append(partition)
        self._read_from_position(resolved)
        outside = []
        for partition in resolved:
            limits = ranges[partition.tp]
            if (given := partition.position.given_start) is not None:
                tp, epoch, committed = partition.tp, partition.fence.epoch, partition.committed
                text = f"on_claim begins at offset {given}; the group's commit is {committed}"
                self._parts.journal.note("jumped", text, tp, offset=given, epoch=epoch)
                self._parts.ledger_notes.note("reset", tp, epoch, old=committed, new=given, reason="on_claim")
            if not limits.start <= partition.position.delivered <= limits.end:
                self._schedule.start(partition)  # not committed: the worker will be told why
                outside.append(partition)
                continue
            partition.position.given_start = None
            if partition.position.delivered == limits.start and partition.info is not None:
                # Nothing is before it: the epoch node's note of that need not be written again.
                partition.position.read = read_to(partition.position.delivered, partition.info.leader_epoch)
            # Committed before the first batch. With `latest`, a crash before the first commit would else let the
            # next owner begin at a later end, and everything between would be lost.
            mark = self._schedule.advance(partition, partition.position.delivered)
            if mark is not None:
                self._parts.committer.submit(Pending(self._parts, partition, mark, first=True))
        for partition in outside:  # at the end, as the client may raise: it tells of these with the next poll, too
            self._set_outside(partition.tp, Outside(partition.position.delivered))

    def _read_from_position(self, partitions: list[Partition]) -> None:
        if not partitions:
            return
        self._read({p.tp: (p, p.position.delivered) for p in partitions})
        for partition in partitions:
            partition.position.go_back(partition.position.delivered)  # another processor may begin further back
            generation = partition.buffer.generation
            self._streams[partition.tp] = Stream(partition, generation, next_offset=partition.position.delivered)

    def _read(self, wanted: Mapping[TopicPartition, tuple[Partition, int]]) -> None:
        """Have the client read partitions from these positions, and compare leader epochs."""
        assert self._client is not None
        self._active_at = self._clock.now()
        # Also where a processor goes on beyond the records read, as the log may have been cut before that: see `_diverged`.
        self._client.read(
            {tp: position for tp, (_, position) in wanted.items()},
            {tp: p.position.read.leader_epoch for tp, (p, _) in wanted.items() if p.position.read is not None},
        )

    def _ask_ranges(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        """Ask for the logs' limits, silent brokers at most once a second."""
        assert self._client is not None
        now = self._clock.now()
        if not partitions or now < self._ask_at:
            return {}
        try:
            return self._client.log_ranges(partitions)
        except BrokerUnavailableError as error:
            self._ask_at = now + ASK_AGAIN
            text = f"{error}; asking again in {ASK_AGAIN:.0f} s"
            self._parts.journal.note("broker-silent", text, level=logging.WARNING)
            return {}

    def _apply_jumps(self) -> None:
        """Read on at new positions; a jump stays queued until taken."""
        with self._lock:
            jumps = list(self._jumps)
        if not jumps:
            return
        wanted: dict[TopicPartition, tuple[Partition, int]] = {}
        generations: dict[TopicPartition, int] = {}
        for partition in jumps:
            stream = self._streams.get(partition.tp)
            # One entry may already have brought the records of a second one: read again, they would come twice.
            generation = partition.buffer.generation
            if stream is not None and stream.partition is partition and stream.generation != generation:
                wanted[partition.tp], generations[partition.tp] = (partition, partition.position.delivered), generation
        if wanted:
            self._read(wanted)
        for tp, (_, position) in wanted.items():
            stream = self._streams[tp]
            stream.generation, stream.next_offset, stream.paused = generations[tp], position, False
            stream.broken = 0
            stream.outside = stream.question = None
        with self._lock:
            for _ in jumps:
                self._jumps.popleft()

    def _may_be_read(self, stream: Stream) -> bool:
        return (
            stream.outside is None and stream.partition.problem is None and not self.topics.is_another(stream.partition)
        )

    # -- fetched records ---------------------------------------------------------------------------------------------

    def _feed(self, poll: Poll) -> None:
        ready, again = [], dict[TopicPartition, tuple[Partition, int]]()
        now = self._clock.now()
        for tp, fetched in poll.fetched.items():
            stream = self._streams.get(tp)
            if stream is None or stream.generation != stream.partition.buffer.generation:
                continue  # read for an outdated position; the jump is in the queue
            partition = stream.partition
            partition.position.high_watermark, stream.heard_at = fetched.high_watermark, now
            partition.stall.read_error = None
            stream.next_offset, stream.broken = fetched.next_offset, 0
            if fetched.leader_epoch is not None:
                partition.position.read = ReadTo(fetched.next_offset, fetched.leader_epoch)
            if fetched.records:
                chunk = Chunk(fetched.records, fetched.next_offset, fetched.size)
                if partition.buffer.add(chunk, stream.generation):
                    ready.append(partition)
                    self._look_soon |= partition.buffer.size > fetched.size  # earlier records are not delivered yet
        for tp, unreadable in poll.unreadable.items():
            stream = self._streams.get(tp)
            # The next client may read it, perhaps with other bounds.
            if self._other is not None or stream is None or stream.generation != stream.partition.buffer.generation:
                continue
            if stream.is_to_be_fetched_again(unreadable, self._parts.journal):
                again[tp] = (stream.partition, stream.next_offset)
                continue
            stream.partition.problem_of, stream.partition.problem = stream.generation, unreadable
            ready.append(stream.partition)
        for tp, error in poll.failed.items():
            if (stream := self._streams.get(tp)) is not None:
                stream.fails(error, self._parts.journal)
        if ready:  # before calls of the client, which may raise: no other code makes them due
            self._schedule.feed(ready)
        for tp, offset in poll.out_of_range.items():
            self._set_outside(tp, Outside(offset))
        for tp, end in poll.diverged.items():
            self._diverged(tp, end)
        if again:
            self._read(again)

    # -- positions outside the log -----------------------------------------------------------------------------------

    def _diverged(self, tp: TopicPartition, end: int | None) -> None:
        """Judge a position that a known leader's records do not reach.

        The log was cut there, or another leader has written the records that were passed over since.
        """
        stream = self._streams.get(tp)
        if stream is None:
            return
        read, position = stream.partition.position.read, stream.next_offset
        if read is not None and read.offset < position and (end is None or read.offset <= end):
            assert self._client is not None
            self._client.read({tp: position})
        else:
            self._set_outside(tp, Outside(position, end))

    def _set_outside(self, tp: TopicPartition, outside: Outside) -> None:
        """Pause a partition until the reader knows what happened to its log."""
        stream = self._streams.get(tp)
        if stream is None or stream.partition.problem is not None:
            return
        assert self._client is not None
        self._client.pause([tp])
        stream.paused, stream.outside = True, outside
        self._look_soon = self._some_outside = True

    def _judge_outside(self) -> None:
        """Find out whether logs were recreated, shortened by retention, or cut.

        The worker acts on it. A log that holds the position may still have been cut, and have grown again.
        """
        found = {tp: stream for tp, stream in self._streams.items() if stream.outside is not None}
        same = {tp: stream for tp, stream in found.items() if stream.is_same_topic(self.topics)}
        ranges = self._ask_ranges(list(same)) if same else {}
        ready = []
        for tp, limits in ranges.items():
            stream = same[tp]
            outside, partition = stream.outside, stream.partition
            assert outside is not None
            if stream.generation != partition.buffer.generation or partition.fate is Fate.DROP:
                continue  # the jump is in the queue; or it is forgotten soon
            stream.outside = stream.question = None
            partition.problem_of = stream.generation
            partition.problem = OffsetOutOfRangeError(*tp, outside.offset, *limits, cut=outside.cut)
            ready.append(partition)
        if ready:
            self._schedule.hurry(ready)
        self._some_outside = any(stream.outside is not None for stream in found.values())
