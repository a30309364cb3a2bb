"""Keeps a ledger's ended files: converts them to Parquet, and deletes them after their retention."""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from inbound.clock import Clock
from inbound.errors import InboundError
from inbound.ledger.conversion import ParquetWriter, convert
from inbound.ledger.disk import Disk, alive, being_written, reason
from inbound.ledger.format import PARQUET_SUFFIX, SUFFIX, FileName, is_temporary, unseal
from inbound.ledger.places import FilePath, FoundFile, files_below, remove_file
from inbound.runtime.backoff import Backoff

log = logging.getLogger("inbound.ledger")

#: How often a local folder is looked at, in seconds, and how long after the start for the first time.
LOOK_EVERY, FIRST_LOOK = 60.0, 10.0
#: Until a file that could not be converted is tried again.
BACKOFF = Backoff(LOOK_EVERY, 3600.0)
_NEVER = 0, float("-inf")
#: Where locks can't tell whether a file is being written, it counts as left after so many seconds without a change.
LEFT_AFTER = 86400.0


class Housekeeping:
    """Converts ended files of a local ledger, its own and those of other runs, and deletes what is too old.

    An active part (`inbound.runtime.driver.Part`): a step begins with a file, or looks whether another process has converted one.
    """

    def __init__(
        self, folder: Path, clock: Clock, *, compact: bool, retention: float, disk: Disk | None = None,
        writer: ParquetWriter | None = None,
    ) -> None:  # fmt: skip
        """`folder` is the ledger's; `retention` in seconds. Touches nothing yet."""
        self._folder = folder
        self._clock = clock
        self.compact = compact
        self.retention = retention
        self._disk = disk or Disk()
        self._writer = writer or ParquetWriter()
        self._work: Generator[float, None, None] | None = None
        self._next_look = clock.now() + FIRST_LOOK
        self._complaints: dict[FilePath, str] = {}
        #: Files that could not be converted: failures in a row, and not before when. A process takes 0.3 s of a core for each.
        self._failed: dict[FoundFile, tuple[int, float]] = {}

    def run_once(self) -> float:
        """Do the next piece of work."""
        began = self._clock.now()
        if self._work is not None:
            try:
                wait = next(self._work)
            except StopIteration:
                self._work = None
            else:
                return self._clock.now() + wait
        if began >= self._next_look:
            self._work = self._round()
            self._next_look = began + LOOK_EVERY
            return began
        return self._next_look

    def close(self) -> None:
        """Leave what is being converted as it was. After the last step."""
        if self._work is not None:
            self._work.close()
        self._writer.close()

    def _round(self) -> Generator[float, None, None]:
        try:
            found = files_below(self._folder, missing_ok=True)
        except InboundError as error:
            self._complain(self._folder, str(error))
            return
        self._failed = {file: self._failed[file] for file in found if file in self._failed}
        for file in found:
            try:
                yield from self._keep(file)
            except (InboundError, OSError, ValueError) as error:  # ValueError: what Arrow raises
                self._complain(file.path, f"ledger file {file.path}: it stays as it is: {explained(error)}")
        self._writer.close()

    def _keep(self, file: FoundFile) -> Generator[float, None, None]:
        path = file.path
        assert isinstance(path, Path)
        age = self._clock.wall() - file.modified
        if path.name.startswith("."):
            remove_left([file], self._clock.wall())
        elif FileName.parse(path.name) is None:
            return
        elif path.name.endswith(PARQUET_SUFFIX):
            if age > self.retention:
                self._delete(path)
        else:
            with ended(path, age, shared=True) as data:
                if data is None:
                    return
                target = path.with_name(path.name.removesuffix(SUFFIX) + PARQUET_SUFFIX)
                if age > self.retention or target.exists():  # killed between the renaming and this
                    self._delete(path)
                elif self.compact and self._clock.now() >= self._failed.get(file, _NEVER)[1]:
                    try:
                        yield from convert(self._writer, path, data, target, self._disk)
                    except (InboundError, OSError):
                        failures = self._failed.get(file, _NEVER)[0] + 1
                        self._failed[file] = failures, self._clock.now() + BACKOFF.delay(failures)
                        raise
                    path.unlink(missing_ok=True)

    def _delete(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        log.debug("ledger file %s is deleted: it is older than ledger.retention, or stands beside as Parquet", path)

    def _complain(self, path: FilePath, message: str) -> None:
        if self._complaints.get(path) != message:
            self._complaints[path] = message
            log.warning("%s", message)


@contextmanager
def ended(path: Path, age: float, *, shared: bool) -> Iterator[BinaryIO | None]:
    """Open a `.jsonl` file that has no writer any more, and lock it; yield None if it has one.

    On this machine the lock of its writer tells, from its first line on. Where that can't be asked, it is left when it
    has not changed for a day (`age`: seconds since its last change). In a folder that is `shared` between machines the
    locks of others may not be seen, so that their files count as left after a day too. So do those of a process of this
    machine that lives and holds no lock: earlier releases took none, and beside one of them, in a rolling upgrade,
    the file that it writes would be deleted with the lines that it still appends.
    """
    try:
        data = path.open("r+b")
    except FileNotFoundError:
        yield None
        return
    with data:
        written = being_written(data.fileno())
        header = _header_of(data)
        host = header.get("host")
        known = written is False and (
            host == socket.gethostname() and not _may_write_without_lock(header) if shared else host is not None
        )
        there = os.fstat(data.fileno()).st_nlink > 0  # no other process has just handled it
        data.seek(0)
        yield data if there and (known or (not written and age > LEFT_AFTER)) else None


def remove_left(files: Iterable[FoundFile], wall: float) -> None:
    """Delete what conversions that were killed have left of theirs a day ago."""
    for file in files:
        if is_temporary(file.path.name) and wall - file.modified > LEFT_AFTER:
            remove_file(file.path)


def delete_old(folder: FilePath, before: float) -> None:
    """Delete the ledger's files below a folder that were last changed before a moment, in seconds since 1970.

    Raises:
        LedgerError: it can't be listed.
        OSError: one of them can't be deleted.
    """
    for file in files_below(folder, missing_ok=True):
        name = file.path.name
        if file.modified < before and (is_temporary(name) or FileName.parse(name) is not None):
            remove_file(file.path)


def explained(error: Exception) -> str:
    """Return what went wrong, in one line."""
    text = reason(error) if isinstance(error, OSError) and error.errno != errno.EIO else str(error)
    return " ".join(text.split())


def _header_of(data: BinaryIO) -> dict[str, Any]:
    """Return a file's header, of any version of the format; empty: it has no good one."""
    body = unseal(data.readline().removesuffix(b"\n"))
    header = json.loads(body) if body else None
    return header if isinstance(header, dict) and header.get("kind") == "header" else {}


def _may_write_without_lock(header: dict[str, Any]) -> bool:
    """Whether the writer, a process of this machine that has no lock, may live. Our own files we lock ourselves.

    Its number may be another's by now; then the file only stays as it is for a day.
    """
    pid = header.get("pid")
    return isinstance(pid, int) and pid != os.getpid() and alive(pid)
