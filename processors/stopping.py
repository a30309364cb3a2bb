"""An event that threads and coroutines can wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


class StopEvent(threading.Event):
    """Set, by any thread, when a channel is about to stop."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._sleepers: set[Callable[[], None]] = set()

    def set(self) -> None:
        """Wake all waiting threads and coroutines."""
        super().set()
        with self._lock:
            sleepers = list(self._sleepers)
        for wake in sleepers:
            wake()

    async def sleep(self, seconds: float) -> bool:
        """Sleep until the time is over or the event set; True: set."""
        import asyncio  # here, because the import takes long and most processors do not need it

        if self.is_set():
            await asyncio.sleep(0)  # a coroutine that sleeps in a loop must not keep the others from ending
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
            if not self.is_set():  # else it was set before `wake` was among the sleepers
                await over
        finally:
            timer.cancel()
            with self._lock:
                self._sleepers.discard(wake)
        return self.is_set()


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
