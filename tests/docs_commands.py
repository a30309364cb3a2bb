"""The command lines in the documentation, and whether `inbound`'s own parser takes them. Pure, but for the parser."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from inbound.cli.main import parser
from tests.docs_blocks import Block, outside_blocks

_ENDS = re.compile(r"[|&;<>()]+")
_INLINE = re.compile(r"`(?:\$ )?((?:python3? -m )?inbound(?: [^`\n]+)?)`")
#: Needs no server and no file, so a block of nothing else needs no prepared state.
ALONE = ("check", "schema", "new", "manifests")


@dataclass(frozen=True)
class Command:
    """What is typed, and what the page shows below it; None: nothing."""

    typed: str
    shown: str | None = None


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a `bash` or `console` block; of the latter only lines behind `$ `, and their output.

    Raises:
        ValueError: a console block does not begin with a command.
    """
    joined = re.sub(r"\\\n\s*", "", block.text)
    if block.language == "bash":
        lines = [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        return [Command(line) for line in _with_documents(lines)]
    before, *parts = re.split(r"(?m)^\$ ", joined)
    if before.strip() or not parts:
        raise ValueError(f"{block}: a console block begins with `$ ` and a command")
    pairs = (part.partition("\n") for part in parts)
    return [Command(typed, shown if shown.strip() else None) for typed, _, shown in pairs]


def _with_documents(lines: list[str]) -> Iterator[str]:
    """Put what stands in `<<END`, and lines that bash cannot take alone (`for`, `if`), together with the line that begins it."""
    at = 0
    while at < len(lines):
        whole = lines[at]
        if here := re.search(r"<<-?\s*['\"]?(\w+)", whole):
            while at + 1 < len(lines) and lines[at].strip() != here[1]:
                at += 1
                whole += f"\n{lines[at]}"
        yield whole
        at += 1


def words_of(line: str) -> Iterator[list[str]]:
    """Yield the arguments of each `inbound` in a shell line: behind pipes, in `$(...)`, with variables set before it.

    Raises:
        ValueError: quotes that do not end.
    """
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] | None = None
    before: list[str] = []
    for word in lexer:
        if _ENDS.fullmatch(word):
            if words is not None:
                yield words
            words, before = None, []
        elif words is not None:
            words.append(word)
        elif word == "inbound" and (before[-1:] == ["-m"] or all("=" in one for one in before)):
            words = []
        else:
            before.append(word)
    if words is not None:
        yield words


def is_alone(block: Block) -> bool:
    """Whether all commands of a block are inbound's, and need no server."""
    parsed = [list(words_of(command.typed)) for command in commands_of(block)]
    return all(len(found) == 1 and (found[0][:1] or [""])[0] in (*ALONE, "--help", "--version") for found in parsed)


def inline(text: str) -> list[tuple[int, str]]:
    """Return (line, command) of each `inbound ...` in code quotes outside of blocks."""
    found = []
    for number, line in enumerate(outside_blocks(text).splitlines(), 1):
        found += [(number, match[1].replace("\\|", "|")) for match in _INLINE.finditer(line)]
    return found


def refusal(words: list[str], whole: bool = True) -> str | None:
    """Return why inbound's parser does not take these arguments; None if it does.

    Args:
        words: what stands behind `inbound`. Words in capitals and `...` stand for a value; `[...]` may be left out.
        whole: False: an option or an argument may be missing, as where a text only names a command.
    """
    words = ["--help" if word == "COMMAND" else word.replace("HOST:PORT", "127.0.0.1:1") for word in words]
    given = ["1" if re.fullmatch(r"[A-Z][A-Z_]+|\.\.\.|…", word) else word for word in words if word[:1] != "["]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            _parser().parse_args(given)
    except SystemExit as ended:
        message = said.getvalue().strip().rpartition("\n")[2]
        if ended.code == 0 or (not whole and re.search(r"are required|is required|expected one argument", message)):
            return None
        return message
    return None


_made: list[argparse.ArgumentParser] = []


def _parser() -> argparse.ArgumentParser:
    if not _made:
        _made.append(parser())  # its making takes longer than all lines together
    return _made[0]
