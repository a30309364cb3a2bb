"""The contract of every ledger: `Range`, `Done`, `Settled` and notes, and `Ledger`, which records them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from inbound.runtime.instruments import HistogramStatus

#: What became of a commit: it is in ZooKeeper, it was refused by the epoch, or the answer was lost.
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
        "withheld": frozenset({"first", "next", "records"}),  # the last `begun`: its batch was not delivered after all
    }
)


class Range(NamedTuple):
    """Offsets `first` up to but without `next`, about to be delivered to the processor as `records` records.

    `commit` is the newest offset that the claim had been answered for by then, whether its commit had landed or was in
    flight; None: not known.
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
    """The processor has answered for a range; `commit` is the offset to be committed, None if nothing is.

    One commit may answer for several batches, and come after the `begun` of later ones: `first` is where the newest batch
    began that it answers for, or `commit` where it is no batch's own.
    """

    topic: str
    partition: int
    epoch: int
    first: int
    next: int
    commit: int | None


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of the commit of offset `commit`; `mzxid` is the offset node's, known if it landed."""

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
    sync_seconds: HistogramStatus | None = (
        None  # until what must survive power loss does: an fsync, or acknowledgements
    )


class Ledger(ABC):
    """An append-only record of what this process did with offset ranges, independent of ZooKeeper.

    Any method may be called from any thread. Each raises LedgerError if the entry could not be recorded; the same
    call may succeed later, and entries of a call that raised count as not recorded: give them again.
    """

    #: The Kafka topic that it is written to; None: it is kept elsewhere.
    topic: str | None = None

    @abstractmethod
    def begun(self, entry: Range) -> None:
        """Record that a range is about to be delivered. On return it survives SIGKILL; it waits for no fsync."""

    @abstractmethod
    def done(self, entries: Sequence[Done]) -> None:
        """Record that ranges are through the processor. On return all of them survive power loss (one fsync)."""

    @abstractmethod
    def settled(self, entries: Sequence[Settled]) -> None:
        """Record what became of commits. On return they survive SIGKILL."""

    @abstractmethod
    def note(self, kind: str, *, topic: str, partition: int, epoch: int, **facts: Any) -> None:
        """Record an event of a partition. On return it survives SIGKILL.

        `kind` and its facts are listed in `NOTES`; a trailing underscore is dropped, so `from_=` writes `from`.
        Anything else is a defect of the caller and raises ValueError; facts must be JSON values.
        """

    @abstractmethod
    def lacks(self, topic: str, partition: int, epoch: int) -> None:
        """Take note that something of a partition was done that could not be recorded. Never fails.

        The next entry that gets through comes behind a line `degraded` of that partition, so that what is missing is known
        to lie between two lines. `close` writes it, too.
        """

    def status(self) -> LedgerStatus | None:
        """Return counts of what was written; None: it does not count."""
        return None

    @abstractmethod
    def close(self, *, clean: bool = True) -> None:
        """Write the end mark, if the end is clean, and close everything. A second call does nothing."""


def checked_facts(kind: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts under the names they are recorded by, or raise ValueError if `kind` needs others."""
    if kind not in NOTES:
        raise ValueError(f"ledger note {kind!r}: no such kind; use one of {', '.join(sorted(NOTES))}")
    named = {name.removesuffix("_"): value for name, value in facts.items()}
    if missing := NOTES[kind] - named.keys():
        raise ValueError(f"ledger note {kind!r}: the facts lack {', '.join(sorted(missing))}; give them by these names")
    return named


class NoLedger(Ledger):
    """Records nothing. What was lost or repeated can then not be proved."""

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
