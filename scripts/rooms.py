"""The rooms of the product, as `rooms.toml` lists them and as the code is: which imports which, and from which line."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "rooms.toml"
#: The folders at the top of the repository that import under `inbound.`; links in `inbound/` point to them.
LINKED = ("config", "coordinators", "controller", "processors")
#: Modules that serve every room, and import none.
LEAVES = frozenset({"inbound.clock", "inbound.errors", "inbound.topic_partition"})
#: `python -m inbound` and the package itself, which names the public API: the top of the house.
TOP = "inbound"


@dataclass(frozen=True)
class Import:
    """One import of a module of ours: by whom, in which line, and of which module."""

    module: str
    line: int
    name: str


def table() -> dict[str, list[str]]:
    """Return the rooms of `rooms.toml`, from the ground up, each with the rooms that it may import."""
    rooms: dict[str, list[str]] = tomllib.loads(TABLE.read_text())["rooms"]
    return rooms


def modules() -> dict[str, Path]:
    """Return every module of the product by its dotted name, each once (the links are not followed)."""
    found = {}
    for folder in ("inbound", *LINKED):
        for path in sorted((ROOT / folder).rglob("*.py")):
            relative = path.relative_to(ROOT)
            if not any((ROOT / parent).is_symlink() for parent in relative.parents):
                parts = relative.with_suffix("").parts
                name = ".".join(parts if folder == "inbound" else ("inbound", *parts))
                found[name.removesuffix(".__init__")] = path
    return found


def room_of(module: str, known: Mapping[str, Path]) -> str | None:
    """Return the room that a module stands in: its folder, with dots and without `inbound.`; None: it is a leaf."""
    if module in LEAVES:
        return None
    package = module if module in known and known[module].name == "__init__.py" else module.rpartition(".")[0]
    return package.removeprefix("inbound.")


def imports_of(module: str, source: str, known: Mapping[str, Path]) -> Iterator[Import]:
    """Yield every import of a module of inbound in `source`, also inside functions and TYPE_CHECKING."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "inbound":
                    yield Import(module, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "inbound":
            for alias in node.names:  # `from inbound import errors` imports inbound.errors
                inner = f"{node.module}.{alias.name}"
                yield Import(module, node.lineno, inner if inner in known else node.module or "")


def docstring_of(room: str, known: Mapping[str, Path]) -> str:
    """Return the docstring of a room's `__init__.py`; empty: it has none."""
    path = known[TOP if room == TOP else f"inbound.{room}"]
    return ast.get_docstring(ast.parse(path.read_text())) or ""
