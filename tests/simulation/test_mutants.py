"""The simulator finds each mutant: each rule of the protocol taken away is a violation that it sees."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from inbound.testing.simulation.campaign import kind_of
from tests.simulation.mutants import MUTANTS
from tests.simulation.search import RECORDS, SEARCHED, SHOWN_BY_TRACES, Player, find_all, played, recorded

pytestmark = pytest.mark.timeout(1800)

KILLS = recorded()


@pytest.mark.slow
@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("name", SEARCHED)
def test_a_rule_taken_away_is_found(name: str) -> None:
    """Each mutant is one rule of the design, or one defect of an ancestor. Its plan is the one that killed it before."""
    again = f"`make mutants MUTANT={name}` searches for a plan that does, and records it in {RECORDS.name}"
    if name not in KILLS:
        pytest.fail(f"no plan is recorded that kills {name}; {again}")
    kill, player = KILLS[name], Player(name)
    outcome, with_the_rule = player.play(kill.plan), played(kill.plan)

    if with_the_rule.failed:
        pytest.fail(f"the product fails without {name}, too: {with_the_rule.why}")
    if not outcome.failed:
        pytest.fail(
            f"the recorded plan does not kill {name} any more, which made a difference {player.bites} times "
            f"({MUTANTS[name].rule}: {MUTANTS[name].breaks}); {again}"
        )
    assert player.bites, f"{name} made no difference; {again}"
    assert kind_of(outcome.why) == kill.violation, f"the recorded plan kills {name} in another way; {again}"


def test_every_record_has_a_mutant() -> None:
    """And the seed that killed it is of the kind that the mutant names."""
    kinds = {name: MUTANTS[name].kind for name in SEARCHED}
    stale = [name for name, kill in KILLS.items() if kinds.get(name) != kill.kind]
    assert stale == [], f"{RECORDS.name} names no such mutants; `make mutants` writes it again"


@pytest.mark.slow
@pytest.mark.thorough("minutes on all cores; `make test` replays the plan that killed each mutant before")
def test_every_mutant_is_found_from_the_first_seed_on() -> None:
    """The simulator still comes by each of them, not only by the plans that are recorded; some plans are written by hand."""
    drawn = [name for name, kill in KILLS.items() if kill.seed is not None]
    assert [name for name, kill, _ in find_all(drawn) if kill is None] == []


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
