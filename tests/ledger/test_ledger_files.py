"""FilesLedger on a healthy disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from inbound.clock import Clock, Flag, SystemClock
from inbound.errors import LedgerError
from inbound.ledger import Done, Entry, FilesLedger, Range, Settled, died, read_directory, read_file
from inbound.ledger.disk import Disk
from tests.waiting import wait_for

ROOT = Path(__file__).resolve().parent.parent.parent


class StoppedClock(Clock):
    """Always the same moment."""

    def now(self) -> float:
        return 0.0

    def wall(self) -> float:
        return 1738367999.123

    def wait(self, event: Flag, seconds: float | None) -> bool:
        return event.wait(0)


class WatchedDisk(Disk):
    """A disk that counts its syncs, and can be made to take its time over them."""

    def __init__(self) -> None:
        self.file_syncs = 0
        self.folders: list[Path] = []
        self.syncing = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def sync(self, fd: int) -> None:
        self.file_syncs += 1
        self.syncing.set()
        wait_for(self.go_on, 5, "the sync may go on")

    def sync_path(self, path: Path) -> None:
        self.folders.append(path)


def kinds(directory: Path) -> list[str]:
    return [item.kind for item in read_directory(directory) if isinstance(item, Entry)]


def batch(number: int) -> Range:
    return Range("orders", 3, 7, number * 10, number * 10 + 10, 10)


def test_a_run_is_one_file_with_a_header_and_an_end(tmp_path: Path) -> None:
    """The file's name says who and when, the header who wrote it, and each line is complete in itself."""
    ledger = FilesLedger(tmp_path, "orders/svc", "host-1", StoppedClock())
    ledger.begun(batch(0))
    ledger.close()

    (path,) = tmp_path.glob("*/*")
    header, begun, end = list(read_file(path))
    assert path.relative_to(tmp_path) == Path("orders%2Fsvc", "host-1-20250131T235959123Z-0001.jsonl")
    assert isinstance(header, Entry)
    assert isinstance(end, Entry)
    assert header.facts.items() >= {"v": 1, "file": 1, "previous": None, "why": "start", "pid": os.getpid()}.items()
    assert begun == Entry(
        path, 2, "begun", "host-1-20250131T235959123Z", 1, "orders/svc", "host-1", 1738367999.123,
        "orders", 3, 7, 0, 10, 10,
    )  # fmt: skip
    assert end.facts == {"why": "closed"}


def test_a_new_run_never_touches_the_file_of_another(tmp_path: Path) -> None:
    """The same consumer id started again, even in the same millisecond, has files of its own."""
    first = FilesLedger(tmp_path, "g", "a", StoppedClock())
    second = FilesLedger(tmp_path, "g", "a", StoppedClock())
    second.begun(batch(2))
    first.begun(batch(1))
    first.close()
    second.close()

    files = [list(read_file(path)) for path in sorted(tmp_path.glob("g/*"))]
    firsts = [[item.first for item in file if isinstance(item, Entry)] for file in files]
    assert firsts == [[None, 10, None], [None, 20, None]]


def test_many_done_lines_cost_one_fsync_and_other_lines_none(tmp_path: Path) -> None:
    """Only `done` and `close` wait for the disk; a new file's name is synced with its first lines, once."""
    disk = WatchedDisk()
    ledger = FilesLedger(tmp_path / "deep" / "ledger", "g", "a", SystemClock(), disk=disk)
    made = [tmp_path, tmp_path / "deep", tmp_path / "deep" / "ledger"]  # each new folder's parent
    assert (disk.file_syncs, disk.folders) == (0, made)

    ledger.begun(batch(0))
    ledger.settled([Settled("orders", 3, 7, 10, "fenced")])
    ledger.note("lost", topic="orders", partition=3, epoch=7)
    assert disk.file_syncs == 0

    ledger.done([Done("orders", 3, 7, n, n + 1, n + 1) for n in range(64)])
    assert (disk.file_syncs, disk.folders[3:]) == (1, [tmp_path / "deep" / "ledger" / "g"])

    ledger.done([Done("orders", 3, 7, 64, 65, None)])
    ledger.done([])
    assert (disk.file_syncs, len(disk.folders)) == (2, 4)
    ledger.close()
    assert disk.file_syncs == 3


def test_nobody_waits_for_a_running_fsync(tmp_path: Path) -> None:
    """While one thread syncs, others begin batches, write notes and even roll on to the next file."""
    disk = WatchedDisk()
    ledger = FilesLedger(tmp_path, "g", "a", SystemClock(), max_file_bytes=600, disk=disk)
    disk.go_on.clear()
    committer = threading.Thread(target=ledger.done, args=([Done("orders", 3, 7, 0, 10, 10)],))
    committer.start()
    wait_for(disk.syncing, 5, "the disk syncs")

    for number in range(1, 6):
        ledger.begun(batch(number))  # would hang here
    ledger.note("released", topic="orders", partition=3, epoch=7)
    assert committer.is_alive()

    disk.go_on.set()
    committer.join()
    ledger.close()
    found = [item for item in read_directory(tmp_path) if isinstance(item, Entry)]
    assert len({item.path for item in found}) > 2
    assert [item.seq for item in found if item.kind not in ("header", "end")] == list(range(1, 8))


