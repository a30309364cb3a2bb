"""Hundreds of seeds of the simulator: what the ledgers prove is what the processors saw."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.proof_of_world import play
from tests.simulation.search import cores

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

CHUNK = 25


def disagreements(first: int) -> dict[int, list[str]]:
    """Return what is wrong, by seed."""
    return {seed: found for seed in range(first, first + CHUNK) if (found := play(seed).disagreements())}


@pytest.mark.parametrize("first", range(2000, 3000, 250))
def test_no_seed_proves_anything_else_than_what_was_seen(first: int) -> None:
    """No false alarm, and each repeat is named: `tests.proof_of_world.play(SEED)` plays one again."""
    with ProcessPoolExecutor(cores(), multiprocessing.get_context("spawn")) as pool:
        wrong = [found for found in pool.map(disagreements, range(first, first + 250, CHUNK)) if found]

    assert wrong == []
