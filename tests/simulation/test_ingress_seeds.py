"""Seeds of the ingress: events over producers that fail in every way, judged by what was answered and what is in the topics."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.ingress import CLIENTS, FAULTS, play
from tests.simulation.search import quiet
from tests.simulation.seeds import blocks, of_the_day

pytestmark = pytest.mark.slow


@blocks(range(150), of_the_day(50))
def test_no_seed_breaks_a_promise_of_the_ingress(seeds: range) -> None:
    """What is taken is in its topic, what is refused deserves it, and nothing is left of what is over."""
    with quiet():
        broken = {seed: outcome.broken for seed in seeds if (outcome := play(seed)).broken}
    assert broken == {}


def test_seeds_meet_every_fault_and_every_answer_with_either_client() -> None:
    """Else a promise would be kept because nothing happens."""
    with quiet():
        outcomes = [play(seed) for seed in range(60)]
    answers: Counter[tuple[str, int]] = Counter()
    for outcome in outcomes:
        answers.update({(outcome.client, status): count for status, count in outcome.answers.items()})

    assert {fault for outcome in outcomes for fault in outcome.faults} == set(FAULTS)
    assert {(client, status) for client in CLIENTS for status in (202, 403, 404, 413, 422, 503)} <= answers.keys()
