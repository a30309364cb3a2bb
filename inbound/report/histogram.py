"""Delays as counts per bin: small, and the sum of two is that of all their delays. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

#: Neighbouring bins differ by so much: the error of a quantile is half of it at most.
GROWTH = 1.01
#: From a delay in milliseconds to its bin: `int(log1p(delay) * BINS_PER_E)`.
BINS_PER_E = 1 / math.log(GROWTH)


def bin_of(milliseconds: float) -> int:
    """Return the bin of a delay; one below zero (the clocks differ) counts as none."""
    return int(math.log1p(max(0.0, milliseconds)) * BINS_PER_E)


def milliseconds_of(bin_: int) -> float:
    """Return the middle of a bin; where it holds one whole millisecond only, that."""
    low, high = math.expm1(bin_ / BINS_PER_E), math.expm1((bin_ + 1) / BINS_PER_E)
    whole = math.ceil(low - 1e-9)
    return float(whole) if whole < high and whole + 1 >= high else (low + high) / 2


def quantile(counts: Mapping[int, int], share: float) -> float | None:
    """Return the delay (ms) that a `share` of all does not exceed; None if there are none."""
    total = sum(counts.values())
    if not total:
        return None
    wanted = max(1, math.ceil(share * total))
    for bin_ in sorted(counts):
        wanted -= counts[bin_]
        if wanted <= 0:
            return milliseconds_of(bin_)
    return None
