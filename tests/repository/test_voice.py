"""The words that hide their subject are not used: docs, code, messages and tests name who does what."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.rooms import LINKED, ROOT, modules

#: A sentence that needs one of them usually hides its subject. The glossary (docs/glossary.md) has the words to use.
REFUSED = (
    r"whoever|whatever|anew|somebody|is told|is said|hears of|for ever|by itself|of one's own"
    r"|hand(?:s|ed|ing)? (?:it |them )?(?:out|over)|hand-?outs?|stands? still|stood still|in good order"
)
#: These have honest uses in the story that a test tells; elsewhere they are refused, too.
IN_STORIES = r"nobody|meanwhile|what it"
STRICT = re.compile(rf"\b({REFUSED}|{IN_STORIES})\b", re.IGNORECASE)
LOOSE = re.compile(rf"\b({REFUSED})\b", re.IGNORECASE)
#: Folders of stories, and of what only developers run.
STORIES = ("tests", "integration", "benchmarks", "scripts")
#: Values of ledgers, JSON and metrics keep their words: files and scripts have them. Names of tests are theirs.
KEPT = re.compile(
    r"topic created anew|nobody-allowed|\bhanded_out(?:_now)?\b"
    r"|`(?:tests|integration)/[^`]*`|\(integration/[^)]*\)|test_\w+\.py::\w+"
)
#: Words of a docstring's first line at most: it says what the thing does or is; the rest follows after a blank line.
MOST_WORDS = 12
FOLDERS = ("inbound", *LINKED, "tests", "integration", "scripts", "benchmarks", "examples", "docs", "deploy")
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "Makefile", "rooms.toml")


def files() -> Iterator[Path]:
    """Yield every text that people read: code, docs, pages."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            linked = any((ROOT / parent).is_symlink() for parent in path.relative_to(ROOT).parents)
            if (
                path.suffix in {".py", ".md", ".rst", ".yaml", ".js", ".html"}
                and not linked
                and path.name != Path(__file__).name
            ):
                yield path
    yield from (ROOT / page for page in PAGES)


@pytest.mark.slow
def test_sentences_name_their_subjects() -> None:
    """Each word that is refused, with its file and line."""
    problems = [
        f"{path.relative_to(ROOT)}:{number}: {word}"
        for path in files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for word in words_of(line, LOOSE if path.relative_to(ROOT).parts[0] in STORIES else STRICT)
    ]

    assert problems == []


@pytest.mark.slow
def test_docstrings_of_the_product_begin_with_a_short_line() -> None:
    """Each that is longer, with its file and line."""
    problems = [f"{module}:{found}" for module, path in modules().items() for found in long_lines(path.read_text())]

    assert problems == []


def long_lines(source: str) -> Iterator[str]:
    """Yield the first lines of docstrings that have too many words."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = (ast.get_docstring(node) or "").split("\n", 1)[0]
            if len(first.split()) > MOST_WORDS:
                yield f"{getattr(node, 'lineno', 1)}: {first}"


def test_a_long_line_is_found() -> None:
    """Of modules, classes and functions; what follows it may be as long as it is."""
    long = " ".join(["word"] * (MOST_WORDS + 1))
    source = f'"""Short.\n\n{long}"""\n\nclass C:\n    """{long}"""\n\n    async def f(self):\n        """Short."""\n'

    assert list(long_lines(source)) == [f"5: {long}"]


def words_of(line: str, refused: re.Pattern[str] = STRICT) -> list[str]:
    """Return the words of a line that are refused; in names, too."""
    return [found[0] for found in refused.finditer(KEPT.sub("", line).replace("_", " "))]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("the owner commits", []),
        ("Whoever has it knows", ["Whoever"]),
        ("def test_nobody_waits_for_ever() -> None:", ["nobody", "for ever"]),
        ("batches are handed out, and handed over", ["handed out", "handed over"]),
        ('reason="topic created anew"', []),
        ("whenever it is somewhere", []),
    ],
)
def test_a_refused_word_is_found(line: str, words: list[str]) -> None:
    """In sentences and in names; not in other words."""
    assert words_of(line) == words
