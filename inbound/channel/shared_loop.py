"""One event loop for the channels of a process whose processors never hold it up: see `BatchEventProcessor.shares_loop`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from inbound.channel.async_worker import LONGEST_WAIT, AsyncWorker, LoopWakeup, run_loop
from inbound.clock import Clock
from inbound.driver import Driver


class SharedWakeup(LoopWakeup):
    """Wakes the loop's thread, and says for whom."""

    def __init__(self, shared: SharedLoop) -> None:
        super().__init__(shared.loop)
        self._shared = shared

    def _interrupt(self) -> None:
        self._shared.wakeup.set()


class SharedLoop:
    """The loop, its thread, and the channels' workers that it serves: see `inbound.driver.Part`."""

    def __init__(self, clock: Clock, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._clock = clock
        self.loop = new_loop()
        self.wakeup = LoopWakeup(self.loop)
        self.driver = Driver("subscriptions-loop", self, self.wakeup, clock, clock.now)
        #: Replaced as a whole, by other threads. So when each is to look for what is due is not in here: nobody would note
        #: what it says while another one is added.
        self._workers: tuple[AsyncWorker, ...] = ()

    def wakeup_of_one(self) -> LoopWakeup:
        """Return what wakes its thread for one channel."""
        return SharedWakeup(self)

    @property
    def running(self) -> bool:
        """Whether its thread runs it."""
        return self.driver.thread.is_alive()

    def add(self, worker: AsyncWorker) -> None:
        """Serve a channel from now on. Any thread."""
        self._workers = (*self._workers, worker)
        self.wakeup.set()

    def remove(self, worker: AsyncWorker) -> None:
        """Begin no more turns of a channel. Any thread."""
        self._workers = tuple(one for one in self._workers if one is not worker)

    def run_once(self) -> float | None:
        """Begin turns for who is due, and run the loop until there is something new to do."""
        self.wakeup.heard()
        now, workers = self._clock.now(), self._workers
        for worker in workers:
            if worker.wakeup.take() or worker.looks_at <= now:
                worker.looks_at = worker.begin_turns()
        due = min([worker.looks_at for worker in workers], default=now + LONGEST_WAIT)
        run_loop(self.loop, due - self._clock.now())
        for worker in workers:
            worker.raise_defect()
        return self._clock.now()

    def close(self) -> None:
        """End the thread and close the loop; no channel needs it any more."""
        self.driver.stop()
        if self.driver.join(5.0):
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()
