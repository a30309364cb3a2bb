"""Every regular expression of the product, as its code has it, and as docs/security-expressions.md lists it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from scripts.rooms import ROOT, modules

STRANGERS = "## What strangers write"
PAGE = ROOT / "docs" / "security-expressions.md"
#: Letters of a reason.
LEAST = 5
_CALLS = frozenset({"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"})
#: Other ways to them, which are not looked through here, so that nothing may use them.
_OTHER_WAYS = frozenset({"fnmatch", "regex", "sre_compile", "sre_parse"})
_SPAN = re.compile(r"(`+)(.*?[^`])\1(?!`)")


def expressions() -> Iterator[tuple[str, str]]:
    """Yield the file of each, and the expression as `shown`; what is not known before it runs, as the code has it."""
    for _, path in modules().items():
        yield from ((str(path.relative_to(ROOT)), text) for text in found_in(path.read_text()))


def found_in(source: str) -> Iterator[str]:
    """Yield the expressions of a module, and what else leads to one and cannot be looked into."""
    tree = ast.parse(source)
    named = {
        target.id: node.value for node in tree.body if isinstance(node, ast.Assign)
        for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (
                f"import {a.name}" for a in node.names if a.name in _OTHER_WAYS or (a.name == "re" and a.asname)
            )
        elif isinstance(node, ast.ImportFrom) and node.module in {"re", *_OTHER_WAYS}:
            yield f"from {node.module} import"
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "re" and node.attr in _CALLS:
            call = called.get(id(node))
            yield shown(call.args[0], named) if call is not None and call.args else f"re.{node.attr}"


def shown(node: ast.expr, named: Mapping[str, ast.expr]) -> str:
    """Return an expression as it is, with what is not to be printed escaped."""
    value = _value(node, named)
    if value is None:
        return ast.unparse(node)
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def _value(node: ast.expr, named: Mapping[str, ast.expr]) -> str | bytes | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str | bytes) else None
    if isinstance(node, ast.Name) and node.id in named:
        return _value(named[node.id], {})
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "encode":
        return _value(node.func.value, named)
    return None


def listed(page: str) -> tuple[dict[tuple[str, str], str], list[str]]:
    """Return the reason that the page gives for each, "" for those of no stranger's text, and its lines that give none."""
    found: dict[tuple[str, str], str] = {}
    problems: list[str] = []
    heading, file = "", ""
    for line in page.splitlines():
        if line.startswith("## "):
            heading, file = line, ""
        elif line.startswith("### "):
            file = _spans(line[4:])[0][0]
        elif line.startswith("- ") and heading:
            spans, rest = _spans(line[2:])
            if heading == STRANGERS and file and spans and len(rest.removeprefix(": ")) >= LEAST:
                found |= {(file, span): rest.removeprefix(": ") for span in spans}
            elif heading != STRANGERS and len(spans) > 1:
                found |= {(spans[0], span): "" for span in spans[1:]}
            else:
                problems.append(line)
    return found, problems


def _spans(text: str) -> tuple[list[str], str]:
    """Return the code that a text begins with, between commas or a colon, and the rest."""
    spans = []
    while (span := _SPAN.match(text)) is not None:
        spans.append(span[2].strip(" ") if len(span[1]) > 1 else span[2])
        text = text[span.end() :]
        if text[:2] not in (", ", ": ") or not _SPAN.match(text[2:]):
            break
        text = text[2:]
    return spans, text
