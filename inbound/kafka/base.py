"""The interface of a channel's Kafka client, and its values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from inbound.errors import UnreadableBatchError
from inbound.processors.batch import Record
from inbound.topic_partition import TopicPartition

#: No leader epoch is known.
NO_EPOCHS: Mapping[TopicPartition, int] = MappingProxyType({})


class TopicMeta(NamedTuple):
    """A topic as the brokers describe it."""

    partitions: int
    topic_id: str | None = None  # as `inbound.coordinators.nodes.canonical` writes it; None: the brokers name none


class LogRange(NamedTuple):
    """The offsets of a partition's log, from `start` up to `end`, exclusive."""

    start: int
    end: int


class ReadTo(NamedTuple):
    """Where reading of a log ended, and the leader epoch there.

    With the epoch a client can tell that a log was cut before `offset` (see `LogClient.read`).
    """

    offset: int
    leader_epoch: int


def read_to(offset: int | None, leader_epoch: int | None) -> ReadTo | None:
    """Return both as one value; None if one is unknown."""
    return None if offset is None or leader_epoch is None else ReadTo(offset, leader_epoch)


class Fetched(NamedTuple):
    """Consecutive records of one partition."""

    records: Sequence[Record]
    next_offset: int  # where the client reads on; may be beyond the last record + 1
    size: int  # decoded bytes
    high_watermark: int | None
    leader_epoch: int | None = None  # of the offset before `next_offset`; None: unknown


@dataclass
class Poll:
    """The result of one poll."""

    fetched: dict[TopicPartition, Fetched] = field(default_factory=dict)
    #: Partitions whose position is not in the log (any more), and the position.
    out_of_range: dict[TopicPartition, int] = field(default_factory=dict)
    #: Partitions whose log was cut below the position, and the offset from which on it holds other records than were read;
    #: None: the brokers cannot tell. It may have grown past the position again.
    diverged: dict[TopicPartition, int | None] = field(default_factory=dict)
    #: Partitions that failed for another reason; the client tries them again.
    failed: dict[TopicPartition, Exception] = field(default_factory=dict)
    #: Partitions whose next batch cannot be decoded; the client fetches them only after another `read`.
    unreadable: dict[TopicPartition, UnreadableBatchError] = field(default_factory=dict)
    #: The client will call the given `wake` when there is something to poll for.
    will_wake: bool = False


