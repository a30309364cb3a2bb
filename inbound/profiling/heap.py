"""What is in memory, by where it was allocated: `tracemalloc`, which has to be on before."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable

from inbound.clock import Clock, Flag
from inbound.profiling.code import Names
from inbound.profiling.profile import Frame, Profile, Sample, ValueType

OBJECTS = ValueType("inuse_objects", "count")
SPACE = ValueType("inuse_space", "bytes")
#: How often it is asked whether the client is still there, in seconds.
_ASK_EVERY = 0.25
#: (filename, line) of each call, the innermost last; blocks; bytes.
_Grown = tuple[tuple[tuple[str, int], ...], int, int]


class Heap:
    """Traces allocations. Any thread; one snapshot at a time.

    Whoever began to trace ends it: what the code of a user has begun goes on.
    """

    def __init__(self, clock: Clock, frames: int) -> None:
        """`frames` is how many calls are kept of each allocation."""
        self._clock = clock
        self._frames = frames
        self._lock = threading.Lock()
        self._ours = False

    @property
    def tracing(self) -> bool:
        """Whether allocations are traced."""
        return tracemalloc.is_tracing()

    @property
    def lock(self) -> threading.Lock:
        """Held over a snapshot, by whoever has it taken: two at a time would measure each other."""
        return self._lock

    def begin(self) -> bool:
        """Trace from now on. Returns whether nobody did before."""
        if tracemalloc.is_tracing():
            return False
        tracemalloc.start(self._frames)
        self._ours = True
        return True

    def end(self) -> bool:
        """Trace no more, and forget what was. Returns whether that is so: not where others began to."""
        if self._ours:
            tracemalloc.stop()
            self._ours = False
        return not tracemalloc.is_tracing()

    def now(self) -> Profile:
        """Return what was allocated since tracing began, and is still there."""
        taken = tracemalloc.take_snapshot().statistics("traceback")
        return self._profile([(_calls(one.traceback), one.count, one.size) for one in taken], "memory in use", 0)

    def growth(self, seconds: float, collect: bool, end: Flag, gone: Callable[[], bool]) -> Profile | None:
        """Return by how much each place has grown, or shrunk, after `seconds`; None: nobody waits for it any more.

        Traces meanwhile, if it does not anyway: then it sees only what was allocated since.
        """
        began, own = self._clock.now(), self.begin()
        try:
            before = tracemalloc.take_snapshot()
            until = self._clock.now() + seconds
            while (left := until - self._clock.now()) > 0 and not self._clock.wait(end, min(left, _ASK_EVERY)):
                if gone():
                    return None
            if collect:
                gc.collect()
            grown = tracemalloc.take_snapshot().compare_to(before, "traceback")
            return self._profile(
                [
                    (_calls(one.traceback), one.count_diff, one.size_diff)
                    for one in grown
                    if one.count_diff or one.size_diff
                ],
                "growth of memory",
                int((self._clock.now() - began) * 1e9),
            )
        finally:
            if own:
                self.end()

    def _profile(self, grown: list[_Grown], title: str, duration_ns: int) -> Profile:
        names = Names()
        samples = []
        for calls, count, size in grown:
            stack: tuple[Frame, ...] = tuple(names.of_line(file, line) for file, line in reversed(calls))
            samples.append(Sample(stack, (count, size)))
        traced, peak = tracemalloc.get_traced_memory()
        return Profile(
            title=title, types=(OBJECTS, SPACE), default=SPACE.name, samples=samples, period=(SPACE, 1),
            time_ns=int(self._clock.wall() * 1e9), duration_ns=duration_ns,
            comments=(
                f"{traced:,} bytes are traced, at most {peak:,} were; what was allocated before tracing began is not seen",
                f"tracing itself takes {tracemalloc.get_tracemalloc_memory():,} bytes; up to "
                f"{tracemalloc.get_traceback_limit()} calls are kept of each allocation",
            ),
        )  # fmt: skip


def _calls(traceback: tracemalloc.Traceback) -> tuple[tuple[str, int], ...]:
    return tuple((frame.filename, frame.lineno) for frame in traceback)
