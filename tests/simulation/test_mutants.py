"""The simulator finds what it is there for: each rule of the protocol taken away shows within 2,000 seeds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.search import SEARCHED, SEEDS, SHOWN_BY_TRACES, Found, cores, find_all

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2700)]


@pytest.fixture(scope="module")
def searched() -> dict[str, Found]:
    """The search for all mutants, on all cores."""
    return {found.mutant: found for found in find_all(range(SEEDS), cores())}


@pytest.mark.parametrize("name", SEARCHED)
def test_a_rule_taken_away_is_found(name: str, searched: dict[str, Found]) -> None:
    """Each mutant is one rule of the design, or one defect of an ancestor."""
    found = searched[name]
    assert found.seed is not None, (
        f"{MUTANTS[name].rule}: {MUTANTS[name].breaks}; it made a difference {found.bites} times"
    )


@pytest.mark.parametrize("name", SHOWN_BY_TRACES)
def test_what_the_simulator_hardly_comes_by_is_shown_by_a_trace(name: str) -> None:
    """With the rule that test passes, without it the test comes by where it was."""
    traces = [*Path(__file__).parent.glob("test_traces_*.py"), *Path(__file__).parent.glob("test_rules_*.py")]
    assert any(f'"{name}"' in path.read_text() for path in traces)


def test_every_rule_has_a_mutant_that_the_simulator_finds() -> None:
    """Rules 1 to 15 of the protocol, and the defects a to g of Jetstream."""
    rules = " ".join(MUTANTS[name].rule for name in SEARCHED)
    wanted = [*(f"R{n}" for n in range(1, 16)), *(f"Jetstream ({letter})" for letter in "abcdefg")]
    assert [rule for rule in wanted if not re.search(rf"{re.escape(rule)}(?!\d)", rules)] == []
