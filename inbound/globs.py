"""Patterns of strangers, in which `*` stands for any text: what a match costs has a bound."""

from __future__ import annotations

import re
from collections.abc import Sequence


def glob(parts: Sequence[str]) -> re.Pattern[str]:
    """Return what matches `parts` one after the other: `*` is any text, `?` any character, others are themselves.

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
