"""The line of `sasl.jaas.config`, as users of the Java client write it: a login module, `required`, its options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""\s*(?:(?P<mark>[=;])|"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<word>[^\s=;"']+))""",
    re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


@dataclass(frozen=True)
class Jaas:
    """What such a line says."""

    module: str  # the login module's class
    options: Mapping[str, str] = field(repr=False)  # they hold passwords

    @property
    def kind(self) -> str:
        """The class's own name, without its package: PlainLoginModule."""
        return self.module.rpartition(".")[2]


def parse_jaas(line: str) -> Jaas:
    """Read the line.

    Raises:
        ValueError: it is none. The text says what is wrong, and holds nothing of the line.
    """
    tokens = list(_tokens(line))
    if len(tokens) < 2 or "=" in (tokens[0][1], tokens[1][1]):
        raise ValueError('need a login module, `required`, and options: ...PlainLoginModule required username="...";')
    module, flag = tokens[0][1], tokens[1][1]
    if flag.lower() not in ("required", "requisite", "sufficient", "optional"):
        raise ValueError("need the word `required` after the login module")
    options: dict[str, str] = {}
    rest = tokens[2:]
    while rest and rest[0] != ("mark", ";"):
        if len(rest) < 3 or rest[0][0] != "text" or rest[1] != ("mark", "=") or rest[2][0] != "text":
            raise ValueError('need options of the form name="value", with `;` after the last one')
        if rest[0][1] in options:
            raise ValueError("an option is given twice; keep one")
        options[rest[0][1]] = rest[2][1]
        rest = rest[3:]
    if rest[1:]:
        raise ValueError("need one login module; a second one begins after `;`")
    return Jaas(module, options)


def jaas_line(module: str, options: Mapping[str, str]) -> str:
    """Return the line that `parse_jaas`, and Java, read as this."""
    pairs = "".join(f" {name}={_quoted(value)}" for name, value in options.items())
    return f"{module} required{pairs};"


def _tokens(line: str) -> Iterator[tuple[str, str]]:
    at = 0
    end = len(line.rstrip())
    while at < end:
        match = _TOKEN.match(line, at)
        if match is None:
            raise ValueError("a quotation mark is not closed")
        at = match.end()
        if match["mark"]:
            yield "mark", match["mark"]
        elif match["word"] is not None:
            yield "text", match["word"]
        else:
            inside = match["double"] if match["double"] is not None else match["single"]
            yield "text", re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), inside, flags=re.DOTALL)


def _quoted(value: str) -> str:
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        value = value.replace(plain, escaped)
    return f'"{value}"'
