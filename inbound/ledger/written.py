"""What ledgers of lines have in common, wherever their lines go."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from inbound.clock import Clock
from inbound.errors import LedgerError
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
        # What is not recorded, and since when; under its own lock, for `lacks` waits for no write.
        self._lacking: dict[tuple[str, int, int], float] = {}
        self._lacking_lock = threading.Lock()

    def begun(self, entry: Range) -> None:
        self._append([self._lines.begun(entry, self._clock.wall())])

    def settled(self, entries: Sequence[Settled]) -> None:
        wall = self._clock.wall()
        self._append([self._lines.settled(entry, wall) for entry in entries])

    def note(self, kind: str, *, topic: str, partition: int, epoch: int, **facts: Any) -> None:
        named = checked_facts(kind, facts)
        self._append([self._lines.note(kind, topic, partition, epoch, named, self._clock.wall())])

    def lacks(self, topic: str, partition: int, epoch: int) -> None:
        with self._lacking_lock:
            self._lacking.setdefault((topic, partition, epoch), self._clock.wall())

    def status(self) -> LedgerStatus:
        return LedgerStatus(
            entries_total=self._entries,
            bytes_total=self._bytes,
            failures_total=self._failures,
            sync_seconds=self._sync_seconds.status(),
        )

    @contextmanager
    def _marked(self, bodies: Sequence[str]) -> Iterator[Sequence[str]]:
        """Put before these lines, which are written inside, what says what is missing before them, if anything is."""
        with self._lacking_lock:
            lacking, self._lacking = self._lacking, {}
        if not lacking:
            yield bodies
            return
        try:
            yield [*self._lines.degraded(lacking, self._clock.wall()), *bodies]
        except LedgerError:
            with self._lacking_lock:
                self._lacking = {**self._lacking, **lacking}
            raise

    @abstractmethod
    def _append(self, bodies: Sequence[str]) -> object:
        """Write lines under the next numbers. LedgerError as the verbs."""
