"""The simulator finds what it is there for: each rule of the protocol taken away shows within 2,000 seeds."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.search import SEEDS, Found, cores, find_all

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def searched() -> dict[str, Found]:
    """The search for all mutants, on all cores."""
    return {found.mutant: found for found in find_all(range(SEEDS), cores())}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_taken_away_is_found(name: str, searched: dict[str, Found]) -> None:
    """Each mutant is one rule of the design, or one defect of an ancestor."""
    found = searched[name]
    assert found.seed is not None, (
        f"{MUTANTS[name].rule}: {MUTANTS[name].breaks}; it made a difference {found.bites} times"
    )
