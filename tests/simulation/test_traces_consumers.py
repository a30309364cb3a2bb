"""Traces that take a whole consumer, or two: T1, T8, T9, T11, T12, T14, T17."""

from __future__ import annotations

import pytest

from inbound.testing.world import World
from inbound.testing.zookeeper import Arrival
from inbound.topic_partition import TopicPartition
from tests.coordinators.ownership_stage import Consumer
from tests.simulation.planting import is_claim, is_commit, is_recovery
from tests.simulation.stage import (
    commits_of,
    in_next_batch,
    lose_answer,
    process,
    reset,
    seen,
    with_and_without,
    world_of,
)

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@with_and_without("ours-but-not-held-left-alone")
def test_a_claim_that_landed_without_our_knowing_is_made_good(kept: bool) -> None:
    """T1 (R4, R9). The answer is lost, and the connection with it; the node stays, so no other member can claim."""
    world = World()
    world.kafka.create_topic("orders", 1)
    world.kafka.publish(*P0, [b"x"])
    world.join("a")
    lose_answer(world, "a", is_claim)
    world.run(5)
    assert (world.owned(), seen(world, "a")) == ({"a": {0}}, [0] if kept else [])


@with_and_without("results-without-epoch")
def test_a_call_from_before_a_loss_does_not_commit_under_the_new_claim(kept: bool) -> None:
    """T8 (R2, R3). While a's call runs its session expires, b claims, commits and leaves, and a would claim again."""
    world = world_of("a", reader={"max_batch_records": 1}, workers=2)
    b = Consumer(world.ensemble, "b")

    def beside_it() -> None:
        world.ensemble.cut_off("a")
        world.ensemble.expire_session("a")
        claim = b.claim()
        assert b.commit(claim.fence, 3)
        b.do(b.ownership.release(P0, claim.fence, None))
        world.ensemble.heal("a")
        world.run(4)

    in_next_batch(world, "a", beside_it)
    world.kafka.publish(*P0, [b"x"] * 3)
    history = commits_of(world, P0)
    world.run(5)
    assert history == ([3] if kept else [3, 1])


@with_and_without("no-deadline", "contact-at-receipt")
def test_a_process_that_was_stopped_delivers_nothing_as_a_zombie(kept: bool) -> None:
    """T9 (R5). On waking it reads an answer that had been on its way, and then its worker is the first to run."""
    world = world_of("a")
    a = world.consumers["a"]
    world.kafka.publish(*P0, [b"x"])
    a.channel.reader.run_once()
    a.zk.get("/")
    world.ensemble.step(Arrival("a", "execute"))
    world.pause("a")
    world.clock.advance(5)
    world.ensemble.tick()
    world.resume("a")
    world.ensemble.step(Arrival("a", "answer"))
    a.channel.workers[0].run_once()
    assert (world.owned()["a"], seen(world, "a")) == (set(), [] if kept else [0])


@with_and_without("older-value-sent-again")
@pytest.mark.parametrize("why", ["its answer was lost", "its neighbour was refused"])
def test_an_older_position_is_not_sent_after_a_newer_one(why: str, kept: bool) -> None:
    """T11 (R3). The partition could go on, and commit what comes next."""
    world = world_of("a", partitions=2, reader={"max_batch_records": 1})
    history = commits_of(world, P0)
    process(world, "a", {P0: 3, P1: 3})
    if why == "its answer was lost":
        lose_answer(world, "a", is_commit)
    else:
        reset(world, P1, 0)
    world.run(3)
    assert (history == sorted(history), world.commits()[0]) == (kept, 3 if kept else 1)


@with_and_without("release-beside-the-last-commit")
def test_a_release_waits_for_the_last_commit(kept: bool) -> None:
    """T12 (R4). The commit is refused because of its neighbour; a release that is behind it would land all the same."""
    world = world_of("a", partitions=2)
    a, b = world.consumers["a"], Consumer(world.ensemble, "b")
    process(world, "a", {P0: 5, P1: 5})
    reset(world, P1, 0)
    a.channel.parts.committer.run_once()
    partition = a.channel.parts.schedule.get(P0)
    assert partition is not None
    a.channel.membership.claims.release(partition)
    a.controller.run_once()
    for _ in range(3):  # it ends its stream, sees that nothing is on its way any more, and is given up
        a.channel.workers[0].run_once()
    a.controller.run_once()
    while "execute" in a.zk.kinds():
        world.ensemble.step(Arrival("a", "execute"))
    claim = b.do(b.ownership.claim(P0))
    if claim is None:  # not released yet
        a.controller.close()
        world.run(1)
        claim = b.claim()
    assert claim.offset == (5 if kept else 0)


@with_and_without("first-position-not-committed")
def test_under_latest_nothing_that_came_after_the_first_claim_is_skipped(kept: bool) -> None:
    """T14 (R2). The claimant dies before its first commit, records arrive, and the next one looks for the end."""
    world = world_of("a", auto_offset_reset="latest")
    world.kill("a")
    world.kafka.publish(*P0, [b"x"] * 3)
    world.join("b", auto_offset_reset="latest")
    world.run(6)
    assert seen(world, "b") == ([0, 1, 2] if kept else [])


@with_and_without("no-evaluation-after-reconnect")
def test_what_lost_its_session_is_recovered_as_soon_as_it_is_back(kept: bool) -> None:
    """T17 (R9). Only its consumer knows that it holds anything."""
    world = world_of("a")
    world.run(5)  # until nothing is due but the timer
    world.ensemble.cut_off("a")
    world.ensemble.expire_session("a")
    world.ensemble.heal("a")
    world.kafka.publish(*P0, [b"x"])
    world.run(1)
    assert seen(world, "a") == ([0] if kept else [])


@with_and_without("refused-recovery-is-lost")
def test_a_recovery_that_landed_without_our_knowing_repeats_nothing(kept: bool) -> None:
    """T17 (R6). Sent again it is refused, because the node is our own. A batch waits for its commit."""
    world = world_of("a")

    def expire() -> None:
        world.ensemble.expire_session("a")
        lose_answer(world, "a", is_recovery)

    in_next_batch(world, "a", expire)
    world.kafka.publish(*P0, [b"x"])
    world.run(5)
    assert (seen(world, "a"), world.commits()) == ([0] if kept else [0, 0], {0: 1})
