"""Patterns of topics, and globs from outside, whose cost is bounded."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

#: Topics of Kafka's own begin so, such as `__consumer_offsets`. No pattern means them: they are read where they are named.
INTERNAL = "__"


def chooser(names: Collection[str], pattern: str | None) -> Callable[[str], bool]:
    """Return a test of topic names. One of `names`, or wholly matched by a pattern."""
    if pattern is None:
        return frozenset(names).__contains__
    matches = re.compile(pattern).fullmatch
    return lambda name: not name.startswith(INTERNAL) and matches(name) is not None


def glob(parts: Sequence[str]) -> re.Pattern[str]:
    """Return a regular expression for `parts`, where `*` and `?` are wildcards.

    It takes at most a step for each character of the text times each of the pattern: what stands between two stars is
    looked for once, where it comes first, and never again (an atomic group). To go on behind a later one finds nothing more.
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
    # The last one stands at the end: it has a length, for no piece has a star.
    return re.compile(f"{first}{between}.*{others[-1]}", re.DOTALL)
