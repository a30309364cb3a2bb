"""Whether what is printed now is what a page shows. Pure: two texts in, the difference out.

What differs from run to run is made equal on both sides before (`PATTERNS`, in their order). Nothing else may differ but
the amount of space between words. In the page's text a line `...` stands for any lines, `...` elsewhere for anything.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from typing import Any

#: What differs from run to run, and what stands for it.
PATTERNS: Sequence[tuple[str, str]] = (
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z| UTC|\+00:00)?", "TIME"),
    (r"\b(\d\d-\d\d )?\d\d:\d\d:\d\d(\.\d+)?\b", "TIME"),
    (r"\b\d{8}T\d{6,9}Z(-[0-9a-f]{16})?\b", "ID"),  # of a run, or of a reset
    (r"\b[\w-]+-\d+-[0-9a-f]{6}\b", "MEMBER"),  # a generated consumer id: host, pid, random
    (r"\bpid \d+ on [\w.-]+", "pid PID on HOST"),
    (r"\b(process|pid) \d+\b", r"\1 PID"),
    (r"\b[\d,.]+ (ms|s|min|h)\b(?!/)", "DURATION"),
    (r"DURATION( DURATION)+", "DURATION"),  # 1 min 3 s
    (r"(127\.0\.0\.1|localhost):\d+", "HOST:PORT"),
    (r"\bepoch \d+", "epoch N"),
    (r"-{2,}", "--"),
)


def difference(shown: str, printed: str) -> str | None:
    """Return how `printed` is not what `shown` on the page says; None if it is."""
    if (shape := _json(shown)) is not None:
        found = _json(printed)
        good = found is not None and fits(shape, found)
        return None if good else f"keys or types are others than on the page in what is printed: {printed}"
    wanted, got = normalised(shown), normalised(printed)
    any_lines, any_text = r"(?:[^\n]*\n)*?", r"[^\n]*?"
    lines = (any_lines if line == "..." else re.escape(line).replace(r"\.\.\.", any_text) + r"\n" for line in wanted)
    if re.fullmatch("".join(lines), "".join(f"{line}\n" for line in got)):
        return None
    return "page (-) and what is printed (+), made equal:\n" + "\n".join(difflib.ndiff(wanted, got))


def normalised(text: str) -> list[str]:
    """Return the lines of a text, but for empty ones, with one space between words and a name for what differs."""
    for pattern, name in PATTERNS:
        text = re.sub(pattern, name, text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def _json(text: str) -> Any:
    """Return the value that a text is, with `{...}` and `[...]` as null; None if it is none."""
    try:
        return json.loads(re.sub(r"\{ *\.\.\. *\}|\[ *\.\.\. *\]", "null", text))
    except ValueError:
        return None


def fits(shown: Any, made: Any) -> bool:
    """Whether a value has the keys, and values of the types, of the one on the page.

    Null fits everything, for what is not known is null; lists fit by their first members.
    """
    if shown is None or made is None:
        return True
    if isinstance(shown, dict) and isinstance(made, dict):
        return shown.keys() == made.keys() and all(fits(shown[key], made[key]) for key in shown)
    if isinstance(shown, list) and isinstance(made, list):
        return not shown or not made or fits(shown[0], made[0])
    kinds = [float if type(one) is int else type(one) for one in (shown, made)]
    return kinds[0] is kinds[1]
