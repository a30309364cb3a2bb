"""No input of a stranger takes more than twice as long when it is twice as long; `make fuzz` looks for more of them, and longer."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.heartbeat import kept_out
from tests.repository.growth import GROWING, Growing, cost, take
from tests.repository.growth_search import FLOOR, KEPT_OUT, PARSERS, RATIO, Parser, motif_of, slower

SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))


@pytest.mark.parametrize("one", GROWING, ids=lambda one: one.name)
def test_an_attack_that_froze_a_process_costs_no_more_than_its_size(one: Growing) -> None:
    """Each did once, or is of the kind."""
    size = min(one.shown, one.most)
    half, whole = cost(one, size // 2), cost(one, size)

    assert whole < RATIO * max(half, FLOOR / RATIO)


@pytest.mark.slow
@pytest.mark.parametrize("one", GROWING, ids=lambda one: one.name)
def test_the_largest_that_can_come_keeps_no_thread_out(one: Growing) -> None:
    """ZooKeeper's heartbeats go on: a session is not lost, and the input does not come to the next owner."""
    given = one.grow(one.most)

    assert kept_out(lambda: take(one, given), KEPT_OUT) < KEPT_OUT


@pytest.mark.slow
def test_a_thread_that_is_kept_out_is_seen() -> None:
    """By what is done in C in one piece; by a loop in Python nobody is."""

    def loop() -> None:
        for _ in range(10_000_000):
            pass

    in_c, in_python = kept_out(lambda: sum(range(20_000_000)), 0.1), kept_out(loop, 0.1, 10)
    assert in_python < 0.1 < in_c


@pytest.mark.slow
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
