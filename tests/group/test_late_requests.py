"""Requests of lost connections that execute after later ones of the same session, as a real ensemble lets them.

`integration/controller/test_ensemble.py` shows on three real servers that they do; `docs/decisions/0014-late-requests.md` says what
follows from it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import Call, Op, SetData, Stat
from inbound.testing.world import Consumer, World
from inbound.testing.zookeeper import Arrival, FakeEnsemble
from inbound.topic_partition import TopicPartition

TP = TopicPartition("orders", 0)


@pytest.fixture
def world() -> World:
    """A world with one consumer of one partition, at rest."""
    world = World()
    world.kafka.create_topic("orders", 1)
    world.join("a")
    world.run(4)
    return world


def process(world: World, count: int) -> None:
    """Publish, and let everything be processed; nothing is delivered, so the commit stays on its way."""
    world.kafka.publish("orders", 0, [b"x"] * count)
    a = world.consumers["a"]
    for _ in range(20):
        a.channel.reader.run_once()
        for worker in a.channel.workers:
            worker.run_once()
        a.channel.parts.committer.run_once()


def late(world: World) -> None:
    """Let the late requests of `a` execute now."""
    assert Arrival("a", "late") in world.ensemble.pending
    while Arrival("a", "late") in world.ensemble.pending:
        world.ensemble.step(Arrival("a", "late"))


def held(consumer: Consumer) -> list[tuple[int, int]]:
    """Return (partition, epoch) of what it holds."""
    return [(p.tp.partition, p.fence.epoch) for p in consumer.channel.parts.schedule.held()]


def test_a_commit_that_executes_late_does_not_set_the_offset_back(world: World) -> None:
    """The commit that was sent in its place has moved the epoch on."""
    process(world, 3)
    world.ensemble.disconnect("a", late=True)
    world.run(1)
    world.kafka.publish("orders", 0, [b"x"] * 4)
    world.run(1)
    late(world)
    assert (world.commits(), held(world.consumers["a"])) == ({0: 7}, [(0, 2)])


def test_a_commit_that_had_landed_is_written_once_more_and_nothing_is_repeated(world: World) -> None:
    """Only its answer was lost; the second attempt moves the epoch all the same, for nobody can tell."""
    process(world, 3)
    world.ensemble.disconnect("a", executed=1)
    world.kafka.publish("orders", 0, [b"x"] * 4)
    world.run(2)
    processor = world.consumers["a"].processor
    assert [offset for _, offset in processor.seen] == list(range(7))  # type: ignore[attr-defined]
    assert (world.commits(), held(world.consumers["a"])) == ({0: 7}, [(0, 2)])


def test_a_session_that_ends_right_after_the_epoch_was_moved_on_costs_nothing(world: World) -> None:
    """The answer never comes. What is got back is the epoch as it is now: of the old one nothing could be got back."""
    zk = world.consumers["a"].zk
    send, epoch = zk.transaction, GroupPaths("group").epoch(*TP)

    def transaction(ops: Sequence[Op]) -> Call[list[Stat | None]]:
        call = send(ops)
        if any(isinstance(op, SetData) and op.path == epoch for op in ops):
            zk.transaction = send  # type: ignore[method-assign]
            world.ensemble.disconnect("a", executed=100)
            world.ensemble.expire_session("a")
        return call

    process(world, 3)
    world.ensemble.disconnect("a", late=True)
    zk.transaction = transaction  # type: ignore[method-assign]
    world.run(1)
    world.kafka.publish("orders", 0, [b"x"] * 4)
    world.run(4)

    processor = world.consumers["a"].processor
    assert [offset for _, offset in processor.seen] == list(range(7))  # type: ignore[attr-defined]
    assert (world.commits(), world.owned()) == ({0: 7}, {"a": {0}})


def test_answers_lost_again_and_again_move_the_epoch_each_time_and_end_well(world: World) -> None:
    """Each attempt reads the epoch that the one before may have left."""
    process(world, 3)
    for _ in range(3):
        world.ensemble.lose_answers("a", 1, after=8)  # of the reads that come before it, too
        world.ensemble.disconnect("a", executed=1)
        world.run(1)
    world.run(2)
    epoch = world.ensemble.tree.nodes[world.paths.epoch(*TP)].version
    assert (world.commits(), held(world.consumers["a"])) == ({0: 3}, [(0, epoch)])


def test_a_recovery_that_executes_late_leaves_no_owner_node_behind() -> None:
    """It is released to a joiner; then the first attempt to get it back executes. The joiner must be able to take it."""
    world = World()
    world.kafka.create_topic("orders", 2)
    a = world.join("a")
    world.run(4)
    owner = world.paths.owner("orders", 1)
    lose_first_write(world.ensemble, a, owner)
    world.ensemble.expire_session("a")
    world.run(5)
    assert world.owned() == {"a": {0, 1}}
    world.join("b")
    world.run_until(lambda: owner not in world.ensemble.tree.nodes, within=5)
    late(world)
    world.run(2)
    assert world.owned() == {"a": {0}, "b": {1}}


def lose_first_write(ensemble: FakeEnsemble, consumer: Consumer, path: str) -> None:
    """Let the first transaction that touches `path` get stuck on the way, and its connection break."""
    original = consumer.zk.transaction
    stuck: list[str] = []

    def transaction(ops: Sequence[Op]) -> Call[list[Stat | None]]:
        call = original(ops)
        if not stuck and any(op.path == path for op in ops):
            stuck.append(path)
            ensemble.disconnect(consumer.name, late=True)
        return call

    consumer.zk.transaction = transaction  # type: ignore[method-assign]
