"""A flag that signal handlers may set, and handlers for a while."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from types import FrameType

#: How long a signal may lie unheard of, in seconds: see `Latch`.
HEARD_WITHIN = 0.5


class Latch:
    """Like `threading.Event`, but never unset, and for signal handlers too. Any thread.

    A handler runs on the main thread in between any two of its steps. Where that thread is just inside the lock of an
    Event that it waits for, or sets for an earlier signal, the handler's own `set` never gets that lock, and the
    process never ends. A SimpleQueue has no such lock: its `put` is made to be called in the midst of its `get` or `put`.

    Nor may the main thread sleep without an end. The system may give a signal to another thread, which just starts a thread
    and so has all signals blocked for a moment: 1. SIGTERM wakes the main thread; 2. the other unblocks, and takes the signal
    that is still pending; 3. the main thread finds none, and sleeps on; the handler, which only it may run, waits for its
    waking. Processes whose threads start threads all the time were often deaf to their first SIGTERM.
    """

    def __init__(self) -> None:
        self._set = False
        self._tokens: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        """Return whether it was set."""
        return self._set

    def set(self) -> None:
        """Let everybody who waits go on, for good."""
        self._set = True
        self._tokens.put(None)

    def wait(self, seconds: float | None = None) -> bool:
        """Block until it is set, for so many seconds at most. Returns whether it was."""
        end = None if seconds is None else time.monotonic() + seconds
        while not self._set:
            left = HEARD_WITHIN if end is None else min(HEARD_WITHIN, end - time.monotonic())
            try:
                self._tokens.get(timeout=max(0.0, left))
                self._tokens.put(None)  # for the next one who waits
            except Empty:
                if left < HEARD_WITHIN:
                    break
        return self._set


@contextmanager
def handled(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have `handle` called for SIGINT and SIGTERM, and restore their handlers. The main thread's."""
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
