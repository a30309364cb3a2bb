"""Who leads: which worker polls the client, which ones deliver, and which one waits in case these take long.

There is no thread that only reads. Workers take turns as the leader: the leader polls, on its own thread, and then delivers
what it got itself, while it is in the processor's cache. Two rules say who else wakes:

- While callbacks wait (for a database, a subscriber) every partition that is due wakes another worker, and the first one
  with nothing to deliver polls on: a slow partition holds back only itself.
- While callbacks compute, nobody else wakes: Python threads share one core. Fifty awake workers were measured to get half as
  much done as one, and to keep commits waiting for the interpreter. One worker stands by, and goes on when a turn has taken
  `GRACE`: a callback that never ends keeps nobody else's records. What has waited that long is taken by another worker, too,
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
#: A poll with nobody beside it who could deliver what becomes due meanwhile waits no longer than this, in seconds.
ALONE = 0.025
NEVER = float("inf")
#: What a turn without a batch took of on_next_batch: CPU seconds, and seconds passed.
NO_EFFORT = (0.0, 0.0)


@dataclass(slots=True)
class Effort:
    """What something has taken of late, longest ago least."""

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
    """What a worker is to do: poll, and wait at most so long for something to come."""

    seconds: float


class Leading:
    """Used under the schedule's lock only. `wake` wakes one waiting worker."""

    def __init__(self, wake: Callable[[], None], most: int) -> None:
        self._wake = wake
        self.most = most  # turns at a time
        self._turns: dict[object, float] = {}  # worker: when its turn began
        self._idle: set[object] = set()  # workers that wait to be woken
        self._standby: object = None  # the one of them that looks again by itself, and when
        self._until = NEVER
        self._leader: object = None
        self._read_at = 0.0  # when somebody is to poll next
        self._again = False  # that was asked for while somebody polled: at once
        self._feeding = False  # the leader itself makes partitions due, and comes back for them
        self._callbacks = Effort()  # on_next_batch
        self._efforts = Effort()  # turns as a whole: other callbacks and the ledger may wait, too
        self._worked_at = -NEVER  # when the last turn began
        #: Has who polls apart do so soon; None: workers lead.
        self.helper: Callable[[], None] | None = None

    @property
    def computing(self) -> bool:
        """Whether callbacks mostly compute. Until one was seen, they are taken to wait."""
        return self._callbacks.cpu > COMPUTING * self._callbacks.elapsed

    @property
    def full(self) -> bool:
        """Whether as many turns are under way as may be at a time."""
        return len(self._turns) >= self.most

    def observe(self, callback: tuple[float, float], turn: tuple[float, float]) -> None:
        """Take note of one turn, and of its on_next_batch: CPU seconds of its thread, and seconds passed."""
        if callback[1]:
            self._callbacks.add(*callback)
        if turn[1]:
            self._efforts.add(*turn)

    def _another_helps(self, now: float) -> bool:
        """Whether more gets done with one more turn, beside those that are under way."""
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
        """Say what a worker does that has nothing in hand; `due` is when the next partition is due (`NEVER`: none).

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
            # They come back for it. What is due to be delivered waits no longer than the grace, where that helps.
            until = min(quick, due + GRACE) if self._another_helps(now) else quick
            if until > now:
                return self._wait(worker, now, until)
        if due <= now and not (
            may_lead and self._read_at + GRACE <= now
        ):  # a command to who polls does not wait for ever
            self._turns[worker] = self._worked_at = now
            return None
        self._leader, self._again = worker, False
        return Lead(max(0.0, due - now) if self._idle else min(ALONE, max(0.0, due - now)))

    def took(self, now: float, more: bool) -> None:
        """A worker has taken a partition; `more` are due. See that somebody looks after these, and polls on."""
        if (more and not self.full) or (self._leader is None and self.helper is None):
            self._need(now, now)

    def end_turn(self, worker: object) -> None:
        """It has passed its partition on."""
        self._turns.pop(worker, None)

    def comes(self, worker: object) -> None:
        """Forget that a worker waits: it has come, or its thread has ended."""
        self._idle.discard(worker)
        if self._standby is worker:
            self._standby, self._until = None, NEVER

    def end_lead(self, at: float) -> None:
        """The leader has polled, and somebody is to poll again at a time."""
        self._leader = None
        self._read_at = 0.0 if self._again else at

    # -- who is woken --------------------------------------------------------------------------------------------------

    def becomes_due(self, now: float, at: float) -> None:
        """A partition is due at a time: see that somebody looks after it."""
        if not (self._feeding or self.full):
            self._need(now, at)

    def _need(self, now: float, at: float) -> None:
        if not self._idle:
            return  # whoever is at work looks for more when its turn is over
        at = max(at, now)
        if self.computing and self._quick_until(now) is not None:
            at += GRACE
        if self._standby is None or self._until > at or self._until < now - GRACE:
            self._wake()

    def misses_one(self, now: float) -> None:
        """A worker has raised, and rests for a while: another one takes what was left to it, and polls."""
        self._need(now, now)

    def read_soon(self, now: float) -> None:
        """There is something for who polls: a command, or news of the client."""
        if self.helper is not None:
            self.helper()
        elif self._leader is not None:
            self._again = True
        elif self._read_at > now:
            self._read_at = now
            self._need(now, now)

    def begin_feeding(self) -> None:
        """Who polls makes partitions due; a leader delivers what it can itself."""
        self._feeding = self._leader is not None

    def end_feeding(self, count: int) -> None:
        """So many are due now. While callbacks wait, others help."""
        helped, self._feeding = self._feeding, False
        if helped and not self.computing:
            for _ in range(min(count - 1, len(self._idle))):
                self._wake()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _wait(self, worker: object, now: float, until: float) -> float:
        """Let a worker wait. Only who stands by looks again by itself, for all of them."""
        self._idle.add(worker)
        if self.computing and now < self._worked_at + GRACE:
            # Else each partition that becomes due would wake it, only to find that the one that delivers has come back.
            until = min(until, now + GRACE)
        if self._standby is None or until < self._until or self._until < now - GRACE:  # the last: it has ended
            self._standby, self._until = worker, until
            return until
        return NEVER

    def _quick_until(self, now: float) -> float | None:
        """Return until when a worker's turn counts as one that it soon comes back from; None: nobody is in such a turn."""
        if not self._turns:
            return None
        until = max(self._turns.values()) + GRACE
        return until if now < until else None
