"""Seeds of the simulator: what the ledgers prove is what the processors saw."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.proof_of_world import play
from tests.simulation.search import cores, quiet
from tests.simulation.seeds import BLOCK, PROOF_DATED, PROOF_FIXED, blocks, of_the_day

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def disagreements(seeds: range) -> dict[int, list[str]]:
    """Return what is wrong, by seed: `tests.proof_of_world.play(SEED)` plays one again."""
    with quiet():
        return {seed: found for seed in seeds if (found := play(seed).disagreements())}


@blocks(PROOF_FIXED, of_the_day(PROOF_DATED))
def test_no_seed_proves_anything_else_than_what_was_seen(seeds: range) -> None:
    """No false alarm, and each repeat is named. Some seeds are the same in every run, others change with the date."""
    assert disagreements(seeds) == {}


@pytest.mark.thorough("a minute on all cores; `make test` plays 50 of these seeds, and 50 others each day")
def test_none_of_a_thousand_seeds_does() -> None:
    """From 2000 on."""
    chunks = [range(first, first + BLOCK) for first in range(2000, 3000, BLOCK)]
    with ProcessPoolExecutor(cores(), multiprocessing.get_context("spawn")) as pool:
        assert [found for found in pool.map(disagreements, chunks) if found] == []
