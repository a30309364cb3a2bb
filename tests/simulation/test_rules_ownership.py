"""Rules of ownership and sessions that no trace of their own shows: each kept, and taken away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inbound.coordinators.ownership import Ownership
from inbound.coordinators.zookeeper import Call, Delete, Op
from inbound.testing.world import World
from inbound.testing.zookeeper_tree import Commit
from inbound.topic_partition import TopicPartition
from tests.coordinators.ownership_stage import PATHS, TP, Consumer, Group
from tests.simulation.planting import is_claim
from tests.simulation.stage import begin_until, in_next_batch, reset, seen, with_and_without, world_of

P0 = TopicPartition("orders", 0)


@with_and_without("own-id-not-looked-at")
def test_who_is_no_member_claims_nothing(group: Group, kept: bool) -> None:
    """R1."""
    a = group.join("a")
    group.ensemble.tree.transaction([Delete(PATHS.member("a"))], 0)
    a.do(a.ownership.claim(TP))
    assert group.owner == (None if kept else a.session)


@with_and_without("epoch-node-deleted")
def test_an_old_epoch_never_comes_again(group: Group, kept: bool) -> None:
    """R1. A zombie of epoch 1 commits after two others have had the partition."""
    zombie, b, c = (group.join(name) for name in "abc")
    old = zombie.claim().fence
    zombie.reconnect(new_session=True)
    b.do(b.ownership.release(TP, b.claim().fence, 5))
    c.claim()
    assert zombie.commit(old, 1) is not kept


@with_and_without("claim-without-new-epoch")
def test_a_zombie_cannot_commit_after_its_successor_s_claim(group: Group, kept: bool) -> None:
    """R2."""
    zombie, b = group.join("a"), group.join("b")
    old = zombie.claim().fence
    zombie.reconnect(new_session=True)
    assert b.commit(b.claim().fence, 5)
    assert zombie.commit(old, 1) is not kept


@with_and_without("claims-beside-the-old-call")
def test_callbacks_of_one_partition_do_not_overlap(kept: bool) -> None:
    """R2. The session expires, another one has the partition for a moment, and the call still runs."""
    world = world_of("a", workers=2)
    between: list[int] = []

    def expire() -> None:
        world.ensemble.cut_off("a")
        world.ensemble.expire_session("a")
        reset(world, P0, 0)
        world.ensemble.heal("a")
        world.run(4)
        between.extend(seen(world, "a"))

    in_next_batch(world, "a", expire)
    world.kafka.publish(*P0, [b"x"])
    world.run(1)
    assert between == ([] if kept else [0])


@with_and_without("owner-written-afterwards")
def test_an_owner_node_names_its_owner_from_the_beginning(group: Group, kept: bool) -> None:
    """Jetstream (a). The process dies right after its claim."""
    a = group.join("a")
    begin_until(a, is_claim, a.ownership.claim(TP))
    a.steps("execute")
    group.ensemble.disconnect("a")
    assert group.node(PATHS.owner(*TP)) == (b"a" if kept else b"")


@with_and_without("joined-not-kept")
def test_an_expiry_alone_moves_nothing(kept: bool) -> None:
    """R6. The odd partition is the senior's."""
    world = world_of("a", "b", partitions=3)
    world.ensemble.expire_session("a")
    world.run(6)
    assert {name: len(owned) for name, owned in world.owned().items()} == (
        {"a": 2, "b": 1} if kept else {"a": 1, "b": 2}
    )


@with_and_without("recovery-deletes-unseen")
def test_a_member_that_comes_back_does_not_evict_the_new_owner(kept: bool) -> None:
    """R6, Jetstream (b). a has the right to the partition as the senior, but not under b's epoch."""
    world = world_of("a", "b")
    world.ensemble.cut_off("a")
    world.ensemble.expire_session("a")
    world.run(1)
    assert world.owned()["b"] == {0}
    owners: list[tuple[str, int]] = []

    def note(commit: Commit) -> None:
        node = commit.after.get(world.paths.owner(*P0))
        epoch = commit.after.get(world.paths.epoch(*P0))
        if ("data", world.paths.owner(*P0)) in commit.changed and node is not None and epoch is not None:
            owners.append((node.data.decode(), epoch.stat.version))

    world.ensemble.observers.append(note)
    world.ensemble.heal("a")
    world.run(5)
    assert owners[0] == ("a", 3 if kept else 2)


@with_and_without("id-taken-without-proof")
def test_a_live_process_keeps_its_id(kept: bool) -> None:
    """R8. A second one with the same id waits."""
    world = world_of("a")
    world.join("second", consumer_id="a")
    world.run(2)
    assert (world.fatal("a") is None) is kept


@with_and_without("no-second-look-at-a-claim")
def test_a_refused_claim_is_looked_at_again(kept: bool) -> None:
    """R9. A tool moves the epoch between the look and the claim; no member watches that."""
    world = World()
    world.kafka.create_topic("orders", 1)
    zk = world.join("a").zk
    send = zk.transaction

    def transaction(ops: Sequence[Op]) -> Call[Any]:
        if is_claim(ops):
            zk.transaction = send  # type: ignore[method-assign]
            reset(world, P0, 0)
        return send(ops)

    zk.transaction = transaction  # type: ignore[method-assign]
    world.run(6)
    assert world.owned() == {"a": {0} if kept else set()}


@with_and_without("beliefs-not-checked")
def test_what_the_nodes_give_to_another_is_dropped(kept: bool) -> None:
    """R10. There is nothing to read, so no commit would be refused."""
    world = world_of("a")
    b = Consumer(world.ensemble, "b")
    session = world.consumers["a"].zk.session
    assert session is not None
    b.do(Ownership(b.zk, "group", "b").claim(P0, {session.id}))
    world.consumers["a"].channel.parts.evaluate()
    world.run(2)
    assert (world.consumers["a"].channel.parts.schedule.held() == []) is kept
