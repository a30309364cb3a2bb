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
#: What a storm of random faults hardly ever comes by, and why; each is shown by a test of a trace or of its rule.
SHOWN_BY_TRACES = {
    "owner-read-first": "takes a hand-made deletion and another's claim between two reads of one look",
    "own-id-not-looked-at": "takes an id node deleted by hand, and then hardly harms",
    "offset-read-first": "takes an expiry, a recovery, a commit and a release inside one claim of another member",
    "claims-beside-the-old-call": "takes a drop and a new claim during one callback",
    "results-without-epoch": "takes the same, and the callback's end right after",
    "refused-recovery-is-lost": "takes a recovery whose answer is lost while a batch waits for its commit",
    "release-unchecked": "takes a release that executes late, after another's claim",
    "release-beside-the-last-commit": "takes a refused neighbour in the group commit of a release",
    "take-over-uncompared": "takes an expiry and another's claim inside one take-over",
    "reset-moves-unchecked": "takes a move that executes late, after another leader's",
    "abandoned-gate-left-closed": "takes a reset deleted by hand while its group stands still",
    "reset-fences-nothing": "takes a commit between the reading of the old offsets and the move",
    "no-second-look-at-a-claim": "takes a claim that fails for what no watch tells the end of; a gate's opening is told",
    "fights-for-its-id": "takes two processes of one id that both live, and the first one's session lost",
}
SEARCHED = [name for name in MUTANTS if name not in SHOWN_BY_TRACES]


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
            outcome = first_failure(seeds, kind=MUTANTS[name].kind)
            bites = planted.bites
    finally:
        logging.disable(logging.NOTSET)
    if outcome is None:
        return Found(name, None, "", bites)
    return Found(name, outcome.plan.seed, outcome.violations[0], bites)


def find_all(seeds: range, processes: int) -> Iterator[Found]:
    """Look for the mutants that can be found so; yields them in their order as they are found or not."""
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(partial(find, seeds), SEARCHED)
