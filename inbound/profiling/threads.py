"""The threads of this process as they are now."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

#: How the kernel makes the number of a thread's CPU clock of the thread's: see clock_gettime(2) and pthread_getcpuclockid(3).
#: By that number a thread that has ended meanwhile is an error; by `time.pthread_getcpuclockid` it is a crash.
_PER_THREAD, _SCHEDULED = 4, 2
#: The letter in /proc/self/task/<number>/stat, in words.
_STATES = {"R": "running", "S": "waiting", "D": "waiting for the disk", "T": "stopped", "t": "traced", "Z": "ending"}
#: What follows a channel's name in the names of its threads: see `inbound.channel.kafka_channel`.
_OF_CHANNEL = re.compile(r"(.+)-(?:reader|mirror|event-loop|worker-\d+)")


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a thread."""

    name: str
    number: int | None  # the kernel's; None: unknown
    daemon: bool = False


class Threads(Protocol):
    """What a sampler looks at."""

    def frames(self) -> Mapping[int, FrameType]:
        """Return the innermost frame of each thread that has run Python, by `threading.get_ident`."""

    def known(self) -> Mapping[int, Known]:
        """Return what is known of threads, by the same."""

    def cpu_ns(self, number: int) -> int:
        """Return how long a thread has had a processor. Raises OSError: there is no such thread, or no such clock."""

    def process_cpu_ns(self) -> int:
        """Return how long all threads together, also those that have ended and those that know no Python, have had one."""


class SystemThreads:
    """Those of this process: see `Threads`. Any thread."""

    def frames(self) -> Mapping[int, FrameType]:
        return sys._current_frames()

    def known(self) -> Mapping[int, Known]:
        return {
            thread.ident: Known(thread.name, thread.native_id, thread.daemon)
            for thread in threading.enumerate()
            if thread.ident is not None
        }

    def cpu_ns(self, number: int) -> int:
        return time.clock_gettime_ns((~number << 3) | _PER_THREAD | _SCHEDULED)

    def process_cpu_ns(self) -> int:
        return time.process_time_ns()


def has_cpu_clocks(threads: Threads) -> bool:
    """Whether the CPU time of single threads can be read on this system: on Linux."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        threads.cpu_ns(threading.get_native_id())
    except OSError:
        return False
    return True


def state_of(number: int | None) -> str | None:
    """Return what a thread does, in a word; None: unknown, or it has ended."""
    try:
        stat = Path(f"/proc/self/task/{number}/stat").read_text()
    except OSError:
        return None
    return _STATES.get(stat.rpartition(")")[2].split()[0], "?")


def channel_of(thread: str) -> str | None:
    """Return the channel that a thread of that name works for; None: for none of them, or for all."""
    found = _OF_CHANNEL.fullmatch(thread)
    return found[1] if found is not None else None
