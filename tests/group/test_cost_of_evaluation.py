"""What an evaluation asks of ZooKeeper, and when it is put off: the savings must cost nobody a partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from inbound.coordinators.zookeeper import Create, Delete, SetData
from inbound.group.membership import PATIENCE
from inbound.testing.world import Consumer, World


@pytest.fixture
def world() -> World:
    """A world with one topic of twelve partitions, and consumers a and b that own six each."""
    world = World()
    world.kafka.create_topic("orders", 12)
    world.join("a")
    world.join("b")
    world.run(6)
    return world


def reads(consumer: Consumer, during: Callable[[], None]) -> int:
    """Return how many nodes below owners and epochs a consumer reads one by one."""
    get, count = consumer.zk.get, 0

    def counting(path: str, *arguments: Any) -> Any:
        nonlocal count
        count += "/owners/orders/" in path or "/epochs/orders/" in path
        return get(path, *arguments)

    consumer.zk.get = counting  # type: ignore[method-assign, assignment]
    during()
    consumer.zk.get = get  # type: ignore[method-assign]
    return count


def test_an_evaluation_reads_no_node_of_a_partition_that_is_known_to_be_held(world: World) -> None:
    """However many are held: a watch, or the list, tells what can have changed."""
    a = world.consumers["a"]

    def look() -> None:
        a.channel.parts.evaluate()
        world.run(1)

    look()
    assert reads(a, look) == 0


def test_a_partition_whose_epoch_was_moved_on_is_given_up_at_once(world: World) -> None:
    """Its owner node still stands, so no list tells; the watch on the epoch does."""
    a = world.consumers["a"]
    world.run(1)
    partition = min(world.owned()["a"])
    before = {p.tp.partition: p for p in a.channel.parts.schedule.held()}[partition]
    world.ensemble.tree.transaction([SetData(world.paths.epoch("orders", partition), b"")], 0)
    world.run(0.5)
    after = {p.tp.partition: p for p in a.channel.parts.schedule.held()}.get(partition)
    assert after is not before


def test_who_has_its_share_gets_back_a_deleted_owner_node_within_its_patience(world: World) -> None:
    """It looks later than one who lacks something, but it looks; the node is a case for recovery, under the same epoch."""
    before, epochs = world.owned(), dict(world.nodes(world.paths.epochs("orders")))
    path = world.paths.owner("orders", min(before["a"]))
    world.ensemble.tree.transaction([Delete(path)], 0)
    world.run(PATIENCE - 0.1)
    missing = path in world.ensemble.tree.nodes
    world.run(0.4)
    assert (missing, world.owned(), dict(world.nodes(world.paths.epochs("orders")))) == (False, before, epochs)


@pytest.mark.parametrize("reconnected", [False, True], ids=["one connection", "after a reconnect"])
def test_one_watch_stands_for_each_node_and_list_however_often_a_member_looks(world: World, reconnected: bool) -> None:
    """The client keeps each until it fires, and fires all of them when the connection breaks: amid a fail-over."""
    a = world.consumers["a"]
    world.ensemble.tree.transaction([Create(world.paths.member("stranger"), b"another tool's")], 0)
    for _ in range(20):
        a.channel.parts.evaluate()
        world.run(0.3)
        if reconnected and _ == 9:
            world.ensemble.disconnect("a")
    assert a.zk.wire is not None
    assert set(a.zk.wire.watches.values()) == {1}, a.zk.wire.watches
