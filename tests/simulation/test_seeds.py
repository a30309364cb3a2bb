"""Thousands of seeds: groups of consumers under every kind of fault, judged at every step. Every tenth has resets of offsets."""

from __future__ import annotations

import pytest

from inbound.testing.simulation import campaign, plan_of, play, shrink, story
from tests.simulation.search import cores

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

BLOCK = 500


@pytest.mark.parametrize("first", range(0, 2000, BLOCK))
def test_no_seed_violates_anything(first: int) -> None:
    """A seed that does is told as a short story; `make simulate SEED=n` tells it too."""
    failures = [report.failures for report in campaign(range(first, first + BLOCK), processes=cores())][-1]
    if failures:
        shortest = shrink(play(plan_of(min(failures))), play, max_runs=150)
        pytest.fail(f"seeds {sorted(failures)} fail; the first, cut down:\n{story(shortest)}")
