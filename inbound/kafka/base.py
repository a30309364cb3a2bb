"""What the reading part needs of a Kafka client. One file per client beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from inbound.processors.batch import Record
from inbound.topic_partition import TopicPartition


class TopicMeta(NamedTuple):
    """A topic as the brokers describe it."""

    partitions: int
    topic_id: str | None = None


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


@dataclass
class Poll:
    """What one poll brought."""

    fetched: dict[TopicPartition, Fetched] = field(default_factory=dict)
    #: Partitions whose position is not in the log (any more), and the position.
    out_of_range: dict[TopicPartition, int] = field(default_factory=dict)
    #: Partitions that could not be read for another reason, and that reason; they are tried again.
    failed: dict[TopicPartition, Exception] = field(default_factory=dict)


class LogClient(ABC):
    """A Kafka client for one reader. Used by one thread only; no consumer group, no commits to Kafka.

    Every method may raise BrokerUnavailableError; the caller tries again later.
    """

    @abstractmethod
    def topics(self, names: Collection[str], pattern: str | None) -> Mapping[str, TopicMeta]:
        """Return the named topics, or those that match `pattern`, as far as they exist."""

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
    def read(self, positions: Mapping[TopicPartition, int]) -> None:
        """Begin to read these, or go on reading them from another position; what was prefetched before is discarded."""

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
    def poll(self, seconds: float) -> Poll:
        """Return what has arrived, waiting at most `seconds` for something to arrive."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections, within a few seconds."""
