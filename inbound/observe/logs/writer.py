"""Writes log lines to a file descriptor, on a thread."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable

#: Bytes of lines in the queue at most; further lines are lost, and counted.
ROOM = 4 * 2**20
#: Seconds for the queued lines at the end.
CLOSE_SECONDS = 2.0
#: Seconds between two attempts to write.
REST = 0.1


class LogWriter:
    """Writes lines to a file descriptor, which it does not close.

    `put` and `flush` run on any thread; `put` never blocks. A closed or full output is no error: lines that cannot be written
    are lost, and counted in `lost`.
    """

    def __init__(
        self,
        descriptor: int,
        note: Callable[[int], bytes],
        tick: Callable[[], None] = lambda: None,
        *,
        room: int = ROOM,
    ) -> None:
        """`note` makes the line that reports lost lines.

        The thread calls `tick` at least once a second.
        """
        self._descriptor = descriptor
        self._note = note
        self._tick = tick
        self._room = room
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._untold = 0
        self._changed = threading.Condition()
        self._writing = False
        self._closed = False
        self._rest = threading.Event()
        self.lost = 0
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Queue a line; it is lost if there is no room."""
        with self._changed:
            if self._closed or self._size + len(line) > self._room:
                self._lose(1)
                return
            self._lines.append(line)
            self._size += len(line)
            self._changed.notify_all()

    def flush(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Wait for all lines, at most `seconds`; return whether they are written."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._lines or self._writing:
                left = deadline - time.monotonic()
                if left <= 0 or not self._thread.is_alive():
                    return False
                self._changed.wait(left)
        return True

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Write the queued lines, for at most `seconds`, and end the thread.

        A second call does nothing.
        """
        self.flush(seconds)
        with self._changed:
            self._closed = True
            self._rest.set()
            self._changed.notify_all()
        self._thread.join(1.0 if seconds else 0.0)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._lines and not self._closed:
                    self._changed.wait(1.0)
                if self._closed:
                    return
                lines, count = b"".join(self._lines), len(self._lines)
                self._lines.clear()
                self._size = 0
                untold, self._untold = self._untold, 0
                self._writing = bool(lines)
            if untold:
                lines += self._note(untold)
            if lines and not self._write(lines):
                with self._changed:
                    self._lose(count + untold)
            with self._changed:
                self._writing = False
                self._changed.notify_all()
            self._tick()

    def _lose(self, count: int) -> None:
        self.lost += count
        self._untold += count

    def _write(self, data: bytes) -> bool:
        """Write everything; False: it cannot be written, or the writer is closed."""
        poll, start, view = select.poll(), 0, memoryview(data)
        try:
            poll.register(self._descriptor, select.POLLOUT)
            while start < len(data) and not self._closed:
                if poll.poll(REST * 1000):
                    # A pipe takes so much in one piece. Other processes may write to it, too: only whole lines go.
                    most = start + select.PIPE_BUF
                    end = data.rfind(b"\n", start, most) + 1 or most
                    with contextlib.suppress(BlockingIOError):  # another process was faster
                        start += os.write(self._descriptor, view[start:end])
        except OSError:  # closed, broken, or the disk behind it is full
            self._rest.wait(REST)
            return False
        return start == len(data)
