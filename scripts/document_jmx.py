"""Renew the tables in docs/jmx.md from the tables of beans in the code (`make docs`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inbound.observe.jmx.model import BeanType
from inbound.observe.jmx.tables import KINDS
from scripts.made_tables import DOCS, with_tables

DOCUMENT = DOCS / "jmx.md"


def renewed(text: str) -> str:
    """Return the document with the tables as the code has them now. Raises ValueError: the marks around them are missing."""
    return with_tables(DOCUMENT, text, tables())


def tables() -> str:
    """Return the tables of all types of beans."""
    return "\n".join(line for kind, keys in KINDS for line in _lines(kind, keys))


def _lines(kind: BeanType[Any], keys: tuple[str, ...]) -> Iterator[str]:
    name = ",".join([f"inbound:type={kind.type}", *(f"{key}=..." for key in keys)])
    yield from (f"### `{name}`", f"{kind.description}.", "", "| attribute | type | | says |", "|---|---|---|---|")
    for attribute in kind.attributes:
        marks = ["counter"] if attribute.counter else ["rw"] if attribute.writable is not None else []
        yield f"| {attribute.name} | `{attribute.type}` | {''.join(marks)} | {attribute.description} |"
    yield from ("", "| operation | answers with | does |", "|---|---|---|")
    for action in kind.actions:
        given = ", ".join(f"{p.type} {p.name}" for p in action.parameters)
        meaning = "".join(f"; `{p.name}`: {p.description}" for p in action.parameters)
        yield f"| `{action.name}({given})` | `{action.returns}` | {action.description}{meaning} |"
    yield ""


def main() -> None:
    DOCUMENT.write_text(renewed(DOCUMENT.read_text()))


if __name__ == "__main__":
    main()
