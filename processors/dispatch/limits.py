"""Limits of one subscription: requests in flight, and per second.

Partitions take turns: each waiting partition sends one request before any of them sends its next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from inbound.config.units import format_rate
from inbound.processors.dispatch.jobs import Job, PartitionClaim
from inbound.processors.dispatch.options import LimitOptions
from inbound.topic_partition import TopicPartition

#: After a pause, the requests that the rate allows in so many seconds may be sent at once; at least one.
BURST = 0.1


class Timer(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], Timer]


@dataclass(slots=True)
class Bucket:
    """A token bucket, kept as the time when it is full. Pure."""

    per_second: float
    full_at: float = 0.0

    def wait(self, now: float) -> float:
        """Return the seconds until the next token; 0 or less: now."""
        spare = max(0.0, BURST - 1 / self.per_second)  # seconds of tokens that a full bucket has beyond the first
        return self.full_at - spare - now

    def take(self, now: float) -> None:
        """Take an existing token."""
        self.full_at = max(self.full_at, now) + 1 / self.per_second


class RequestLimits:
    """Admits jobs to the subscriber, or queues them for their turn.

    For the thread of one event loop. In any time t at most rate * (t + BURST) requests begin, or one more than rate * t if that
    is more.
    """

    def __init__(self, now: Callable[[], float], call_later: CallLater, go: Callable[[Job], None]) -> None:
        """`go` gets an admitted job: it calls `enter`, then sends or `leave`s."""
        self._now = now
        self._call_later = call_later
        self._go = go
        self._most: int | None = None
        self._bucket: Bucket | None = None
        self._under_way = 0
        self._waiting: dict[PartitionClaim, deque[Job]] = {}  # in the order of their turns
        self._timer: Timer | None = None
        self._serving = False

    def set(self, options: LimitOptions) -> None:
        """Use these limits from now on; requests in flight count."""
        self._most = options.in_flight
        if options.rate is None:
            self._bucket = None
        else:
            self._bucket = Bucket(options.rate, min(self._bucket.full_at, self._now()) if self._bucket else 0.0)
        self._serve()

    def enter(self, job: Job) -> bool:
        """Return whether `job` may be sent now; else queue it."""
        if job.admitted:
            return True
        if not self._waiting and self._obstacle() is None:
            self._admit(job)
            return True
        self._waiting.setdefault(job.claim, deque()).append(job)
        self._serve()
        return False

    def leave(self, job: Job) -> None:
        """End an admitted request, answered or not sent; ignore other jobs."""
        if job.admitted:
            job.admitted = False
            self._under_way -= 1
            if self._waiting:
                self._serve()

    def forget(self, claim: PartitionClaim) -> None:
        """Drop the claim's waiting requests; those in flight count until their end."""
        self._waiting.pop(claim, None)

    @property
    def waiting(self) -> int:
        """The number of waiting requests. Any thread."""
        return sum(len(jobs) for jobs in dict(self._waiting).values())

    def waits(self) -> dict[TopicPartition, str]:
        """Return why the partitions of waiting requests wait. Any thread."""
        waiting, obstacle = dict(self._waiting), self._obstacle() or "its turn among the partitions"
        counts = {claim.tp: len(jobs) for claim, jobs in waiting.items()}
        return {
            tp: f"{'1 request waits' if count == 1 else f'{count} requests wait'} for {obstacle}"
            for tp, count in counts.items()
        }

    # -- inside ------------------------------------------------------------------------------------------------------

    def _obstacle(self) -> str | None:
        bucket = self._bucket
        if self._most is not None and self._under_way >= self._most:
            return f"limits.in_flight ({self._most} requests under way)"
        if bucket is not None and bucket.wait(self._now()) > 0:
            return f"limits.rate ({format_rate(bucket.per_second)})"
        return None

    def _admit(self, job: Job) -> None:
        job.admitted = True
        self._under_way += 1
        if self._bucket is not None:
            self._bucket.take(self._now())

    def _serve(self) -> None:
        """Admit the jobs that may be sent, partition by partition in turn."""
        if self._serving:  # a sent job may fail at once, and leave
            return
        self._serving = True
        try:
            while self._waiting and self._obstacle() is None:
                claim, jobs = next(iter(self._waiting.items()))
                job = jobs.popleft()
                del self._waiting[claim]
                if jobs:
                    self._waiting[claim] = jobs
                self._admit(job)
                self._go(job)
        finally:
            self._serving = False
        self._set_timer()

    def _set_timer(self) -> None:
        """Call `_serve` at the next token, if jobs wait only for that."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting and self._bucket is not None and (self._most is None or self._under_way < self._most):
            self._timer = self._call_later(max(0.0, self._bucket.wait(self._now())), self._serve)
