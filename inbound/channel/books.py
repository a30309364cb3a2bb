"""The ledger of one channel: what is noted in it, what it lacks, and what that means for what it proves."""

from __future__ import annotations

import logging
from typing import Any

from inbound.clock import Clock
from inbound.errors import LedgerError
from inbound.journal import Journal
from inbound.ledger.base import Ledger
from inbound.meters import Meters
from inbound.topic_partition import TopicPartition


class Books:
    """Any thread."""

    def __init__(self, ledger: Ledger, journal: Journal, meters: Meters, clock: Clock, *, degrade: bool) -> None:
        """`degrade`: go on without the ledger when it cannot be written; it may be changed while the channel runs."""
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
        """Record an event of a partition; where the ledger cannot take it, say so, here and in status."""
        self._meters.noted(kind, facts, self._clock.now())
        try:
            self.ledger.note(kind, **tp._asdict(), epoch=epoch, **facts)
        except LedgerError as error:
            self.trouble(error, f"it lacks {kind!r} of {tp}")
            self.unrecorded(tp, epoch)

    def unrecorded(self, tp: TopicPartition, epoch: int) -> None:
        """Take note that something was done with a partition that is not in the ledger."""
        self.not_provable = True
        self.ledger.lacks(*tp, epoch)

    def trouble(self, error: LedgerError, meanwhile: str) -> None:
        """Take note that the ledger cannot be written."""
        if self.problem is None:
            self._journal.note("ledger-trouble", f"{error}; {meanwhile}", level=logging.ERROR)
        self.problem = str(error)

    def recorded(self) -> None:
        """Take note that the ledger can be written."""
        if self.problem is not None:
            self.problem = None
            self._journal.note("ledger-over", "the ledger can be written again")
