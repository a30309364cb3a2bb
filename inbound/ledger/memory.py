"""A ledger in memory, for tests and the simulator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from inbound.errors import LedgerError
from inbound.ledger.base import Done, Ledger, Range, Settled, checked_facts

Verb = Literal["begun", "done", "settled", "note", "close"]


@dataclass(frozen=True, slots=True)
class Note:
    """An event of a partition, as given to `Ledger.note`.

    Kind `degraded`: as given to `Ledger.lacks`.
    """

    kind: str
    topic: str
    partition: int
    epoch: int
    facts: dict[str, Any] = field(default_factory=dict)


Recorded = Range | Done | Settled | Note


class MemoryLedger(Ledger):
    """Keeps its entries in order; `fail_next` and `fail` make it fail."""

    def __init__(self) -> None:
        self.entries: list[Recorded] = []
        self.closed = False
        self.clean: bool | None = None  # whether it was closed cleanly
        self._lock = threading.Lock()
        self._failures: list[tuple[Verb | None, Exception]] = []
        self._full = False
        self._lacking: dict[tuple[str, int, int], None] = {}
        #: Called with entries, and whether they are recorded.
        self.on_entries: Callable[[Sequence[Recorded], bool], None] = lambda entries, recorded: None

    def fail_next(self, error: Exception, verb: Verb | None = None) -> None:
        """Make the next call (of `verb`) raise `error`. Several calls queue up."""
        with self._lock:
            self._failures.append((verb, error))

    def fail(self) -> None:
        """Refuse every entry from now on."""
        self._full = True

    def work_again(self) -> None:
        """Accept entries again."""
        self._full = False

    def begun(self, entry: Range) -> None:
        self._record("begun", [entry])

    def done(self, entries: Sequence[Done]) -> None:
        self._record("done", entries)

    def settled(self, entries: Sequence[Settled]) -> None:
        self._record("settled", entries)

    def note(self, kind: str, *, topic: str, partition: int, epoch: int, **facts: Any) -> None:
        self._record("note", [Note(kind, topic, partition, epoch, checked_facts(kind, facts))])

    def lacks(self, topic: str, partition: int, epoch: int) -> None:
        with self._lock:
            self._lacking[topic, partition, epoch] = None

    def close(self, *, clean: bool = True) -> None:
        with self._lock:
            if not self.closed:
                self.closed, self.clean = True, False
                self._fail_if_asked("close")
                self._mark()
                self.clean = clean

    def _record(self, verb: Verb, entries: Sequence[Recorded]) -> None:
        with self._lock:
            if self.closed:
                raise LedgerError(f"memory ledger: {verb} after close; nothing was recorded")
            try:
                self._fail_if_asked(verb)
            except LedgerError:
                self.on_entries(entries, False)
                raise
            self._mark()
            self.entries.extend(entries)
            self.on_entries(entries, True)

    def _mark(self) -> None:
        self.entries += [Note("degraded", *lacking) for lacking in self._lacking]
        self._lacking = {}

    def _fail_if_asked(self, verb: Verb) -> None:
        if self._full:
            raise LedgerError(f"memory ledger: {verb}: no space left; nothing was recorded")
        for index, (wanted, error) in enumerate(self._failures):
            if wanted in (None, verb):
                del self._failures[index]
                raise error
