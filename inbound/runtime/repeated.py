"""Limits how often repeated things are logged."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Told(Generic[T]):
    at: float
    left_out: int = 0
    last: T | None = None


class Repeats(Generic[T]):
    """Chooses the repeated things to log: one per key and `interval`.

    `interval` is in seconds. Not thread-safe. At most `most` keys are known; the one that was logged longest ago is forgotten.
    """

    def __init__(self, interval: float, most: int = 2048) -> None:
        self.interval = interval
        self._most = most
        self._told: OrderedDict[Hashable, _Told[T]] = OrderedDict()
        self._forgotten: list[tuple[T, int]] = []

    def seen(self, key: Hashable, now: float, what: T) -> int | None:
        """Return the number left out since a key was last logged.

        None: leave `what` out, too.
        """
        told = self._told.get(key)
        if told is not None and now < told.at + self.interval:
            told.left_out += 1
            told.last = what
            return None
        self._told[key] = _Told(now)
        self._told.move_to_end(key)
        if len(self._told) > self._most:
            self._forget(self._told.popitem(last=False)[1])
        return told.left_out if told is not None else 0

    def overdue(self, now: float) -> list[tuple[T, int]]:
        """Return each key's last one left out, and their number."""
        while self._told:
            key, told = next(iter(self._told.items()))
            if now < told.at + self.interval:
                break
            del self._told[key]
            self._forget(told)
        found, self._forgotten = self._forgotten, []
        return found

    def _forget(self, told: _Told[T]) -> None:
        if told.last is not None:
            self._forgotten.append((told.last, told.left_out))
