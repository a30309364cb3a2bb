"""Whether what is printed now is what a page shows. Pure: two texts in, the first difference out.

What differs from run to run is made equal on both sides before (`PATTERNS`, in their order). Nothing else may differ but
the amount of space between words. In the page's text a line `...` stands for any lines, `...` elsewhere for anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

#: What differs from run to run, and what stands for it.
PATTERNS: Sequence[tuple[str, str]] = (
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z| UTC|\+00:00)?", "TIME"),
    (r"\b\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?", "TIME"),
    (r"\b\d\d:\d\d:\d\d(\.\d+)?\b", "TIME"),
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
    """Return where `printed` is not what `shown` on the page says; None if it is."""
    wanted, got = normalised(shown), normalised(printed)
    if (shape := as_json(shown)) is not None:
        found = as_json(printed)
        return "it is no JSON any more" if found is None else shape_difference(shape, found)
    lines = "".join(f"{line}\n" for line in got)
    if re.fullmatch(_pattern(wanted), lines):
        return None
    fit = max(at for at in range(len(wanted) + 1) if re.match(_pattern(wanted[:at], open_end=True), lines))
    where = f"{wanted[fit]!r} is not what is printed there" if fit < len(wanted) else "more is printed"
    return f"{where}; printed is, made equal:\n{lines}"


def normalised(text: str) -> list[str]:
    """Return the lines of a text, but for empty ones, with one space between words and a name for what differs."""
    lines = []
    for line in text.splitlines():
        for pattern, name in PATTERNS:
            line = re.sub(pattern, name, line)
        if line := " ".join(line.split()):
            lines.append(line)
    return lines


def _pattern(lines: Sequence[str], open_end: bool = False) -> str:
    parts = []
    for line in lines:
        if line == "...":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(r"[^\n]*?".join(re.escape(part) for part in line.split("...")) + r"\n")
    return "".join(parts) + ("" if open_end else r"\Z")


def as_json(text: str) -> Any:
    """Return the value that a text is, with `{...}` and `[...]` as `...`; None if it is none."""
    try:
        return json.loads(re.sub(r"\{ *\.\.\. *\}|\[ *\.\.\. *\]", '"Ellipsis"', text))
    except ValueError:
        return None


def shape_difference(shown: Any, made: Any, path: str = "") -> str | None:
    """Return where a value has other keys, or values of another type, than the one on the page; None if nowhere.

    Null fits whatever the page shows, for what is not known is null; lists fit by their first members.
    """
    if shown == "Ellipsis" or made is None or shown is None:
        return None
    if isinstance(shown, dict) and isinstance(made, dict):
        if (missing := shown.keys() ^ made.keys()) != set():
            return f"{path or 'the object'}: {', '.join(sorted(missing))} stands on one side only"
        found = (shape_difference(shown[key], made[key], f"{path}.{key}".strip(".")) for key in shown)
        return next((one for one in found if one), None)
    if isinstance(shown, list) and isinstance(made, list):
        return shape_difference(shown[0], made[0], f"{path}[0]") if shown and made else None
    kinds = [float if type(one) is int else type(one) for one in (shown, made)]
    return None if kinds[0] is kinds[1] else f"{path}: the page has {shown!r}, the code makes {made!r}"
