"""The states of the controller's ZooKeeper session, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from inbound.errors import IllegalTransitionError


class State(Enum):
    """Where the session is."""

    DOWN = "down"  # never connected yet
    JOINING = "joining"  # connected; id nodes are being written, what we held is being recovered
    MEMBER = "member"  # registered: rebalancing as needed
    SUSPENDED = "suspended"  # no connection; the session may still live
    CLOSED = "closed"


class Event(Enum):
    """What happens to it."""

    CONNECTED = "connected"
    JOINED = "joined"
    DISCONNECTED = "disconnected"
    CLOSE = "close"


S, E = State, Event
TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (S.DOWN, E.CONNECTED): S.JOINING,
    (S.DOWN, E.CLOSE): S.CLOSED,
    (S.JOINING, E.JOINED): S.MEMBER,
    (S.JOINING, E.CONNECTED): S.JOINING,  # connected anew meanwhile: from the start
    (S.JOINING, E.DISCONNECTED): S.SUSPENDED,
    (S.JOINING, E.CLOSE): S.CLOSED,
    (
        S.MEMBER,
        E.CONNECTED,
    ): S.JOINING,  # reconnected so fast that nobody saw the gap: all watches are gone all the same
    (S.MEMBER, E.DISCONNECTED): S.SUSPENDED,
    (S.MEMBER, E.CLOSE): S.CLOSED,
    (S.SUSPENDED, E.CONNECTED): S.JOINING,
    (S.SUSPENDED, E.CLOSE): S.CLOSED,
}


def step(state: State, event: Event) -> State:
    """Return the state that follows.

    Raises:
        IllegalTransitionError: the table has no such step.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(f"ZooKeeper session: no step {event.value!r} from {state.value!r}") from None
