"""Delays before the next attempt, which double with each failure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays from `first` to `longest`, in seconds.

    The caller counts the failures, and keeps the time.
    """

    first: float
    longest: float

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after `failures` in a row."""
        if failures < 1:
            return 0.0
        # The exponent is bounded, as a large count of failures would overflow a float.
        return min(self.longest, self.first * 2.0 ** min(failures - 1, 64))
