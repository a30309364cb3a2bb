"""A Kafka client as a channel's reader needs it. One folder per client beside this file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from inbound.errors import UnreadableBatchError
from inbound.processors.batch import Record
from inbound.topic_partition import TopicPartition

#: For positions of which nothing is known.
NO_EPOCHS: Mapping[TopicPartition, int] = MappingProxyType({})


class TopicMeta(NamedTuple):
    """A topic as the brokers describe it."""

    partitions: int
    topic_id: str | None = None  # as `inbound.coordinators.nodes.canonical` writes it; None: the brokers name none


class LogRange(NamedTuple):
    """The offsets in a partition's log: `start` up to but without `end`."""

    start: int
    end: int


class ReadTo(NamedTuple):
    """Up to where a log was read, and under which leader the end of that was written, as Kafka counts leaders.

    A log that was cut before `offset` says so to a client that names the leader (see `LogClient.read`).
    """

    offset: int
    leader_epoch: int


def read_to(offset: int | None, leader_epoch: int | None) -> ReadTo | None:
    """Return that; None where one of them is not known."""
    return None if offset is None or leader_epoch is None else ReadTo(offset, leader_epoch)


class Fetched(NamedTuple):
    """Consecutive records of one partition."""

    records: Sequence[Record]
    next_offset: int  # where the client reads on: can lie beyond the last record + 1
    size: int  # decoded bytes
    high_watermark: int | None
    #: Under which leader what stands before `next_offset` was written, as Kafka counts leaders; None: it is not known.
    leader_epoch: int | None = None


@dataclass
class Poll:
    """What one poll brought."""

    fetched: dict[TopicPartition, Fetched] = field(default_factory=dict)
    #: Partitions whose position is not in the log (any more), and the position.
    out_of_range: dict[TopicPartition, int] = field(default_factory=dict)
    #: Partitions whose log was cut below the position, and from which offset on it holds other records than were read;
    #: None: the brokers cannot tell. It may have grown over the position again.
    diverged: dict[TopicPartition, int | None] = field(default_factory=dict)
    #: Partitions that could not be read for another reason, and that reason; they are tried again.
    failed: dict[TopicPartition, Exception] = field(default_factory=dict)
    #: Not to be taken apart, and left alone until they are read again.
    unreadable: dict[TopicPartition, UnreadableBatchError] = field(default_factory=dict)
    #: The `wake` that was given will be called when there is something to poll for.
    will_wake: bool = False


