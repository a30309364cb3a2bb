"""Marks: what is done, who else is at it, and what was repeated."""

from __future__ import annotations

from pathlib import Path

import pytest

from inbound.errors import ConfigError, LedgerError
from inbound.ledger import Done, FilesLedger, Range
from inbound.spark.replay.marks import Repeated, ReplayFolder
from inbound.spark.replay.plan import Unit
from inbound.testing import ManualClock

UNIT = Unit(3, "orders", 0, 100, 200)


@pytest.fixture
def folder(tmp_path: Path) -> ReplayFolder:
    """The folder of a replay."""
    return ReplayFolder(tmp_path / "replays", "january")


def begin(folder: ReplayFolder, number: int, position: int, clock: ManualClock) -> FilesLedger:
    """Begin an attempt."""
    clock.advance(1)
    ledger = folder.ledger_of(UNIT, clock)
    ledger.note("claimed", topic="orders", partition=0, epoch=number, position=position, session=None)
    return ledger


def deliver(ledger: FilesLedger, number: int, first: int, end: int, *, mark: bool = True) -> None:
    """Deliver a batch, and mark it."""
    ledger.begun(Range("orders", 0, number, first, end, end - first))
    if mark:
        ledger.done([Done("orders", 0, number, first, end, end)])


def test_a_unit_that_no_attempt_tried_is_at_its_beginning(folder: ReplayFolder) -> None:
    """Nothing is done."""
    standing = folder.standing(UNIT)

    assert (standing.mark, standing.complete, standing.repeated()) == (100, False, [])


def test_what_a_killed_attempt_did_not_mark_is_what_the_next_repeats(folder: ReplayFolder) -> None:
    """Not its begun batches that were never redelivered, nor its marked ones."""
    clock = ManualClock()
    killed = begin(folder, 1, 100, clock)
    deliver(killed, 1, 100, 120)
    deliver(killed, 1, 120, 160, mark=False)
    second = begin(folder, 2, 120, clock)
    deliver(second, 2, 120, 140)

    standing = folder.standing(UNIT)

    assert standing.mark == 140
    assert standing.repeated() == [Repeated("orders", 0, 120, 140, "it was killed")]
    assert folder.position(UNIT) == 140


def test_a_reason_for_the_end_of_an_attempt_is_reported(folder: ReplayFolder) -> None:
    """Where it could still say one."""
    clock = ManualClock()
    failed = begin(folder, 1, 100, clock)
    deliver(failed, 1, 100, 120, mark=False)
    failed.note("released", topic="orders", partition=0, epoch=1, why="LedgerError: disk full")
    second = begin(folder, 2, 100, clock)
    deliver(second, 2, 100, 200)

    standing = folder.standing(UNIT)

    assert standing.complete
    assert standing.repeated() == [Repeated("orders", 0, 100, 120, "LedgerError: disk full")]


def test_a_torn_line_was_not_a_mark_yet(folder: ReplayFolder) -> None:
    """Killed while it wrote: the one before counts."""
    ledger = begin(folder, 1, 100, ManualClock())
    deliver(ledger, 1, 100, 120)
    assert ledger.path is not None
    with ledger.path.open("ab") as file:
        file.write(b'{"kind":"done","commit":200')

    assert folder.standing(UNIT).mark == 120


def test_damaged_marks_are_refused(folder: ReplayFolder) -> None:
    """The progress is not known then; the message names file and line."""
    ledger = begin(folder, 1, 100, ManualClock())
    deliver(ledger, 1, 100, 120)
    assert ledger.path is not None
    data = ledger.path.read_bytes()
    ledger.path.write_bytes(data.replace(b'"commit":120', b'"commit":190'))

    with pytest.raises(LedgerError, match=r"unit3-.*jsonl: line 4 is damaged .* orders/0"):
        folder.standing(UNIT)


def test_one_driver_at_a_time(folder: ReplayFolder) -> None:
    """The second gets the pid of the first; the lock is free when that ends."""
    folder.claim()
    other = ReplayFolder(folder.root, folder.name)

    with pytest.raises(ConfigError, match=r"replay january: another run of it is under way \(pid \d+\)"):
        other.claim()
    folder.lock.release()
    other.claim()
    other.lock.release()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """With what to do."""
    (tmp_path / "replays").write_text("a file")

    with pytest.raises(LedgerError, match=r"replays/january: it cannot be written .*"):
        ReplayFolder(tmp_path / "replays", "january").claim()


def test_names_stay_in_their_folder(tmp_path: Path) -> None:
    """For every name of a replay."""
    assert ReplayFolder(tmp_path, "../x y").path == tmp_path / "%2E.%2Fx%20y"
