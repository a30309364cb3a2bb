"""Specification, reference, states and conditions of a reset. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal, Protocol, get_args

from inbound.coordinators.zookeeper import Call
from inbound.runtime.transitions import Transitions


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
    """The request: `to`, and exactly the fields that it needs."""

    to: To
    time: float | None = None  # seconds since 1970, UTC; a duration is turned into a time when the reset is asked for
    shift: int | None = None
    offset: int | None = None
    offsets: Mapping[int, int] | None = None  # partition: offset
    #: Partitions to move; None: all that the topic has when the group has stopped.
    partitions: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Ref:
    """The object that a reset names; see `RefMapper`."""

    kind: str
    name: str
    namespace: str | None = None
    api_version: str | None = None

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {where}{self.name}"


@dataclass(frozen=True, kw_only=True)
class RefInfo:
    """The topic and group of a reference."""

    topic: str
    group: str
    #: The connections to the data plane; unused by data planes that need none.
    connection_pool_key: str = ""
    data_plane_namespace: str = ""
    data_plane_labels: Mapping[str, str] = field(default_factory=dict)


class RefMapper(Protocol):
    """Finds topic and group of a reference.

    Called on the controller's thread: it must not block.
    """

    def map(self, ref: Ref) -> RefInfo:
        """Return topic and group of `ref`.

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
    """One partition's move; `old` None: nothing was committed before."""

    partition: int
    old: int | None
    new: int


@dataclass(frozen=True)
class TopicLog:
    """The brokers' answer about a topic, for each partition.

    `ranges` are the log's start and end; `at_time` is where a time begins, if asked.
    """

    topic: str
    topic_id: str | None
    ranges: Mapping[int, tuple[int, int]]
    at_time: Mapping[int, int] = field(default_factory=dict)


class TopicLogs(Protocol):
    """Asks the brokers.

    Any thread; the answer comes as a Call, as ZooKeeper's do.
    """

    def ask(self, topic: str, time: float | None = None) -> Call[TopicLog | None]:
        """Ask for all partitions of `topic`; None: there is no such topic.

        The Call fails with BrokerUnavailableError if some leader does not answer: the caller asks again.
        """


# -- states and conditions ---------------------------------------------------------------------------------------------

#: A condition's message is cut after so many characters: each step rewrites the node with it.
LONGEST_MESSAGE = 2000

TYPES: tuple[ConditionType, ...] = get_args(ConditionType)


class State(Enum):
    """The state of a reset, stored in the command's node.

    Each leader continues from there.
    """

    ACCEPTED = "accepted"  # submitted; topic and group are not known yet
    MAPPED = "mapped"  # topic and group are known; waits until it is first of its group
    ACQUIRED = "acquired"  # the members to stop are known; nothing is stopped yet
    STOPPING = "stopping"  # the gate is closed; members drain, commit and release
    STOPPED = "stopped"  # no partition has an owner; old offsets and targets are stored, nothing is moved
    MOVING = "moving"  # some chunks are moved, others not yet; only where one transaction cannot hold all
    UPDATED = "updated"  # all offsets are moved; the gate is still closed
    STARTING = "starting"  # the gate is open; members take their partitions again
    SUCCEEDED = "succeeded"
    CANCELLING = "cancelling"  # nothing is moved; the stopped consumers are started again
    CANCELLED = "cancelled"
    REFUSING = "refusing"  # it cannot be done; the stopped consumers are started again
    REFUSED = "refused"


class ResetEvent(Enum):
    """One transaction that changes the command's node."""

    MAP = "map"
    ACQUIRE = "acquire"
    CLOSE = "close"  # with the gate
    RESOLVE = "resolve"  # with the nodes that hold the targets
    BEGIN = "begin"  # with the first of several chunks
    UPDATE = "update"  # with the last chunk, or the only one
    OPEN = "open"  # with the gate
    START = "start"
    CANCEL = "cancel"
    REFUSE = "refuse"
    RESTART = "restart"  # after a cancellation or a refusal


