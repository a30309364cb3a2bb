"""FilesLedger on disks that fail: an error that says so, no damaged line, and a later call that works."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from inbound.clock import SystemClock
from inbound.errors import LedgerError
from inbound.ledger import Done, Entry, FilesLedger, Range, TornTail, died, read_directory, read_file
from inbound.ledger.disk import Disk


class FailingDisk(Disk):
    """A real disk that fails when told to."""

    def __init__(self) -> None:
        self._failures: dict[str, list[int]] = {}
        self._partial: int | None = None
        #: Called once, at the beginning of the next sync.
        self.during_sync: Callable[[], None] | None = None
        self.open: set[int] = set()

    def fail_next(self, call: str, *codes: int) -> None:
        """Make the next calls of `call` fail with these errno codes, one each."""
        self._failures.setdefault(call, []).extend(codes)

    def fill_up_after(self, count: int) -> None:
        """Take `count` more bytes, then refuse one write for want of space."""
        self._partial = count

    def create(self, path: Path) -> int:
        self._fail("create")
        fd = super().create(path)
        self.open.add(fd)
        return fd

    def write(self, fd: int, data: bytes) -> int:
        self._fail("write")
        if self._partial is not None:
            data, self._partial = data[: self._partial], None
            self.fail_next("write", errno.ENOSPC)
        return super().write(fd, data)

    def truncate(self, fd: int, size: int) -> None:
        self._fail("truncate")
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        if self.during_sync is not None:
            during_sync, self.during_sync = self.during_sync, None
            during_sync()
        self._fail("sync")

    def sync_path(self, path: Path) -> None:
        self._fail("sync_path")

    def close(self, fd: int) -> None:
        super().close(fd)
        self.open.remove(fd)
        self._fail("close")

    def _fail(self, call: str) -> None:
        if codes := self._failures.get(call):
            code = codes.pop(0)
            raise OSError(code, os.strerror(code))


def batch(number: int) -> Range:
    return Range("orders", 3, 7, number * 10, number * 10 + 10, 10)


def finished(number: int) -> Done:
    return Done("orders", 3, 7, number * 10, number * 10 + 10, number * 10 + 10)


def contents(path: Path) -> list[tuple[str, int | None]]:
    """(kind, first) of all that is in the ledger; fails on damage."""
    items = list(read_directory(path))
    assert all(isinstance(item, Entry) for item in items), items
    return [(item.kind, item.first) for item in items if isinstance(item, Entry) and item.first is not None]


@pytest.fixture
def disk() -> Iterator[FailingDisk]:
    disk = FailingDisk()
    yield disk
    assert not disk.open, "files were left open"


@pytest.fixture
def ledger(tmp_path: Path, disk: FailingDisk) -> FilesLedger:
    return FilesLedger(tmp_path, "g", "a", SystemClock(), disk=disk)


def test_a_full_disk_leaves_no_torn_line_and_the_file_goes_on(
    tmp_path: Path, disk: FailingDisk, ledger: FilesLedger
) -> None:
    """Half a line was written when the disk was full: it is cut off, and after some cleaning up the next one fits."""
    ledger.begun(batch(0))
    disk.fill_up_after(30)
    with pytest.raises(LedgerError, match=r"ledger file .*a-.*-0001\.jsonl: could not be written.*No space.*free some"):
        ledger.begun(batch(1))
    assert contents(tmp_path) == [("begun", 0)]

    ledger.begun(batch(1))
    ledger.close()

    assert contents(tmp_path) == [("begun", 0), ("begun", 10)]
    assert len(list(tmp_path.glob("g/*"))) == 1
    assert died(read_directory(tmp_path)) == []


def test_a_failed_done_records_none_of_its_lines(tmp_path: Path, disk: FailingDisk, ledger: FilesLedger) -> None:
    """Two of three lines fitted: all are taken back, and the numbers stay without gaps."""
    disk.fill_up_after(400)
    with pytest.raises(LedgerError):
        ledger.done([finished(0), finished(1), finished(2)])
    assert contents(tmp_path) == []

    ledger.done([finished(0), finished(1), finished(2)])
    ledger.close()

    assert contents(tmp_path) == [("done", 0), ("done", 10), ("done", 20)]
    assert [item.seq for item in read_directory(tmp_path) if isinstance(item, Entry)] == [0, 1, 2, 3, 3]


def test_a_torn_line_that_cannot_be_cut_off_stays_the_last_of_its_file(
    tmp_path: Path, disk: FailingDisk, ledger: FilesLedger
) -> None:
    """What follows goes to a fresh file, so that nothing is glued to the torn line."""
    ledger.begun(batch(0))
    first = ledger.path
    assert first is not None
    disk.fill_up_after(30)
    disk.fail_next("truncate", errno.EIO)
    with pytest.raises(LedgerError):
        ledger.begun(batch(1))

    ledger.begun(batch(1))
    ledger.close()

    *good, tail = read_directory(tmp_path.resolve())
    damage = [item for item in [*good, tail] if not isinstance(item, Entry)]
    begun = [item.first for item in good if isinstance(item, Entry) and item.kind == "begun"]
    assert damage == [TornTail(first, first.stat().st_size - 30, 30)]
    assert begun == [0, 10]


def test_numbers_that_may_stand_in_a_torn_file_are_not_given_again(
    tmp_path: Path, disk: FailingDisk, ledger: FilesLedger
) -> None:
    """Else a reader would take the next entries for repeats of those that the failed call left behind."""
    disk.fill_up_after(400)
    disk.fail_next("truncate", errno.EIO)
    with pytest.raises(LedgerError):
        ledger.done([finished(0), finished(1), finished(2)])

    ledger.begun(batch(7))
    ledger.close()

    found = [item for item in read_directory(tmp_path) if isinstance(item, Entry) and item.first is not None]
    assert [(item.kind, item.first) for item in found] == [("done", 0), ("done", 10), ("begun", 70)]


def test_an_input_output_error_moves_on_to_a_fresh_file(tmp_path: Path, disk: FailingDisk, ledger: FilesLedger) -> None:
    """The fresh file's header says which file was left and why."""
    ledger.begun(batch(0))
    disk.fail_next("write", errno.EIO)
    with pytest.raises(LedgerError, match="check the disk"):
        ledger.begun(batch(1))
    ledger.begun(batch(1))
    ledger.close()

    old, new = sorted(tmp_path.glob("g/*"))
    header = next(read_file(new))
    assert isinstance(header, Entry)
    assert (header.facts["previous"], header.facts["why"]) == (old.name, "write failed: Input/output error")
    assert contents(tmp_path) == [("begun", 0), ("begun", 10)]
    assert died(read_directory(tmp_path)) == []


