"""A clock that tests move by hand."""

from __future__ import annotations

from inbound.clock import Clock, Flag


class ManualClock(Clock):
    """Stands still until `advance`. Waiting never blocks: time is the test's to move."""

    def __init__(self, start: float = 1000.0, wall: float = 1_767_225_600.0) -> None:
        self._start = start
        self._now = start
        self._wall = wall

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds}")
        self._now += seconds

    def jump_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an operator or a time server does; `now` is not touched."""
        self._wall += seconds

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._wall + self._now - self._start

    def wait(self, event: Flag, seconds: float | None) -> bool:
        if not event.is_set() and seconds is not None:
            self.advance(seconds)
        return event.is_set()
