"""The leader polls the client, other workers deliver, and one stands by.

There is no thread that only reads. Workers take turns as the leader: the leader polls, on its own thread, and then delivers
its own records, while they are in the CPU's cache. Two rules decide which other workers wake:

- While callbacks wait (for a database, a subscriber) every partition that is due wakes another worker, and the first one
  with nothing to deliver polls on: a slow partition delays only itself.
- While callbacks compute, no other worker wakes: Python threads share one core. Fifty awake workers were measured to get half
  as much done as one, and to make commits wait for the interpreter. One worker stands by, and goes on when a turn has taken
  `GRACE`: a callback that never ends does not block other partitions. Another worker takes a partition that has waited that
  long, too, where that helps: while turns leave a part of the core unused, or callbacks are long and run in parallel (code in C).

There is one worker more than concurrent callbacks (`most`): while all of these are slow, or hang, it polls on, so that claims
are opened, logs' ends are known, and `explain` can say what is not delivered, and why.

Where a separate thread polls beside an event loop, no worker ever leads, and these rules are about deliveries only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: Seconds that a due partition waits while another worker is busy with a turn no older than this.
GRACE = 0.05
#: Callbacks count as waiting while less than this part of their time is CPU time.
COMPUTING = 0.3
#: Running callbacks use up a core when they have so much of it.
USED_UP = 0.85
#: Turns with less of it wait for other things than each other: fifty that wait only for each other have half of it.
LEFT_ALONE = 0.3
#: Callbacks of so many seconds would be interrupted by threads that want the interpreter: they get this part of a core only
#: where they run in parallel.
LONG, UNHINDERED = 0.005, 0.75
#: Seconds of callbacks and turns that are remembered.
MEMORY = 0.1
#: The longest poll, in seconds, while no other worker is free to deliver partitions that become due during it.
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
        kept = MEMORY / (MEMORY + elapsed)
        self.cpu = self.cpu * kept + cpu
        self.elapsed = self.elapsed * kept + elapsed
        self.count = self.count * kept + 1


@dataclass(frozen=True, slots=True)
class Lead:
    """The order to poll, and to wait so long for records."""

    seconds: float


class Leading:
    """Decides what each worker does next: poll, deliver, or wait.

    Used under the schedule's lock only. `wake` wakes one waiting worker.
    """

    def __init__(self, wake: Callable[[], None], most: int) -> None:
        self._wake = wake
        self.most = most  # concurrent turns
        self._turns: dict[object, float] = {}  # worker: when its turn began
        self._idle: set[object] = set()  # workers that wait to be woken
        self._standby: object = None  # the idle worker that wakes up on its own, and when
        self._until = NEVER
        self._leader: object = None
        self._read_at = 0.0  # when the next poll is due
        self._again = False  # a poll was asked for during a poll: at once
        self._feeding = False  # the leader itself makes partitions due, and comes back for them
        self._callbacks = Effort()  # on_next_batch
        self._efforts = Effort()  # turns as a whole: other callbacks and the ledger may wait, too
        self._worked_at = -NEVER  # when the last turn began
        #: Wakes the separate polling thread; None: workers lead.
        self.helper: Callable[[], None] | None = None

    def read_apart(self, wake: Callable[[], None]) -> None:
        """Have no worker ever poll; `wake` wakes the thread that does."""
        self.helper = wake

    @property
    def computing(self) -> bool:
        """Whether callbacks mostly compute. Before the first one they count as waiting."""
        return self._callbacks.cpu > COMPUTING * self._callbacks.elapsed

    @property
    def full(self) -> bool:
        """Whether no more turns may run at a time."""
        return len(self._turns) >= self.most

    def observe(self, callback: tuple[float, float], turn: tuple[float, float]) -> None:
        """Note one turn and its on_next_batch: each CPU and elapsed seconds."""
        if callback[1]:
            self._callbacks.add(*callback)
        if turn[1]:
            self._efforts.add(*turn)

    def _another_helps(self, now: float) -> bool:
        """Whether one more turn, beside those under way, gets more done."""
        turn, callback = self._efforts, self._callbacks
        oldest = now - max(GRACE, 2 * turn.elapsed / turn.count if turn.count else 0.0)
        under_way = sum(began > oldest for began in self._turns.values())  # hanging turns use no CPU
        return (
            under_way * callback.cpu < USED_UP * callback.elapsed
            or under_way * turn.cpu < LEFT_ALONE * turn.elapsed
            or (callback.cpu > UNHINDERED * callback.elapsed and callback.elapsed > LONG * callback.count)
        )

    # -- what a worker does next ---------------------------------------------------------------------------------------

    def next_of(self, worker: object, now: float, due: float) -> Lead | float | None:
        """Return a free worker's next step; `due` is the next partition's time.

        Returns: None, it delivers that partition; `Lead`; or until when it waits (`NEVER`: until it is woken).
        """
        self.comes(worker)
        if self.full:
            due = NEVER  # the next worker that ends a turn looks
        may_lead = self._leader is None and self.helper is None
        at = min(due, self._read_at) if may_lead else due
        if at > now:
            return self._wait(worker, now, at)
        quick = self._quick_until(now) if self.computing else None
        if quick is not None:
            # Busy workers come back for it. A due partition waits no longer than the grace, where that helps.
            until = min(quick, due + GRACE) if self._another_helps(now) else quick
            if until > now:
                return self._wait(worker, now, until)
        # A command to the polling worker must not wait without end.
        if due <= now and not (may_lead and self._read_at + GRACE <= now):
            self._turns[worker] = self._worked_at = now
            return None
        self._leader, self._again = worker, False
        return Lead(max(0.0, due - now) if self._idle else min(ALONE, max(0.0, due - now)))

    def took(self, now: float, more: bool) -> None:
        """Wake workers after one took a partition; `more` are due."""
        if (more and not self.full) or (self._leader is None and self.helper is None):
            self._need(now, now)

    def end_turn(self, worker: object) -> None:
        """Note that a worker has passed its partition on."""
        self._turns.pop(worker, None)

    def comes(self, worker: object) -> None:
        """Note that a worker waits no longer, or its thread has ended."""
        self._idle.discard(worker)
        if self._standby is worker:
            self._standby, self._until = None, NEVER

    def end_lead(self, at: float) -> None:
        """Note that the leader has polled. `at`: the next poll."""
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
        """Wake another worker: one has raised, and pauses."""
        self._need(now, now)

    def read_soon(self, now: float) -> None:
        """Have the client polled soon: a command or news waits."""
        if self.helper is not None:
            self.helper()
        elif self._leader is not None:
            self._again = True
        elif self._read_at > now:
            self._read_at = now
            self._need(now, now)

    def begin_feeding(self) -> None:
        """Note that the polling thread makes partitions due.

        A leader delivers as many of them as it can itself.
        """
        self._feeding = self._leader is not None

    def end_feeding(self, count: int) -> None:
        """Wake workers for so many due partitions, while callbacks wait."""
        helped, self._feeding = self._feeding, False
        if helped and not self.computing:
            for _ in range(min(count - 1, len(self._idle))):
                self._wake()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _wait(self, worker: object, now: float, until: float) -> float:
        """Let a worker wait. Only the standby wakes up on its own."""
        self._idle.add(worker)
        if self.computing and now < self._worked_at + GRACE:
            # Else each due partition would wake it, only to find that the delivering worker has come back.
            until = min(until, now + GRACE)
        if self._standby is None or until < self._until or self._until < now - GRACE:  # the last: its thread has ended
            self._standby, self._until = worker, until
            return until
        return NEVER

    def _quick_until(self, now: float) -> float | None:
        """Return until when a busy worker should be back; None: none is."""
        if not self._turns:
            return None
        until = max(self._turns.values()) + GRACE
        return until if now < until else None
