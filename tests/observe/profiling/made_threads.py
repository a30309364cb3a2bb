"""Threads as a sampler sees them, by hand: each is somewhere, and has used so much of a processor, at each moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

from inbound.observe.profiling.threads import KnownThread, ThreadSource
from inbound.testing import ManualClock

SOURCE = """
class Orders:
    def book(self):
        self.send()
        self.send()

    def send(self):
        wait = 1
        work = 2
"""
FILE = "/app/orders.py"


def _codes() -> dict[str, CodeType]:
    found: dict[str, CodeType] = {}
    todo = [compile(SOURCE, FILE, "exec")]
    while todo:
        one = todo.pop()
        found[one.co_qualname] = one
        todo += [const for const in one.co_consts if isinstance(const, CodeType)]
    return found


CODES = _codes()


class MadeFrame:
    """Has what a sampler looks at, and counts how often it is asked where it is."""

    def __init__(self, function: str, line: int, caller: MadeFrame | None = None) -> None:
        self.f_code, self.f_back, self.looks = CODES[function], caller, 0
        self._instruction = next(start for start, _, at in self.f_code.co_lines() if at == line and start > 0)

    @property
    def f_lasti(self) -> int:
        self.looks += 1
        return self._instruction


def allocate() -> list[bytes]:
    """Return what takes 3 MiB, in three pieces; here, because the names of a test module's functions are not known."""
    return [bytes(2**20 + i) for i in range(3)]


#: The innermost frame of a thread, and the CPU time in seconds that it has had: at that time. None: it is not there.
At = Callable[[float], tuple[MadeFrame, float] | None]


class MadeThreads(ThreadSource):
    """Each thread has its ident, its name, its number, and its place and CPU time at each moment."""

    def __init__(self, clock: ManualClock, *threads: tuple[int, str, int | None, At], clocks: bool = True) -> None:
        self.clock, self.threads, self.clocks = clock, threads, clocks
        self.outside = 0.0  # CPU seconds per second of threads that know no Python
        self.began = clock.now()
        self.asked: list[int] = []
        self.look_costs, self._looks = 0.0, 0  # CPU seconds of the sampler's own thread for each look

    def frames(self) -> Mapping[int, Any]:
        self._looks += 1
        frames: dict[int, Any] = {ident: now[0] for ident, _, _, now in self._now()}
        frames[threading.get_ident()] = None  # the sampler's own, which it must not look at
        return frames

    def known(self) -> Mapping[int, KnownThread]:
        return {ident: KnownThread(name, number) for ident, name, number, _ in self._now()}

    def cpu_ns(self, number: int) -> int:
        if not self.clocks:
            raise OSError("no clocks here")
        if number == threading.get_native_id():
            return round(self._looks * self.look_costs * 1e9)
        self.asked.append(number)
        for _, _, its_number, now in self._now():
            if its_number == number:
                return round(now[1] * 1e9)
        raise OSError(f"there is no thread {number}")

    def process_cpu_ns(self) -> int:
        # Those that have ended keep what they had: `outside` is where a test puts it.
        total = sum(now[1] for _, _, number, now in self._now() if number is not None)
        return round((total + self.outside * (self.clock.now() - self.began)) * 1e9)

    def _now(self) -> list[tuple[int, str, int | None, tuple[MadeFrame, float]]]:
        elapsed = self.clock.now() - self.began
        found = ((ident, name, number, at(elapsed)) for ident, name, number, at in self.threads)
        return [(ident, name, number, now) for ident, name, number, now in found if now is not None]


def at_rest(frame: MadeFrame, cpu: float = 5.0) -> At:
    """Return what a thread does that waits: its CPU time does not grow."""
    return lambda elapsed: (frame, cpu)


def at_work(frame: MadeFrame, share: float = 1.0) -> At:
    """Return what a thread does that has a processor for that part of the time."""
    return lambda elapsed: (frame, 7.0 + elapsed * share)