S, E = State, ResetEvent
TRANSITIONS = Transitions(
    "reset of offsets",
    {
        (S.ACCEPTED, E.MAP): S.MAPPED,
        (S.ACCEPTED, E.CANCEL): S.CANCELLED,
        (S.MAPPED, E.ACQUIRE): S.ACQUIRED,
        (S.MAPPED, E.CANCEL): S.CANCELLED,
        (S.MAPPED, E.REFUSE): S.REFUSED,
        (S.ACQUIRED, E.CLOSE): S.STOPPING,
        (S.ACQUIRED, E.CANCEL): S.CANCELLED,
        (S.ACQUIRED, E.REFUSE): S.REFUSED,
        (S.STOPPING, E.RESOLVE): S.STOPPED,
        (S.STOPPING, E.CANCEL): S.CANCELLING,
        (S.STOPPING, E.REFUSE): S.REFUSING,
        (S.STOPPED, E.BEGIN): S.MOVING,
        (S.STOPPED, E.UPDATE): S.UPDATED,
        (S.STOPPED, E.CANCEL): S.CANCELLING,
        (S.STOPPED, E.REFUSE): S.REFUSING,  # its targets were deleted by hand
        (S.MOVING, E.UPDATE): S.UPDATED,  # from the first chunk on there is no way but forward
        (S.UPDATED, E.OPEN): S.STARTING,
        (S.STARTING, E.START): S.SUCCEEDED,
        (S.CANCELLING, E.RESTART): S.CANCELLED,
        (S.REFUSING, E.RESTART): S.REFUSED,
    },
)

#: Final states.
FINISHED = frozenset({S.SUCCEEDED, S.CANCELLED, S.REFUSED})
#: States in which this reset keeps the gate closed.
CLOSED = frozenset({S.STOPPING, S.STOPPED, S.MOVING, S.UPDATED, S.CANCELLING, S.REFUSING})
#: States in which the group's other resets wait, even those submitted before.
HOLDING = CLOSED | {S.ACQUIRED, S.STARTING}
#: States in which offsets have been moved, or may be at any moment: it is too late to cancel.
MOVED = frozenset({S.MOVING, S.UPDATED, S.STARTING, S.SUCCEEDED})

#: The number of conditions, in their order, that are true in a state. Other states change none.
_TRUE: Mapping[State, int] = {
    S.ACCEPTED: 0,
    S.MAPPED: 1,
    S.ACQUIRED: 2,
    S.STOPPING: 2,
    S.STOPPED: 3,
    S.MOVING: 3,
    S.UPDATED: 4,
    S.STARTING: 4,
    S.SUCCEEDED: 6,
}


@dataclass(frozen=True)
class ConditionNote:
    """The reason for a condition's status: a word and a sentence.

    `status` is given only if a condition is known to be false, or is not known any more.
    """

    reason: str
    message: str
    status: Literal["True", "False", "Unknown"] | None = None


ConditionNotes = Mapping[ConditionType, ConditionNote]


def conditions(before: tuple[Condition, ...], state: State, at: str, notes: ConditionNotes) -> tuple[Condition, ...]:
    """Return the six conditions of a reset in `state`.

    `at` is now, in RFC 3339; it becomes the time of conditions whose status changes. `notes` give reasons; a condition
    without a note keeps its message as long as its status stays.
    """
    known = {condition.type: condition for condition in before}
    true = _TRUE.get(state)
    return tuple(
        _condition(
            known.get(type_, Condition(type=type_, time=at)),
            None if true is None else ("True" if index < true else "Unknown"),
            at,
            notes.get(type_),
        )
        for index, type_ in enumerate(TYPES)
    )


def _condition(
    before: Condition, status: Literal["True", "Unknown"] | None, at: str, note: ConditionNote | None
) -> Condition:
    wanted = (note.status if note is not None else None) or status or before.status
    if note is None and wanted == before.status:
        return before
    reason, message = (note.reason, note.message) if note is not None else ("", "")
    if len(message) > LONGEST_MESSAGE:
        message = f"{message[: LONGEST_MESSAGE - 3]}..."
    time = before.time if wanted == before.status else at
    return replace(before, status=wanted, reason=reason, message=message, time=time)
