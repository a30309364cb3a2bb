"""Converts a ledger's ended files to Parquet, and deletes old ones."""

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

#: Seconds between looks at a local folder, and from the start to the first one.
LOOK_EVERY, FIRST_LOOK = 60.0, 10.0
#: Delays before a failed conversion is tried again.
BACKOFF = Backoff(LOOK_EVERY, 3600.0)
_NEVER = 0, float("-inf")
#: Where locks can't tell, a file counts as ended after so many seconds without a change.
LEFT_AFTER = 86400.0


class Housekeeping:
    """Converts and deletes ended files of a local ledger, of any run.

    An active part (`inbound.runtime.driver.Part`): a step begins with a file, or looks whether another process has
    converted one.
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
        #: Failed conversions: failures in a row, and when to try again. Each try takes a process and 0.3 s of a core.
        self._failed: dict[FoundFile, tuple[int, float]] = {}

    def run_once(self) -> float:
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
        """Stop converting, leaving the file as it was. After the last step."""
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
    """Lock and yield a `.jsonl` file; None if it is being written.

    On this machine the lock of its writer tells, from its first line on. Where that can't be asked, a file without a
    change for a day counts as ended (`age`: seconds since its last change). In a folder that is `shared` between
    machines the locks of others may not be seen, so their files count as ended after a day too. So do those of a live
    process of this machine that holds no lock: earlier releases took none, and in a rolling upgrade the file that such
    a process writes would be deleted with the lines that it still appends.
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
    """Delete temporary files that a killed conversion left a day ago."""
    for file in files:
        if is_temporary(file.path.name) and wall - file.modified > LEFT_AFTER:
            remove_file(file.path)


def delete_old(folder: FilePath, before: float) -> None:
    """Delete ledger files below `folder` last changed before `before` (seconds since 1970).

    Raises:
        LedgerError: the folder can't be listed.
        OSError: one of the files can't be deleted.
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
    """Return a file's header, of any version; empty if it is damaged."""
    body = unseal(data.readline().removesuffix(b"\n"))
    header = json.loads(body) if body else None
    return header if isinstance(header, dict) and header.get("kind") == "header" else {}


def _may_write_without_lock(header: dict[str, Any]) -> bool:
    """Return whether an unlocked file's writer may live on this machine.

    Our own files we lock ourselves. The pid may be another process's by now; then the file only stays for a day.
    """
    pid = header.get("pid")
    return isinstance(pid, int) and pid != os.getpid() and alive(pid)
