"""What happens when nodes of a running group are deleted or overwritten."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from inbound.coordinators.zookeeper import Create, Delete, SetData
from inbound.partition.partition import Fate
from inbound.testing.world import Recording, World


@pytest.fixture
def world() -> World:
    """A world with one topic of four partitions, and consumers a and b that own two each."""
    world = World()
    world.kafka.create_topic("orders", 4)
    world.join("a")
    world.join("b")
    world.run(5)
    publish(world, 5)
    world.run(1)
    return world


def publish(world: World, count: int) -> None:
    """Publish to every partition."""
    for partition in range(4):
        world.kafka.publish("orders", partition, [b"x"] * count)


def seen(world: World) -> Counter[tuple[int, int]]:
    """Return how often each (partition, offset) was delivered."""
    counts: Counter[tuple[int, int]] = Counter()
    for consumer in world.consumers.values():
        assert isinstance(consumer.processor, Recording)
        counts.update((tp.partition, offset) for tp, offset in consumer.processor.seen)
    return counts


def lost(world: World, name: str) -> set[int]:
    """Return the partitions that a consumer's processor was told are lost."""
    processor = world.consumers[name].processor
    assert isinstance(processor, Recording)
    return {p for _, p, error in (c for c in processor.calls if c[0] == "exception") if error == "PartitionLostError"}


def once(count: int) -> Counter[tuple[int, int]]:
    """Return every offset below `count` of the four partitions, once."""
    return Counter((partition, offset) for partition in range(4) for offset in range(count))


def delete(world: World, path: str) -> None:
    """Delete a node by hand, with what is below it."""
    for name in world.ensemble.tree.children(path) or ():
        delete(world, f"{path}/{name}")
    world.ensemble.tree.transaction([Delete(path)], 0)


def goes_on(world: World) -> None:
    """Everything published from now on is delivered once and committed, and everything is owned."""
    before, commits = seen(world), world.commits()
    assert all(commit is not None for commit in commits.values())
    publish(world, 3)
    world.run(4)
    now = seen(world) - before
    assert now == Counter({(p, (commits[p] or 0) + n): 1 for p in range(4) for n in range(3)})
    assert [len(owned) for owned in world.owned().values()] == [2, 2]


@pytest.mark.parametrize("kind", ["owner", "id", "epoch", "offset", "gate", "owners", "epochs"])
def test_a_running_group_recovers_from_a_deleted_node(
    world: World, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Whichever it is, with nothing lost; the deletion of a node that must stay is logged as an error.

    Only without its epoch a partition's batch in hand cannot be committed, and is read again.
    """
    partition = min(world.owned()["a"])
    paths = world.paths
    path = {
        "owner": paths.owner("orders", partition),
        "id": paths.member("a"),
        "epoch": paths.epoch("orders", partition),
        "offset": paths.offset("orders", partition),
        "gate": paths.gate("orders"),
        "owners": paths.owners("orders"),
        "epochs": paths.epochs("orders"),
    }[kind]
    delete(world, path)
    publish(world, 2)
    world.run_until(lambda: path in world.ensemble.tree.nodes and set(world.commits().values()) == {7}, within=70)
    goes_on(world)
    in_hand = {"epoch": {partition}, "epochs": set(range(4))}.get(kind, set())
    assert seen(world) == once(10) + Counter((p, offset) for p in in_hand for offset in (5, 6))
    said = [r.getMessage() for r in caplog.records if "its parent: it was deleted" in r.getMessage()]
    assert bool(said) == (kind in {"epoch", "gate", "epochs", "owners"}), said


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_nodes_deleted_at_random_one_after_the_other_lose_nothing(seed: int) -> None:
    """Under load; repeats are at most what was in hand when an epoch or an owner went."""
    rng = random.Random(seed)
    world = World(seed=seed)
    world.kafka.create_topic("orders", 4)
    for name in ("a", "b"):
        world.join(name)
    world.run(5)
    paths, published = world.paths, 0
    for _ in range(12):
        publish(world, 2)
        published += 2
        world.run(rng.choice([0.0, 0.05, 1.0]))
        partition, name = rng.randrange(4), rng.choice("ab")
        one_of = (paths.owner, paths.epoch, paths.offset)
        path = rng.choice([*(of("orders", partition) for of in one_of), paths.member(name), paths.gate("orders")])
        if path in world.ensemble.tree.nodes:
            delete(world, path)
        world.run(rng.choice([0.1, 1.0, 3.0]))
    publish(world, 1)  # a commit for every partition
    published += 1
    world.run(70)
    assert set(seen(world)) == set(once(published))
    assert world.commits() == dict.fromkeys(range(4), published)
    assert [len(owned) for owned in world.owned().values()] == [2, 2]


def test_a_node_given_to_another_is_dropped_without_a_commit(world: World) -> None:
    """The nodes are the truth: an owner node and an epoch that name another owner."""
    partition = min(world.owned()["a"])
    b = world.consumers["b"].zk.session
    assert b is not None
    held = world.consumers["a"].channel.parts.schedule
    (mine,) = [p for p in held.held() if p.tp.partition == partition]
    world.ensemble.tree.transaction(
        [
            SetData(world.paths.epoch("orders", partition), b'{"v":1,"consumer":"b","session":1,"nonce":"n"}'),
            Delete(world.paths.owner("orders", partition)),
            Create(world.paths.owner("orders", partition), b"b", ephemeral=True),
        ],
        b.id,
    )
    commits = world.commits()
    world.run(1)
    assert (mine.place.value, world.commits()) == ("gone", commits)
    assert lost(world, "a") == {partition}


def test_a_deleted_epoch_node_does_not_let_a_zombie_in_again(world: World) -> None:
    """It is made again with version 0, so the numbers of old epochs come again; what a claim wrote into it does not."""
    a, b = world.owned()["a"], world.owned()["b"]
    world.pause("a")
    for partition in a:
        delete(world, world.paths.epoch("orders", partition))
    world.run(13)  # the zombie's session is over; b has claimed under the same numbers
    numbers = {world.ensemble.tree.nodes[world.paths.epoch("orders", p)].version for p in a | b}
    world.kill("b")
    for partition in a:
        delete(world, world.paths.owner("orders", partition))
    world.resume("a")
    publish(world, 4)
    world.run(15)
    assert (numbers, lost(world, "a"), seen(world)) == ({1}, a, once(9))


def test_an_unreadable_epoch_node_is_logged_and_claimed_over(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """It only says who was last; its version is what counts."""
    partition = min(world.owned()["a"])
    world.ensemble.tree.transaction([SetData(world.paths.epoch("orders", partition), b"\xff")], 0)
    publish(world, 1)
    world.run(4)
    goes_on(world)
    assert sum("claimed all the same" in record.getMessage() for record in caplog.records) == 1


def test_a_release_that_is_refused_leaves_no_partition_behind() -> None:
    """A reset moves the epoch while a partition is on its way to a joiner: its owner node is ours, and nobody's to take."""
    world = World()
    world.kafka.create_topic("orders", 2)
    a = world.join("a")
    world.run(4)
    world.join("b")
    world.run_until(lambda: any(p.fate is Fate.RELEASE for p in a.channel.parts.schedule.held()), within=5)
    moved = next(p.tp for p in a.channel.parts.schedule.held() if p.fate is Fate.RELEASE)
    world.ensemble.tree.transaction([SetData(world.paths.epoch(*moved), b"")], 0)
    world.run(3)
    world.kafka.publish(*moved, [b"x"])
    world.run(1)
    assert (world.commits()[moved.partition], sorted(map(len, world.owned().values()))) == (1, [1, 1])
