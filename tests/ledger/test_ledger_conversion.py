"""Parquet of a ledger's file that another process makes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from inbound.errors import LedgerError
from inbound.ledger import Entry, FilesLedger, Range, read_file
from inbound.ledger.conversion import LOOKS, ParquetWriter, convert
from inbound.ledger.disk import Disk, alive
from inbound.ledger.housekeeping import Housekeeping
from inbound.testing import ManualClock
from tests.ledger.converting import Here

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


def write(writer: ParquetWriter, path: Path, target: Path) -> None:
    with path.open("r+b") as data:
        data.readline()  # as housekeeping does, to see whose it is
        data.seek(0)
        for wait in writer.write(path, data, target):
            time.sleep(wait)


@pytest.fixture
def apart() -> Iterator[ParquetWriter]:
    apart = ParquetWriter()
    yield apart
    apart.close()


def test_another_process_makes_the_same_as_this_one(path: Path, apart: ParquetWriter) -> None:
    """And the next file, too, without another start."""
    here, there, again = (path.with_name(f"{name}.parquet") for name in ("here", "there", "again"))
    write(Here(), path, here)
    write(apart, path, there)
    child = apart._child
    write(apart, path, again)
    assert len(entries(here)) == 3
    assert (entries(there), entries(again), apart._child is child) == (entries(here), entries(here), True)


def test_what_another_process_cannot_do_is_reported(path: Path, apart: ParquetWriter) -> None:
    """In its words: the folder is gone, say."""
    with pytest.raises(LedgerError, match="No such file or directory"):
        write(apart, path, path.parent / "gone" / "x.parquet")


def test_what_is_broken_off_leaves_nothing(path: Path, apart: ParquetWriter) -> None:
    """Neither a process, nor its file."""
    with path.open("r+b") as data:
        steps = convert(apart, path, data, path.with_suffix(".parquet"), Disk())
        wait = next(steps)
        assert apart._child is not None
        pid = apart._child.pid
        steps.close()
    left = [one.name for one in path.parent.iterdir()]
    assert (wait, alive(pid), left) == (LOOKS[0], False, [path.name])


def test_it_ends_with_who_has_begun_it(path: Path, apart: ParquetWriter) -> None:
    """Whose death closes the pipe, however he died."""
    write(apart, path, path.with_suffix(".parquet"))
    child = apart._child
    assert child is not None
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(10) == 0


def test_what_lies_in_the_working_directory_is_not_imported(
    path: Path, apart: ParquetWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's `json.py` there is not the standard library's."""
    (path.parent / "json.py").write_text("raise SystemExit('this is mine')")
    monkeypatch.chdir(path.parent)
    write(apart, Path(path.name), Path("x.parquet"))
    assert len(entries(path.with_name("x.parquet"))) == 3


@pytest.mark.parametrize(
    ("executable", "what"),
    [
        ("/gone", "no process could be started to convert it (No such file or directory: /gone); raise the limit on"),
        ("", "it cannot be converted: this program does not know its interpreter"),
        ("/bin/true", "the converter has ended with 0"),
        ("chatty", "chatty does not convert files: it says b'hello\\n'"),
    ],
)
def test_a_program_that_is_no_interpreter_leaves_the_lines(
    path: Path,
    tmp_path: Path,
    executable: str,
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Such as one that is frozen, or has Python built in. One warning says what to do."""
    if executable == "chatty":
        executable = str(tmp_path / executable)
        Path(executable).write_text("#!/bin/sh\nread -r line\necho hello\nsleep 9\n")
        Path(executable).chmod(0o755)
    monkeypatch.setattr("sys.executable", executable)
    clock = ManualClock()
    keeper = Housekeeping(path.parents[1], clock, compact=True, retention=1e9)
    for _ in range(3):
        clock.advance(61)
        deadline = time.monotonic() + 10
        while keeper.run_once() < clock.now() + 59 and time.monotonic() < deadline:
            time.sleep(0.01)
    keeper.close()
    assert ([one.name for one in path.parent.iterdir()], [what in one.getMessage() for one in caplog.records]) == (
        [path.name],
        [True],
    )
