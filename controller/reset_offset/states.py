"""The states of a reset, as a table, and the conditions that follow from them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, get_args

from inbound.controller.reset_offset.model import Condition, ConditionType
from inbound.errors import IllegalTransitionError

#: A condition's message is cut after so many characters: it stands in the node, which each step writes anew.
LONGEST_MESSAGE = 2000

TYPES: tuple[ConditionType, ...] = get_args(ConditionType)


class State(Enum):
    """How far a reset has come. It stands in the command's node; whoever leads goes on from there."""

    ACCEPTED = "accepted"  # submitted; topic and group are to be found
    MAPPED = "mapped"  # topic and group are known; waits until it is first of its group
    ACQUIRED = "acquired"  # who is to be stopped is known; nothing is stopped yet
    STOPPING = "stopping"  # the gate is closed; members drain, commit and release
    STOPPED = "stopped"  # nobody owns a partition; old offsets and targets are stored, nothing is moved
    MOVING = "moving"  # some chunks are moved, others not yet; only where one transaction cannot hold all
    UPDATED = "updated"  # all offsets are moved; the gate is still closed
    STARTING = "starting"  # the gate is open; members take their partitions again
    SUCCEEDED = "succeeded"
    CANCELLING = "cancelling"  # nothing was moved and nothing will be; what was stopped is started again
    CANCELLED = "cancelled"
    REFUSING = "refusing"  # it cannot be done; what was stopped is started again
    REFUSED = "refused"


class Event(Enum):
    """What brings a reset on; each is one transaction that changes the command's node."""

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


S, E = State, Event
TRANSITIONS: Mapping[tuple[State, Event], State] = {
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
}

#: Those that nothing follows.
FINISHED = frozenset({S.SUCCEEDED, S.CANCELLED, S.REFUSED})
#: Those in which the group stands behind a gate that this reset has closed.
CLOSED = frozenset({S.STOPPING, S.STOPPED, S.MOVING, S.UPDATED, S.CANCELLING, S.REFUSING})
#: Those that keep the group's other resets waiting, whoever was submitted first.
HOLDING = CLOSED | {S.ACQUIRED, S.STARTING}
#: Those from which offsets have been moved, or may be at any moment: it is too late to cancel.
MOVED = frozenset({S.MOVING, S.UPDATED, S.STARTING, S.SUCCEEDED})

#: How many of the conditions, in their order, are true in a state. Those that are not listed leave them as they were.
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
class Note:
    """What a condition says besides what follows from the state: why, in one word and in a sentence.

    `status` is given only where a condition is known to be false, or is not known any more.
    """

    reason: str
    message: str
    status: Literal["True", "False", "Unknown"] | None = None


Notes = Mapping[ConditionType, Note]


def step(state: State, event: Event) -> State:
    """Return the state that follows.

    Raises:
        IllegalTransitionError: the table has no such step.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(f"reset of offsets: no step {event.value!r} from {state.value!r}") from None


def conditions(before: tuple[Condition, ...], state: State, at: str, notes: Notes) -> tuple[Condition, ...]:
    """Return the six conditions of a reset that is in `state` now.

    `at` is now, in RFC 3339; it becomes the time of those whose status changes. `notes` say why, of those about which
    there is something to say; the others keep what they said as long as their status stays.
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


def _condition(before: Condition, status: Literal["True", "Unknown"] | None, at: str, note: Note | None) -> Condition:
    wanted = (note.status if note is not None else None) or status or before.status
    if note is None and wanted == before.status:
        return before
    reason, message = (note.reason, note.message) if note is not None else ("", "")
    if len(message) > LONGEST_MESSAGE:
        message = f"{message[: LONGEST_MESSAGE - 3]}..."
    time = before.time if wanted == before.status else at
    return replace(before, status=wanted, reason=reason, message=message, time=time)
