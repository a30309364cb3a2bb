"""A table of state transitions by event."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NoReturn, TypeVar

from inbound.errors import IllegalTransitionError

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class Transitions(dict[tuple[S, E], S]):
    """Maps state and event to the next state, else raises IllegalTransitionError."""

    def __init__(self, what: str, table: Mapping[tuple[S, E], S]) -> None:
        """`what` names the thing with these states, for the error."""
        super().__init__(table)
        self._what = what

    def step(self, state: S, event: E) -> S:
        """Return the next state; hot paths look it up themselves.

        Raises:
            IllegalTransitionError: the table has no such step.
        """
        return self[state, event]

    def __missing__(self, key: tuple[S, E]) -> NoReturn:
        state, event = key
        raise IllegalTransitionError(f"{self._what}: no step {event.value!r} from {state.value!r}")
