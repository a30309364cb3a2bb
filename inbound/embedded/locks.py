"""A lock file that the kernel releases when its holder dies."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType


class LockFile:
    """An exclusive lock on `path`, which names the holder's pid.

    Child processes may inherit the descriptor: then the lock is held until the last of them has ended too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def acquire(self, timeout: float = 0.0) -> bool:
        """Take the lock within `timeout` seconds; return whether it was free."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(fd)
                    return False
                time.sleep(0.1)
        os.truncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd
        return True

    def release(self) -> None:
        """Release the lock, if it is held.

        The descriptor is closed and not unlocked: a child that inherited it keeps the lock.
        """
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def fileno(self) -> int:
        """Return the descriptor, for `pass_fds`."""
        if self._fd is None:
            raise ValueError(f"{self.path}: the lock is not held")
        return self._fd

    def __enter__(self) -> LockFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()


def holder(path: Path) -> int | None:
    """Return the pid that locked `path`; None if the lock is free.

    The pid is that of the first holder; 0 if the file does not say. It may be dead while children keep the lock.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        text = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        return int(text) if text.isdigit() else 0
    finally:
        os.close(fd)


def alive(pid: int) -> bool:
    """Return whether a process exists; on Linux, a zombie does not."""
    if pid <= 0:
        return False
    try:
        # The state is the first field behind the name, which may itself hold spaces and parentheses.
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return False
    except OSError:  # no such process, or a system without /proc
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
