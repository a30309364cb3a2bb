"""Parquet of a ledger's file that another process makes."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

import pytest

from inbound.errors import LedgerError
from inbound.ledger import Entry, FilesLedger, Range, read_file
from inbound.ledger.conversion import LOOK, convert_apart
from inbound.ledger.disk import Disk, being_written
from inbound.testing import ManualClock
from tests.converting import convert_here

#: A process starts, and imports pyarrow.
pytestmark = pytest.mark.slow


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of a ledger that was closed."""
    ledger = FilesLedger(tmp_path, "g", "a", ManualClock())
    ledger.begun(Range("orders", 3, 7, 0, 10, 10))
    path = ledger.path
    assert path is not None
    ledger.close()
    return path


def entries(path: Path) -> list[tuple[str, int]]:
    return [(item.kind, item.seq) for item in read_file(path) if isinstance(item, Entry)]


def test_another_process_makes_the_same_as_this_one(path: Path) -> None:
    """And it is over when the last step is."""
    here, there = path.with_name("here.parquet"), path.with_name("there.parquet")
    for converter, target in ((convert_here, here), (convert_apart, there)):
        with path.open("r+b") as data:
            data.readline()  # as housekeeping does, to see whose it is
            data.seek(0)
            deque(converter(path, data, target, Disk()), maxlen=0)
    assert len(entries(here)) == 3
    assert (entries(here), [one.name for one in path.parent.glob(".*")]) == (entries(there), [])


def test_what_another_process_cannot_do_is_said(path: Path) -> None:
    """In its words: the folder is gone, say."""
    with path.open("r+b") as data, pytest.raises(LedgerError, match="No such file or directory"):
        deque(convert_apart(path, data, path.parent / "gone" / "x.parquet", Disk()), maxlen=0)


def test_a_file_is_kept_from_others_while_another_process_converts_it_and_left_as_it_was_at_a_stop(path: Path) -> None:
    """The lock goes with the open file; the process is ended, and nothing stands where its result was to."""
    with path.open("r+b") as data:
        assert being_written(data.fileno()) is False  # which takes the lock
        steps = convert_apart(path, data, path.with_suffix(".parquet"), Disk())
        wait = next(steps)
        with path.open("r+b") as other:
            kept = being_written(other.fileno())
        steps.close()
    assert (wait, kept, path.exists(), path.with_suffix(".parquet").exists()) == (LOOK, True, True, False)


def test_a_process_that_cannot_be_made_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Housekeeping says so, and tries again at its next round."""
    monkeypatch.setattr("sys.executable", os.fspath(path.parent / "gone"))
    with path.open("r+b") as data, pytest.raises(FileNotFoundError):
        next(convert_apart(path, data, path.with_suffix(".parquet"), Disk()))
    assert path.exists()
