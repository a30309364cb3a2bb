"""How long a process keeps its own threads out: what a bound on one input is about, on however busy a machine."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

#: Between two beats, in seconds.
_BEAT = 0.001


class Heartbeat:
    """A thread that does nothing but wake up, as ZooKeeper's does. Use it as a context manager around what is measured.

    What counts is the processor time of this process between two beats, not the time: of a machine that is busy with others
    nothing is measured. Python switches threads after 5 ms, but for what is done in C in one piece.
    """

    def __init__(self) -> None:
        self.longest = 0.0  # processor seconds between two beats, at most
        self._over, self._beats = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        self._beats.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        before = time.process_time()
        self._beats.set()
        over = False
        while not over:
            over = self._over.wait(_BEAT)
            now = time.process_time()
            self.longest, before = max(self.longest, now - before), now


def kept_out(work: Callable[[], object], enough: float, tries: int = 3) -> float:
    """Return for how many processor seconds `work` keeps other threads out; the least of a few tries, until it is below `enough`.

    A thread that may go on, and has no processor because others have it, is not kept out: it happens, and not each time. Nor
    is what the collector looks through that was there before.
    """
    found = []
    gc.collect()
    gc.freeze()
    try:
        for _ in range(tries):
            with Heartbeat() as heartbeat:
                work()
            found.append(heartbeat.longest)
            if found[-1] < enough:
                break
    finally:
        gc.unfreeze()
    return min(found)
