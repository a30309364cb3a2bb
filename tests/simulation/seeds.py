"""Which seeds a run plays: fixed ones, and others on each day (UTC)."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime

import pytest

#: An environment variable: the day whose seeds are played, as 2026-11-23; else today's.
DAY = "INBOUND_SEEDS_DAY"
FIXED, DATED = range(300), 200
#: Seeds that one test plays.
BLOCK = 25


def day() -> date:
    """Return the day whose seeds are played. Raises UsageError: the environment names no day since 2020-01-01."""
    named = os.environ.get(DAY)
    try:
        found = date.fromisoformat(named) if named else datetime.now(UTC).date()
    except ValueError:
        found = date.min
    if found < date(2020, 1, 1):
        raise pytest.UsageError(f"{DAY}={named} is no day since 2020-01-01; write it as 2026-11-23")
    return found


def of_the_day(count: int) -> range:
    """Return so many seeds that no other day has."""
    first = 1_000_000 + count * (day() - date(2020, 1, 1)).days
    return range(first, first + count)


def blocks(*seeds: range) -> pytest.MarkDecorator:
    """Run a test for each block of `seeds`; tests/cli/two_processes.py knows the ids, and gives blocks to whichever is free."""
    parts = [some[at : at + BLOCK] for some in seeds for at in range(0, len(some), BLOCK)]
    # No seeds in the ids: two workers that collect just before and just after midnight must agree on them.
    return pytest.mark.parametrize("seeds", [pytest.param(part, id=f"block {n}") for n, part in enumerate(parts)])


def played() -> str:
    """Return a line that tells which seeds are played, and how to play them again."""
    dated = of_the_day(DATED)
    return f"simulated seeds: {FIXED[0]}-{FIXED[-1]} and {dated[0]}-{dated[-1]}; {DAY}={day()} plays the same again"
