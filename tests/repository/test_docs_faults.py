"""docs/faults.md says only what is so: each row is shown by tests that are there, and quotes what the code says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

import pytest

from inbound.observe.metrics import SECTIONS
from scripts.rooms import ROOT, modules

PAGE = ROOT / "docs" / "faults.md"
COLUMNS = ["what happens", "what you see", "cost", "what to do", "shown by"]
HEADINGS = {"Processes", "ZooKeeper", "Kafka", "The group", "The processor", "The machine"}


class Row(NamedTuple):
    """One row of a table, and where it stands."""

    line: int
    heading: str
    cells: list[str]

    def __str__(self) -> str:
        return f"docs/faults.md:{self.line}: {self.heading}: {self.cells[0]!r}"


def rows_of(page: str) -> Iterator[Row]:
    """Yield the rows of all tables, the heads too."""
    heading = ""
    for number, line in enumerate(page.splitlines(), 1):
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("|") and not line.startswith("| --- "):
            yield Row(number, heading, [cell.strip() for cell in line.strip().strip("|").split(" | ")])


def quoted(text: str) -> list[str]:
    """Return what stands in code quotes."""
    return re.findall(r"`([^`]+)`", text)


@cache
def defined_in(path: str) -> frozenset[str]:
    """Return the tests that a file of the repo defines, without importing it; none if there is no such file."""
    if not (ROOT / path).is_file():
        return frozenset()
    tree = ast.parse((ROOT / path).read_text())
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def missing_tests(names: Iterable[str]) -> list[str]:
    """Return those of `path::test` that are not there."""
    return [name for name in names if (parts := name.partition("::"))[2] not in defined_in(parts[0])]


def literals_of(source: str) -> Iterator[str]:
    """Yield the texts in a source but for docstrings, with `…` for what is filled in."""
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if id(node) in docstrings:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"%[-+#0-9.]*[sdrfx]", "…", node.value)


def said(text: str, known: str) -> bool:
    """Whether one of the texts in `known` (null bytes between them) has the parts of `text` around `…`, in order."""
    parts = [re.escape(part.strip()) for part in text.split("…") if part.strip()]
    return re.search(r"[^\0]*?".join(parts), known) is not None


def problems_of(page: str, known: str, metrics: set[str]) -> Iterator[str]:
    """Yield what is wrong with a page: sentences that name the row."""
    for row in rows_of(page):
        if len(row.cells) != len(COLUMNS) or not all(row.cells):
            yield f"{row}: has {len([cell for cell in row.cells if cell])} filled cells instead of {len(COLUMNS)}"
        elif row.cells[0] == COLUMNS[0]:
            if row.cells != COLUMNS:
                yield f"{row}: the columns are not {COLUMNS}"
        else:
            names = quoted(row.cells[4])
            if not names:
                yield f"{row}: names no test"
            yield from (f"{row}: there is no test {name}" for name in missing_tests(names))
            for text in quoted(row.cells[1]):
                if text.startswith("inbound_"):
                    if (name := text.partition("{")[0]) not in metrics:
                        yield f"{row}: there is no metric {name}"
                elif not said(text, known):
                    yield f"{row}: nothing in the code says {text!r}"


@pytest.mark.slow
def test_every_row_is_shown_by_tests_and_quotes_the_code() -> None:
    """A renamed test or a rewritten message fails with the row that names it; so does a test named in the text."""
    known = "\0".join(text for _, path in modules().items() for text in literals_of(path.read_text()))
    metrics = {metric.name for section in SECTIONS for metric in section.metrics}

    assert list(problems_of(PAGE.read_text(), known, metrics)) == []
    assert {row.heading for row in rows_of(PAGE.read_text())} == HEADINGS
    assert missing_tests(name for name in quoted(PAGE.read_text()) if "::" in name) == []


TEST = "`tests/repository/test_layers.py::test_nothing_lies_loose`"
GOOD = f"## Kafka\n| {' | '.join(COLUMNS)} |\n| --- |\n| it dies | `gone` | nothing | nothing | {TEST} |\n"


@pytest.mark.parametrize(
    ("good", "bad", "told"),
    [
        (
            "::test_nothing_lies_loose",
            "::test_none",
            "4: Kafka: 'it dies': there is no test tests/repository/test_layers.py::test_none",
        ),
        (
            "test_layers.py",
            "nowhere.py",
            "4: Kafka: 'it dies': there is no test tests/repository/nowhere.py",
        ),
        (TEST, "everything", "4: Kafka: 'it dies': names no test"),
        (" nothing |", "", "4: Kafka: 'it dies': has 4 filled cells instead of 5"),
        ("`gone`", "`… left`", "4: Kafka: 'it dies': nothing in the code says '… left'"),
        ("`gone`", "`inbound_gone`", "4: Kafka: 'it dies': there is no metric inbound_gone"),
        ("what to do", "what else", "2: Kafka: 'what happens': the columns are not"),
    ],
)
def test_a_bad_row_is_named(good: str, bad: str, told: str) -> None:
    """By line, heading and first cell, with what is wrong."""
    (problem,) = problems_of(GOOD.replace(good, bad, 1), "gone", set())

    assert problem.startswith(f"docs/faults.md:{told}")
    assert list(problems_of(GOOD, "gone", set())) == []


def test_quotes_are_found_however_the_text_is_made() -> None:
    """Of one text only, in its order; logged, formatted or put together from pieces."""
    source = 'log("%s: lost: %.1f; " "nothing more of it", tp)\nraise E(f"broker {name} is " f"away")\n'
    quotes = ["…: lost: …; nothing more", "broker … is away", "away; nothing more", "nothing more of it … lost"]

    assert [said(text, "\0".join(literals_of(source))) for text in quotes] == [True, True, False, False]
