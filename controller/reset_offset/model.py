"""What a reset of offsets is made of: specification, reference, conditions, status. Plain values, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, Protocol

from inbound.coordinators.zookeeper import Call


class To(Enum):
    """Where a reset moves to."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"  # the first record whose timestamp is that time or later; the log's end where there is none
    SHIFT = "shift"  # so many records from the group's offset; kept within the log
    OFFSET = "offset"
    OFFSETS = "offsets"  # one for each partition, from a file


@dataclass(frozen=True, kw_only=True)
class ResetSpec:
    """What is asked for. Exactly the fields that `to` needs are set."""

    to: To
    time: float | None = None  # seconds since 1970, UTC; a duration is turned into a time when the reset is asked for
    shift: int | None = None
    offset: int | None = None
    offsets: Mapping[int, int] | None = None  # partition: offset
    #: Those to move; None: all that the topic has when the group has stopped.
    partitions: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Ref:
    """What a reset is about, in the words of whoever asked; a RefMapper finds topic and group."""

    kind: str
    name: str
    namespace: str | None = None
    api_version: str | None = None

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {where}{self.name}"


@dataclass(frozen=True, kw_only=True)
class RefInfo:
    """What a RefMapper found."""

    topic: str
    group: str
    #: Which connections to the data plane are used; data planes that need none leave it.
    connection_pool_key: str = ""
    data_plane_namespace: str = ""
    data_plane_labels: Mapping[str, str] = field(default_factory=dict)


class RefMapper(Protocol):
    """Finds topic and group of a reference. Called on the controller's thread: it must not wait for anything."""

    def map(self, ref: Ref) -> RefInfo:
        """Return what `ref` stands for.

        Raises:
            UnknownRefError: there is no such thing, or it has no topic and group; the message says what there is.
        """


ConditionType = Literal[
    "RefMapped",
    "AcquireDataPlaneServices",
    "ConsumerGroupsStopped",
    "OffsetsUpdated",
    "ConsumerGroupsStarted",
    "Succeeded",
]


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One condition of a reset, as Knative shows them."""

    type: ConditionType
    status: Literal["True", "False", "Unknown"] = "Unknown"
    reason: str = ""  # one word
    message: str = ""
    time: str = ""  # RFC 3339, of the last change of `status`


@dataclass(frozen=True)
class Moved:
    """One partition's part of a reset. `old` None: nothing was committed before."""

    partition: int
    old: int | None
    new: int


@dataclass(frozen=True)
class TopicLog:
    """What the brokers say of a topic: for each partition the log's start and end, and where a time begins if asked."""

    topic: str
    topic_id: str | None
    ranges: Mapping[int, tuple[int, int]]
    at_time: Mapping[int, int] = field(default_factory=dict)


class TopicLogs(Protocol):
    """Asks the brokers. Any thread; the answer comes as a Call, as ZooKeeper's do."""

    def ask(self, topic: str, time: float | None = None) -> Call[TopicLog | None]:
        """Ask for all partitions of `topic`; None: there is no such topic.

        The Call fails with BrokerUnavailableError if some leader does not answer: the caller asks again.
        """
