"""An event that threads and coroutines can wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


class StopEvent(threading.Event):
    """Set when a channel is about to stop.

    `set` may be called by any thread; it is never cleared.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._sleepers: set[Callable[[], None]] = set()

    def set(self) -> None:
        """Let all who wait go on."""
        super().set()
        with self._lock:
            sleepers = list(self._sleepers)
        for wake in sleepers:
            wake()

    async def sleep(self, seconds: float) -> bool:
        """Let other coroutines run for `seconds`, or until the event is set. Returns whether it is."""
        import asyncio  # not above: it takes long, and most processors are plain code

        if self.is_set():
            await asyncio.sleep(0)  # who sleeps in a loop must not keep the others from ending
            return True
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_complete, over)

        with self._lock:
            self._sleepers.add(wake)
        timer = loop.call_later(seconds, _complete, over)
        try:
            if not self.is_set():  # else it was set before we were among the sleepers
                await over
        finally:
            timer.cancel()
            with self._lock:
                self._sleepers.discard(wake)
        return self.is_set()


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
