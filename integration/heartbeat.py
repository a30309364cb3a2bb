"""How long the machine itself was frozen: what a bound in seconds may be extended by, and by nothing else."""

from __future__ import annotations

import threading
import time
from types import TracebackType

#: How long the thread sleeps between two beats, in seconds.
_BEAT = 0.01
#: A beat that is late by less is no standstill. Seconds.
_NOTED = 0.01


class Heartbeat:
    """A thread that does nothing but wake up, and notes by how much it woke up late.

    What it misses, everybody on this machine may have missed: the servers, the process that is looked at, and who
    measures. Use it as a context manager around what is measured; times are those of `time.monotonic`. Any thread.
    """

    def __init__(self) -> None:
        self._late: list[tuple[float, float]] = []  # (when it woke up, by how many seconds too late)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def lost(self, since: float, till: float = float("inf")) -> float:
        """Return the seconds that were lost from one time to the other, or to now, all late beats together."""
        late = ((max(woke - late, since), min(woke, till)) for woke, late in list(self._late))
        return sum(end - begin for begin, end in late if end > begin)

    def worst(self, within: float, since: float = float("-inf")) -> float:
        """Return the most seconds that were lost within any so many seconds since then."""
        beats = [beat for beat in list(self._late) if beat[0] > since]
        return max((sum(late for at, late in beats if woke - within <= at <= woke) for woke, _ in beats), default=0.0)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic() + _BEAT
        while not self._over.wait(max(0.0, due - time.monotonic())):
            now = time.monotonic()
            if now - due > _NOTED:
                self._late.append((now, now - due))
            due = now + _BEAT
