"""What becomes of the ledger's files: Parquet of those that are ended, nothing of those that are old."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from inbound.clock import Clock
from inbound.errors import LedgerError
from inbound.ledger import Entry, FilesLedger, Range, died, list_files, read_directory
from inbound.ledger.disk import Disk
from inbound.ledger.housekeeping import Housekeeping
from inbound.testing import ManualClock
from tests.ledger.converting import Here

DAY = 86400.0


class FullDisk(Disk):
    """A disk that takes no more files to be kept."""

    full = True

    def sync(self, fd: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def housekeeping(folder: Path, clock: Clock, *, compact: bool = True, disk: Disk | None = None) -> Housekeeping:
    return Housekeeping(folder, clock, compact=compact, retention=7 * DAY, disk=disk, writer=Here())


def one_round(keeper: Housekeeping, clock: ManualClock) -> None:
    """Let it go through the folder once, and do its work there."""
    clock.advance(61)
    clock_before = clock.wall()
    keeper.run_once()
    while keeper.run_once() < clock.now() + 59:
        assert clock.wall() < clock_before + 50
        clock.advance(0.1)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*/*"))


def suffixes(folder: Path) -> list[str]:
    return [path.split("-")[-1] for path in names(folder)]


def entries(folder: Path) -> list[tuple[str, int]]:
    return [(item.kind, item.seq) for item in read_directory(folder) if isinstance(item, Entry)]


def batch(number: int) -> Range:
    return Range("orders", 3, 7, number * 10, number * 10 + 10, 10)


def aged(folder: Path, clock: Clock, seconds: float) -> None:
    """Let all files look as if they had last been changed so long ago."""
    for path in folder.glob("*/*"):
        os.utime(path, (clock.wall() - seconds,) * 2)


def test_rolled_files_become_parquet_and_the_one_being_written_stays(tmp_path: Path, clock: ManualClock) -> None:
    """Readers see the same entries before and after, also beside a writer."""
    ledger = FilesLedger(tmp_path, "g", "a", clock, max_file_bytes=1000)
    for number in range(12):
        ledger.begun(batch(number))
    before = entries(tmp_path)

    one_round(housekeeping(tmp_path, clock), clock)

    assert suffixes(tmp_path) == ["0001.parquet", "0002.parquet", "0003.jsonl"]
    assert entries(tmp_path) == before
    ledger.begun(batch(12))
    ledger.close()
    one_round(housekeeping(tmp_path, clock), clock)
    assert suffixes(tmp_path) == ["0001.parquet", "0002.parquet", "0003.parquet"]
    assert died(read_directory(tmp_path)) == []


def test_what_a_dead_run_left_is_converted_torn_tail_and_all(tmp_path: Path, clock: ManualClock) -> None:
    """Its lock went with it."""
    ledger = FilesLedger(tmp_path, "g", "a", clock)
    ledger.begun(batch(0))
    path = ledger.path
    assert path is not None
    ledger.close(clean=False)
    with path.open("ab") as file:
        file.write(b'{"kind":"beg')

    one_round(housekeeping(tmp_path, clock), clock)

    assert suffixes(tmp_path) == ["0001.parquet"]
    assert [type(item).__name__ for item in read_directory(tmp_path)] == ["Entry", "Entry", "TornTail"]
    assert died(read_directory(tmp_path)) == [path.with_suffix(".parquet")]


def test_files_of_other_hosts_are_left_alone_for_a_day(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a shared folder the locks of other machines may not be seen."""
    FilesLedger(tmp_path, "g", "a", clock).close(clean=False)
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    aged(tmp_path, clock, 0.9 * DAY)

    one_round(housekeeping(tmp_path, clock), clock)
    assert suffixes(tmp_path) == ["0001.jsonl"]

    aged(tmp_path, clock, 1.1 * DAY)
    one_round(housekeeping(tmp_path, clock), clock)
    assert suffixes(tmp_path) == ["0001.parquet"]


class WithoutLocks(Disk):
    """How earlier releases wrote."""

    def lock(self, fd: int) -> None:
        pass


