"""Time as the parts of inbound see it: passed in, so that tests and the simulator can own it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from functools import partial
from typing import Protocol


class Flag(Protocol):
    """What can be waited for: an Event, or a Latch where a signal's handler sets it."""

    def is_set(self) -> bool: ...

    def wait(self, seconds: float | None = None, /) -> bool: ...


class Clock(ABC):
    """Where a part gets the time from. Production uses `SystemClock`, tests `inbound.testing.ManualClock`."""

    @abstractmethod
    def now(self) -> float:
        """Return seconds on a clock that never goes back and goes on while the machine sleeps."""

    @abstractmethod
    def wall(self) -> float:
        """Return seconds since the Unix epoch, for timestamps that people read; never for deciding order."""

    def cpu(self) -> float:
        """Return CPU seconds of the calling thread. 0 of clocks that are moved by hand: the same is to happen each time."""
        return 0.0

    @abstractmethod
    def wait(self, event: Flag, seconds: float | None) -> bool:
        """Block until `event` is set (True) or `seconds` have passed (False); None waits without limit."""


class SystemClock(Clock):
    """The machine's clock.

    `CLOCK_BOOTTIME` runs on through suspend. With `CLOCK_MONOTONIC` a laptop that slept past its ZooKeeper session
    would wake believing that its session is fresh, and deliver a batch as a zombie.
    """

    # Not methods: a step of the interpreter each would double what they cost, and a batch takes the time ten times.
    _clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    now = staticmethod(partial(time.clock_gettime, _clock))
    wall = staticmethod(time.time)
    cpu = staticmethod(time.thread_time)

    def wait(self, event: Flag, seconds: float | None) -> bool:
        return event.wait(seconds)
