"""The fenced blocks of the documentation, and what each of them is. Sybil finds them; nothing is run here.

What a language cannot say stands in an HTML comment on the line above the fence, which no reader of the page sees:

    <!-- run: group -->               on this prepared state (`integration/repository/docs_scenes.py`; `ledger`: `docs_readers.py`)
    <!-- not run: needs-docker -->    it needs a Docker engine; its commands are parsed all the same, and read by `bash -n`.
                                      Other reasons: needs-kubernetes; needs-service, which only users have (a Spark
                                      master, a bucket); minutes: it is a target of the Makefile, or tested in integration/
    <!-- names -->                    a drawing, what a program prints in a test of its own, or Python that needs what only
                                      users have: names, titles and keys in it are words of the code
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sybil import Document
from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer, RawFencedCodeBlockLexer

ROOT = Path(__file__).resolve().parent.parent.parent
_FENCES = RawFencedCodeBlockLexer(re.compile(r"\s*?(?P<language>\S*)[^\n]*\n"))
_ABOVE = DirectiveInHTMLCommentLexer("(?:not run|run|names)(?=[: ])")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: str  # relative to the repository
    line: int  # of the opening fence, from 1
    language: str
    text: str  # without the fences' indentation; ends with a newline unless empty
    annotation: str = ""  # "run", "not run", "names", or none
    value: str = ""  # what follows the annotation's colon

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str:
        """The name of the file that the block says it is, in a comment on its first line: `# racks.py, beside ...`."""
        found = re.match(r"# ((?:[\w-]+/)*[\w-]+\.(?:py|yaml|toml))\b", self.text)
        return found[1] if found else ""


def pages() -> list[str]:
    """Return the pages, relative to the repository.

    Decision records are left out: they tell what was, and stay as they are. So are the examples' own pages.
    """
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    kept = [path.relative_to(ROOT) for path in found if "decisions" not in path.parts and path.name != "CHANGELOG.md"]
    return sorted(str(path) for path in kept if not any(part.startswith(("_", ".")) for part in path.parts))


@cache
def blocks() -> tuple[Block, ...]:
    """Return the blocks of all pages, in their order."""
    return tuple(block for page in pages() for block in read(page, (ROOT / page).read_text(encoding="utf-8")))


def of_page(page: str) -> list[Block]:
    """Return the blocks of one page."""
    return [block for block in blocks() if block.page == page]


def read(page: str, text: str) -> list[Block]:
    """Return the blocks of one page.

    Raises:
        ValueError: a block does not end, or an annotation stands above no block; with the page and the line.
    """
    document = Document(text, page)
    for region in _FENCES(document):
        document.add(region)
    above = {region.end + len("-->\n"): region.lexemes for region in _ABOVE(document)}
    found = []
    for example in document:
        if text[example.end - 3 : example.end] != "```":
            raise ValueError(f"{page}:{example.line}: the block does not end")
        note, lexemes = above.pop(example.start, {}), example.region.lexemes
        kind, value = note.get("directive", ""), note.get("arguments", "")
        found.append(Block(page, example.line, lexemes["language"] or "text", lexemes["source"], kind, value))
    for end in above:
        raise ValueError(f"{page}:{text.count(chr(10), 0, end)}: the annotation stands above no block")
    return found
