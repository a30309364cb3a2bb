"""A program in Java's place: it answers `-version` on standard error, as Java does, and runs a line for sh otherwise."""

from __future__ import annotations

from pathlib import Path


def fake_java(folder: Path, said: str = 'openjdk version "17.0.1"', code: int = 0, then: str = "exit 1") -> str:
    """Write it; return its path.

    Args:
        said: its output for `-version`, before it ends with `code`.
        then: its commands for anything else.
    """
    path = folder / "java"
    path.write_text(
        f"#!/bin/sh\nif [ \"$1\" = -version ]; then cat >&2 <<'END'\n{said}\nEND\nexit {code}; fi\n{then}\n"
    )
    path.chmod(0o755)
    return str(path)