class LogClient(ABC):
    """A Kafka client for one channel, without consumer group or commits.

    One thread uses it at a time. Every method may raise BrokerUnavailableError; the caller tries again later.
    """

    #: Decoded bytes that the client holds of its own, beyond what one poll and `limit_fetches` account for.
    held_bytes: int = 0
    #: About how many bytes a record takes in memory beyond its key, value and headers.
    record_bytes: int = 0
    #: Whether `poll` makes use of `wake`.
    wakes: bool = False
    #: Whether `poll` never waits, and `wake` is called at each arrival: others wait for this client.
    pushes: bool = False

    @property
    def aside_bytes(self) -> int:
        """The bytes in memory of records that were fetched and not returned."""
        return 0

    @abstractmethod
    def topics(self, names: Collection[str], pattern: str | None) -> Mapping[str, TopicMeta]:
        """Return the existing topics of `names` or `pattern`; see `inbound.runtime.patterns`."""

    def ask_topics(self) -> Callable[[], bool]:
        """Ask the brokers for their topics now, without waiting.

        The returned function says whether `topics` knows the answer. A client whose `topics` always asks needs none of this.
        """
        return lambda: True

    @abstractmethod
    def reachable(self) -> bool:
        """Whether the brokers answered the last question."""

    @abstractmethod
    def log_ranges(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        """Return the log ranges of partitions whose leader has answered.

        Ask again for the others. All partitions wait for this call: it waits some 50 ms for a broker at most.
        """

    @abstractmethod
    def offsets_at(self, partitions: Collection[TopicPartition], time_ms: int) -> Mapping[TopicPartition, int | None]:
        """Return each partition's first offset with a record at or after `time_ms`.

        `time_ms` counts from 1970. None: the leader has answered that there is no such record that the isolation level
        lets us read. Waits some seconds for the brokers at most, so a reader does not call it.

        Raises:
            BrokerUnavailableError: a leader has not answered, or is not known.
        """

    def peek(
        self, partitions: Collection[TopicPartition], wake: Callable[[], None]
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return the client's positions, and the last known ends of the logs.

        For watching whether a client keeps up. Never waits: a leader that has not answered yet is asked, and its partitions
        are left out; its answer calls `wake`, from any thread. A client that does not know its position returns nothing.
        """
        return {}

    def unled(self) -> Collection[TopicPartition]:
        """Return partitions that had no answering leader at the last poll."""
        return ()

    @abstractmethod
    def read(
        self, positions: Mapping[TopicPartition, int], leader_epochs: Mapping[TopicPartition, int] = NO_EPOCHS
    ) -> None:
        """Start to read partitions from these positions, or go on from them.

        Prefetched records are discarded. `leader_epochs` has, where known, the leader epoch of a record at the position or
        right before it (`Fetched.leader_epoch`). If the log holds other records there by now, `poll` reports it
        (`Poll.diverged`).
        """

    @abstractmethod
    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these partitions."""

    @abstractmethod
    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching these partitions; their positions stay."""

    @abstractmethod
    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch these partitions again."""

    @abstractmethod
    def limit_fetches(self, partition_bytes: int) -> None:
        """Bound the bytes that one fetch brings of each partition.

        The bound is approximate; only a single larger record goes beyond it.
        """

    @abstractmethod
    def poll(self, seconds: float, wake: Callable[[], None] | None = None) -> Poll:
        """Return fetched records, waiting at most `seconds` for some.

        Each poll reports a partition that is out of range, or whose log has diverged, until it is read again or forgotten, but
        not while it is paused. The partition is not fetched until then: the log may grow to the position, and have other
        records there than those that followed the last one read.

        A client that `wakes` gets `wake` when nothing has come for a while: if this poll brings nothing either, the client
        calls `wake` once, from any thread, when something may have come. Until then it may ask the brokers less often.
        """

    def figures(self) -> Sequence[BrokerFigures]:
        """Return the client's measurements by broker. Any thread.

        Brokers without measurements are left out.
        """
        return ()

    def tend(self) -> None:
        """Read the client's measurements while there are no polls.

        Call it every few seconds, on the thread that otherwise polls.
        """

    @abstractmethod
    def close(self) -> None:
        """Close all connections, within a few seconds."""


#: Statistics of a measured time; kafka-python has the first and the last.
STATISTICS = ("mean", "p50", "p75", "p95", "p99", "max")
#: Kinds of failed requests, as librdkafka counts them. A broker that closes an idle connection is a disconnect, too.
FAILURES = ("disconnect", "send", "receive", "timeout")


@dataclass(frozen=True, kw_only=True)
class BrokerFigures:
    """Measurements of one client's requests to one broker, over a window.

    The window is the last 15 s with confluent-kafka, 30 to 60 s with kafka-python.
    """

    broker: int  # its node id
    requests_per_second: float
    sent_bytes_per_second: float
    received_bytes_per_second: float
    #: Seconds from a request to its answer, by statistic; empty if there was none. A fetch waits at the broker for records.
    request_seconds: dict[str, float] = field(default_factory=dict)
    throttle_seconds: dict[str, float] = field(default_factory=dict)  # delays of answers by a quota, by statistic
    in_flight: int | None = None  # requests without an answer yet; None: not measured
    failures: dict[str, int] = field(default_factory=dict)  # since the client began, by kind; empty: not measured


def combined_figures(figures: Iterable[BrokerFigures]) -> list[BrokerFigures]:
    """Combine the figures of several clients, by broker.

    Rates and counts are added, a mean is over all requests, and the largest stands for the other statistics.
    """
    by_broker: dict[int, list[BrokerFigures]] = {}
    for one in figures:
        by_broker.setdefault(one.broker, []).append(one)
    return [_of_one_broker(same) if len(same) > 1 else same[0] for _, same in sorted(by_broker.items())]


def _of_one_broker(same: list[BrokerFigures]) -> BrokerFigures:
    told = [one.in_flight for one in same if one.in_flight is not None]
    kinds = dict.fromkeys(kind for one in same for kind in one.failures)
    return BrokerFigures(
        broker=same[0].broker,
        requests_per_second=sum(one.requests_per_second for one in same),
        sent_bytes_per_second=sum(one.sent_bytes_per_second for one in same),
        received_bytes_per_second=sum(one.received_bytes_per_second for one in same),
        request_seconds=_times([(one.requests_per_second, one.request_seconds) for one in same]),
        throttle_seconds=_times([(one.requests_per_second, one.throttle_seconds) for one in same]),
        in_flight=sum(told) if told else None,
        failures={kind: sum(one.failures.get(kind, 0) for one in same) for kind in kinds},
    )


def _times(weighted: list[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    measured = [(weight, times) for weight, times in weighted if times]
    names = dict.fromkeys(name for _, times in measured for name in times)
    found = {name: max(times[name] for _, times in measured if name in times) for name in names}
    all_of_them = sum(weight for weight, _ in measured)
    if "mean" in found and all_of_them:
        found["mean"] = sum(weight * times["mean"] for weight, times in measured) / all_of_them
    return found
