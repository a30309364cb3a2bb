"""Values on their way into an answer: bounded in depth and size, and reached into by a path."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: What stands for what is left out.
LIMIT_REACHED = "[Object limit exceeded]"


@dataclass(frozen=True)
class Bounds:
    """How much of a value is answered; 0: as much as there is."""

    depth: int = 15
    collection: int = 0
    objects: int = 0


class Bounded:
    """Cuts one value down to its bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._objects = 0

    def cut(self, value: Any, depth: int = 1) -> Any:
        """Return what of `value` is within the bounds: below them it is text, beyond them it is missing."""
        bounds = self._bounds
        if value is None:
            return None
        if bounds.objects and self._objects > bounds.objects:
            return LIMIT_REACHED
        if bounds.depth and depth > bounds.depth:
            return as_text(value)
        most = bounds.collection or None
        if isinstance(value, Mapping):
            self._objects += 1
            return {key: self.cut(one, depth + 1) for key, one in list(value.items())[:most]}
        if isinstance(value, list | tuple):
            self._objects += 1
            return [self.cut(one, depth + 1) for one in value[:most]]
        return value


def outlined(value: Any, depth: int) -> Any:
    """Return a description cut off below `depth`, where 1 stands for what there is; 0: all of it."""
    if depth == 0 or not isinstance(value, Mapping):
        return value
    return {key: 1 if depth == 1 else outlined(one, depth - 1) for key, one in value.items()}


def as_text(value: Any) -> str:
    """Return a value as Java would write it: `{a=1, b=[x, y]}`."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}={as_text(one)}' for key, one in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_text, value))}]"
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def reached(value: Any, path: Sequence[str]) -> Any:
    """Return what `path` leads to in `value`; None where it leads nowhere. `*` stands for every key, or index.

    Of what a `*` stands for, that where the rest of the path leads nowhere is left out.
    """
    if not path:
        return value
    part, rest = path[0], path[1:]
    if part == "*":
        if isinstance(value, Mapping):
            found = {key: reached(one, rest) for key, one in value.items()}
            return {key: one for key, one in found.items() if one is not None} or None
        if isinstance(value, list | tuple):
            return [one for one in (reached(one, rest) for one in value) if one is not None] or None
        return None
    if isinstance(value, Mapping):
        return reached(value.get(part), rest)
    if (
        isinstance(value, list | tuple)
        and part.isascii()
        and part.isdigit()
        and len(part) < 10
        and int(part) < len(value)
    ):
        return reached(value[int(part)], rest)
    return None
