"""The memory profile shows where the memory in use was allocated.

It needs `tracemalloc`.
"""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable

from inbound.clock import Clock, Flag
from inbound.observe.profiling.profile import Names, Profile, StackSample, ValueType

OBJECTS = ValueType("inuse_objects", "count")
SPACE = ValueType("inuse_space", "bytes")
#: Seconds between two checks of the client's connection.
_ASK_EVERY = 0.25


class Heap:
    """Traces allocations. Any thread; one snapshot at a time.

    Tracing that the user's code has begun goes on.
    """

    def __init__(self, clock: Clock, frames: int) -> None:
        """`frames` calls are kept of each allocation."""
        self._clock = clock
        self._frames = frames
        self._ours = False
        #: Held during a snapshot: two at a time would measure each other.
        self.lock = threading.Lock()

    def begin(self) -> bool:
        """Trace from now on; return False: allocations were traced already."""
        if tracemalloc.is_tracing():
            return False
        tracemalloc.start(self._frames)
        self._ours = True
        return True

    def end(self) -> bool:
        """Stop tracing, unless the user's code began it.

        Returns whether nothing is traced.
        """
        if self._ours:
            tracemalloc.stop()
            self._ours = False
        return not tracemalloc.is_tracing()

    def now(self) -> Profile:
        """Return the memory allocated since tracing began that is still in use."""
        taken = tracemalloc.take_snapshot().statistics("traceback")
        return self._profile([(one.traceback, one.count, one.size) for one in taken], "memory in use", 0)

    def growth(self, seconds: float, collect: bool, end: Flag, gone: Callable[[], bool]) -> Profile | None:
        """Return each place's growth over `seconds`; None: the client has gone.

        If nothing was traced before, the profile has only the allocations of these seconds.
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
                [(one.traceback, one.count_diff, one.size_diff) for one in grown if one.count_diff or one.size_diff],
                "growth of memory",
                int((self._clock.now() - began) * 1e9),
            )
        finally:
            if own:
                self.end()

    def _profile(self, grown: list[tuple[tracemalloc.Traceback, int, int]], title: str, duration_ns: int) -> Profile:
        names = Names()
        samples = [
            StackSample(tuple(names.of_line(one.filename, one.lineno) for one in reversed(place)), (count, size))
            for place, count, size in grown
        ]
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
