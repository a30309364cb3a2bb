"""The contract of every ledger: entries, notes, and how they are recorded."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from inbound.runtime.instruments import HistogramStatus

#: The outcome of a commit: it is in ZooKeeper, the epoch refused it, or the answer was lost.
Outcome = Literal["landed", "fenced", "unknown"]

#: The kinds of notes, and the facts that each must carry. More facts may be added.
NOTES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        # position: None if the group had no offset yet; a `window` (records) may be given, see `Range.commit`
        "claimed": frozenset({"position", "session"}),
        "released": frozenset(),
        "lost": frozenset(),
        "reset": frozenset({"old", "new"}),
        "revert": frozenset({"from", "to"}),
        "skip": frozenset({"from", "to", "reason"}),
        "retention": frozenset({"first", "next"}),
        "truncated": frozenset({"position", "to", "cut"}),
        "withheld": frozenset({"first", "next", "records"}),  # the last `begun`: its batch was not delivered
    }
)


class Range(NamedTuple):
    """A range of offsets, `first` to `next` (exclusive), about to be delivered.

    `commit` is the newest offset that the claim had been answered for by then, landed or in flight; None: not known.
    """

    topic: str
    partition: int
    epoch: int
    first: int
    next: int
    records: int
    commit: int | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """The processor's answer for a range, and the offset to commit.

    `commit` None: nothing is committed. One commit may answer for several batches, and come after the `begun` of later
    ones: `first` is where the newest batch that it answers for began, or `commit` if it is no batch's own.
    """

    topic: str
    partition: int
    epoch: int
    first: int
    next: int
    commit: int | None


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of a commit; `mzxid` (the offset node's) if it landed."""

    topic: str
    partition: int
    epoch: int
    commit: int
    outcome: Outcome
    mzxid: int | None = None


@dataclass(frozen=True, kw_only=True)
class LedgerStatus:
    """Counts of what a ledger has written since the start."""

    entries_total: int = 0
    bytes_total: int = 0
    failures_total: int = 0  # calls that raised LedgerError
    sync_seconds: HistogramStatus | None = None  # of fsyncs, or of waits for acknowledgements


class Ledger(ABC):
    """An append-only record of what this process did with offset ranges.

    It does not depend on ZooKeeper. Any thread may call any method. Each raises LedgerError if the entry could not be
    recorded; the same call may succeed later, and entries of a call that raised count as not recorded: give them again.
    """

    #: The Kafka topic that it is written to; None: it is kept elsewhere.
    topic: str | None = None

    @abstractmethod
    def begun(self, entry: Range) -> None:
        """Record a range before its delivery; survives SIGKILL, without an fsync."""

    @abstractmethod
    def done(self, entries: Sequence[Done]) -> None:
        """Record that ranges were answered; on return they survive power loss."""

    @abstractmethod
    def settled(self, entries: Sequence[Settled]) -> None:
        """Record the outcome of commits; on return they survive SIGKILL."""

    @abstractmethod
    def note(self, kind: str, *, topic: str, partition: int, epoch: int, **facts: Any) -> None:
        """Record an event of a partition; on return it survives SIGKILL.

        `kind` and its facts are listed in `NOTES`; a trailing underscore is dropped, so `from_=` writes `from`.
        Anything else is a defect of the caller and raises ValueError; facts must be JSON values.
        """

    @abstractmethod
    def lacks(self, topic: str, partition: int, epoch: int) -> None:
        """Remember that something of a partition could not be recorded. Never fails.

        The next entry that is written, and `close`, come after a line `degraded` of that partition: so what is missing
        is known to lie between two lines.
        """

    def status(self) -> LedgerStatus | None:
        """Return counts of what was written; None: it does not count."""
        return None

    @abstractmethod
    def close(self, *, clean: bool = True) -> None:
        """Write the end mark if the end is clean, and close; idempotent."""


def checked_facts(kind: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts under their recorded names; ValueError if any is missing."""
    if kind not in NOTES:
        raise ValueError(f"ledger note {kind!r}: no such kind; use one of {', '.join(sorted(NOTES))}")
    named = {name.removesuffix("_"): value for name, value in facts.items()}
    if missing := NOTES[kind] - named.keys():
        raise ValueError(f"ledger note {kind!r}: the facts lack {', '.join(sorted(missing))}; give them by these names")
    return named


class NoLedger(Ledger):
    """Records nothing, so that lost or repeated records cannot be proved."""

    def begun(self, entry: Range) -> None:
        pass

    def done(self, entries: Sequence[Done]) -> None:
        pass

    def settled(self, entries: Sequence[Settled]) -> None:
        pass

    def note(self, kind: str, *, topic: str, partition: int, epoch: int, **facts: Any) -> None:
        checked_facts(kind, facts)

    def lacks(self, topic: str, partition: int, epoch: int) -> None:
        pass

    def close(self, *, clean: bool = True) -> None:
        pass
