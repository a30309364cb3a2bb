"""The folder of a replay: its plan, its marks, and its locks.

A mark is a `done` line in the ledger's own files: fsynced, sealed, of one attempt at one unit. Deliveries without a mark when
an attempt ended (`begun` lines above its last mark) are repeated by the next attempt.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from inbound.clock import Clock
from inbound.embedded.locks import LockFile, holder
from inbound.errors import ConfigError, LedgerError
from inbound.ledger import Corrupt, Entry, read_file
from inbound.ledger.disk import Disk, advice, reason, replace_file
from inbound.ledger.files import FilesLedger
from inbound.ledger.format import path_part, unseal
from inbound.proof.intervals import intersection, union
from inbound.proof.model import OffsetRange
from inbound.spark.replay.plan import ReplayPlan, Unit

PLAN = "plan.json"
#: The end of a file that is searched for its last mark: many lines. Bytes.
_TAIL = 16 * 1024


@dataclass(slots=True)
class Attempt:
    """One attempt at one unit, according to its files."""

    number: int
    first: int  # its first offset
    mark: int  # offsets before this are done
    begun: list[OffsetRange] = field(default_factory=list)  # its deliveries; batches that touch are one range
    batches: int = 0
    records: int = 0
    why: str | None = None  # why it ended; None: it was killed, or it is running

    @property
    def open(self) -> list[OffsetRange]:
        """Return its deliveries without a mark."""
        return union((max(first, self.mark), end) for first, end in self.begun if end > self.mark)

    def count(self, first: int, end: int, records: int) -> None:
        self.batches += 1
        self.records += records
        if self.begun and self.begun[-1][0] <= first <= self.begun[-1][1]:
            before = self.begun.pop()
            first, end = before[0], max(end, before[1])
        self.begun.append((first, end))


@dataclass(frozen=True, slots=True)
class Repeated:
    """Offsets that a later attempt redelivered."""

    topic: str
    partition: int
    first: int
    next: int
    why: str  # the attempt before had not marked them


@dataclass(frozen=True, slots=True)
class Standing:
    """The progress of a unit."""

    unit: Unit
    attempts: tuple[Attempt, ...] = ()
    skips: tuple[tuple[int, int, str], ...] = ()  # [from, to), why
    reverts: int = 0

    @property
    def mark(self) -> int:
        """Return the unit's first offset that is not done."""
        return max([self.unit.first, *(attempt.mark for attempt in self.attempts)])

    @property
    def complete(self) -> bool:
        return self.mark >= self.unit.next

    def repeated(self) -> list[Repeated]:
        """Return the unmarked offsets that later attempts redelivered."""
        found = []
        for n, attempt in enumerate(self.attempts):
            again = union(each for later in self.attempts[n + 1 :] for each in later.begun)
            found += [
                Repeated(*self.unit.tp, *both, attempt.why or "it was killed")
                for both in intersection(attempt.open, again)
            ]
        return found


class ReplayFolder:
    """`<marks>/<name>/`, on storage that driver and executors share. Any process."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root.absolute()
        self.name = name
        self.path = self.root / path_part(name)
        #: Held by the driver while it runs.
        self.lock = LockFile(self.path / "driver.lock")

    # -- the driver's side -------------------------------------------------------------------------------------------

    def claim(self) -> None:
        """Make the folder, and keep other drivers out until `lock.release`.

        Raises:
            ConfigError: another driver runs this replay.
            LedgerError: the folder cannot be written.
        """
        try:
            Disk().make_directory(self.path)
            taken = self.lock.acquire()
        except OSError as error:
            raise LedgerError(
                f"replay folder {self.path}: it cannot be written ({reason(error)}); {advice(error)}"
            ) from error
        if not taken:
            raise ConfigError(
                f"replay {self.name}: another run of it is under way (pid {holder(self.lock.path)}); wait for it to end, or "
                "give another --name"
            )

    def plan(self) -> ReplayPlan | None:
        """Return the written plan, if any, or raise LedgerError: it is unreadable."""
        path = self.path / PLAN
        try:
            return ReplayPlan.from_json(path.read_text(encoding="utf-8"), str(path))
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise LedgerError(
                f"{path}: it cannot be read ({error}); check its rights, or take another --name"
            ) from error

    def write_plan(self, plan: ReplayPlan) -> None:
        """Write the plan durably, or raise LedgerError."""
        path = self.path / PLAN
        try:
            replace_file(path, plan.to_json().encode())
            Disk().sync_path(self.path)
        except OSError as error:
            raise LedgerError(f"{path}: it cannot be written ({reason(error)}); {advice(error)}") from error

    def position(self, unit: Unit) -> int:
        """Return a unit's approximate mark, for a display."""
        marks = map(_last_mark, reversed(self._files(unit)))
        return next((mark for mark in marks if mark is not None), unit.first)

    # -- both sides ---------------------------------------------------------------------------------------------------

    def standing(self, unit: Unit) -> Standing:
        """Return a unit's progress from its files.

        Raises:
            LedgerError: a file cannot be read, or has a damaged line: then the progress is not known.
        """
        attempts: dict[int, Attempt] = {}
        skips: list[tuple[int, int, str]] = []
        reverts = 0
        for path in self._files(unit):
            for item in read_file(path):
                if isinstance(item, Corrupt):
                    raise LedgerError(
                        f"{path}: line {item.line} is damaged ({item.reason}), so what of {unit.tp} is done is not known; "
                        "put the file right from a copy, or delete it to have its part run again"
                    )
                if not isinstance(item, Entry) or item.epoch is None:
                    continue
                if item.kind == "claimed":
                    at = int(item.facts["position"])
                    attempts[item.epoch] = Attempt(item.epoch, at, at)
                if (attempt := attempts.get(item.epoch)) is None:
                    continue
                if item.kind == "begun" and item.first is not None and item.next is not None:
                    attempt.count(item.first, item.next, item.records or 0)
                elif item.kind == "done" and item.commit is not None:
                    attempt.mark = max(attempt.mark, item.commit)
                elif item.kind == "skip":
                    skips.append((item.facts["from"], item.facts["to"], str(item.facts["reason"])))
                elif item.kind == "revert":
                    reverts += 1
                elif item.kind == "released":
                    attempt.why = str(item.facts.get("why"))
        return Standing(unit, tuple(attempts[n] for n in sorted(attempts)), tuple(skips), reverts)

    def _files(self, unit: Unit) -> list[Path]:
        return sorted(self.path.glob(f"unit{unit.number}-*.jsonl"))

    # -- the executors' side -------------------------------------------------------------------------------------------

    def lock_of(self, unit: Unit) -> LockFile:
        """Return the lock of a running attempt; the kernel releases it."""
        return LockFile(self.path / f"unit{unit.number}.lock")

    def ledger_of(self, unit: Unit, clock: Clock) -> FilesLedger:
        """Open the marks of one attempt, or raise LedgerError."""
        return FilesLedger(self.root, self.name, f"unit{unit.number}", clock)


def _last_mark(path: Path) -> int | None:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return None
    for line in reversed(lines):
        if line.startswith(b'{"kind":"done"') and (body := unseal(line)) is not None:
            commit = json.loads(body)["commit"]
            return None if commit is None else int(commit)
    return None
