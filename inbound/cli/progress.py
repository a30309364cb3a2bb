"""One line of progress that redraws itself on a terminal; elsewhere a few plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

_WIDTH = 24
_REDRAW_EVERY = 0.1
#: Where lines cannot be redrawn: one at each of so many parts of the whole.
_PLAIN_STEPS = 4


class Progress:
    """Shows how far something is; with a `total` of None, how much there was yet, and only on a terminal.

    Used by one thread; close it before anything else is printed below it.
    """

    def __init__(
        self, what: str, total: int | None, stream: TextIO | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._total = None if total is None else max(1, total)
        self._stream = stream or sys.stderr
        self._now = now
        self._redraws = self._stream.isatty()
        self._drawn_at = float("-inf")
        self._drawn = ""
        self._step = 0

    def update(self, done: int, note: str = "") -> None:
        """Show that `done` of the total are done."""
        if self._total is None:
            self._count(done, note)
            return
        done = min(done, self._total)
        if not self._redraws:
            step = done * _PLAIN_STEPS // self._total
            if step > self._step:
                self._step = step
                print(self._line(done, self._total, note), file=self._stream, flush=True)
            return
        now = self._now()
        if now - self._drawn_at >= _REDRAW_EVERY or done == self._total:
            self._drawn_at = now
            filled = done * _WIDTH // self._total
            self._draw(f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {self._line(done, self._total, note)}")

    def say(self, line: str) -> None:
        """Print a line that stays."""
        if not self._redraws:
            print(line, file=self._stream, flush=True)
            return
        drawn = self._drawn
        self._draw("")
        self._stream.write(f"{line}\n")
        self._draw(drawn)

    def close(self) -> None:
        """Take the line away."""
        if self._redraws:
            self._draw("")

    def _count(self, done: int, note: str) -> None:
        if self._redraws and (now := self._now()) - self._drawn_at >= _REDRAW_EVERY:
            self._drawn_at = now
            self._draw(f"{self._what}  {done:,}{'  ' + note if note else ''}")

    def _line(self, done: int, total: int, note: str) -> str:
        return f"{self._what} {done * 100 // total:3d} %  {done:,}/{total:,}{'  ' + note if note else ''}"

    def _draw(self, line: str) -> None:
        self._stream.write(f"\r\x1b[K{line}")
        self._stream.flush()
        self._drawn = line
