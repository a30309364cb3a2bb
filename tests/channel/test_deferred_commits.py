"""`BatchResponse.next(commit_within=...)`: when what was read on without a commit is committed after all."""

from __future__ import annotations

import pytest

from inbound import Batch, BatchResponse, Context, TopicPartition
from inbound.testing.world import Recording, World
from tests.channel.one_partition import answers, offsets, publish, start, world

__all__ = ["world"]  # the fixture


def later(batch: Batch) -> BatchResponse:
    """Ask for a commit within 30 s."""
    return BatchResponse.next(commit_within=30.0)


def commits(world: World) -> int:
    """Return how many commits have landed, the first position of the group included."""
    return world.consumers["a"].channel.parts.commits_landed


def test_it_is_committed_in_time_although_nothing_more_comes(world: World) -> None:
    """The partition is idle; nothing is delivered for it, and idle_time does not matter."""
    publish(world, 3)
    processor = start(world, later, idle_time=3600.0)
    assert world.commits() == {0: 0}
    world.run(31)
    assert (world.commits(), offsets(processor)) == ({0: 3}, [0, 1, 2])


def test_the_time_counts_from_the_first_answer_so_a_busy_partition_is_committed_once_in_it(world: World) -> None:
    """A record every second for 100 s: three commits, and never more than 30 s uncommitted."""
    start(world, later)
    before = commits(world)
    for _ in range(100):
        publish(world, 1)
        world.run(1)
        assert (world.commits()[0] or 0) >= len(world.kafka.offsets("orders", 0)) - 32
    assert commits(world) - before == 3


def test_a_release_commits_it(world: World) -> None:
    """Nothing is repeated by a graceful stop, although on_stream_termination says nothing."""
    publish(world, 3)
    start(world, later)
    world.leave("a")
    assert (world.commits(), world.owned()) == ({0: 3}, {})


def test_a_record_that_is_finished_early_does_not_make_it_forgotten(world: World) -> None:
    """A processor has records committed by `Context.advance` that it has asked to be committed later, with others."""

    class Finishing(Recording):
        def open(self, context: Context) -> None:
            self.context = context

        def on_next_batch(self, batch: Batch) -> BatchResponse:
            self.batch = batch
            return later(batch)

    publish(world, 3)
    processor = Finishing()
    world.join("a", processor)
    world.run(4)
    processor.context.advance(processor.batch, 2)
    world.leave("a")
    assert world.commits() == {0: 3}


def test_the_answer_of_on_stream_termination_goes_before_it(world: World) -> None:
    """A processor that knows better commits less."""
    publish(world, 3)

    class Knowing(Recording):
        def on_stream_termination(self, partition: TopicPartition, next_offset: int) -> BatchResponse | None:
            return BatchResponse.advance(2)

    world.join("a", Knowing(later))
    world.run(4)
    world.leave("a")
    assert world.commits() == {0: 2}


def test_a_crash_repeats_what_was_deferred(world: World) -> None:
    """That is its price."""
    publish(world, 3)
    start(world, later)
    world.kill("a")
    successor = Recording()
    world.join("b", successor)
    world.run(20)
    assert offsets(successor) == [0, 1, 2]


def test_a_pause_does_not_put_it_off(world: World) -> None:
    """A channel may be paused for days."""
    publish(world, 3)
    start(world, later)
    world.consumers["a"].channel.parts.schedule.set_paused(True)
    world.run(31)
    assert world.commits() == {0: 3}


SOON = BatchResponse.next(commit_within=5.0)


@pytest.mark.parametrize(
    ("responses", "commits"),
    [
        # What follows says nothing: the answer before said what may be committed.
        ([SOON, BatchResponse.next()], {60: 2}),
        # A rest is for the next read.
        ([BatchResponse.next(commit_within=5.0, wait=3600.0)], {6: 2}),
        # Going back takes back what will be read again: a crash before that would lose it.
        ([SOON, BatchResponse.next(1, wait=60.0)], {30: 1, 90: 4}),
        ([SOON, BatchResponse.revert(wait=60.0)], {30: 0}),
        # The failed batch is tried again and again.
        ([SOON, *[RuntimeError("no")] * 20], {30: 2}),
    ],
    ids=["no-commit", "rest", "back", "revert", "failure"],
)
def test_what_comes_after_it_does_not_put_it_off(
    world: World, responses: list[object], commits: dict[int, int]
) -> None:
    """Four records in batches of two; what is committed after so many seconds."""
    publish(world, 4)
    start(world, answers(*responses), reader={"max_batch_records": 2}, on_error={"max_attempts": 0})
    seen, passed = {}, 0
    for seconds in commits:
        world.run(seconds - passed)
        seen[seconds], passed = world.commits()[0], seconds
    assert seen == commits


def test_a_commit_that_is_asked_for_includes_it(world: World) -> None:
    """And nothing is committed a second time when the time has come."""
    publish(world, 4)
    start(world, answers(BatchResponse.next(commit_within=5.0)), reader={"max_batch_records": 2})
    landed = commits(world)
    world.run(60)
    assert (world.commits(), commits(world) - landed) == ({0: 4}, 0)


def test_without_a_connection_it_waits_and_then_lands(world: World) -> None:
    """As every commit."""
    publish(world, 3)
    start(world, answers(BatchResponse.next(commit_within=5.0)))
    world.ensemble.cut_off("a")
    world.run(8)
    world.ensemble.heal("a")
    world.run(5)
    assert world.commits() == {0: 3}


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan"), "5s"])
def test_times_that_are_none_are_refused(seconds: object) -> None:
    """At once, with the value."""
    with pytest.raises(ValueError, match=r"BatchResponse\.next: commit_within must be seconds of at least 0, got"):
        BatchResponse.next(commit_within=seconds)  # type: ignore[arg-type]