def test_a_file_without_a_lock_is_left_alone_while_its_writer_lives(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member of an earlier release goes on writing to it in a rolling upgrade; once it has ended, it is converted."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as writer:
        monkeypatch.setattr(os, "getpid", lambda: writer.pid)
        ledger = FilesLedger(tmp_path, "g", "a", clock, disk=WithoutLocks())
        monkeypatch.undo()
        ledger.begun(batch(0))
        aged(tmp_path, clock, 0.9 * DAY)
        one_round(housekeeping(tmp_path, clock), clock)
        while_it_lives = suffixes(tmp_path)
        ledger.begun(batch(1))
        ledger.close()
    before = entries(tmp_path)

    one_round(housekeeping(tmp_path, clock), clock)

    assert (while_it_lives, suffixes(tmp_path)) == (["0001.jsonl"], ["0001.parquet"])
    assert entries(tmp_path) == before


def test_killed_between_renaming_and_deleting_the_rest_is_done_later(tmp_path: Path, clock: ManualClock) -> None:
    """And in between readers take each entry once."""
    ledger = FilesLedger(tmp_path, "g", "a", clock)
    ledger.begun(batch(0))
    path = ledger.path
    assert path is not None
    ledger.close()
    lines, before = path.read_bytes(), entries(tmp_path)
    one_round(housekeeping(tmp_path, clock), clock)
    path.write_bytes(lines)
    assert suffixes(tmp_path) == ["0001.jsonl", "0001.parquet"]
    assert entries(tmp_path) == before

    one_round(housekeeping(tmp_path, clock), clock)

    assert suffixes(tmp_path) == ["0001.parquet"]
    assert entries(tmp_path) == before


def test_a_full_disk_leaves_the_lines_as_they_are(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """No half file stays; one warning, and it is done when there is room."""
    FilesLedger(tmp_path, "g", "a", clock).close()
    disk = FullDisk()
    keeper = housekeeping(tmp_path, clock, disk=disk)

    one_round(keeper, clock)
    one_round(keeper, clock)

    assert suffixes(tmp_path) == ["0001.jsonl"]
    assert [record.message.split("0001")[1] for record in caplog.records] == [
        ".jsonl: it stays as it is: No space left on device"
    ]
    disk.full = False
    one_round(keeper, clock)
    one_round(keeper, clock)
    assert suffixes(tmp_path) == ["0001.parquet"]


def test_a_file_of_a_newer_format_stays_as_it_is(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its meaning is not known here."""
    from inbound.ledger.format import seal

    (tmp_path / "g").mkdir()
    path = tmp_path / "g" / "a-20250131T235959123Z-0001.jsonl"
    header = f'{{"v":2,"kind":"header","host":"{socket.gethostname()}","writer":"inbound 9"'.encode()
    path.write_bytes(seal(header))

    one_round(housekeeping(tmp_path, clock), clock)

    assert suffixes(tmp_path) == ["0001.jsonl"]
    assert "it has format version 2" in caplog.text


def test_old_files_are_deleted_whole_and_never_one_that_is_being_written(tmp_path: Path, clock: ManualClock) -> None:
    """Lines, Parquet, and what a killed conversion left; nothing that is not the ledger's."""
    live = FilesLedger(tmp_path, "g", "live", clock)
    FilesLedger(tmp_path, "g", "converted", clock).close()
    one_round(housekeeping(tmp_path, clock), clock)
    FilesLedger(tmp_path, "g", "ended", clock).close()
    (tmp_path / "g" / ".0123.tmp").write_text("half")
    (tmp_path / "g" / "notes.txt").write_text("buy milk")
    aged(tmp_path, clock, 8 * DAY)
    young = FilesLedger(tmp_path, "g", "young", clock)
    young.close()
    os.utime(next((tmp_path / "g").glob("young-*")), (clock.wall() - 6 * DAY,) * 2)

    one_round(housekeeping(tmp_path, clock, compact=False), clock)

    assert [name.split("-")[0] for name in names(tmp_path)] == ["live", "notes.txt", "young"]
    live.begun(batch(0))
    live.close()


def test_a_converted_file_is_as_old_as_its_lines(tmp_path: Path, clock: ManualClock) -> None:
    """Converting does not make the ledger younger."""
    FilesLedger(tmp_path, "g", "a", clock).close()
    aged(tmp_path, clock, 6 * DAY)
    one_round(housekeeping(tmp_path, clock), clock)

    (file,) = list_files(tmp_path)

    assert file.format == "parquet"
    assert clock.wall() - file.modified == pytest.approx(6 * DAY, abs=200)


def test_what_cannot_be_converted_is_tried_ever_more_rarely(tmp_path: Path, clock: ManualClock) -> None:
    """After a minute, two, four and so on, up to an hour; deleting old files goes on."""
    ledger = FilesLedger(tmp_path, "g", "a", clock)
    ledger.begun(batch(0))
    path = ledger.path
    assert path is not None
    ledger.close()
    os.utime(path, (clock.wall(), clock.wall()))
    writer = Here("the format is newer")
    keeper = Housekeeping(tmp_path, clock, compact=True, retention=DAY, writer=writer)
    asked = []
    for _ in range(20):
        one_round(keeper, clock)
        asked.append(writer.asked)
    clock.advance(DAY)
    one_round(keeper, clock)
    assert (asked, names(tmp_path)) == ([1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5], [])


def test_without_a_folder_there_is_nothing_to_do(tmp_path: Path, clock: ManualClock) -> None:
    """The ledger makes it; until then there is no complaint."""
    one_round(housekeeping(tmp_path / "none", clock), clock)

    with pytest.raises(LedgerError):
        list_files(tmp_path / "none")
