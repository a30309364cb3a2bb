"""An event loop that never waits: time is the test's to move, also for coroutines."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

from inbound.clock import Clock


class FakeLoop(asyncio.SelectorEventLoop):
    """Runs whatever can go on without time passing, and then stops by itself instead of waiting.

    `asyncio.sleep` and timeouts go by the clock given. What goes to an executor runs in its place, at once or after
    `executor_takes` seconds, also when its caller is cancelled meanwhile. Real sockets work, but whatever comes from them
    comes when it likes.
    """

    def __init__(self, clock: Clock) -> None:
        self._fake_clock = clock
        self.executor_takes = 0.0
        #: The clock time until which it would have waited when it ran last; it is not later than that time where it would not.
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
    """Whether this thread runs an event loop at the moment: it cannot run another one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Selector(selectors.DefaultSelector):
    """Asked to wait, there is nothing left to do."""

    def __init__(self, wait: Callable[[float | None], None]) -> None:
        super().__init__()
        self._wait = wait

    def select(self, timeout: float | None = None) -> Any:
        self._wait(timeout)
        return super().select(0)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if "was destroyed but it is pending" not in context.get("message", ""):  # so are the tasks of a killed process
        loop.default_exception_handler(context)
