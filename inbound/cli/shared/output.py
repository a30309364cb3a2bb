"""The output of commands: tables, notes, a progress line, files."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from inbound.errors import InboundError
from inbound.runtime.text import printable

Cell = str | int | float | None

_CLEAR = "\x1b[H\x1b[2J"
_WIDTH = 24
_REDRAW_EVERY = 0.1
#: Where lines cannot be redrawn: a line at each of so many parts of the whole.
_PLAIN_STEPS = 4


def table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Return an aligned table without a newline at its end.

    Numbers are right-aligned, with their digits grouped; None is a dash; text is cleaned as by `one_line`.
    """
    right = [all(not isinstance(row[i], str) for row in rows) and bool(rows) for i in range(len(headers))]
    texts = [[one_line(header) for header in headers], *([number(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in texts) for i in range(len(headers))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if at_right else cell.ljust(width)
            for cell, width, at_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in texts
    )


def number(cell: Cell) -> str:
    """Return a cell as text: `1,234`, `0.5`, `-` for None."""
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return one_line(cell)
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.1f}"


def one_line(text: str) -> str:
    """Return foreign text on one line, without control characters."""
    return printable(" ".join(text.split()))


def count(n: int, singular: str) -> str:
    """Return `1 batch`, `1,234 records`."""
    if n == 1:
        return f"1 {singular}"
    return f"{n:,} {singular}{'es' if singular.endswith('ch') else 's'}"


def first_of(lines: Sequence[str], most: int, more: str = "and {:,} more") -> list[str]:
    """Return the first `most` lines, and a count of the rest."""
    rest = len(lines) - most
    return [*lines[:most], more.format(rest)] if rest > 0 else [*lines]


def note(line: str) -> None:
    """Print a note to standard error; standard output has the result."""
    print(line, file=sys.stderr, flush=True)


def write_file(
    option: str, path: Path, text: str, error: type[InboundError] = InboundError, advice: str = "give another file"
) -> None:
    """Write the file that `option` names. Raises `error`: it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as reason:
        raise error(f"{option}: {path} cannot be written: {reason.strerror}; {advice}") from None


def watch(show: Callable[[], int], seconds: float, *, clear: bool) -> int:
    """Call `show` every so many seconds until Ctrl-C. Returns the exit code.

    With `clear`, each output on a terminal takes the place of the one before.
    """
    try:
        while True:
            if clear and sys.stdout.isatty():
                print(_CLEAR, end="")
            show()
            sys.stdout.flush()
            pause(seconds)
    except KeyboardInterrupt:
        return 0


def pause(seconds: float) -> None:
    """Wait between two outputs of `watch`."""
    time.sleep(seconds)


class ProgressLine:
    """Shows the progress of one thing on one line.

    On a terminal the line redraws itself, elsewhere a few plain lines are printed; without a total it shows only on a
    terminal. Used by one thread, which closes it before it prints anything else.
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
            if self._due():
                self._draw(f"{self._what}  {done:,}{'  ' + note if note else ''}")
            return
        done = min(done, self._total)
        step = done * _PLAIN_STEPS // self._total
        if self._due(last=done == self._total):
            filled = done * _WIDTH // self._total
            self._draw(f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {self._line(done, self._total, note)}")
        elif not self._redraws and step > self._step:
            self._step = step
            print(self._line(done, self._total, note), file=self._stream, flush=True)

    def say(self, line: str) -> None:
        """Print a line that stays."""
        drawn = self._drawn
        self.close()
        print(line, file=self._stream, flush=True)
        if drawn:
            self._draw(drawn)

    def close(self) -> None:
        """Clear the line."""
        if self._redraws:
            self._draw("")

    def _due(self, *, last: bool = False) -> bool:
        if not self._redraws:
            return False
        now = self._now()
        due = last or now - self._drawn_at >= _REDRAW_EVERY
        if due:
            self._drawn_at = now
        return due

    def _line(self, done: int, total: int, note: str) -> str:
        return f"{self._what} {done * 100 // total:3d} %  {done:,}/{total:,}{'  ' + note if note else ''}"

    def _draw(self, line: str) -> None:
        self._stream.write(f"\r\x1b[K{line}")
        self._stream.flush()
        self._drawn = line