@pytest.mark.parametrize("call", ["sync", "sync_path"])
def test_after_a_failed_fsync_the_lines_are_written_again(
    tmp_path: Path, disk: FailingDisk, ledger: FilesLedger, call: str
) -> None:
    """The old file is never synced again; a fresh one gets all lines that are in doubt, and readers see each once."""
    ledger.begun(batch(0))
    disk.fail_next(call, errno.EIO)
    ledger.done([finished(0)])
    ledger.close()

    old, new = sorted(tmp_path.glob("g/*"))
    assert contents(tmp_path) == [("begun", 0), ("done", 0)]
    old.unlink()
    assert contents(tmp_path) == [("begun", 0), ("done", 0)], f"{new.name} alone tells it all"


def test_a_second_failed_fsync_is_an_error_and_a_later_done_works(
    tmp_path: Path, disk: FailingDisk, ledger: FilesLedger
) -> None:
    """The caller must not commit; what was begun is carried along until some file could be synced."""
    ledger.begun(batch(0))
    disk.fail_next("sync", errno.EIO, errno.EIO)
    with pytest.raises(LedgerError, match=r"0002\.jsonl: could not be synced: what of it is on the disk is unknown"):
        ledger.done([finished(0)])

    ledger.done([finished(0)])
    ledger.close()

    for path in sorted(tmp_path.glob("g/*"))[:2]:
        path.unlink()
    assert contents(tmp_path) == [("begun", 0), ("done", 0)]


def test_an_fsync_in_doubt_concerns_only_what_was_not_synced_before(
    tmp_path: Path, disk: FailingDisk, ledger: FilesLedger
) -> None:
    """Lines of an earlier good fsync are not written again."""
    ledger.begun(batch(0))
    ledger.done([finished(0)])
    ledger.begun(batch(1))
    disk.fail_next("sync", errno.EIO)
    ledger.done([finished(1)])
    ledger.close()

    sorted(tmp_path.glob("g/*"))[0].unlink()
    assert contents(tmp_path) == [("begun", 10), ("done", 10)]


def test_lines_left_in_a_file_whose_fsync_fails_after_the_next_began_are_not_lost(
    tmp_path: Path, disk: FailingDisk
) -> None:
    """During the fsync another thread rolls on to the next file; then the fsync fails, and its lines are saved."""
    ledger = FilesLedger(tmp_path, "g", "a", SystemClock(), max_file_bytes=700, disk=disk)
    ledger.begun(batch(0))

    def others() -> None:
        for number in (1, 2, 3):
            ledger.begun(batch(number))

    disk.during_sync = others
    disk.fail_next("sync", errno.EIO)
    ledger.done([finished(0)])
    ledger.close()

    paths = sorted(tmp_path.glob("g/*"))
    assert len(paths) >= 3
    assert sorted(contents(tmp_path)) == [("begun", 0), ("begun", 10), ("begun", 20), ("begun", 30), ("done", 0)]
    paths[0].unlink()
    assert ("begun", 0) in contents(tmp_path)
    assert ("done", 0) in contents(tmp_path)


def test_what_is_kept_for_a_failed_fsync_is_bounded(tmp_path: Path, disk: FailingDisk, ledger: FilesLedger) -> None:
    """A channel that never commits doesn't fill the memory; the newest lines are written again."""
    for number in range(6000):
        ledger.begun(batch(number))
    disk.fail_next("sync", errno.EIO)
    ledger.done([finished(0)])
    ledger.close()

    assert len(contents(tmp_path)) == 6001
    sorted(tmp_path.glob("g/*"))[0].unlink()
    saved = contents(tmp_path)
    assert 2000 < len(saved) <= 4097
    assert saved[-2:] == [("begun", 59990), ("done", 0)]


