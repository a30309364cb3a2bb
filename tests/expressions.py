"""Every regular expression of the product, as its code has it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("inbound", "config", "controller", "coordinators", "processors")
_CALLS = frozenset({"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"})


def expressions() -> Iterator[tuple[str, str]]:
    """Yield the file of each, and the expression as it is written there."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT)
            if any((ROOT / parent).is_symlink() for parent in name.parents):
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                    continue
                of = node.func.value
                if isinstance(of, ast.Name) and of.id == "re" and node.func.attr in _CALLS:
                    yield str(name), ast.unparse(node.args[0])
