"""What the epoch node says of the log: under which leader the records before the commit were written."""

from __future__ import annotations

from inbound.coordinators.nodes import EpochInfo
from inbound.coordinators.zookeeper import SetData
from inbound.proof.model import Verdict
from inbound.testing.world import World
from tests.channel.one_partition import offsets, publish, start, world
from tests.channel.test_cut_logs import TP, cut, epoch_info, held, proof

__all__ = ["world"]  # the fixture


def test_another_leader_is_noted_with_the_first_commit_of_what_it_wrote(world: World) -> None:
    """In the same transaction, under the same claim; a log that keeps its leader costs nothing."""
    publish(world, 3)
    processor = start(world)
    version = world.ensemble.tree.nodes[world.paths.epoch(*TP)].version
    for epoch in (0, 1, 1, 2):
        if world.kafka.leader_epoch("orders", 0) < epoch:
            world.kafka.elect_leader("orders", 0)
        publish(world, 2)
        world.run(1)
        tree = world.ensemble.tree.nodes
        assert epoch_info(world).leader_epoch == epoch
        assert tree[world.paths.epoch(*TP)].version == version + epoch
    owner, offset = (tree[path(*TP)] for path in (world.paths.owner, world.paths.offset))
    assert owner.mzxid < offset.mzxid
    assert (offsets(processor), world.owned()) == ([*range(11)], {"a": {0}})
    world.leave("a")
    assert offsets(start(world)) == []


def test_a_commit_that_notes_a_leader_and_is_not_answered_is_sent_again(world: World) -> None:
    """The node is read, and is ours: nothing is repeated."""
    publish(world, 3)
    processor = start(world)
    world.kafka.elect_leader("orders", 0)
    world.ensemble.lose_answers("a", 1)
    publish(world, 2)
    world.run(15)
    publish(world, 1)
    world.run(2)
    assert (offsets(processor), world.commits(), epoch_info(world).leader_epoch) == ([*range(6)], {0: 6}, 1)


def test_a_node_of_a_release_that_knew_no_leaders_proves_nothing_until_the_next_commit(world: World) -> None:
    """That is what no restart can tell: see docs/faults.md."""
    publish(world, 9)
    start(world)
    world.leave("a")
    earlier = EpochInfo("earlier", 1, "n", "topic-1").encode()
    world.ensemble.tree.transaction([SetData(world.paths.epoch(*TP), earlier)], 0)
    processor = start(world)
    publish(world, 1)
    world.run(1)
    assert (offsets(processor), epoch_info(world).leader_epoch) == ([9], 0)


def test_brokers_that_name_no_leaders_still_have_a_cut_held_that_a_member_sees(world: World) -> None:
    """By the end of the log alone: as it was found out, though the log has grown over the position before it was faced."""
    world.kafka.tells_epochs = False
    publish(world, 9)
    processor = start(world)
    cut(world, 4)
    world.consumers["a"].channel.reader.run_once()
    publish(world, 10)
    world.run(5)
    assert "the log was cut, before the commit 9, and has grown to 14" in (held(world) or "")
    assert (offsets(processor), world.commits()) == ([*range(9)], {0: 9})
    assert proof(world).verdict is Verdict.NOT_PROVABLE
