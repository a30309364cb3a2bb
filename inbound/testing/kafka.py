"""A Kafka cluster in memory, and a client that reads it.

Logs have gaps, leaders, truncation and retention. Each fault is a method. Nothing here waits or has a thread.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, NamedTuple

from inbound.coordinators.nodes import canonical
from inbound.errors import BrokerUnavailableError, UnreadableBatchError
from inbound.kafka.base import NO_EPOCHS, Fetched, LogClient, LogRange, Poll, ReadTo, TopicMeta
from inbound.partition.buffer import record_size
from inbound.processors.batch import PlainRecord
from inbound.runtime.patterns import chooser
from inbound.topic_partition import TopicPartition


def _plain_id(number: int) -> str:
    return f"topic-{number}"


def _uuid(number: int) -> uuid.UUID:
    return uuid.UUID(int=0xFBEFBEFF << 96 | number)  # begins with `++++/` in base64


#: Ways to write the id of the n-th topic, as Kafka's clients do: a UUID, librdkafka's base64, and Java's.
ID_FORMS: Sequence[Callable[[int], str]] = (
    lambda number: str(_uuid(number)),
    lambda number: base64.b64encode(_uuid(number).bytes).decode().rstrip("="),
    lambda number: base64.urlsafe_b64encode(_uuid(number).bytes).decode().rstrip("="),
)


@dataclass
class _Log:
    records: list[PlainRecord] = field(default_factory=list)
    start: int = 0
    end: int = 0
    led: bool = True  # has a leader that answers
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])  # each leader epoch and its start offset
    batches: dict[range, int] = field(default_factory=dict)  # offsets of compressed ones, and their decompressed size

    def elect(self) -> None:
        """Start a new leader epoch at the log's end."""
        epoch = self.epochs[-1][0] + 1
        self.epochs = [*((e, start) for e, start in self.epochs if start < self.end), (epoch, self.end)]

    def end_of(self, epoch: int) -> int | None:
        """Return the end offset of `epoch`; None if the epoch is unknown."""
        if epoch >= self.epochs[-1][0]:
            return self.end if epoch == self.epochs[-1][0] else None
        return next(start for later, start in self.epochs if later > epoch)

    def epoch_of(self, offset: int) -> int | None:
        """Return the leader epoch that wrote an offset; None before the first."""
        return next((epoch for epoch, start in reversed(self.epochs) if start <= offset), None)


_NO_LOG = _Log()


class ClientError(Exception):
    """A client's unexpected error; `inbound.runtime.driver` retries after a second."""


class DivergedError(Exception):
    """The log was truncated below the position; it matches up to `end`."""

    def __init__(self, end: int) -> None:
        super().__init__(end)
        self.end = end


class Gone(NamedTuple):
    """Records that have left a log."""

    tp: TopicPartition
    why: Literal["retention", "cut", "deleted"]
    records: Sequence[PlainRecord]
    end: int  # the new log end


