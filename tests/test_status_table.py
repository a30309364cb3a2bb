"""Text tables for people."""

from __future__ import annotations

import pytest

from inbound.cli.table import count, table


def test_numbers_right_and_text_left() -> None:
    """Digits are grouped, None is a dash, and no line ends in blanks."""
    text = table(["TOPIC", "LAG", "RATE", "NOTE"], [["orders", 1234567, 0.25, ""], ["a", None, 1000.0, "held"]])

    assert text.splitlines() == [
        "TOPIC         LAG     RATE  NOTE",
        "orders  1,234,567      0.2",
        "a               -  1,000.0  held",
    ]


def test_without_rows() -> None:
    """The headers stand alone."""
    assert table(["A", "LONG"], []) == "A  LONG"


def test_text_cannot_break_the_table_or_steer_the_terminal() -> None:
    """Errors hold line breaks, and bytes of records may hold escape sequences."""
    assert table(["NOTE"], [["two\n  lines\x1b[2J"]]) == "NOTE\ntwo lines?[2J"


@pytest.mark.parametrize(("n", "text"), [(0, "0 batches"), (1, "1 batch"), (1234, "1,234 batches")])
def test_counted(n: int, text: str) -> None:
    """One is singular."""
    assert count(n, "batch") == text
