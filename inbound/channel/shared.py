"""What channels of one process stand on together: an event loop, and one reading of each topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from inbound.channel.async_worker import AsyncWorker
from inbound.channel.event_loop import new_event_loop
from inbound.channel.reader import Reader
from inbound.channel.shared_loop import SharedLoop
from inbound.channel.shared_reading import SharedReading
from inbound.clock import Clock
from inbound.driver import Driver


class Shared:
    """Made for the first channel that wants it; its threads run from when that starts until `close`."""

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