class FakeKafka:
    """Topics and their logs, and the verbs that change them."""

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, _Log] = {}
        self._topics: dict[str, tuple[int, int]] = {}  # partition count, and number in order of creation
        self._created = 0
        self.tells_epochs = True  # whether brokers report the leader epoch of records
        #: How clients write topic ids: each new client takes the next form.
        self.id_forms: Sequence[Callable[[int], str]] = (_plain_id,)
        self.is_up = True
        #: Every client that was made, in order.
        self.clients: list[FakeLogClient] = []
        #: Turns a published record into the one that the log stores.
        self.stamp: Callable[[TopicPartition, PlainRecord], PlainRecord] = lambda tp, record: record
        #: Called with records that leave a log.
        self.observers: list[Callable[[Gone], None]] = []

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic, or add partitions to it."""
        if name not in self._topics:
            self._created += 1
        self._topics[name] = partitions, self._topics.get(name, (0, self._created))[1]
        for number in range(partitions):
            self._logs.setdefault(TopicPartition(name, number), _Log())

    def id_of(self, name: str, form: int) -> str:
        """Return a topic's id as one of `ID_FORMS` writes it."""
        return ID_FORMS[form % len(ID_FORMS)](self._topics[name][1])

    def names(self, name: str, topic_id: str | None) -> bool:
        """Return whether the current topic has this id, in any form."""
        return name in self._topics and any(self.id_of(name, form) == topic_id for form in range(len(ID_FORMS)))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its logs; a recreated topic has another id."""
        del self._topics[name]
        for tp in [tp for tp in self._logs if tp.topic == name]:
            self._gone(Gone(tp, "deleted", self._logs.pop(tp).records, 0))

    def publish(
        self,
        topic: str,
        partition: int,
        values: Iterable[bytes | None],
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp: int = 0,
    ) -> range:
        """Append records and return their offsets."""
        log = self._logs[TopicPartition(topic, partition)]
        first = log.end
        for value in values:
            record = PlainRecord(log.end, timestamp, key, value, headers)
            log.records.append(self.stamp(TopicPartition(topic, partition), record))
            log.end += 1
        return range(first, log.end)

    def publish_batch(self, topic: str, partition: int, values: Sequence[bytes], becomes: int) -> range:
        """Append a 1000-byte batch that decompresses to `becomes` bytes; return its offsets."""
        offsets = self.publish(topic, partition, values)
        self._logs[TopicPartition(topic, partition)].batches[offsets] = becomes
        return offsets

    def skip(self, topic: str, partition: int, count: int) -> None:
        """Let `count` offsets hold no record, as transaction markers and compaction do."""
        self._logs[TopicPartition(topic, partition)].end += count

    def retain(self, topic: str, partition: int, start: int) -> None:
        """Delete everything before offset `start`."""
        log = self._logs[TopicPartition(topic, partition)]
        log.start = max(log.start, start)
        gone = [record for record in log.records if record.offset < start]
        log.records = log.records[len(gone) :]
        first = log.epoch_of(log.start)
        log.epochs = [(epoch, max(begun, log.start)) for epoch, begun in log.epochs if first is None or epoch >= first]
        self._gone(Gone(TopicPartition(topic, partition), "retention", gone, log.end))

    def truncate(self, topic: str, partition: int, end: int) -> None:
        """Truncate the log to `end`, as an unclean leader election does.

        The next record gets that offset.
        """
        log = self._logs[TopicPartition(topic, partition)]
        log.end = min(log.end, max(end, log.start))
        gone = [record for record in log.records if record.offset >= end]
        log.records = log.records[: len(log.records) - len(gone)]
        log.batches = {one: size for one, size in log.batches.items() if one.stop <= log.end}
        log.elect()
        self._gone(Gone(TopicPartition(topic, partition), "cut", gone, log.end))

    def _gone(self, gone: Gone) -> None:
        for observer in self.observers:
            observer(gone)

    def offsets(self, topic: str, partition: int) -> list[int]:
        """Return the record offsets in order; empty for an unknown partition."""
        return [record.offset for record in self.records(TopicPartition(topic, partition))]

    def records(self, tp: TopicPartition) -> Sequence[PlainRecord]:
        """Return the log's records; empty for an unknown partition."""
        return self._logs.get(tp, _NO_LOG).records

    def start(self, tp: TopicPartition) -> int:
        """Return the log start offset; 0 for an unknown partition."""
        return self._logs.get(tp, _NO_LOG).start

    def end(self, tp: TopicPartition) -> int:
        """Return the log end offset; 0 for an unknown partition."""
        return self._logs.get(tp, _NO_LOG).end

    def holds(self, tp: TopicPartition, record: object) -> bool:
        """Return whether the log holds this very record object."""
        return any(one is record for one in self.records(tp))

    def lose_leader(self, topic: str, partition: int) -> None:
        """Take a partition's leader away; it no longer answers."""
        self._logs[TopicPartition(topic, partition)].led = False

    def elect_leader(self, topic: str, partition: int) -> None:
        """Elect another leader, which has the whole log."""
        log = self._logs[TopicPartition(topic, partition)]
        log.led = True
        log.elect()

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Return the current leader epoch of a partition."""
        return self._logs[TopicPartition(topic, partition)].epochs[-1][0]

    def cut_below(self, tp: TopicPartition, offset: int, leader_epoch: int) -> int | None:
        """Return where a log was truncated below what a leader wrote.

        The leader of `leader_epoch` wrote up to `offset`. 0: the broker cannot tell. None: the log was not truncated.
        """
        log = self._logs.get(tp)
        if log is None or not self.tells_epochs:
            return None
        end = log.end_of(leader_epoch)
        return None if end is not None and end >= offset else end or 0

    def down(self) -> None:
        """Let no broker answer."""
        self.is_up = False

    def up(self) -> None:
        """Let all brokers answer again."""
        self.is_up = True

    def client(self, *, max_poll_records: int = 1000) -> FakeLogClient:
        """Return a new client; raise BrokerUnavailableError if the brokers are down."""
        self.check_up()
        id_form = self.id_forms[len(self.clients) % len(self.id_forms)]
        self.clients.append(FakeLogClient(self, max_poll_records, id_form))
        return self.clients[-1]

    # -- the client's side -------------------------------------------------------------------------------------------

    def check_up(self) -> None:
        if not self.is_up:
            raise BrokerUnavailableError("Kafka (fake) does not answer: it is down")

    def topics(self, id_form: Callable[[int], str] | None = None) -> Mapping[str, TopicMeta]:
        write = id_form or self.id_forms[0]
        return {name: TopicMeta(count, canonical(write(number))) for name, (count, number) in self._topics.items()}

    def log_range(self, tp: TopicPartition) -> LogRange | None:
        log = self._answering(tp)
        return LogRange(log.start, log.end) if log is not None else None

    def offset_at(self, tp: TopicPartition, time_ms: int) -> int | None:
        """Return the first offset at `time_ms` or later; None without one.

        Raises BrokerUnavailableError: no leader answers.
        """
        log = self._answering(tp)
        if log is None:
            raise BrokerUnavailableError(f"Kafka (fake): the leader of {tp.topic}/{tp.partition} does not answer")
        return next((record.offset for record in log.records if record.timestamp >= time_ms), None)

    def fetch(
        self,
        tp: TopicPartition,
        position: int,
        limit: int,
        max_bytes: int,
        leader_epoch: int | None = None,
        max_decompressed_bytes: int = 64 * 1024 * 1024,
    ) -> Fetched | None:
        """Return a fetch from `position`; None if no leader answers.

        It has at most `limit` records and `max_bytes`, but at least one record.

        Raises:
            LookupError: the position is out of range.
            DivergedError: the log of `leader_epoch` ends before the position.
            UnreadableBatchError: the next batch exceeds `max_decompressed_bytes`.
        """
        log = self._answering(tp)
        if log is None:
            return None
        if leader_epoch is not None and self.tells_epochs and position >= log.start:
            end = log.end_of(leader_epoch)
            if end is None:
                raise LookupError(position)
            if end < position:
                raise DivergedError(end)
        if not log.start <= position <= log.end:
            raise LookupError(position)
        large = [one for one, size in log.batches.items() if one.stop > position and size > max_decompressed_bytes]
        stop = large[0].start if large else log.end
        if stop <= position < log.end:
            raise UnreadableBatchError.too_large(*tp, stop, large[0].stop, 1000, max_decompressed_bytes)
        waiting = [r for r in log.records if position <= r.offset < stop]
        sizes = accumulate(map(record_size, waiting[:limit]))
        records: Sequence[PlainRecord] = waiting[: max(1, sum(size <= max_bytes for size in sizes))]
        next_offset = records[-1].offset + 1 if len(records) < len(waiting) else stop
        passed = next_offset > position  # markers and aborted records have a leader epoch, too
        told = log.epoch_of(next_offset - 1) if self.tells_epochs and passed else None
        return Fetched(list(records), next_offset, sum(map(record_size, records)), log.end, told)

    def _answering(self, tp: TopicPartition) -> _Log | None:
        log = self._logs.get(tp)
        return log if log is not None and log.led and self.is_up else None


class FakeLogClient(LogClient):
    """A client of `FakeKafka`; partitions take turns at being polled first."""

    def __init__(self, kafka: FakeKafka, max_poll_records: int, id_form: Callable[[int], str] = _plain_id) -> None:
        self._kafka = kafka
        self._max = max_poll_records
        self.max_decompressed_bytes = 64 * 1024 * 1024
        self._id_form = id_form
        self.positions: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}  # the leader epoch of the record before each position
        self._outside: dict[TopicPartition, Exception] = {}  # fetch errors; no fetch before the next `read`
        self.paused: set[TopicPartition] = set()
        self.closed = False
        self.brought = False  # whether the last poll brought anything
        self._fetch_bytes = 1024 * 1024
        self.put_aside = 0  # bytes that count as fetched and not returned
        self._reachable = True
        self._remembered: Mapping[str, TopicMeta] | None = None
        self._behind = False
        self.questions = 0
        self._failures: dict[str, list[Exception]] = {}

    @property
    def aside_bytes(self) -> int:
        return self.put_aside

    def fail_next(self, verb: str, error: Exception) -> None:
        """Queue an error for the next `read`, `forget`, `pause` or `resume`.

        That call raises it and does nothing.
        """
        self._failures.setdefault(verb, []).append(error)

    def work_again(self) -> None:
        """Clear the errors that `fail_next` queued."""
        self._failures.clear()

    def _fail_if_asked(self, verb: str) -> None:
        if self._failures.get(verb):
            raise self._failures[verb].pop(0)

    def remember_topics(self, *, behind: bool = False) -> None:
        """Report the current topics until `ask_topics`; with `behind`, after it too."""
        self._remembered, self._behind = self._kafka.topics(self._id_form), behind

    def forget_topics(self) -> None:
        """Report the topics as they are again."""
        self._remembered = None

    def topics(self, names: Collection[str], pattern: str | None) -> Mapping[str, TopicMeta]:
        self._reachable = self._kafka.is_up
        self._kafka.check_up()
        wanted = chooser(names, pattern)
        known = self._kafka.topics(self._id_form) if self._remembered is None else self._remembered
        return {name: meta for name, meta in known.items() if wanted(name)}

    def ask_topics(self) -> Callable[[], bool]:
        self.questions += 1
        if not self._behind:
            self._remembered = None
        return lambda: self._kafka.is_up

    def reachable(self) -> bool:
        return self._reachable

    def cuts(
        self, read: Mapping[TopicPartition, ReadTo], seconds: float
    ) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
        """Return where logs were truncated below `read`, and partitions without a leader."""
        silent = {tp for tp in read if self._kafka.log_range(tp) is None}
        ends = {tp: self._kafka.cut_below(tp, *to) for tp, to in read.items() if tp not in silent}
        return {tp: end for tp, end in ends.items() if end is not None}, silent

    def log_ranges(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        return {tp: limits for tp in partitions if (limits := self._kafka.log_range(tp)) is not None}

    def offsets_at(self, partitions: Collection[TopicPartition], time_ms: int) -> Mapping[TopicPartition, int | None]:
        return {tp: self._kafka.offset_at(tp, time_ms) for tp in partitions}

    def peek(
        self, partitions: Collection[TopicPartition], wake: Callable[[], None]
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        ranges = self.log_ranges(partitions)
        return {tp: (self.positions[tp], limits.end) for tp, limits in ranges.items() if tp in self.positions}

    def unled(self) -> Collection[TopicPartition]:
        return [tp for tp in self.positions if self._kafka.log_range(tp) is None]

    def read(
        self, positions: Mapping[TopicPartition, int], leader_epochs: Mapping[TopicPartition, int] = NO_EPOCHS
    ) -> None:
        self._fail_if_asked("read")
        self.positions.update(positions)
        self.paused -= set(positions)
        for tp in positions:
            self._outside.pop(tp, None)
            self._epochs.pop(tp, None)
        self._epochs.update(leader_epochs)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        self._fail_if_asked("forget")
        for tp in partitions:
            del self.positions[tp]
            self.paused.discard(tp)
            self._outside.pop(tp, None)
            self._epochs.pop(tp, None)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._check_read(partitions)
        self._fail_if_asked("pause")
        self.paused |= set(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        self._check_read(partitions)
        self._fail_if_asked("resume")
        self.paused -= set(partitions)

    def _check_read(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            if tp not in self.positions:
                raise KeyError(tp)

    def limit_fetches(self, partition_bytes: int) -> None:
        self._fetch_bytes = partition_bytes

    def poll(self, seconds: float, wake: Callable[[], None] | None = None) -> Poll:
        self.brought = False
        result = Poll()
        left = self._max
        for tp in list(self.positions):
            if tp in self.paused or left <= 0:
                continue
            fetched = self._fetch(tp, left, result)
            if fetched is None:
                continue
            del self.positions[tp]
            self.positions[tp] = fetched.next_offset  # last in line for the next poll
            if fetched.leader_epoch is not None:
                self._epochs[tp] = fetched.leader_epoch
            if not fetched.records:  # at the end, or only offsets without a record up to there
                continue
            result.fetched[tp] = fetched
            self._reachable = self.brought = True
            left -= len(fetched.records)
        return result

    def _fetch(self, tp: TopicPartition, limit: int, result: Poll) -> Fetched | None:
        if tp not in self._outside:
            position, epoch = self.positions[tp], self._epochs.get(tp)
            try:
                most = self.max_decompressed_bytes
                return self._kafka.fetch(tp, position, limit, self._fetch_bytes, epoch, most)
            except (LookupError, DivergedError, UnreadableBatchError) as error:
                self._outside[tp] = error
        why = self._outside[tp]
        if isinstance(why, UnreadableBatchError):
            result.unreadable[tp] = why
        elif isinstance(why, DivergedError):
            result.diverged[tp] = why.end
        else:
            result.out_of_range[tp] = self.positions[tp]
        return None

    def close(self) -> None:
        self.closed = True
