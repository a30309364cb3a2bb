"""Aligned text tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from inbound.printable import printable

Cell = str | int | float | None


def table(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Return `rows` below `headers`, two blanks between columns, without a newline at the end.

    Numbers stand right, with their digits grouped; None is a dash; text is cleaned as by `one_line`.
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
    """Return `text` on one line, and so that it cannot steer the terminal: it may come from records and servers."""
    return printable(" ".join(text.split()))


def count(n: int, singular: str) -> str:
    """Return `1 batch`, `1,234 records`."""
    if n == 1:
        return f"1 {singular}"
    return f"{n:,} {singular}{'es' if singular.endswith('ch') else 's'}"
