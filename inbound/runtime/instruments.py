"""A histogram, and counts by kind: bounded, and cheap per batch."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Upper bounds in seconds, for everything from a commit to a callback that takes minutes.
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
#: For times of hours: the wait of records to be read.
LONG_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0)
#: The number of separate kinds, and the name that counts the others.
KINDS, OTHER = 24, "other"


@dataclass(frozen=True, slots=True)
class HistogramStatus:
    """A histogram's counts: up to each bound, and above the one before."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]  # one more than bounds: the last counts values above all
    sum: float

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def within(self, share: float) -> float:
        """Return the least bound of a share of the values, or infinity."""
        wanted, seen = share * self.count, 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            seen += count
            if seen >= wanted:
                return bound
        return float("inf")


class Histogram:
    """Counts values by size. `observe` and `status` from any thread."""

    __slots__ = ("_bounds", "_counts", "_lock", "_sum")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        """`bounds` ascend."""
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:
        """Count a value. Less than a microsecond."""
        place = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[place] += 1
            self._sum += value

    def observe_all(self, values: Sequence[float]) -> None:
        """Count several values."""
        places = [bisect_left(self._bounds, value) for value in values]
        with self._lock:
            for place in places:
                self._counts[place] += 1
            self._sum += sum(values)

    def status(self) -> HistogramStatus:
        """Return the counts so far."""
        with self._lock:
            return HistogramStatus(self._bounds, tuple(self._counts), self._sum)


def histogram_status(body: Mapping[str, Any] | None) -> HistogramStatus | None:
    """Return the histogram in a JSON object, if any.

    Raises:
        KeyError: the object is no histogram.
    """
    return HistogramStatus(tuple(body["bounds"]), tuple(body["counts"]), body["sum"]) if body is not None else None


class Kinds:
    """Counts of at most `most` kinds, and of `other`."""

    __slots__ = ("_counts", "_lock", "_most")

    def __init__(self, *known: str, most: int = KINDS) -> None:
        """`known` kinds are there from 0 on."""
        self._counts = dict.fromkeys(known, 0)
        self._most = max(most, len(known))
        self._lock = threading.Lock()

    def add(self, kind: str, count: int = 1) -> None:
        """Count one, or more. Any thread."""
        with self._lock:
            if kind not in self._counts and len(self._counts) >= self._most:
                kind = OTHER
            self._counts[kind] = self._counts.get(kind, 0) + count

    def counts(self) -> dict[str, int]:
        """Return the counts so far. Any thread."""
        with self._lock:
            return dict(self._counts)
