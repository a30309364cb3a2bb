"""States as a table: which event leads from which state to which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NoReturn, TypeVar

from inbound.errors import IllegalTransitionError

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class Transitions(dict[tuple[S, E], S]):
    """The state that follows, by state and event. A pair that is not listed raises IllegalTransitionError."""

    def __init__(self, what: str, table: Mapping[tuple[S, E], S]) -> None:
        """`what` names the thing that has these states, for the error."""
        super().__init__(table)
        self._what = what

    def step(self, state: S, event: E) -> S:
        """Return the state that follows; hot paths look it up themselves, and save this call.

        Raises:
            IllegalTransitionError: the table has no such step.
        """
        return self[state, event]

    def __missing__(self, key: tuple[S, E]) -> NoReturn:
        state, event = key
        raise IllegalTransitionError(f"{self._what}: no step {event.value!r} from {state.value!r}")
