"""Sets of offsets as ascending ranges that do not touch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter

from inbound.proof.model import OffsetRange

_FIRST, _NEXT = itemgetter(0), itemgetter(1)


def union(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the offsets of any ranges, in any order, as a set."""
    result: list[OffsetRange] = []
    for first, end in sorted(ranges):
        if first >= end:
            continue
        if result and first <= result[-1][1]:
            if end > result[-1][1]:
                result[-1] = (result[-1][0], end)
        else:
            result.append((first, end))
    return result


def intersection(left: Sequence[OffsetRange], right: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return the offsets that both sets have.

    Costs the length of the shorter one, times the logarithm of the other's length.
    """
    if len(left) > len(right):
        left, right = right, left
    result: list[OffsetRange] = []
    for first, end in left:
        at = bisect_right(right, first, key=_NEXT)
        while at < len(right) and right[at][0] < end:
            result.append((max(first, right[at][0]), min(end, right[at][1])))
            at += 1
    return result


def difference(left: Sequence[OffsetRange], right: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return the offsets that only `left` has."""
    result: list[OffsetRange] = []
    for first, end in left:
        at = bisect_right(right, first, key=_NEXT)
        while at < len(right) and right[at][0] < end:
            if first < right[at][0]:
                result.append((first, right[at][0]))
            first = right[at][1]
            at += 1
        if first < end:
            result.append((first, end))
    return result


def size(ranges: Iterable[OffsetRange]) -> int:
    """Return how many offsets a set has."""
    return sum(end - first for first, end in ranges)


def contains(ranges: Sequence[OffsetRange], offset: int) -> bool:
    """Return whether a set has an offset."""
    at = bisect_right(ranges, offset, key=_FIRST) - 1
    return at >= 0 and offset < ranges[at][1]


class CountedRanges:
    """A set of offsets that counts quickly how many a range has."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        self.ranges = ranges
        self._before = [0]
        for first, end in ranges:
            self._before.append(self._before[-1] + end - first)

    def below(self, offset: int) -> int:
        """Return how many offsets of the set are smaller."""
        at = bisect_left(self.ranges, offset, key=_FIRST)
        if at == 0:
            return 0
        first, end = self.ranges[at - 1]
        return self._before[at - 1] + min(end, offset) - first

    def within(self, first: int, end: int) -> int:
        """Return how many lie in [first, end)."""
        return self.below(end) - self.below(first) if first < end else 0


class Growing:
    """A set of offsets that grows, mostly at its end."""

    def __init__(self) -> None:
        self.ranges: list[OffsetRange] = []

    def overlaps(self, first: int, end: int) -> list[OffsetRange]:
        """Return the parts of [first, end) that it has."""
        return intersection([(first, end)], self.ranges) if first < end else []

    def add(self, first: int, end: int) -> list[OffsetRange]:
        """Put [first, end) in; return the parts that it had."""
        if first >= end:
            return []
        if not self.ranges or first > self.ranges[-1][1]:
            self.ranges.append((first, end))
            return []
        there = self.overlaps(first, end)
        low = bisect_left(self.ranges, first, key=_NEXT)  # the first that reaches to it
        high = bisect_right(self.ranges, end, key=_FIRST)
        touched = self.ranges[low:high]
        if touched:
            first, end = min(first, touched[0][0]), max(end, touched[-1][1])
        self.ranges[low:high] = [(first, end)]
        return there

    def include(self, ranges: Iterable[OffsetRange]) -> None:
        for first, end in ranges:
            self.add(first, end)

    def cut(self, first: int, end: int) -> None:
        """Take [first, end) out."""
        if self.overlaps(first, end):
            self.ranges = difference(self.ranges, [(first, end)])

    @property
    def end(self) -> int:
        """One past its highest offset; 0 if it is empty."""
        return self.ranges[-1][1] if self.ranges else 0
