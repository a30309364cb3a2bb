"""What ledgers of lines have in common, wherever their lines go."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from inbound.clock import Clock
from inbound.instruments import Histogram
from inbound.ledger.base import Ledger, LedgerStatus, Range, Settled, checked_facts
from inbound.ledger.lines import Lines


class WrittenLedger(Ledger):
    """Makes a line of each entry that nobody waits for; `done` and `close`, which wait, are each ledger's own."""

    def __init__(self, group: str, consumer_id: str, clock: Clock) -> None:
        self._lines = Lines(group, consumer_id)
        self._clock = clock
        self._sync_seconds = Histogram()
        # Under the lock that each ledger writes under.
        self._entries = self._bytes = self._failures = 0

    def begun(self, entry: Range) -> None:
        self._append([self._lines.begun(entry, self._clock.wall())])

    def settled(self, entries: Sequence[Settled]) -> None:
        wall = self._clock.wall()
        self._append([self._lines.settled(entry, wall) for entry in entries])

    def note(self, kind: str, *, topic: str, partition: int, epoch: int, **facts: Any) -> None:
        named = checked_facts(kind, facts)
        self._append([self._lines.note(kind, topic, partition, epoch, named, self._clock.wall())])

    def degraded(self, since: float, until: float) -> None:
        self._append([self._lines.degraded(since, until, self._clock.wall())])

    def status(self) -> LedgerStatus:
        return LedgerStatus(
            entries_total=self._entries,
            bytes_total=self._bytes,
            failures_total=self._failures,
            sync_seconds=self._sync_seconds.status(),
        )

    @abstractmethod
    def _append(self, bodies: Sequence[str]) -> object:
        """Write lines under the next numbers. LedgerError as the verbs."""
