"""One channel's counts beside those of its partitions, for metrics and beans."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from inbound.runtime.instruments import LONG_SECONDS, Histogram, HistogramStatus, Kinds

#: Why reading went back: the processor reverted, or failed, or the log was cut before the position.
REVERTS = ("processor", "error", "truncation")
#: Why a partition is held until an operator acts.
HOLDS = ("record", "on_claim", "truncation", "topic", "unreadable")
#: Why offsets were passed over: `advance(..., skip=True)`; `on_error.then` for a record that failed for good; a cut log
#: with `on_truncation: latest`.
PASSED_OVER = ("processor", "skip", "dead-letter", "truncation")
CHANGES = ("claimed", "released", "lost")


@dataclass(frozen=True, kw_only=True)
class MetersStatus:
    """Counts since the start of the process. Mappings are by kind."""

    batch_seconds: HistogramStatus | None = None  # inside on_next_batch
    commit_seconds: HistogramStatus | None = None  # from the processor's answer until ZooKeeper has the commit
    record_age_seconds: HistogramStatus | None = None  # of a batch's first record at delivery, by its timestamp
    rebalance_seconds: HistogramStatus | None = None
    rebalances: dict[str, int] = field(default_factory=dict)  # by trigger
    ownership: dict[str, int] = field(default_factory=dict)  # partitions claimed, released, lost
    reverts: dict[str, int] = field(default_factory=dict)
    holds: dict[str, int] = field(default_factory=dict)
    exceptions: dict[str, int] = field(default_factory=dict)  # by class
    passed_over: dict[str, int] = field(default_factory=dict)  # offsets
    retention_lost: int = 0  # offsets that the log had deleted before they were read


class Meters:
    """The instruments of one channel. Any thread, but the controller's for `rebalances`."""

    def __init__(self) -> None:
        self.batch_seconds = Histogram()
        self.commit_seconds = Histogram()
        self.record_age_seconds = Histogram(LONG_SECONDS)
        self.rebalances = Rebalances()
        self.reverts = Kinds(*REVERTS)
        self.holds = Kinds(*HOLDS)
        self.exceptions = Kinds()
        self._ownership = Kinds(*CHANGES)
        self._passed_over = Kinds(*PASSED_OVER)
        self._retention_lost = 0

    def delivered(self, wall: float, timestamp: int) -> None:
        """Count a batch by its first record's age.

        `timestamp` is in milliseconds since 1970, below 0 if unknown.
        """
        if timestamp >= 0:
            self.record_age_seconds.observe(max(0.0, wall - timestamp / 1000))

    def noted(self, kind: str, facts: Mapping[str, Any], now: float) -> None:
        """Count a ledger event by its facts."""
        if kind in CHANGES:
            self._ownership.add(kind)
            if kind != "lost":
                self.rebalances.moved(now)
        elif kind == "skip":
            self._passed_over.add(str(facts["reason"]).partition(":")[0], facts["to"] - facts["from_"])
        elif kind == "retention":
            self._retention_lost += facts["next"] - facts["first"]

    def failed(self, error: BaseException) -> None:
        """Count an exception of the processor."""
        self.exceptions.add(type(error).__name__)

    def status(self) -> MetersStatus:
        """Return a snapshot."""
        return MetersStatus(
            batch_seconds=self.batch_seconds.status(),
            commit_seconds=self.commit_seconds.status(),
            record_age_seconds=self.record_age_seconds.status(),
            rebalance_seconds=self.rebalances.seconds.status(),
            rebalances=self.rebalances.started.counts(),
            ownership=self._ownership.counts(),
            reverts=self.reverts.counts(),
            holds=self.holds.counts(),
            exceptions=self.exceptions.counts(),
            passed_over=self._passed_over.counts(),
            retention_lost=self._retention_lost,
        )


#: A member joined or left the group, or this one did; the session expired; the topics changed; an operator asked for it; an
#: owner node came or went otherwise; or the timer was due.
TRIGGERS: Final = ("start", "join", "leave", "session", "topics", "operator", "owners", "interval")
#: Seconds without a move after which a rebalance is over, also for a member without its whole share.
SETTLED_AFTER = 5.0
#: Seconds without a move after which a change is not the cause of later moves.
FORGET_AFTER = 60.0


class Rebalances:
    """Measures rebalances, from their trigger to the last partition that moved.

    One member's view of its group. All methods but `status` run on the controller's thread.
    """

    def __init__(self) -> None:
        self.started = Kinds(*TRIGGERS)
        self.seconds = Histogram()
        self._session = 0
        self._members: frozenset[str] = frozenset()
        self._topics: dict[str, int] = {}
        #: The change that was found and has moved nothing yet, and when.
        self._found: tuple[str, float] | None = None
        self._trigger: str | None = None  # of the rebalance under way
        self._began = 0.0
        self._moved_at: float | None = None

    @property
    def trigger(self) -> str | None:
        """The trigger of the rebalance in progress; None: there is none."""
        return self._trigger

    def moved(self, now: float) -> None:
        """Note that a partition was claimed or released."""
        self._moved_at = now

    def looked(
        self, now: float, *, session: int, members: Collection[str], topics: Mapping[str, int],
        asked: bool, news: bool, moving: bool, content: bool,
    ) -> None:  # fmt: skip
        """Take in an evaluation of the group.

        `asked`: an operator asked for it; `news`: owner nodes came or went since the last one; `moving`: it claims or
        releases partitions; `content`: the member has its share.
        """
        if self._found is not None and now - self._found[1] > FORGET_AFTER:
            self._found = None
        found = self._change(session, frozenset(members), dict(topics))
        if found is None and asked:
            found = "operator"
        if found is not None and (self._found is None or self._trigger is not None):
            self._found = found, now
        if self._trigger is None and moving:
            self._trigger, self._began = self._found or ("owners" if news else "interval", now)
            self._found = self._moved_at = None
            self.started.add(self._trigger)
        elif self._trigger is not None and not moving and (content or now - (self._moved_at or now) >= SETTLED_AFTER):
            if self._moved_at is not None:
                self.seconds.observe(max(0.0, self._moved_at - self._began))
            self._trigger = None
        if self._trigger is None and content:
            self._found = None  # it moved nothing

    def _change(self, session: int, members: frozenset[str], topics: dict[str, int]) -> str | None:
        before = self._session, self._members, self._topics
        self._session, self._members, self._topics = session, members, topics
        if not before[0]:
            return "start"
        if session != before[0]:
            return "session"
        if before[1] - members:
            return "leave"
        if members - before[1]:
            return "join"
        return "topics" if topics != before[2] else None
