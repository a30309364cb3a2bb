"""One channel's ledger, its gaps, and whether it still proves delivery."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from inbound.clock import Clock
from inbound.errors import LedgerError
from inbound.ledger.base import Done, Ledger, LedgerStatus, Range, Settled
from inbound.partition.journal import Journal
from inbound.partition.meters import Meters
from inbound.topic_partition import TopicPartition


class LedgerNotes:
    """Writes one channel's ledger, and notes gaps in it. Any thread."""

    def __init__(self, ledger: Ledger, journal: Journal, meters: Meters, clock: Clock, *, degrade: bool) -> None:
        """`degrade`: go on without a writable ledger. It may change at runtime."""
        self.ledger = ledger
        self._journal = journal
        self._meters = meters
        self._clock = clock
        self.degrade = degrade
        #: Why the ledger cannot be written; None while it can.
        self.problem: str | None = None
        #: Set for good once something was not recorded: the ledger proves nothing from here on.
        self.not_provable = False

    def note(self, kind: str, tp: TopicPartition, epoch: int, **facts: Any) -> None:
        """Record a partition's event; a failure is logged, and in status."""
        self._meters.noted(kind, facts, self._clock.now())
        try:
            self.ledger.note(kind, **tp._asdict(), epoch=epoch, **facts)
        except LedgerError as error:
            self._trouble(error, f"it lacks {kind!r} of {tp}")
            self._unrecorded(tp, epoch)

    def begun(self, batch: Range) -> bool:
        """Write `begun` of a batch. Returns whether it may be delivered."""
        try:
            self.ledger.begun(batch)
        except LedgerError as error:
            return self._goes_without(error, [batch], "nothing is delivered")
        if self.problem is not None:
            self._written_again()
        return True

    def done(self, batches: Sequence[Done]) -> bool:
        """Write `done` of batches, fsynced. Returns whether they may be committed."""
        try:
            self.ledger.done(batches)
        except LedgerError as error:
            return self._goes_without(error, batches, "commits wait for it")
        if self.problem is not None:
            self._written_again()
        return True

    def settled(self, commits: Sequence[Settled]) -> None:
        """Write the outcome of commits.

        They stand even if the ledger cannot be written: its missing line shows that.
        """
        try:
            self.ledger.settled(commits)
        except LedgerError as error:
            self._trouble(error, "going on" if self.degrade else "commits wait for it")

    def close(self) -> None:
        """Close the ledger. Raises LedgerError: no mark of a clean end."""
        self.ledger.close()

    def status(self) -> LedgerStatus | None:
        """Return the ledger's status."""
        return self.ledger.status()

    def _goes_without(self, error: LedgerError, batches: Sequence[Range | Done], otherwise: str) -> bool:
        self._trouble(error, "going on" if self.degrade else otherwise)
        if self.degrade:
            for batch in batches:
                self._unrecorded(TopicPartition(batch.topic, batch.partition), batch.epoch)
        return self.degrade

    def _written_again(self) -> None:
        self.problem = None
        self._journal.note("ledger-over", "the ledger can be written again")

    def _unrecorded(self, tp: TopicPartition, epoch: int) -> None:
        self.not_provable = True
        self.ledger.lacks(*tp, epoch)

    def _trouble(self, error: LedgerError, consequence: str) -> None:
        if self.problem is None:
            self._journal.note("ledger-trouble", f"{error}; {consequence}", level=logging.ERROR)
        self.problem = str(error)
