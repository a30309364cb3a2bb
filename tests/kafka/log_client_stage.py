"""Where the conformance suite of `LogClient` plays: what each side provides, and how it is read from there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypedDict, Unpack

from inbound.kafka.base import Fetched, LogClient, LogRange, Poll, TopicMeta
from inbound.processors.batch import PlainRecord, Record
from inbound.topic_partition import TopicPartition

Headers = Sequence[tuple[str, bytes | None]]


class Parts(TypedDict, total=False):
    """What a record may have besides its value; the timestamp in milliseconds."""

    key: bytes | None
    headers: Headers
    timestamp: int


class Stage(ABC):
    """Clients of one cluster, and what can happen to its topics. Every verb is over when it returns."""

    @abstractmethod
    def client(self, *, max_poll_records: int = 1000) -> LogClient:
        """Return a new client, connected."""

    @abstractmethod
    def name(self, suffix: str) -> str:
        """Return the name of a topic that no other test has; those of one test differ by `suffix` alone."""

    @abstractmethod
    def create_topic(self, name: str, partitions: int) -> None: ...
    @abstractmethod
    def add_partitions(self, name: str, partitions: int) -> None:
        """Let a topic have `partitions`, more than it has."""

    @abstractmethod
    def delete_topic(self, name: str) -> None: ...
    @abstractmethod
    def publish(
        self, tp: TopicPartition, values: Iterable[bytes | None], *, batched: bool = True, **parts: Unpack[Parts]
    ) -> None:
        """Append records; with `batched`, in as few batches as the producer makes of them."""

    @abstractmethod
    def publish_committed(self, tp: TopicPartition, values: Sequence[bytes]) -> None:
        """Append the records of a transaction and its marker, which takes an offset."""

    @abstractmethod
    def publish_aborted(self, tp: TopicPartition, values: Sequence[bytes]) -> None:
        """The same, but the records are invisible; they take their offsets all the same."""

    @abstractmethod
    def trim(self, tp: TopicPartition, start: int) -> None:
        """Delete what is before offset `start`, as retention does."""

    @abstractmethod
    def outage(self) -> None:
        """Take all brokers away."""

    @abstractmethod
    def outage_over(self) -> None:
        """Bring them back, with everything that was published."""

    @abstractmethod
    def turns(self, seconds: float) -> Iterator[None]:
        """Yield for as long as something may take to come about."""

    def topic(self, partitions: int = 1) -> list[TopicPartition]:
        """Make a topic. Returns its partitions."""
        name = self.name("topic")
        self.create_topic(name, partitions)
        return [TopicPartition(name, number) for number in range(partitions)]

    def until(self, condition: Callable[[], object], seconds: float = 10.0) -> None:
        """Wait for `condition`; fail if it does not come about."""
        for _ in self.turns(seconds):
            if condition():
                return
        raise AssertionError(f"did not come about within {seconds} s")

    def topics(self, client: LogClient, names: Collection[str], pattern: str | None) -> Mapping[str, TopicMeta]:
        """Return what a client says of topics that has asked the brokers just now."""
        answered = client.ask_topics()
        self.until(answered)
        return client.topics(names, pattern)

    def ranges(self, client: LogClient, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
        """Ask for the logs' limits until all are known."""
        found: dict[TopicPartition, LogRange] = {}

        def all_known() -> bool:
            found.update(client.log_ranges([tp for tp in partitions if tp not in found]))
            return len(found) == len(partitions)

        self.until(all_known)
        return found


class Reading:
    """What the polls of one client brought, in order."""

    def __init__(self, stage: Stage, client: LogClient) -> None:
        self.stage = stage
        self.client = client
        self.polls: list[Poll] = []

    def poll(self) -> Poll:
        self.polls.append(self.client.poll(0.02))
        return self.polls[-1]

    def until_some(self) -> Poll:
        """Poll until something came, and return that poll."""
        self.stage.until(lambda: self.poll() != Poll())
        return self.polls[-1]

    def until(self, *expected: tuple[TopicPartition, int]) -> None:
        """Poll until of each partition so many records came, in all polls together."""

        def all_came() -> bool:
            self.poll()
            return all(len(self.offsets(tp)) >= count for tp, count in expected)

        self.stage.until(all_came)

    def rest(self, *told: TopicPartition) -> Poll:
        """Poll until all that is there must have come. Returns the polls since, as one.

        That these partitions are `told` not to be readable from where they are is waited for, however long that takes.
        """
        before, together = len(self.polls), Poll()

        def all_told() -> bool:
            self.poll()
            return {tp for p in self.polls[before:] for tp in (*p.out_of_range, *p.diverged)}.issuperset(told)

        self.stage.until(all_told)
        for _ in self.stage.turns(0.4):
            self.poll()
        for poll in self.polls[before:]:
            together.fetched.update(poll.fetched)
            together.out_of_range.update(poll.out_of_range)
            together.diverged.update(poll.diverged)
            together.failed.update(poll.failed)
        return together

    def fetched(self, tp: TopicPartition) -> list[Fetched]:
        return [poll.fetched[tp] for poll in self.polls if tp in poll.fetched]

    def records(self, tp: TopicPartition) -> list[Record]:
        return [record for fetched in self.fetched(tp) for record in fetched.records]

    def offsets(self, tp: TopicPartition) -> list[int]:
        return [record.offset for record in self.records(tp)]


def values(count: int) -> list[bytes]:
    """Return values that differ."""
    return [b"value %d" % number for number in range(count)]


def plain(record: Record) -> PlainRecord:
    """Return a record's fields, for any client's type of it."""
    return PlainRecord(record.offset, record.timestamp, record.key, record.value, list(record.headers))
