"""`mode: periodic`: every batch is sent at once, and committed once in a period."""

from __future__ import annotations

from typing import Any

import pytest

from inbound.processors.batch import BatchResponse
from inbound.testing.world import World
from tests.channel.one_partition import publish, world
from tests.processors.simple_stage import Journal, join

__all__ = ["world"]  # the fixture


def periodic(world: World, name: str = "a", **settings: Any) -> Journal:
    """Start a consumer that commits every 30 s."""
    return join(world, {"mode": "periodic", "period": 30.0}, name, **settings)


def test_everything_is_sent_at_once_and_committed_when_the_period_is_over(world: World) -> None:
    """Also when nothing more comes: the partition is idle, and its idle_time is far longer."""
    journal = periodic(world, idle_time=3600.0)
    publish(world, 3)
    world.run(2)
    assert (journal.offsets, world.commits()) == ([0, 1, 2], {0: 0})
    world.run(30)
    assert (journal.offsets, world.commits()) == ([0, 1, 2], {0: 3})


def test_a_sink_that_fails_does_not_repeat_what_was_sent_before(world: World) -> None:
    """The batch that it fails at comes again, and not the period."""
    journal = periodic(world)
    publish(world, 2)
    world.run(2)
    down_until = world.clock.now() + 10
    journal.fails = lambda offset: world.clock.now() < down_until
    publish(world, 2)
    world.run(60)
    assert (journal.offsets, world.commits()) == ([0, 1, 2, 3], {0: 4})


def test_what_a_sink_withholds_is_not_committed_by_the_period(world: World) -> None:
    """It said `next`: it has not got it safe yet."""
    journal = periodic(world)
    publish(world, 2)
    world.run(2)
    journal.answer = BatchResponse.next()
    publish(world, 2)
    world.run(90)
    assert world.commits() == {0: 2}
    journal.answer = None
    publish(world, 1)
    world.run(40)
    assert world.commits() == {0: 5}


@pytest.mark.parametrize(("answer", "committed_after"), [(5.0, 6), (3600.0, 31)])
def test_a_sink_may_want_its_commit_earlier_but_not_later(world: World, answer: float, committed_after: float) -> None:
    """The shorter time counts."""
    journal = periodic(world)
    journal.answer = BatchResponse.next(commit_within=answer)
    publish(world, 2)
    world.run(committed_after - 3)
    assert world.commits() == {0: 0}
    world.run(4)
    assert world.commits() == {0: 2}


def test_an_answer_past_the_batch_is_refused_as_ever(world: World) -> None:
    """`next` would go there without a word."""
    journal = periodic(world)
    journal.answer = BatchResponse.advance(40)
    publish(world, 2)
    world.run(2)
    (partition,) = world.consumers["a"].channel.parts.schedule.held()
    assert "advance(40) is past the batch" in (partition.failure.last_error or "")


def test_a_sink_may_skip_records(world: World) -> None:
    """Committed with the period."""
    journal = periodic(world, reader={"max_batch_records": 2})
    journal.answer = BatchResponse.advance(6, skip=True)
    world.kafka.publish("orders", 0, [b"x"] * 6)
    world.run(40)
    assert (journal.offsets, world.commits()) == ([0, 1], {0: 6})
