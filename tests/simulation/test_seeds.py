"""Seeds of the simulator: groups of consumers under every kind of fault, judged at every step; of all kinds of plans."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta

import pytest

from inbound.testing.simulation import campaign, plan_of, shrink, story
from tests.simulation.proved import play
from tests.simulation.search import SEEDS, cores, quiet
from tests.simulation.seeds import DATED, DAY, FIXED, blocks, of_the_day, played

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def fail_if(failures: Mapping[int, str]) -> None:
    """Fail with the first seed's story, cut down."""
    if failures:
        first = min(failures)
        with quiet():
            shortest = shrink(play(plan_of(first)), play, max_runs=150)
        pytest.fail(f"seeds {sorted(failures)} fail; `make simulate SEED={first}` plays:\n{story(shortest)}")


@blocks(FIXED, of_the_day(DATED))
def test_no_seed_violates_anything(seeds: range) -> None:
    """Some are the same in every run, others change with the date."""
    fail_if([report.failures for report in campaign(seeds, play=play)][-1])


@pytest.mark.thorough("minutes on all cores; `make test` plays 300 of these seeds, and 200 others each day")
def test_none_of_thousands_of_seeds_violates_anything() -> None:
    """What `make simulate` plays."""
    fail_if([report.failures for report in campaign(range(SEEDS), processes=cores(), play=play)][-1])


def test_each_day_has_seeds_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A week of days plays each seed once, and the printed line names the day that plays them again."""
    first = date(2026, 2, 25)
    seeds: list[int] = []
    for days in range(7):
        monkeypatch.setenv(DAY, str(first + timedelta(days)))
        seeds += of_the_day(DATED)
    assert (len(set(seeds)), min(seeds) > max(FIXED)) == (7 * DATED, True)
    assert f"{seeds[-DATED]}-{seeds[-1]}" in played()
    assert f"{DAY}=2026-03-03" in played()
