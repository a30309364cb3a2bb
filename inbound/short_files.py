"""Reads files that should be short: whatever stands in their place, it neither waits nor fills the memory."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def read_short(path: Path, most: int) -> bytes:
    """Return what a file holds.

    A pipe is read as far as somebody has written, and nobody is waited for.

    Raises:
        OSError: it cannot be read; EFBIG: it has more than `most` bytes.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
        data = b""
        while more := file.read(most + 1 - len(data)):
            data += more
        if len(data) > most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return data
