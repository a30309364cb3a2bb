"""The fenced blocks of the documentation, and what each of them is. Pure: pages in, blocks out.

A block is what its language says: `yaml` is loaded, `python` runs, `bash` and `console` are carried out. What a language
cannot say stands in an HTML comment on the line above the fence, which no reader of the page sees:

    <!-- run: group -->               on this prepared state (`docs_scenes.py` here, `integration/docs_scenes.py` with servers)
    <!-- not run: needs-docker -->    why it is not; its commands are parsed all the same
    <!-- made by: ledger -->          what the code makes now looks like this (`docs_made.py`)
    <!-- drawing -->                  the names in it are names of the code; `<!-- drawing: module:Enum -->` all of an enum
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Why a block may stay without being run.
REASONS = {
    "installs": "it changes what is installed on the machine",
    "needs-docker": "it needs a Docker engine",
    "needs-kubernetes": "it needs a Kubernetes cluster",
    "needs-service": "it needs a service that only its users have: a Spark master, a bucket, a broker with their names",
    "minutes": "it takes minutes; it is a target of the Makefile, or has tests of its own in integration/",
}

#: States that blocks run on with real servers, and what each is: `integration/docs_scenes.py` prepares them.
WITH_SERVERS = {
    "first": "servers that listen, a topic, and nothing else: what a newcomer types, in its order",
    "group": "a group that has read a part of three partitions, and has no members",
    "ingress": "servers, and a file of events",
    "kafka-group": "a group of Kafka's own that has committed, and one of inbound's without offsets",
    "mirrored": "a group whose offsets are mirrored to Kafka, which has read all",
    "reload": "a member whose configuration has changed",
    "replica": "a member that holds all partitions, with its admin port",
    "slow-processor": "a member whose processor waits for an answer that does not come",
    "tutorial": "nothing, and a reader with two terminals (`integration/test_tutorial.py` is that reader)",
    "three-replicas": "three members that have read all of a topic whose records have times",
}

#: What a block can be, by the language of its fence; the languages of directives (`{toctree}`) are run by the site's build.
LANGUAGES = ("bash", "console", "json", "python", "text", "toml", "yaml")

#: Which annotations a language takes. No language is `text`, too.
ANNOTATIONS = {
    "bash": ("run", "not run"),
    "console": ("run", "not run", "made by"),
    "json": ("made by",),
    "python": ("run",),
    "text": ("made by", "drawing"),
}

SAME = {"": "text", "sh": "bash", "shell": "bash", "yml": "yaml", "py": "python"}

_FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,}|~{3,})\s*(?P<language>[^\s`]*)[^`]*$")
_ANNOTATION = re.compile(r"^ *<!-- (?P<kind>run|not run|made by|drawing)(?:: (?P<value>\S+))? -->$")


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: str  # relative to the repository
    line: int  # of the opening fence, from 1
    language: str
    text: str  # without the fences' indentation; ends with a newline unless empty
    annotation: str = ""  # "run", "not run", "made by", "drawing", or none
    value: str = ""  # what follows the annotation's colon

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str:
        """The name of the file that the block says it is, in a comment on its first line: `# racks.py, beside ...`."""
        found = re.match(r"# ((?:[\w-]+/)*[\w-]+\.(?:py|yaml|yml|toml))\b", self.text)
        return found[1] if found else ""

    @property
    def is_directive(self) -> bool:
        """Whether it is for the generator of the site, which fails on one that it cannot carry out."""
        return self.language.startswith("{")


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
    return tuple(block for page in pages() for block in blocks_of(page, (ROOT / page).read_text(encoding="utf-8")))


def blocks_of(page: str, text: str) -> Iterator[Block]:
    """Yield the blocks of one page.

    Raises:
        ValueError: a block does not end, or an annotation stands above no block; with the page and the line.
    """
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        opened = _FENCE.match(lines[at])
        if opened is None:
            if _ANNOTATION.match(lines[at]) and not (at + 1 < len(lines) and _FENCE.match(lines[at + 1])):
                raise ValueError(f"{page}:{at + 1}: the annotation stands above no block; put it right above the fence")
            at += 1
            continue
        end = at + 1
        while end < len(lines) and not _closes(lines[end], opened["marks"]):
            end += 1
        if end == len(lines):
            raise ValueError(f"{page}:{at + 1}: the block does not end")
        indent = len(opened["indent"])
        inside = [re.sub(rf"^ {{0,{indent}}}", "", line) for line in lines[at + 1 : end]]
        above = _ANNOTATION.match(lines[at - 1]) if at else None
        kind, value = (above["kind"], above["value"] or "") if above else ("", "")
        language = SAME.get(opened["language"], opened["language"])
        yield Block(page, at + 1, language, "".join(f"{line}\n" for line in inside), kind, value)
        at = end + 1


def _closes(line: str, marks: str) -> bool:
    stripped = line.strip()
    return len(stripped) >= len(marks) and set(stripped) == {marks[0]}


def problem_of(block: Block) -> str | None:
    """Return why nothing runs or checks a block of this kind; None if something does."""
    if block.is_directive:
        return None
    if block.language not in LANGUAGES:
        return f"{block}: nothing runs {block.language!r}; use one of {', '.join(LANGUAGES)}, or teach the tests"
    if block.annotation and block.annotation not in ANNOTATIONS.get(block.language, ()):
        return f"{block}: {block.language} takes no annotation {block.annotation!r}"
    if block.annotation == "not run" and block.value not in REASONS:
        return f"{block}: {block.value!r} is no reason not to run it; there are {', '.join(REASONS)}"
    if block.annotation in ("run", "made by") and not block.value:
        return f"{block}: the annotation {block.annotation!r} needs a name behind a colon"
    if block.language in ("json", "text") and not block.annotation:
        return f"{block}: {block.language} that nothing checks; say above it `<!-- made by: ... -->`, or `<!-- drawing -->` of text"
    return None


def of_page(page: str) -> list[Block]:
    """Return the blocks of one page."""
    return [block for block in blocks() if block.page == page]


def outside_blocks(text: str) -> str:
    """Return a page's text without its blocks; lines keep their numbers."""
    kept, marks = [], ""
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if marks:
            kept.append("")
            marks = "" if _closes(line, marks) else marks
        elif fence:
            kept.append("")
            marks = fence["marks"]
        else:
            kept.append(line)
    return "\n".join(kept)
