"""docs/glossary.md names what is in the code."""

from __future__ import annotations

import re

from scripts.rooms import ROOT, modules

GLOSSARY = ROOT / "docs" / "glossary.md"


def rows() -> list[list[str]]:
    """Return the cells of each row, without the heads."""
    lines = [line for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]
    return [row for row in cells if row[0] not in ("term", "---")]


def test_every_term_names_a_class_or_a_file_that_exists() -> None:
    """A renamed class is renamed here, too."""
    source = "\n".join(path.read_text() for _, path in modules().items())
    known = set(re.findall(r"(?m)^ *(?:class|def) (\w+)|^ {4}([A-Z]+) = ", source))
    names = {name for pair in known for name in pair if name}
    missing = [
        named
        for row in rows()
        for named in re.findall(r"`([^`]+)`", row[-1])
        if not ((ROOT / named).exists() if "/" in named else names.issuperset(named.split(".")))
    ]

    assert missing == []


def test_every_term_is_explained_once() -> None:
    """A row has three cells; no term has two rows."""
    terms = [row[0] for row in rows()]

    assert [row for row in rows() if len(row) != 3] == []
    assert len(set(terms)) == len(terms)