class LogClient(ABC):
    """A Kafka client for one channel. Used by one thread at a time; no consumer group, no commits to Kafka.

    Every method may raise BrokerUnavailableError; the caller tries again later.
    """

    #: How many decoded bytes the client holds of its own, beyond what one poll and `limit_fetches` account for.
    held_bytes: int = 0
    #: About how many bytes a record takes in memory beyond its key, value and headers.
    record_bytes: int = 0
    #: Whether `poll` makes use of `wake`.
    wakes: bool = False
    #: Whether it never waits, and has `wake` called whenever something has come: others wait for it.
    pushes: bool = False

    @property
    def aside_bytes(self) -> int:
        """How many bytes of records, with what these take in memory, were fetched and not returned."""
        return 0

    @abstractmethod
    def topics(self, names: Collection[str], pattern: str | None) -> Mapping[str, TopicMeta]:
        """Return the named topics, or those that match `pattern`, as far as they exist; see `inbound.runtime.patterns`."""

    def ask_topics(self) -> Callable[[], bool]:
        """Ask the brokers for their topics now, without waiting.

        Returns what says whether `topics` knows the answer by now. For a client whose `topics` always asks, it does.
        """
        return lambda: True

    @abstractmethod
    def reachable(self) -> bool:
        """Whether the brokers answered the last question."""

    @abstractmethod
    def log_ranges(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        """Return the log's limits of those partitions whose leader has answered; ask again for the others.

        The other partitions wait for it: it must not wait longer than some 50 ms for a broker.
        """

    @abstractmethod
    def offsets_at(self, partitions: Collection[TopicPartition], time_ms: int) -> Mapping[TopicPartition, int | None]:
        """Return the first offset with a record of `time_ms` (since 1970) or later, for each partition.

        None: the leader has answered that there is no such record, as far as the isolation lets it be read. Waits for the
        brokers, some seconds at most, so it is not for a reader.

        Raises:
            BrokerUnavailableError: a leader has not answered, or is not known.
        """

    def peek(
        self, partitions: Collection[TopicPartition], wake: Callable[[], None]
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return the client's position, and the end of the log as its leader last answered.

        For watching whether a client keeps up. Never waits: those whose leader has not answered yet are asked, and
        left out; `wake` is called, from any thread, when such an answer has come. A client that cannot tell where it
        reads on returns nothing.
        """
        return {}

    def unled(self) -> Collection[TopicPartition]:
        """Return those that are read and have no leader that answers, as of the last poll."""
        return ()

    @abstractmethod
    def read(
        self, positions: Mapping[TopicPartition, int], leader_epochs: Mapping[TopicPartition, int] = NO_EPOCHS
    ) -> None:
        """Begin to read these, or go on reading them from another position; what was prefetched before is discarded.

        `leader_epochs` says, where that is known, under which leader a record at the position or right before it was
        written (`Fetched.leader_epoch`). If the log holds other records there by now, `poll` tells (`Poll.diverged`).
        """

    @abstractmethod
    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these."""

    @abstractmethod
    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch nothing more of these; their position stays."""

    @abstractmethod
    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch these again."""

    @abstractmethod
    def limit_fetches(self, partition_bytes: int) -> None:
        """Let one fetch bring at most about so many bytes of each partition (more only for a single larger record)."""

    @abstractmethod
    def poll(self, seconds: float, wake: Callable[[], None] | None = None) -> Poll:
        """Return what has arrived, waiting at most `seconds` for something to arrive.

        Each poll reports a partition that is out of range, or whose log has diverged, until it is read again or forgotten, but
        not while it is paused. It is not fetched until then: the log may grow to the position, and have other records there
        than those that followed the last one read.

        `wake` is given, to a client that `wakes`, when nothing has come for a while: if nothing has come now either, it
        is called once, from any thread, when something may have. Until then the brokers may be asked less often.
        """

    def figures(self) -> Sequence[BrokerFigures]:
        """Return what the client has measured of its requests, by broker; those without any are left out. Any thread."""
        return ()

    def tend(self) -> None:
        """Take in the client's measurements. Without polls: call it every few seconds, on the thread that otherwise polls."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections, within a few seconds."""


#: Of a time that is measured again and again; kafka-python has the first and the last.
STATISTICS = ("mean", "p50", "p75", "p95", "p99", "max")
#: What goes wrong with requests, as librdkafka counts it. A broker that closes an idle connection is a disconnect, too.
FAILURES = ("disconnect", "send", "receive", "timeout")


@dataclass(frozen=True, kw_only=True)
class BrokerFigures:
    """One client's requests to one broker, over its last window: 15 s with confluent-kafka, 30 to 60 with kafka-python."""

    broker: int  # its node id
    requests_per_second: float
    sent_bytes_per_second: float
    received_bytes_per_second: float
    #: Seconds from a request to its answer, by statistic; empty if there was none. A fetch waits at the broker for records.
    request_seconds: dict[str, float] = field(default_factory=dict)
    throttle_seconds: dict[str, float] = field(default_factory=dict)  # by which a quota delayed answers, by statistic
    in_flight: int | None = None  # requests that wait for an answer; None: the client does not tell
    failures: dict[str, int] = field(default_factory=dict)  # since the client began, by kind; empty: it does not tell


def combined_figures(figures: Iterable[BrokerFigures]) -> list[BrokerFigures]:
    """Return the figures of several clients as those of one, by broker.

    Rates and counts are added, a mean is that of all requests; of the other statistics, which cannot be put together, the
    largest is given.
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
