"""A flag that signal handlers may set, and temporary signal handlers."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from types import FrameType

#: The longest time that a signal stays unhandled: see `Latch`. Seconds.
HEARD_WITHIN = 0.5


class Latch:
    """Like `threading.Event`, but never unset, and for signal handlers too. Any thread.

    A handler runs on the main thread between any two of its steps. If that thread is inside the lock of an Event that it waits
    for, or sets for an earlier signal, the handler's own `set` never gets the lock, and the process never ends. A SimpleQueue has
    no such lock: its `put` may be called within its `get` or `put`.

    Nor may the main thread sleep without a limit. The system may give a signal to another thread, which just starts a thread
    and so has all signals blocked for a moment: 1. SIGTERM wakes the main thread; 2. the other unblocks, and takes the signal
    that is still pending; 3. the main thread finds none, and sleeps on; the handler, which only it may run, waits until it wakes.
    Processes whose threads start threads all the time often missed their first SIGTERM.
    """

    def __init__(self) -> None:
        self._set = False
        self._tokens: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        """Return whether `set` was called."""
        return self._set

    def set(self) -> None:
        """Wake all waiting threads, and all later ones."""
        self._set = True
        self._tokens.put(None)

    def wait(self, seconds: float | None = None) -> bool:
        """Block until `set`, for `seconds` at most; return whether it is set."""
        end = None if seconds is None else time.monotonic() + seconds
        while not self._set:
            left = HEARD_WITHIN if end is None else min(HEARD_WITHIN, end - time.monotonic())
            try:
                self._tokens.get(timeout=max(0.0, left))
                self._tokens.put(None)  # for the next waiting thread
            except Empty:
                if left < HEARD_WITHIN:
                    break
        return self._set


@contextmanager
def handled(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle SIGINT and SIGTERM for a while. For the main thread."""
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
