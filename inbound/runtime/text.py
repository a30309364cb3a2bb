"""Text that is safe to show: exceptions, text from outside, short files."""

from __future__ import annotations

import errno
import os
import sysconfig
import traceback
from functools import cache
from pathlib import Path

from inbound.errors import BadResponseError


@cache
def _libraries() -> tuple[str, ...]:
    """Return the folders of the standard library and of installed packages."""
    folders = (os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return ("<frozen ", *folders)


def describe(error: BaseException) -> str:
    """Return an error and its place in user code, in one line.

    Without a place in the user's code the innermost one is named. The text can always be encoded.
    """
    try:
        said = str(error)
    except BaseException as failure:  # an error whose own text fails must not hide the problem
        said = f"(its text failed: {type(failure).__name__})"
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    if not isinstance(error, BadResponseError) and frames:
        own = [frame for frame in frames if not frame[0].startswith(_libraries())]
        filename, line = (own or frames)[-1]
        text = f"{text} (at {filename}:{line})"
    # Half of a surrogate pair has no encoding: not in a header, a ledger, a log or an answer.
    return text.encode(errors="backslashreplace").decode()


def printable(text: str, instead: str = "?") -> str:
    """Return `text` with `instead` for each character that is not printable."""
    return text if text.isprintable() else "".join(c if c.isprintable() else instead for c in text)


def read_short(path: Path, most: int) -> bytes:
    """Return a file's content, of at most `most` bytes.

    Of a pipe it returns the written bytes; the call never waits.

    Raises:
        OSError: the file cannot be read; EFBIG: it has more than `most` bytes.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
        data = b""
        while more := file.read(most + 1 - len(data)):
            data += more
        if len(data) > most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        return data
