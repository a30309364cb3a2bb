"""One file that a ledger writes: whole lines only, whatever happens to a write."""

from __future__ import annotations

import errno
import logging
import threading
from pathlib import Path

from inbound.ledger.disk import Disk, reason

log = logging.getLogger("inbound.ledger")


class OpenFile:
    """A new file, open for appending, and locked so that others know.

    All methods but `sync` and `unpin` are called under the ledger's lock.

    `sync` runs without the lock, so that nobody waits for a disk; a file with pins is closed only by the last unpin,
    else a sync could hit another file that has got the same descriptor.
    """

    __slots__ = ("_disk", "_fd", "_lock", "_name_synced", "_pins", "deleted", "path", "retired", "size", "torn")

    def __init__(self, path: Path, disk: Disk) -> None:
        self._disk = disk
        self._fd = disk.create(path)
        disk.lock(self._fd)
        self._name_synced = False
        self.path = path
        self.size = 0
        self._lock = threading.Lock()  # for pins, and whether it is retired
        self._pins = 0
        self.retired = False
        #: Somebody removed the file while we had it open.
        self.deleted = False
        #: A failed write left a part of a line at the end, and it could not be cut off.
        self.torn = False

    def append(self, data: bytes) -> None:
        """Write lines, all or none of them. OSError leaves the file as it was, unless `torn` is set."""
        written = 0
        try:
            while written < len(data):  # a disk that fills up takes a part first and refuses the rest
                written += self._disk.write(self._fd, data[written:] if written else data)
        except OSError:
            self._cut(self._disk.stat(self._fd).st_size - written)
            raise
        self.size += len(data)

    def check(self) -> None:
        """Raise FileNotFoundError, and set `deleted`, if the file is gone: lines go there without any error."""
        if self._disk.stat(self._fd).st_nlink == 0:
            self.deleted = True
            raise FileNotFoundError(errno.ENOENT, "it was deleted while in use", str(self.path))

    def sync(self) -> None:
        """Make all lines so far survive power loss; OSError means that nobody knows which of them do."""
        self._disk.sync(self._fd)
        if not self._name_synced:
            self._disk.sync_directory(self.path.parent)
            self._name_synced = True

    def pin(self) -> None:
        """Keep it open for a sync."""
        with self._lock:
            self._pins += 1

    def unpin(self) -> None:
        """Say that a sync is over."""
        with self._lock:
            self._pins -= 1
            self._close_if_unused()

    def retire(self) -> None:
        """Write no more; close the file once no sync runs on it."""
        with self._lock:
            if not self.retired:
                self.retired = True
                self._close_if_unused()

    def _cut(self, size: int) -> None:
        try:
            self._disk.truncate(self._fd, size)
        except OSError as error:
            self.torn = True
            log.warning("ledger file %s: a torn line could not be cut off: %s", self.path, reason(error))

    def _close_if_unused(self) -> None:
        if self.retired and self._pins == 0:
            try:
                self._disk.close(self._fd)
            except OSError as error:  # the descriptor is gone all the same; what was synced is not concerned
                log.warning("ledger file %s: closing failed: %s", self.path, reason(error))