def test_a_directory_removed_meanwhile_is_noticed_and_recreated(tmp_path: Path, ledger: FilesLedger) -> None:
    """Writing to a deleted file succeeds for the operating system: before a commit, its lines are written again."""
    ledger.begun(batch(0))
    shutil.rmtree(tmp_path / "g")
    ledger.begun(batch(1))

    ledger.done([finished(0)])
    ledger.close()

    assert contents(tmp_path) == [("begun", 0), ("begun", 10), ("done", 0)]


def test_a_full_file_that_was_removed_is_noticed_too(tmp_path: Path, disk: FailingDisk) -> None:
    """Rolling on to the next file does not hide that the last one is gone."""
    ledger = FilesLedger(tmp_path, "g", "a", SystemClock(), max_file_bytes=10, disk=disk)
    shutil.rmtree(tmp_path / "g")
    with pytest.raises(LedgerError, match="its lines are lost"):
        ledger.begun(batch(0))
    ledger.begun(batch(0))
    ledger.close()

    assert contents(tmp_path) == [("begun", 0)]


def test_no_file_to_be_had_is_an_error_until_there_is(tmp_path: Path, disk: FailingDisk, ledger: FilesLedger) -> None:
    """A directory that may not be written to any more: each try says so, and the first good one goes on."""
    disk.fail_next("write", errno.EIO)
    disk.fail_next("create", errno.EACCES, errno.EROFS)
    for message in ("Input/output error", "make the directory writable", "mount the file system writable"):
        with pytest.raises(LedgerError, match=message):
            ledger.begun(batch(0))

    ledger.begun(batch(0))
    ledger.close()

    assert contents(tmp_path) == [("begun", 0)]


def test_a_fresh_file_without_room_for_its_header_leaves_nothing(tmp_path: Path, disk: FailingDisk) -> None:
    """Retrying on a full disk doesn't fill the directory with empty files."""
    disk.fail_next("write", errno.ENOSPC)
    with pytest.raises(LedgerError, match=r"no file could be opened in it.*free some space"):
        FilesLedger(tmp_path, "g", "a", SystemClock(), disk=disk)

    assert list(tmp_path.glob("g/*")) == []


def test_the_line_that_says_what_is_missing_waits_for_room(
    tmp_path: Path, disk: FailingDisk, ledger: FilesLedger
) -> None:
    """It comes with the next line that gets through, after any failures, and reaches back to the first loss."""
    ledger.lacks("orders", 1, 7)
    disk.fail_next("write", errno.ENOSPC)
    with pytest.raises(LedgerError):
        ledger.begun(batch(0))
    ledger.lacks("orders", 3, 7)
    ledger.begun(batch(1))
    ledger.begun(batch(2))
    ledger.close()

    lines = [item for item in read_directory(tmp_path) if isinstance(item, Entry) and item.topic == "orders"]
    assert [(line.kind, line.seq, line.partition) for line in lines] == [
        ("degraded", 2, 1), ("degraded", 3, 3), ("begun", 4, 3), ("begun", 5, 3)
    ]  # fmt: skip


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """The ledger fails when it is opened, not at the first batch."""
    (tmp_path / "ledger").write_text("")

    with pytest.raises(LedgerError, match=r"ledger directory .*point ledger\.path to a directory"):
        FilesLedger(tmp_path / "ledger", "g", "a", SystemClock())


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_close_that_fails_says_so_and_lets_go_of_the_file(disk: FailingDisk, ledger: FilesLedger, call: str) -> None:
    """The run then counts as died; nothing stays open, and a second close is quiet."""
    disk.fail_next(call, errno.EIO)
    with pytest.raises(LedgerError, match="Input/output error"):
        ledger.close()

    ledger.close()
    assert not disk.open


def test_an_error_of_close_itself_is_logged(
    disk: FailingDisk, ledger: FilesLedger, caplog: pytest.LogCaptureFixture
) -> None:
    """All was synced before, so no action is needed."""
    disk.fail_next("close", errno.EIO)
    ledger.close()

    assert "closing failed: Input/output error" in caplog.text


@contextmanager
def file_size_limit(count: int) -> Iterator[None]:
    """Let no file of this process grow past `count` bytes, as `ulimit -f` does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_limit_on_file_sizes_is_got_over_by_fresh_files(tmp_path: Path) -> None:
    """The kernel itself cuts a write short and refuses the rest: one error per file, and no line lost or damaged."""
    ledger = FilesLedger(tmp_path, "g", "a", SystemClock())
    errors = 0
    with file_size_limit(2000):
        for number in range(30):
            try:
                ledger.begun(batch(number))
            except LedgerError as error:
                assert "ulimit -f" in str(error)  # noqa: PT017  which calls raise is not the point
                errors += 1
                ledger.begun(batch(number))
    ledger.close()

    assert errors == len(list(tmp_path.glob("g/*"))) - 1 > 0
    assert contents(tmp_path) == [("begun", number * 10) for number in range(30)]
