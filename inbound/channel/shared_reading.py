"""One thread that reads for the channels of a process whose processors share an event loop: what they read of one topic, once."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from inbound.channel.reader import MAX_POLL, Reader
from inbound.clock import Clock
from inbound.driver import Driver, Wakeup
from inbound.kafka.base import LogClient
from inbound.kafka.broker_figures import BrokerFigures, together
from inbound.kafka.shared_log import TURN, SharedLog, View

log = logging.getLogger(__name__)

#: A reader that has a defect rests so long, in seconds, as a driver would have it.
REST = 1.0


class SharedReading:
    """The readers, the clients that they share, and the thread that steps them: see `inbound.driver.Part`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wakeup = Wakeup()
        self.driver = Driver("subscriptions-reader", self, self._wakeup, clock)
        self._lock = threading.Lock()  # while a reader is stepped, or taken out
        self._due: dict[Reader, float] = {}
        self._woken: deque[Reader] = deque()
        self._logs: dict[object, SharedLog] = {}

    def add(self, reader: Reader) -> None:
        """Step it from now on. Any thread."""
        with self._lock:
            self._due[reader] = 0.0
        self._wakeup.set()

    def remove(self, reader: Reader) -> None:
        """Step it no more; when this returns, it is in no step. Any thread."""
        with self._lock:
            self._due.pop(reader, None)

    def wake(self, reader: Reader) -> None:
        """There is something to do for it. Any thread."""
        self._woken.append(reader)
        self._wakeup.set()

    def connector(self, key: object, make: Callable[[], LogClient]) -> Callable[[], View]:
        """Return what makes a view of the log that all with this key read; `make` makes a client for it.

        What it returns is for the reading thread, and may raise BrokerUnavailableError.
        """

        def connect() -> View:
            if key not in self._logs:
                self._logs[key] = SharedLog(make, self._clock, self._wakeup.set)
            return self._logs[key].view()

        return connect

    def brokers(self) -> list[BrokerFigures]:
        """Return what its clients have measured of their requests, by broker. Any thread."""
        return together(one for shared in list(self._logs.values()) for one in shared.figures())

    def run_once(self) -> float | None:
        """Step who has something to do, then take in what has come."""
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
