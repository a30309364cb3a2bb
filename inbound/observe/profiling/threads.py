"""The threads of this process have names, clocks and stacks."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from inbound.observe.profiling.profile import Frame, Names, Profile, StackSample, ValueType

#: The kernel makes the number of a thread's CPU clock of the thread's number: see clock_gettime(2), pthread_getcpuclockid(3).
#: With that number an ended thread raises OSError; `time.pthread_getcpuclockid` crashes.
_PER_THREAD, _SCHEDULED = 4, 2
#: The letter in /proc/self/task/<number>/stat, in words.
_STATES = {"R": "running", "S": "waiting", "D": "waiting for the disk", "T": "stopped", "t": "traced", "Z": "ending"}
#: The name of a channel's thread: see `inbound.channel.kafka_channel`.
_OF_CHANNEL = re.compile(r"(.+)-(?:reader|mirror|event-loop|worker-\d+)")
#: Of a deeper stack the outermost calls are left out.
DEEPEST = 256
THREADS = ValueType("threads", "count")


class KnownThread(NamedTuple):
    """A thread's name and number."""

    name: str
    number: int | None  # the kernel's; None: unknown
    daemon: bool = False


class ThreadSource:
    """The threads of this process, for a sampler. Any thread."""

    def frames(self) -> Mapping[int, FrameType]:
        """Return each thread's innermost Python frame, by `threading.get_ident`."""
        return sys._current_frames()

    def known(self) -> Mapping[int, KnownThread]:
        """Return the names and numbers of threads, by `threading.get_ident`."""
        return {
            thread.ident: KnownThread(thread.name, thread.native_id, thread.daemon)
            for thread in threading.enumerate()
            if thread.ident is not None
        }

    def cpu_ns(self, number: int) -> int:
        """Return the CPU time of a thread.

        Raises:
            OSError: there is no such thread, or no such clock.
        """
        return time.clock_gettime_ns((~number << 3) | _PER_THREAD | _SCHEDULED)

    def process_cpu_ns(self) -> int:
        """Return all threads' CPU time, including ended and non-Python ones."""
        return time.process_time_ns()

    def has_cpu_clocks(self) -> bool:
        """Whether this system measures the CPU time of single threads."""
        if not sys.platform.startswith("linux"):
            return False
        try:
            self.cpu_ns(threading.get_native_id())
        except OSError:
            return False
        return True


def named(known: Mapping[int, KnownThread], ident: int) -> KnownThread:
    """Return the thread `ident`; one unknown to Python is named by it."""
    return known.get(ident) or KnownThread(f"[thread {ident}]", None)


def state_of(number: int | None) -> str | None:
    """Return a thread's state; None: unknown, or the thread has ended."""
    try:
        stat = Path(f"/proc/self/task/{number}/stat").read_text()
    except OSError:
        return None
    return _STATES.get(stat.rpartition(")")[2].split()[0], "?")


def labels_of(thread: str) -> dict[str, str]:
    """Return a thread's labels: its name, and its channel if any."""
    found = _OF_CHANNEL.fullmatch(thread)
    return {"thread": thread} if found is None else {"thread": thread, "channel": found[1]}


class ThreadStack(NamedTuple):
    """A thread's place at one moment."""

    known: KnownThread
    state: str | None
    stack: tuple[Frame, ...]  # the innermost call first


def stacks_of(threads: ThreadSource, wanted: Callable[[str], bool]) -> list[ThreadStack]:
    """Return the wanted threads' stacks, by name, without the calling thread."""
    found, known, me = threads.frames(), threads.known(), threading.get_ident()
    calls = [(named(known, ident), _calls(frame)) for ident, frame in found.items() if ident != me]
    names = Names()
    return [
        ThreadStack(one, state_of(one.number), tuple(names.of_instruction(frame.f_code, at) for frame, at in frames))
        for one, frames in sorted(calls, key=lambda pair: pair[0].name)
        if wanted(one.name)
    ]


def _calls(innermost: FrameType) -> list[tuple[FrameType, int]]:
    """Return frames with their instructions, all before the threads go on."""
    calls: list[tuple[FrameType, int]] = []
    frame: FrameType | None = innermost
    while frame is not None and len(calls) < DEEPEST:
        calls.append((frame, frame.f_lasti))
        frame = frame.f_back
    return calls


def as_profile(stacks: Iterable[ThreadStack], now_ns: int) -> Profile:
    """Return a profile in which each thread counts 1.

    Threads with the same place, name and state are one sample. `now_ns` is since the Unix epoch.
    """
    alike = Counter((one.stack, one.known.name, one.state) for one in stacks)
    samples = [
        StackSample(stack, (count,), labels_of(name) | ({"state": state} if state is not None else {}))
        for (stack, name, state), count in alike.items()
    ]
    return Profile(
        title="threads", types=(THREADS,), default=THREADS.name, samples=samples, period=(THREADS, 1),
        time_ns=now_ns,
    )  # fmt: skip


def grouped(stacks: Iterable[ThreadStack]) -> str:
    """Return the text of `debug=1`: threads grouped by place, largest group first."""
    together: dict[tuple[Frame, ...], list[str]] = {}
    for one in stacks:
        together.setdefault(one.stack, []).append(one.known.name)
    lines = [f"threads profile: total {sum(map(len, together.values()))}"]
    for stack, names in sorted(together.items(), key=lambda item: -len(item[1])):
        counted = (name if count == 1 else f"{name} ({count})" for name, count in Counter(names).items())
        lines += ["", f"{len(names)} @ {', '.join(counted)}"]
        lines += [f"#\t{frame.function}\t{frame.file}:{frame.line}" for frame in stack]
    return "\n".join(lines) + "\n"


def one_by_one(stacks: Iterable[ThreadStack]) -> str:
    """Return the text of `debug=2`: each thread, as in Go's tracebacks."""
    blocks = []
    for known, state, stack in stacks:
        about = [state or "unknown", *(["daemon"] if known.daemon else []), f"system thread {known.number or '?'}"]
        calls = (f"\n{frame.function}(...)\n\t{frame.file}:{frame.line}" for frame in stack)
        blocks.append(f'thread "{known.name}" [{", ".join(about)}]:{"".join(calls)}')
    return "\n\n".join(blocks) + "\n"
