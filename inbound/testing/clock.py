"""Tests move this clock by hand; the event loop follows it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

from inbound.clock import Clock, Flag


class ManualClock(Clock):
    """A clock that moves only by `advance`; waiting advances it."""

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
        """Set the wall clock forward or back; `now` does not change."""
        self._wall += seconds

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._wall + self._now - self._start

    def wait(self, event: Flag, seconds: float | None) -> bool:
        if not event.is_set() and seconds is not None:
            self.advance(seconds)
        return event.is_set()


class FakeLoop(asyncio.SelectorEventLoop):
    """An event loop that stops where a real one would wait.

    `asyncio.sleep` and timeouts follow the given clock. Executor work runs in the loop itself: at once, or after
    `executor_takes` seconds, also when its caller is cancelled. Real sockets work, in real time.
    """

    def __init__(self, clock: Clock) -> None:
        self._fake_clock = clock
        self.executor_takes = 0.0
        #: The clock time until which the last run would have waited; in the past if it would not have waited.
        self.waits_until = 0.0
        super().__init__(_Selector(self._asked_to_wait))
        self.set_exception_handler(_handle)

    def time(self) -> float:
        return self._fake_clock.now()

    def _asked_to_wait(self, seconds: float | None) -> None:
        self.waits_until = self.time() + (float("inf") if seconds is None else seconds)
        if seconds is None or seconds > 0:
            self.stop()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()

        def run() -> None:
            try:
                result = func(*args)
            except Exception as error:
                if not future.done():  # else its caller was cancelled
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        if self.executor_takes:
            self.call_later(self.executor_takes, run)
        else:
            run()
        return future

    def __del__(self) -> None:
        if not self.is_closed():  # of a process that was killed
            self.close()


def inside_a_loop() -> bool:
    """Return whether this thread already runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Selector(selectors.DefaultSelector):
    """A selector that reports each wait and returns at once."""

    def __init__(self, wait: Callable[[float | None], None]) -> None:
        super().__init__()
        self._wait = wait

    def select(self, timeout: float | None = None) -> Any:
        self._wait(timeout)
        return super().select(0)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if "was destroyed but it is pending" not in context.get("message", ""):  # so are the tasks of a killed process
        loop.default_exception_handler(context)
