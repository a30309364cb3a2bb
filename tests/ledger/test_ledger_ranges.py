"""What a ledger tells after a crash: open ranges, runs that died; and the ledger in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from inbound.clock import SystemClock
from inbound.errors import LedgerError
from inbound.ledger import (
    Done,
    FilesLedger,
    Ledger,
    MemoryLedger,
    NoLedger,
    Note,
    Outcome,
    Range,
    Settled,
    TornTail,
    died,
    open_ranges,
    read_directory,
    read_file,
)


class Consumer:
    """A process that works on `orders/0` and writes its ledger."""

    def __init__(self, directory: Path, name: str, epoch: int) -> None:
        self.ledger = FilesLedger(directory, "g", name, SystemClock())
        self.epoch = epoch

    def begin(self, first: int, end: int) -> None:
        self.ledger.begun(Range("orders", 0, self.epoch, first, end, end - first))

    def commit(self, offset: int, outcome: Outcome = "landed") -> None:
        self.ledger.settled([Settled("orders", 0, self.epoch, offset, outcome, 4711)])

    def die(self) -> None:
        """Leave the file as a killed process does."""
        path = self.ledger.path
        assert path is not None
        before = path.read_bytes()
        self.ledger.close()
        path.write_bytes(before)


def test_a_batch_in_flight_at_the_crash_is_open(tmp_path: Path) -> None:
    """Committed ranges are closed, also a committed prefix of one; the rest is what may be repeated."""
    a = Consumer(tmp_path, "a", epoch=1)
    a.begin(0, 100)
    a.commit(100)
    a.begin(100, 200)
    a.commit(150)
    a.die()

    assert open_ranges(read_directory(tmp_path)) == {("orders", 0): [(150, 200)]}


@pytest.mark.parametrize("outcome", ["fenced", "unknown"])
def test_a_commit_that_did_not_surely_land_closes_nothing(tmp_path: Path, outcome: Outcome) -> None:
    """Neither a refused commit nor one whose answer was lost is a proof."""
    a = Consumer(tmp_path, "a", epoch=1)
    a.begin(0, 100)
    a.commit(100, outcome)
    a.ledger.close()

    assert open_ranges(read_directory(tmp_path)) == {("orders", 0): [(0, 100)]}


def test_who_takes_over_closes_what_the_dead_one_left(tmp_path: Path) -> None:
    """A commit under a later epoch covers the ranges of earlier ones, in any order of the files."""
    later = Consumer(tmp_path, "a", epoch=2)
    dead = Consumer(tmp_path, "z", epoch=1)
    dead.begin(0, 100)
    dead.begin(100, 200)
    dead.die()
    later.begin(0, 120)
    later.commit(120)
    later.ledger.close()

    assert open_ranges(read_directory(tmp_path)) == {("orders", 0): [(120, 200)]}


def test_a_commit_that_lands_before_the_next_batch_is_withheld_stays_landed(tmp_path: Path) -> None:
    """The batch that was withheld is not open, and what the commit covers is closed."""
    a = Consumer(tmp_path, "a", epoch=1)
    a.begin(0, 100)
    a.begin(100, 200)
    a.commit(100)
    a.ledger.note("withheld", topic="orders", partition=0, epoch=1, first=100, next=200, records=100)
    a.die()

    assert open_ranges(read_directory(tmp_path)) == {}


def test_after_a_reset_old_commits_prove_nothing_for_what_is_read_again(tmp_path: Path) -> None:
    """A reset bumps the epoch: what is begun after it at lower offsets stays open until committed once more."""
    a = Consumer(tmp_path, "a", epoch=1)
    a.begin(0, 1000)
    a.commit(1000)
    a.epoch = 2
    a.begin(0, 50)
    a.begin(40, 60)
    a.ledger.close()

    assert open_ranges(read_directory(tmp_path)) == {("orders", 0): [(0, 60)]}


def test_all_settled_means_nothing_to_report(tmp_path: Path) -> None:
    """Partitions without open ranges are not in the answer; notes don't count as work."""
    a = Consumer(tmp_path, "a", epoch=1)
    a.ledger.note("claimed", topic="orders", partition=0, epoch=1, position=0, session="0x1")
    a.begin(0, 100)
    a.commit(100)
    a.ledger.close()

    assert open_ranges(read_directory(tmp_path)) == {}


def test_a_killed_run_is_distinguished_from_one_that_ended(tmp_path: Path) -> None:
    """By its missing end mark; a torn tail, as an interrupted write leaves it, is reported and changes nothing."""
    ended, dead = Consumer(tmp_path, "a", epoch=1), Consumer(tmp_path, "b", epoch=1)
    path = dead.ledger.path
    assert path is not None
    ended.begin(0, 10)
    dead.begin(10, 20)
    ended.ledger.close()
    dead.die()
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(b'{"kind":"beg')

    items = list(read_directory(tmp_path))
    assert died(items) == [path]
    assert items[-1] == TornTail(path, whole, 12)
    assert open_ranges(items) == {("orders", 0): [(0, 20)]}


def test_what_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    """A wrong path is an error with the path in it, never an empty ledger."""
    with pytest.raises(LedgerError, match=r"ledger directory .*nowhere.*check ledger\.path"):
        list(read_directory(tmp_path / "nowhere"))
    with pytest.raises(LedgerError, match=r"ledger file .*gone\.jsonl: it cannot be read \(No such file"):
        list(read_file(tmp_path / "gone.jsonl"))


def test_the_ledger_in_memory_keeps_what_it_is_given() -> None:
    """Entries stand in order, as given; notes under the names that a file would have."""
    ledger = MemoryLedger()
    begun, done = Range("t", 0, 1, 0, 10, 10), Done("t", 0, 1, 0, 10, 10)
    settled = Settled("t", 0, 1, 10, "landed", 4711)
    ledger.begun(begun)
    ledger.done([done])
    ledger.settled([settled])
    ledger.note("revert", topic="t", partition=0, epoch=1, from_=10, to=0)

    assert ledger.entries == [begun, done, settled, Note("revert", "t", 0, 1, {"from": 10, "to": 0})]


def test_the_ledger_in_memory_fails_as_told() -> None:
    """The next call, or the next of one verb, raises and records nothing; the one after works."""
    ledger = MemoryLedger()
    full, torn = LedgerError("full"), LedgerError("torn")
    ledger.fail_next(full, "done")
    ledger.fail_next(torn)

    with pytest.raises(LedgerError, match="torn"):
        ledger.begun(Range("t", 0, 1, 0, 10, 10))
    ledger.begun(Range("t", 0, 1, 0, 10, 10))
    with pytest.raises(LedgerError, match="full"):
        ledger.done([Done("t", 0, 1, 0, 10, 10)])
    ledger.close()
    with pytest.raises(LedgerError, match="begun after close"):
        ledger.begun(Range("t", 0, 1, 0, 10, 10))

    assert ledger.entries == [Range("t", 0, 1, 0, 10, 10)]
    assert ledger.closed


@pytest.mark.parametrize("ledger", [NoLedger(), MemoryLedger()], ids=["none", "memory"])
def test_every_ledger_refuses_a_wrong_note(ledger: Ledger) -> None:
    """So that a test without files finds the defect as well."""
    with pytest.raises(ValueError, match="lack new, old"):
        ledger.note("reset", topic="t", partition=0, epoch=1)
