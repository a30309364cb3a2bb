"""No input of a stranger takes more than twice as long when it is twice as long; `make fuzz` looks for more of them, and longer."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.growth import GROWING, Growing, cost
from tests.growth_search import FLOOR, PARSERS, RATIO, Parser, motif_of, slower

#: The largest that is looked at here, in bytes; each of the attacks took seconds at it.
LARGEST = 64 * 1024
SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))


@pytest.mark.parametrize("one", GROWING, ids=lambda one: one.name)
def test_an_attack_that_froze_a_process_costs_no_more_than_its_size(one: Growing) -> None:
    """Each did once, or is of the kind."""
    size = min(LARGEST, one.most)
    half, whole = cost(one, size // 2), cost(one, size)

    assert whole < RATIO * max(half, FLOOR / RATIO)


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_no_piece_of_its_language_is_worse_when_it_is_repeated(parser: Parser) -> None:
    """A few here; with FUZZ_SECONDS as many as there is time for."""
    rng = random.Random(f"{SEED} {parser.name}")
    end, played = time.monotonic() + SECONDS / len(PARSERS), 0
    found: list[str] = []
    small = Parser(parser.name, parser.pieces, parser.take, parser.most if SECONDS else min(parser.most, 8 * 1024))
    while not found and (played < 3 or time.monotonic() < end):
        problem = slower(small, motif_of(small, rng))
        found += [problem] if problem is not None else []
        played += 1

    assert found == []
