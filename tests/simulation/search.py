"""Looks for planted mutants with the simulator, on all cores. Also run by `make simulate`."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

from inbound.testing.simulation import first_failure
from tests.simulation.mutants import MUTANTS

#: A mutant that the first so many seeds do not find is a hole in the simulator.
SEEDS = 2000


class Found(NamedTuple):
    """What the search for one mutant came to."""

    mutant: str
    seed: int | None
    violation: str
    bites: int  # how often the mutant did something else than the product


def cores() -> int:
    """Return how many processes are worth starting."""
    return len(os.sched_getaffinity(0))


def find(seeds: range, name: str) -> Found:
    """Play seeds with one mutant planted until one fails."""
    logging.disable(logging.CRITICAL)
    try:
        with MUTANTS[name].plant() as planted:
            outcome = first_failure(seeds)
            bites = planted.bites
    finally:
        logging.disable(logging.NOTSET)
    if outcome is None:
        return Found(name, None, "", bites)
    return Found(name, outcome.plan.seed, outcome.violations[0], bites)


def find_all(seeds: range, processes: int) -> Iterator[Found]:
    """Look for every mutant; yields them in their order as they are found or not."""
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(partial(find, seeds), MUTANTS)
