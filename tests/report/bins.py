"""The bins of delays, one delay at a time."""

from __future__ import annotations

import math

from inbound.report.figures import BINS_PER_E


def bin_of(milliseconds: float) -> int:
    """Return the bin of a delay; one below zero (the clocks differ) counts as none."""
    return int(math.log1p(max(0.0, milliseconds)) * BINS_PER_E)
