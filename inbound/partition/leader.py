"""The leader polls the client, other workers deliver, and one stands by.

There is no thread that only reads. Workers take turns as the leader: the leader polls, on its own thread, and then delivers
its own records, while they are in the processor's cache. Two rules say who else wakes:

- While callbacks wait (for a database, a subscriber) every partition that is due wakes another worker, and the first one
  with nothing to deliver polls on: a slow partition holds back only itself.
- While callbacks compute, no other worker wakes: Python threads share one core. Fifty awake workers were measured to get half as
  much done as one, and to keep commits waiting for the interpreter. One worker stands by, and goes on when a turn has taken
  `GRACE`: a callback that never ends does not hold back other partitions. Another worker takes what has waited that long, too,
  where that helps: while turns leave a part of the core unused, or callbacks are long and do not hinder each other (code in C).

There is one worker more than callbacks at a time (`most`): while all of these are slow, or hang, it polls on, so that claims are
opened, logs' ends are known, and `explain` can say what is not delivered, and why.

Where a helper polls, beside an event loop, no worker ever leads, and all of this is about deliveries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: How long a due partition waits, in seconds, while another worker is busy with a turn no older than this.
GRACE = 0.05
#: Callbacks count as waiting while less than this part of their time is CPU time.
COMPUTING = 0.3
#: Callbacks that are under way use up a core when they have so much of it.
USED_UP = 0.85
#: Turns that have less of it wait for something else than each other: fifty that only do that have half of it.
LEFT_ALONE = 0.3
#: Callbacks that take so long, in seconds, would be interrupted by others that want the interpreter: they get this part of a core
#: only where they do not hinder each other.
LONG, UNHINDERED = 0.005, 0.75
#: How much of the time that callbacks and turns took is remembered, in seconds.
MEMORY = 0.1
#: A poll waits no longer than this, in seconds, where no other worker is free to deliver what becomes due during it.
ALONE = 0.025
NEVER = float("inf")
#: The on_next_batch of a turn without a batch: CPU seconds, and seconds passed.
NO_EFFORT = (0.0, 0.0)


@dataclass(slots=True)
class Effort:
    """Recent CPU time and seconds, with the oldest weighing least."""

    cpu: float = 0.0  # seconds of its threads
    elapsed: float = 0.0  # seconds passed
    count: float = 0.0

    def add(self, cpu: float, elapsed: float) -> None:
        """Take note of it once more."""
        kept = MEMORY / (MEMORY + elapsed)
        self.cpu = self.cpu * kept + cpu
        self.elapsed = self.elapsed * kept + elapsed
        self.count = self.count * kept + 1


@dataclass(frozen=True, slots=True)
class Lead:
    """The order to poll, and to wait for records so long."""

    seconds: float


class Leading:
    """Used under the schedule's lock only. `wake` wakes one waiting worker."""

    def __init__(self, wake: Callable[[], None], most: int) -> None:
        self._wake = wake
        self.most = most  # turns at a time
        self._turns: dict[object, float] = {}  # worker: when its turn began
        self._idle: set[object] = set()  # workers that wait to be woken
        self._standby: object = None  # the one of them that looks again without being woken, and when
        self._until = NEVER
        self._leader: object = None
        self._read_at = 0.0  # when the next poll is due
        self._again = False  # a poll was asked for during a poll: at once
        self._feeding = False  # the leader itself makes partitions due, and comes back for them
        self._callbacks = Effort()  # on_next_batch
        self._efforts = Effort()  # turns as a whole: other callbacks and the ledger may wait, too
        self._worked_at = -NEVER  # when the last turn began
        #: Has who polls apart do so soon; None: workers lead.
        self.helper: Callable[[], None] | None = None

    def read_apart(self, wake: Callable[[], None]) -> None:
        """Have no worker ever poll; `wake` wakes the thread that does."""
        self.helper = wake

    @property
    def computing(self) -> bool:
        """Whether callbacks mostly compute. Until one was seen, they are taken to wait."""
        return self._callbacks.cpu > COMPUTING * self._callbacks.elapsed

    @property
    def full(self) -> bool:
        """Whether no more turns may be under way at a time."""
        return len(self._turns) >= self.most

    def observe(self, callback: tuple[float, float], turn: tuple[float, float]) -> None:
        """Note one turn and its on_next_batch. Each is CPU seconds of its thread, and seconds passed."""
        if callback[1]:
            self._callbacks.add(*callback)
        if turn[1]:
            self._efforts.add(*turn)

    def _another_helps(self, now: float) -> bool:
        """Whether one more turn, beside those under way, gets more done."""
        turn, callback = self._efforts, self._callbacks
        oldest = now - max(GRACE, 2 * turn.elapsed / turn.count if turn.count else 0.0)
        under_way = sum(began > oldest for began in self._turns.values())  # what hangs uses nothing
        return (
            under_way * callback.cpu < USED_UP * callback.elapsed
            or under_way * turn.cpu < LEFT_ALONE * turn.elapsed
            or (callback.cpu > UNHINDERED * callback.elapsed and callback.elapsed > LONG * callback.count)
        )

    # -- what a worker does next ---------------------------------------------------------------------------------------

    def next_of(self, worker: object, now: float, due: float) -> Lead | float | None:
        """Return the next step of a free worker. `due` is the next partition's time (`NEVER`: none).

        Returns: None, it delivers that partition; `Lead`; or until when it waits (`NEVER`: until it is woken).
        """
        self.comes(worker)
        if self.full:
            due = NEVER  # who comes back from a turn looks
        may_lead = self._leader is None and self.helper is None
        at = min(due, self._read_at) if may_lead else due
        if at > now:
            return self._wait(worker, now, at)
        quick = self._quick_until(now) if self.computing else None
        if quick is not None:
            # They come back for it. A due partition waits no longer than the grace, where that helps.
            until = min(quick, due + GRACE) if self._another_helps(now) else quick
            if until > now:
                return self._wait(worker, now, until)
        if due <= now and not (
            may_lead and self._read_at + GRACE <= now
        ):  # a command to the polling worker must not wait without end
            self._turns[worker] = self._worked_at = now
            return None
        self._leader, self._again = worker, False
        return Lead(max(0.0, due - now) if self._idle else min(ALONE, max(0.0, due - now)))

    def took(self, now: float, more: bool) -> None:
        """Note that a worker has taken a partition; `more` are due. Wake workers for these, and for the next poll."""
        if (more and not self.full) or (self._leader is None and self.helper is None):
            self._need(now, now)

    def end_turn(self, worker: object) -> None:
        """It has passed its partition on."""
        self._turns.pop(worker, None)

    def comes(self, worker: object) -> None:
        """Forget that a worker waits. It is here, or its thread has ended."""
        self._idle.discard(worker)
        if self._standby is worker:
            self._standby, self._until = None, NEVER

    def end_lead(self, at: float) -> None:
        """Note that the leader has polled. `at` is the time of the next poll."""
        self._leader = None
        self._read_at = 0.0 if self._again else at

    # -- who is woken --------------------------------------------------------------------------------------------------

    def becomes_due(self, now: float, at: float) -> None:
        """Wake a worker for a partition that becomes due at a time."""
        if not (self._feeding or self.full):
            self._need(now, at)

    def _need(self, now: float, at: float) -> None:
        if not self._idle:
            return  # a busy worker looks for more when its turn is over
        at = max(at, now)
        if self.computing and self._quick_until(now) is not None:
            at += GRACE
        if self._standby is None or self._until > at or self._until < now - GRACE:
            self._wake()

    def misses_one(self, now: float) -> None:
        """Wake another worker: one has raised, and rests for a while."""
        self._need(now, now)

    def read_soon(self, now: float) -> None:
        """Have the client polled soon. A command or news waits for the leader."""
        if self.helper is not None:
            self.helper()
        elif self._leader is not None:
            self._again = True
        elif self._read_at > now:
            self._read_at = now
            self._need(now, now)

    def begin_feeding(self) -> None:
        """Note that the polling thread makes partitions due. A leader delivers as many as it can itself."""
        self._feeding = self._leader is not None

    def end_feeding(self, count: int) -> None:
        """So many are due now. While callbacks wait, others help."""
        helped, self._feeding = self._feeding, False
        if helped and not self.computing:
            for _ in range(min(count - 1, len(self._idle))):
                self._wake()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _wait(self, worker: object, now: float, until: float) -> float:
        """Let a worker wait. Only the one that stands by looks again without being woken, for all of them."""
        self._idle.add(worker)
        if self.computing and now < self._worked_at + GRACE:
            # Else each partition that becomes due would wake it, only to find that the one that delivers has come back.
            until = min(until, now + GRACE)
        if self._standby is None or until < self._until or self._until < now - GRACE:  # the last: it has ended
            self._standby, self._until = worker, until
            return until
        return NEVER

    def _quick_until(self, now: float) -> float | None:
        """Return until when a worker counts as soon back. None: no worker is in such a turn."""
        if not self._turns:
            return None
        until = max(self._turns.values()) + GRACE
        return until if now < until else None
