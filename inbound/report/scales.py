"""From values to places on a chart, and round values to write beside its axes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

_STEPS_OF_TIME = (
    *(1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10800, 21600, 43200),
    *(86400, 2 * 86400, 7 * 86400, 14 * 86400, 30 * 86400, 91 * 86400, 365 * 86400),
)


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `low` to `high` on places from `begin` to `end` (which may run backwards)."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        """Return the place of a value; values outside stand at the edge."""
        if self.high <= self.low:
            return (self.begin + self.end) / 2
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.begin + share * (self.end - self.begin), 1)


def round_ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Return round values within [low, high], about so many."""
    if not high - low > 1e-9 * max(abs(low), abs(high), 1e-9):
        return [low]
    step = _round_step((high - low) / max(1, about))
    first = math.ceil(low / step)
    return [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]


def time_ticks(low: float, high: float, about: int = 6) -> list[tuple[float, str]]:
    """Return round times (UTC) within [low, high], seconds since 1970, and how to write each."""
    span = high - low
    if not span > 0:
        return [(low, time_text(low, 1))]
    if span < 5:
        return [(low, time_text(low, 1)), (high, time_text(high, 1))]
    step = next((step for step in _STEPS_OF_TIME if step >= span / max(1, about)), _STEPS_OF_TIME[-1])
    first = math.ceil(low / step)
    return [(step * i, time_text(step * i, step)) for i in range(first, math.floor(high / step) + 1)]


def time_text(wall: float, step: float) -> str:
    """Return a time as it is written beside an axis whose ticks are `step` seconds apart."""
    try:
        moment = datetime.fromtimestamp(wall, UTC)
    except (OverflowError, OSError, ValueError):
        return "-"
    if step >= 86400:
        return f"{moment:%d %b}" if step < 91 * 86400 else f"{moment:%b %Y}"
    if step >= 3600 and moment.hour == 0:
        return f"{moment:%d %b}"
    return f"{moment:%H:%M}" if step >= 60 else f"{moment:%H:%M:%S}"


def short(value: float) -> str:
    """Return a number in few characters: `0.25`, `12`, `1.5k`, `80M`."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"


def _round_step(least: float) -> float:
    size = 10.0 ** math.floor(math.log10(least))
    return next(size * factor for factor in (1, 2, 5, 10) if size * factor >= least * 0.999999)
