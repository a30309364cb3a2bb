"""The event loop and the readers that a process's channels share."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable

import uvloop

from inbound.channel.async_worker import LONGEST_WAIT, AsyncWorker, LoopWakeup, run_loop
from inbound.channel.reader import MAX_POLL, Reader
from inbound.clock import Clock
from inbound.kafka.base import BrokerFigures, LogClient, combined_figures
from inbound.kafka.clients.shared_log import TURN, SharedLog, SharedLogClient
from inbound.runtime.driver import DaemonThreads, Driver, Wakeup


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop whose threads do not delay the process's end."""
    loop = uvloop.new_event_loop()
    loop.set_default_executor(DaemonThreads(TO_THREAD))
    return loop


class Shared:
    """A shared loop and reading, with threads from the first channel on."""

    def __init__(self, clock: Clock, new_loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop) -> None:
        self.loop = SharedLoop(clock, new_loop)
        self.reading = SharedReading(clock)
        self._started = False

    @property
    def drivers(self) -> list[Driver]:
        """Its threads."""
        return [self.loop.driver, self.reading.driver]

    def add(self, worker: AsyncWorker, reader: Reader) -> None:
        """Serve a channel from now on."""
        self.loop.add(worker)
        self.reading.add(reader)
        if not self._started:
            self._started = True
            for driver in self.drivers:
                driver.start()

    def close(self) -> None:
        """End the threads, after the last channel was closed."""
        self.reading.close()
        self.loop.close()


class SharedLoop:
    """The shared loop and its workers: see `inbound.runtime.driver.Part`."""

    def __init__(self, clock: Clock, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self._clock = clock
        self.loop = new_loop()
        self.wakeup = LoopWakeup(self.loop)
        self.driver = Driver("subscriptions-loop", self, self.wakeup, clock, clock.now)
        #: Replaced as a whole, by other threads. So the times of their next looks are not in here: an entry that
        #: is written while another channel is added would be lost.
        self._workers: tuple[AsyncWorker, ...] = ()

    def wakeup_of_one(self) -> LoopWakeup:
        """Return the wakeup of one channel."""
        return LoopWakeup(self.loop, self.wakeup.set)

    @property
    def running(self) -> bool:
        """Whether the loop's thread runs."""
        return self.driver.thread.is_alive()

    def add(self, worker: AsyncWorker) -> None:
        """Serve a channel from now on. Any thread."""
        self._workers = (*self._workers, worker)
        self.wakeup.set()

    def remove(self, worker: AsyncWorker) -> None:
        """Begin no more turns of a channel. Any thread."""
        self._workers = tuple(one for one in self._workers if one is not worker)

    def run_once(self) -> float | None:
        """Begin turns of due channels, and run the loop until more are."""
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
        """End the thread and close the loop, after the last channel."""
        self.driver.stop()
        if self.driver.join(5.0):
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()


log = logging.getLogger(__name__)

#: Seconds until a reader's next step after a defect, as for a driver.
REST = 1.0


class SharedReading:
    """The readers, their shared clients, and their thread: see `inbound.runtime.driver.Part`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wakeup = Wakeup()
        self.driver = Driver("subscriptions-reader", self, self._wakeup, clock)
        self._lock = threading.Lock()  # while a reader is stepped, or taken out
        self._due: dict[Reader, float] = {}
        self._woken: deque[Reader] = deque()
        self._logs: dict[object, SharedLog] = {}

    def add(self, reader: Reader) -> None:
        """Step a reader from now on. Any thread."""
        with self._lock:
            self._due[reader] = 0.0
        self._wakeup.set()

    def remove(self, reader: Reader) -> None:
        """Step a reader no more; on return it is idle. Any thread."""
        with self._lock:
            self._due.pop(reader, None)

    def wake(self, reader: Reader) -> None:
        """Step a reader soon. Any thread."""
        self._woken.append(reader)
        self._wakeup.set()

    def connector(self, key: object, make: Callable[[], LogClient]) -> Callable[[], SharedLogClient]:
        """Return a function that makes views of the log of `key`.

        `make` makes a client for it. The function is for the reading thread, and may raise BrokerUnavailableError.
        """

        def connect() -> SharedLogClient:
            if key not in self._logs:
                self._logs[key] = SharedLog(make, self._clock, self._wakeup.set)
            return self._logs[key].view()

        return connect

    def brokers(self) -> list[BrokerFigures]:
        """Return its clients' measurements of requests, by broker. Any thread."""
        return combined_figures(one for shared in list(self._logs.values()) for one in shared.figures())

    def run_once(self) -> float | None:
        """Step the readers that are due or woken, then take in records."""
        woken, now = set[Reader](), self._clock.now()
        while self._woken:
            woken.add(self._woken.popleft())
        for reader, due in list(self._due.items()):
            if reader in woken or due <= now:
                self._step(reader)
        for key in [key for key, shared in self._logs.items() if shared.unused]:
            self._logs.pop(key).close()
        wait = 0.0 if self._woken else max(0.0, min(min(self._due.values(), default=now) - now, MAX_POLL))
        if len(self._logs) > 1:
            wait = min(wait, TURN)
        pumped = [shared.pump(wait) for shared in self._logs.values()]
        return min([*self._due.values(), *pumped], default=None)

    def _step(self, reader: Reader) -> None:
        with self._lock:
            if reader not in self._due:
                return
            try:
                due = reader.run_once(0.0)
            except Exception:
                self.driver.failures += 1
                log.exception("a reader failed; this is a defect of inbound, please report it; it goes on in 1 s")
                due = self._clock.now() + REST
            self._due[reader] = self._clock.now() if due is None else due

    def close(self) -> None:
        """End the thread, and close the clients."""
        self.driver.stop()
        self.driver.join(5.0)
        for shared in self._logs.values():
            shared.close()


#: Concurrent calls of `asyncio.to_thread`: as many as asyncio allows on a large machine.
TO_THREAD = 32
