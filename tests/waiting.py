"""Waiting for other threads, processes and servers: one helper, whose deadlines grow with the machine's slowness.

A deadline says how long something takes on a quiet machine, with room to spare. Whether this machine is quiet is measured
when a deadline has passed, not guessed beforehand: a wait that succeeds costs nothing.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: What counting to a million with squares needs of the processor that all bounds are made for. Seconds.
COUNTING = 0.07
#: No machine counts as slower than so many times: what hangs must fail, and before pytest ends it without its message.
SLOWEST = 6.0
#: How long a wait sleeps between two looks. Seconds.
LOOK = 0.05


def slowness() -> tuple[float, float]:
    """Return how many times longer than usual work takes now: on a processor, and until it gets one. At least 1 each."""
    began, total = time.thread_time(), 0
    for number in range(1_000_000):
        total += number * number
    slower = min(SLOWEST, max(1.0, (time.thread_time() - began) / COUNTING))
    return slower, min(SLOWEST, slower * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


class Deadline:
    """A time limit in seconds of a quiet machine; `passed` measures the machine before it says yes. Any thread."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began = time.monotonic()
        self._due = self._began + seconds

    def passed(self) -> bool:
        """Return whether the time is over, also for a machine as slow as this one is now."""
        if time.monotonic() < self._due:
            return False
        self._due = max(self._due, self._began + self.seconds * slowness()[1])
        return time.monotonic() >= self._due

    def took(self) -> float:
        """Return the seconds since the beginning."""
        return time.monotonic() - self._began


def until(condition: Callable[[], T], seconds: float, what: str | Callable[[], str], *, look: float = LOOK) -> T:
    """Wait until `condition` is true and return what it returned.

    Raises AssertionError with `what` (called then, if it can be called) when the deadline has passed.
    """
    deadline = Deadline(seconds)
    while not (found := condition()):
        if deadline.passed():
            said = what() if callable(what) else what
            raise AssertionError(f"not within {seconds:g} s ({deadline.took():.1f} s on this machine): {said}")
        time.sleep(look)
    return found


def wait_for(event: threading.Event, seconds: float, what: str) -> None:
    """Wait for a thread's event. Raises AssertionError with `what` when the deadline has passed."""
    deadline = Deadline(seconds)
    while not event.wait(min(seconds, 1.0)):
        if deadline.passed():
            raise AssertionError(f"not within {seconds:g} s ({deadline.took():.1f} s on this machine): {what}")


def patient(seconds: float) -> float:
    """Return a bound for what was just measured, scaled to this machine as it is now. Seconds."""
    return seconds * slowness()[1]
