"""The clock of all parts, which tests and the simulator replace."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from functools import partial
from typing import Protocol


class Flag(Protocol):
    """A flag to wait for: an Event, or a signal handler's Latch."""

    def is_set(self) -> bool: ...

    def wait(self, seconds: float | None = None, /) -> bool: ...


class Clock(ABC):
    """Tells the time: `SystemClock` in production, `inbound.testing.ManualClock` in tests."""

    @abstractmethod
    def now(self) -> float:
        """Return seconds that never decrease, and count while the machine sleeps."""

    @abstractmethod
    def wall(self) -> float:
        """Return seconds since 1970, for timestamps; never for deciding order."""

    def cpu(self) -> float:
        """Return the calling thread's CPU seconds; 0 for repeatable tests."""
        return 0.0

    @abstractmethod
    def wait(self, event: Flag, seconds: float | None) -> bool:
        """Block until `event` is set, and return whether it is.

        It waits `seconds` at most; None: without a limit.
        """


class SystemClock(Clock):
    """The machine's clock.

    `CLOCK_BOOTTIME` counts during suspend. With `CLOCK_MONOTONIC` a laptop that slept past its ZooKeeper session would wake up
    believing that its session is fresh, and deliver a batch as a zombie.
    """

    # Not methods: a step of the interpreter each would double their cost, and a batch reads the time ten times.
    _clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    now = staticmethod(partial(time.clock_gettime, _clock))
    wall = staticmethod(time.time)
    cpu = staticmethod(time.thread_time)

    def wait(self, event: Flag, seconds: float | None) -> bool:
        return event.wait(seconds)
