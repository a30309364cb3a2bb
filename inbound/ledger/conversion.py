"""Parquet of a ledger's `.jsonl` file, made by a process of its own.

    python -m inbound.ledger.conversion FD PATH TARGET

FD is the open file, of which the caller holds the lock. What goes wrong is one line on stderr, and exit code 1.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO
from uuid import uuid4

from inbound.errors import InboundError, LedgerError
from inbound.ledger.columns import write_parquet
from inbound.ledger.disk import Disk
from inbound.ledger.jsonl import split_lines

#: Makes Parquet of an open file at a path, at another. Each step yields how long to wait for the next one, in seconds.
Converter = Callable[[Path, BinaryIO, Path, Disk], Generator[float, None, None]]
#: How often a process that converts is looked at, in seconds.
LOOK = 0.2


def convert(path: Path, data: BinaryIO, target: Path, disk: Disk) -> None:
    """Make Parquet of a `.jsonl` file: under another name first, synced, renamed. `path` stays.

    Raises:
        LedgerError: the file is of a newer format.
        OSError, ValueError: it can't be read or written.
    """
    status = os.fstat(data.fileno())
    temporary = target.with_name(f".{uuid4().hex}.tmp")
    try:
        write_parquet(split_lines(data), path, temporary)
        os.utime(temporary, (status.st_mtime, status.st_mtime))  # by which its lines grow old
        fd = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
        try:
            disk.sync(fd)
        finally:
            os.close(fd)
        temporary.replace(target)
        disk.sync_directory(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def convert_apart(path: Path, data: BinaryIO, target: Path, disk: Disk) -> Generator[float, None, None]:
    """Have a process of its own do that, which is ended if this is closed before.

    pyarrow takes 100 MiB that would stay, and lines are read by an interpreter that callbacks want.

    Raises:
        LedgerError: it could not.
        OSError: there is no such process.
    """
    number = data.fileno()
    with TemporaryFile() as said:  # a pipe would fill
        with subprocess.Popen(  # the lock on the file is inherited with it; an interrupt at the terminal is for its parent
            [sys.executable, "-m", __name__, str(number), path, target], pass_fds=[number], start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said,
        ) as child:  # fmt: skip
            try:
                while child.poll() is None:
                    yield LOOK
            finally:
                child.kill()  # nothing, if it has ended
        said.seek(0)
        text = said.read().decode(errors="replace").strip()
    if child.returncode:
        raise LedgerError(text.rpartition("\n")[2] or f"what converts it has ended with {child.returncode}")


def main(number: int, path: Path, target: Path) -> int:
    """Convert one file, and let everything else on the machine go first."""
    os.nice(10)
    # Who has the file open as well may have read of it: the place is one for both, and its buffer hides where that is.
    os.lseek(number, 0, os.SEEK_SET)
    try:
        with open(number, "rb") as data:
            convert(path, data, target, Disk())
    except (InboundError, OSError, ValueError) as error:  # ValueError: what Arrow raises
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])))
