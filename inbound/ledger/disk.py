"""The few calls a ledger makes to the operating system, in one place so that a test can put a failing disk there."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

_ADVICE = {
    errno.ENOSPC: "free some space on its file system",
    errno.EDQUOT: "raise the disk quota or free some of it",
    errno.EACCES: "make the directory writable for the user that runs inbound",
    errno.EPERM: "make the directory writable for the user that runs inbound",
    errno.EROFS: "mount the file system writable, or point ledger.path to another one",
    errno.ENOTDIR: "point ledger.path to a directory",
    errno.EEXIST: "point ledger.path to a directory",
    errno.ENOENT: "do not remove the directory while inbound runs; it is made anew at the next try",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f); the next try goes to a fresh file",
    errno.EIO: "check the disk (see the kernel's log), or point ledger.path to another one",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENAMETOOLONG: "set a shorter consumer_id, group or ledger.path",
}


def advice(error: OSError) -> str:
    """Say what to do about a failed call."""
    return _ADVICE.get(error.errno or 0, "check the disk and the directory")


def reason(error: OSError) -> str:
    """Say what failed, without the path: the messages name it themselves."""
    return error.strerror or str(error)


def being_written(fd: int) -> bool | None:
    """Return whether another open file of this machine has the file locked; None: its file system knows no locks.

    If nobody had, it is locked from now on, until `fd` is closed: two who ask don't both begin.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False


def alive(pid: int) -> bool:
    """Return whether this machine has a process of that number."""
    try:
        os.kill(pid, 0)  # asks, and sends nothing
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        return True
    return True


class Disk:
    """The operating system. Each call raises OSError."""

    def create(self, path: Path) -> int:
        """Open a new file for appending and return its descriptor; FileExistsError if there is one already."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666)

    def lock(self, fd: int) -> None:
        """Say that this file is being written, for as long as it is open; on a file system without locks nobody can ask.

        Waits for whoever looks at the file just now: before its first line nobody does so for long.
        """
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError:
            pass  # see `being_written`

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
        """Make a directory and what is missing above it, each recorded on disk; an existing one is fine."""
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)  # another process may be making the same one
            self.sync_directory(folder.parent)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory survive power loss: syncing a new file does not record its name everywhere."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.sync(fd)
        finally:
            os.close(fd)
