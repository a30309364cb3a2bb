"""Topic patterns, and globs from outside, whose cost is bounded."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

#: The prefix of Kafka's own topics, like `__consumer_offsets`. No pattern matches them: only their names do.
INTERNAL = "__"


def chooser(names: Collection[str], pattern: str | None) -> Callable[[str], bool]:
    """Return a test of topic names; a pattern must match fully."""
    if pattern is None:
        return frozenset(names).__contains__
    matches = re.compile(pattern).fullmatch
    return lambda name: not name.startswith(INTERNAL) and matches(name) is not None


def glob(parts: Sequence[str]) -> re.Pattern[str]:
    """Return a regular expression for `parts`, where `*` and `?` are wildcards.

    It takes at most a step for each character of the text times each of the pattern: the piece between two stars is searched
    once, up to its first match (an atomic group). A later match would find nothing more.
    """
    pieces = [""]  # of the pattern, between its stars
    for part in parts:
        if part == "*":
            pieces.append("")
        else:
            pieces[-1] += "." if part == "?" else re.escape(part)
    first, *others = pieces
    if not others:
        return re.compile(first, re.DOTALL)
    between = "".join(f"(?>.*?{piece})" for piece in others[:-1] if piece)
    # The last piece is at the end, and has a length, as no piece has a star.
    return re.compile(f"{first}{between}.*{others[-1]}", re.DOTALL)
