"""Makes a ledger's system calls; tests replace them by a failing disk."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import secrets
import threading
from pathlib import Path

log = logging.getLogger("inbound.ledger")

_ADVICE = {
    errno.ENOSPC: "free some space on its file system",
    errno.EDQUOT: "raise the disk quota or free some of it",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "make the directory writable for the user that runs inbound"),
    errno.EROFS: "mount the file system writable, or point ledger.path to another one",
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "point ledger.path to a directory"),
    errno.ENOENT: "do not remove the directory while inbound runs; the next try creates it again",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f); the next try goes to a fresh file",
    errno.EIO: "check the disk (see the kernel's log), or point ledger.path to another one",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENAMETOOLONG: "set a shorter consumer_id, group or ledger.path",
}


def advice(error: OSError) -> str:
    return _ADVICE.get(error.errno or 0, "check the disk and the directory")


def reason(error: Exception) -> str:
    """Return what failed, without the path, which messages name themselves."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def being_written(fd: int) -> bool | None:
    """Return whether another open file of this machine locks the file.

    None: its file system knows no locks. Otherwise `fd` locks it: of two processes that ask, one begins.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # asks, and sends nothing
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


class Disk:
    """The operating system. Each call raises OSError."""

    def create(self, path: Path) -> int:
        """Open a new file for appending; FileExistsError if there is one already."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666)

    def lock(self, fd: int) -> None:
        """Mark the file as being written while it is open."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)  # waits while another process looks at the file: not long
        except OSError:
            pass  # a file system without locks shows no mark; see `being_written`

    def stat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    def write(self, fd: int, data: bytes) -> int:
        return os.write(fd, data)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def make_directory(self, path: Path) -> None:
        """Make a directory and its missing parents, each recorded on disk."""
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)  # another process may be making the same one
            self.sync_path(folder.parent)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))

    def sync_path(self, path: Path) -> None:
        """Sync a file, or the names in a directory."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # not every file system syncs a new file's name with the file
        try:
            self.sync(fd)
        finally:
            os.close(fd)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file, synced, whole or not at all; may raise OSError."""
    made = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(made, "xb") as file:  # the umask decides who may read it
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


class OpenFile:
    """A new file, open for appending, locked so that others know.

    All methods but `sync` and `unpin` are called under the ledger's lock; `sync` must not make other threads wait for
    the disk. A pinned file stays open, else a sync could hit another file with the same descriptor.
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
        self.deleted = False  # it was removed while we had it open
        self.torn = False  # a failed write left part of a line at the end, which could not be cut off

    def append(self, data: bytes) -> None:
        """Write all lines or none; OSError: the file is unchanged, unless `torn`."""
        written = 0
        try:
            while written < len(data):  # a disk that fills up takes a part first and refuses the rest
                written += self._disk.write(self._fd, data[written:] if written else data)
        except OSError:
            self._cut(self._disk.stat(self._fd).st_size - written)
            raise
        self.size += len(data)

    def check(self) -> None:
        """Raise FileNotFoundError, and set `deleted`, if the file is gone."""
        if self._disk.stat(self._fd).st_nlink == 0:  # writes go to it without any error
            self.deleted = True
            raise FileNotFoundError(errno.ENOENT, "it was deleted while in use", str(self.path))

    def sync(self) -> None:
        """Fsync all lines so far; OSError: which survive is not known."""
        self._disk.sync(self._fd)
        if not self._name_synced:
            self._disk.sync_path(self.path.parent)
            self._name_synced = True

    def pin(self) -> None:  # for a sync
        with self._lock:
            self._pins += 1

    def unpin(self) -> None:
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
            except OSError as error:  # the descriptor is gone all the same, and synced lines are safe
                log.warning("ledger file %s: closing failed: %s", self.path, reason(error))
