"""What the reading part needs of a Kafka client. One file per client beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from inbound.errors import UnreadableBatchError
from inbound.kafka.broker_figures import BrokerFigures
from inbound.processors.batch import Record
from inbound.topic_partition import TopicPartition

#: For positions of which nothing is known.
NO_EPOCHS: Mapping[TopicPartition, int] = MappingProxyType({})


class TopicMeta(NamedTuple):
    """A topic as the brokers describe it."""

    partitions: int
    topic_id: str | None = None  # as `inbound.coordinators.topic_ids.canonical` writes it; None: the brokers name none


class LogRange(NamedTuple):
    """The offsets in a partition's log: `start` up to but without `end`."""

    start: int
    end: int


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
        """Return the named topics, or those that match `pattern`, as far as they exist; see `inbound.topic_names`."""

    def ask_topics(self) -> Callable[[], bool]:
        """Ask the brokers for their topics now, without waiting.

        Returns what says whether `topics` knows the answer by now. For a client whose `topics` always asks, it does.
        """
        return lambda: True

    @abstractmethod
    def reachable(self) -> bool:
        """Whether the last thing heard of the brokers was an answer."""

    @abstractmethod
    def log_ranges(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        """Return the log's limits of those partitions whose leader has answered; ask again for the others.

        The other partitions are not read meanwhile: it must not wait longer than some 50 ms for a broker.
        """

    @abstractmethod
    def offsets_at(self, partitions: Collection[TopicPartition], time_ms: int) -> Mapping[TopicPartition, int | None]:
        """Return where `time_ms` (since 1970) begins: the first offset with a record of that time or later, for each.

        None: the leader has answered that there is no such record, as far as the isolation lets it be read. Waits for the
        brokers, some seconds at most, so it is not for who reads.

        Raises:
            BrokerUnavailableError: a leader has not answered, or is not known.
        """

    def peek(
        self, partitions: Collection[TopicPartition], wake: Callable[[], None]
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Return where the client reads on, and where what can be read ended when the leader was asked last.

        For who watches whether what is there is fetched. Never waits: those whose leader has not answered yet are asked, and
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

        A partition that is out of range, or whose log has diverged, is told with each poll until it is read again or
        forgotten, but while it is paused. It is not fetched meanwhile: the log may grow to the position, and what it holds
        there then is not what comes after what was read.

        `wake` is given, to a client that `wakes`, when nothing has come for a while: if nothing has come now either, it
        is called once, from any thread, when something may have. Until then the brokers may be asked less often.
        """

    def figures(self) -> Sequence[BrokerFigures]:
        """Return what the client has measured of its requests, by broker; those without any are left out. Any thread."""
        return ()

    def tend(self) -> None:
        """Take up what the client has measured. For who does not poll: every few seconds, on the thread that else polls."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections, within a few seconds."""
