"""Processors that are asked where a claim begins, under every kind of fault: nothing is lost by the asking."""

from __future__ import annotations

import random
from functools import partial

import pytest

from inbound import Batch, BatchEventProcessor, BatchResponse, TopicPartition
from inbound.testing.simulation import make_plan, story
from tests.simulation.proved import play
from tests.simulation.seeds import blocks, of_the_day

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("silent")]


class Asked(BatchEventProcessor):
    """Begins at the commit, and says so or does not."""

    asked = 0

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def on_claim(self, partition: TopicPartition, committed: int | None) -> int | None:
        Asked.asked += 1
        return self._rng.choice((None, committed))

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        return BatchResponse.advance()


class AskedLater(Asked):
    """The same, with coroutines."""

    async def on_next_batch(self, batch: Batch) -> BatchResponse:  # type: ignore[override]
        return BatchResponse.advance()


@blocks(range(10), of_the_day(10))
def test_nothing_is_violated_where_claims_are_asked_about(seeds: range) -> None:
    """A claim then takes a turn more: it can be released, lost, paused or in doubt in between."""
    delivered = 0
    for seed in seeds:
        before = Asked.asked
        outcome = play(make_plan(seed), processor=partial((Asked, AskedLater)[seed % 2], seed))
        assert not outcome.failed, story(outcome)
        assert Asked.asked > before
        delivered += outcome.handed_out  # of a single seed it may be none
    assert delivered > 0