def test_a_full_file_is_ended_and_the_next_one_names_it(tmp_path: Path) -> None:
    """Numbers run on through all files of a run, and only the last one is closed."""
    ledger = FilesLedger(tmp_path, "g", "a", StoppedClock(), max_file_bytes=1000)
    for number in range(20):
        ledger.begun(batch(number))
    ledger.close()

    paths = sorted(tmp_path.glob("g/*"))
    files = [list(read_file(path)) for path in paths]
    headers = [file[0] for file in files]
    assert len(paths) > 3
    assert all(path.stat().st_size < 1400 for path in paths)
    assert [item.facts["previous"] for item in headers if isinstance(item, Entry)] == [
        None, *(path.name for path in paths[:-1])
    ]  # fmt: skip
    assert [item.facts["why"] for file in files for item in file[-1:] if isinstance(item, Entry)] == [
        *["rolled"] * (len(paths) - 1), "closed"
    ]  # fmt: skip
    begun = [item for item in read_directory(tmp_path) if isinstance(item, Entry) and item.kind == "begun"]
    assert [(item.seq, item.first) for item in begun] == [(n + 1, n * 10) for n in range(20)]


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    """Eight threads at once: every line is whole, none is missing, numbers and file order agree."""
    ledger = FilesLedger(tmp_path, "g", "a", SystemClock(), max_file_bytes=20_000)

    def work(partition: int) -> None:
        for n in range(40):
            ledger.begun(Range("orders", partition, 7, n, n + 1, 1))
            if n % 10 == 9:
                ledger.done([Done("orders", partition, 7, n, n + 1, n + 1)])

    threads = [threading.Thread(target=work, args=(partition,)) for partition in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.close()

    items = list(read_directory(tmp_path))
    entries = [item for item in items if isinstance(item, Entry) and item.kind not in ("header", "end")]
    assert all(isinstance(item, Entry) for item in items)
    assert [entry.seq for entry in entries] == list(range(1, 8 * 44 + 1))
    for partition in range(8):
        begun = [entry.first for entry in entries if entry.partition == partition and entry.kind == "begun"]
        assert begun == list(range(40))


KILLED = """
import os, signal, sys
from pathlib import Path
from inbound.clock import SystemClock
from inbound.ledger.base import Range
from inbound.ledger.files import FilesLedger

ledger = FilesLedger(Path(sys.argv[1]), "g", "victim", SystemClock())
for n in range(100):
    ledger.begun(Range("orders", 0, 1, n, n + 1, 1))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_begun_lines_survive_sigkill(tmp_path: Path) -> None:
    """Everything begun before the kill is there, and the missing end mark tells that the process died."""
    child = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=ROOT, check=False, timeout=20)

    items = list(read_directory(tmp_path))
    assert child.returncode == -signal.SIGKILL
    assert [item.first for item in items if isinstance(item, Entry) and item.kind == "begun"] == list(range(100))
    assert died(items) == [next(tmp_path.glob("g/victim-*"))]


def test_after_close_nothing_is_taken(tmp_path: Path) -> None:
    """A worker that was abandoned at shutdown gets an error, and the file stays as it was ended."""
    ledger = FilesLedger(tmp_path, "g", "a", SystemClock())
    ledger.close()
    ledger.close()

    with pytest.raises(LedgerError, match="closed, so the entry is not recorded"):
        ledger.begun(batch(0))
    assert ledger.path is None
    assert kinds(tmp_path) == ["header", "end"]


@pytest.mark.parametrize(
    ("kind", "facts", "message"),
    [("vanished", {}, "no such kind; use one of claimed, "), ("skip", {"from_": 1, "to": 2}, "the facts lack reason")],
)
def test_a_note_that_nobody_could_read_is_a_defect(
    tmp_path: Path, kind: str, facts: dict[str, int], message: str
) -> None:
    """Kinds and their facts are a fixed vocabulary: a wrong one fails at once and writes nothing."""
    ledger = FilesLedger(tmp_path, "g", "a", SystemClock())

    with pytest.raises(ValueError, match=message):
        ledger.note(kind, topic="orders", partition=3, epoch=7, **facts)
    ledger.close()
    assert kinds(tmp_path) == ["header", "end"]


@pytest.mark.parametrize(("group", "consumer"), [("", "a"), ("g", ""), ("g", "x" * 300), ("g" * 300, "a")])
def test_names_that_no_file_can_have_are_refused(tmp_path: Path, group: str, consumer: str) -> None:
    """Empty and endless ids fail when the ledger is opened, with what to change."""
    with pytest.raises(LedgerError, match=r"give it a name|set a shorter consumer_id"):
        FilesLedger(tmp_path, group, consumer, SystemClock())
