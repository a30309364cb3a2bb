"""What one channel counts beside its partitions: for metrics, and for whoever asks what it has been doing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inbound.instruments import LONG_SECONDS, Histogram, HistogramStatus, Kinds
from inbound.rebalances import Rebalances

#: Why reading went back: the processor asked for it, it failed, or the log was cut before the position.
REVERTS = ("processor", "error", "truncation")
#: Why a partition is held until somebody acts.
HOLDS = ("record", "on_claim", "truncation", "topic", "unreadable")
#: Why offsets were passed over: `advance(..., skip=True)`; one record failed for good, and `on_error.then` says so; the log
#: was cut, and `on_truncation` is `latest`.
PASSED_OVER = ("processor", "skip", "dead-letter", "truncation")
CHANGES = ("claimed", "released", "lost")


@dataclass(frozen=True, kw_only=True)
class MetersStatus:
    """Counts since the start of the process; by kind where they are mappings."""

    batch_seconds: HistogramStatus | None = None  # inside on_next_batch
    commit_seconds: HistogramStatus | None = None  # from the answer that asks for a commit until ZooKeeper has it
    record_age_seconds: HistogramStatus | None = (
        None  # of a batch's first record when it is handed over, by its timestamp
    )
    rebalance_seconds: HistogramStatus | None = None
    rebalances: dict[str, int] = field(default_factory=dict)  # by trigger
    ownership: dict[str, int] = field(default_factory=dict)  # partitions claimed, released, lost
    reverts: dict[str, int] = field(default_factory=dict)
    holds: dict[str, int] = field(default_factory=dict)
    exceptions: dict[str, int] = field(default_factory=dict)  # by class
    passed_over: dict[str, int] = field(default_factory=dict)  # offsets
    retention_lost: int = 0  # offsets that the log had deleted before they were read


class Meters:
    """The instruments of one channel. Any thread, but for `rebalances`: the controller's."""

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

    def handed_over(self, wall: float, timestamp: int) -> None:
        """Count a batch by the age of its first record; `timestamp` is in milliseconds since 1970, below 0 if unknown."""
        if timestamp >= 0:
            self.record_age_seconds.observe(max(0.0, wall - timestamp / 1000))

    def noted(self, kind: str, facts: Mapping[str, Any], now: float) -> None:
        """Count an event that goes to the ledger, with the facts that it has there."""
        if kind in CHANGES:
            self._ownership.add(kind)
            if kind != "lost":
                self.rebalances.moved(now)
        elif kind == "skip":
            self._passed_over.add(str(facts["reason"]).partition(":")[0], facts["to"] - facts["from_"])
        elif kind == "retention":
            self._retention_lost += facts["next"] - facts["first"]

    def failed(self, error: BaseException) -> None:
        """Count an exception of the processor's."""
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
