"""How many workers are awake. Python threads share one core: a second one helps only while the first one waits.

Waking all workers for a burst of records makes them fight over the interpreter, with the reader among them: with a
processor that only computes, five awake workers were measured to be a tenth slower than one. So while callbacks compute,
one worker serves partition after partition, and another one joins only for what has waited for a while; while callbacks
wait (for a database, a subscriber), everybody is woken at once.
"""

from __future__ import annotations

from collections.abc import Callable

#: How long a due partition waits, in seconds, while another worker is busy with a turn no older than this.
GRACE = 0.05
#: Callbacks count as waiting while less than this part of their time is CPU time.
COMPUTING = 0.3
#: How fast what callbacks did longest ago is forgotten, per observation.
MEMORY = 0.9


class Crew:
    """Used under the schedule's lock only. `wake` wakes one waiting worker."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._turns: dict[object, float] = {}  # worker: when its turn began
        self._cpu = 0.0
        self._elapsed = 0.0
        self._watch_until = float("-inf")  # a worker is awake to look after what is due until then

    @property
    def computing(self) -> bool:
        """Whether callbacks mostly compute. Until one was seen, they are taken to wait."""
        return self._cpu > COMPUTING * self._elapsed

    @property
    def at_work(self) -> int:
        """How many workers are in a turn."""
        return len(self._turns)

    def observe(self, cpu: float, elapsed: float) -> None:
        """Take note of one callback: CPU seconds of its thread, and seconds passed."""
        self._cpu = self._cpu * MEMORY + cpu
        self._elapsed = self._elapsed * MEMORY + elapsed

    def partition_due(self, now: float) -> None:
        """A partition has become due, or will at a time: see that somebody looks after it."""
        if not self.computing or not self._quick_turn(now) or now >= self._watch_until:
            self._wake()

    def hold_off(self, now: float, due: float) -> float | None:
        """Return when a worker should ask again instead of taking what was due at `due`; None: take it now."""
        if not self.computing or not self._quick_turn(now) or now >= due + GRACE:
            return None
        self._watch_until = due + GRACE
        return self._watch_until

    def begin(self, worker: object, now: float) -> None:
        """`worker` has taken a partition."""
        self._turns[worker] = now

    def begin_reading(self, worker: object, now: float) -> bool:
        """`worker` has nothing to serve, and reads. False: it is not the only one at work, or callbacks wait."""
        if self._turns or not self.computing:
            return False
        self._turns[worker] = now
        return True

    def end(self, worker: object) -> None:
        """It has passed the partition on."""
        self._turns.pop(worker, None)

    def _quick_turn(self, now: float) -> bool:
        """Whether a worker is in a turn that has not lasted long: it will be back for the next partition."""
        return any(now < began + GRACE for began in self._turns.values())
