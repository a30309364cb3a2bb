"""Rules of rebalancing and of topics that no trace of their own shows: each kept, and taken away."""

from __future__ import annotations

from inbound.coordinators.static import StaticCoordinator
from inbound.coordinators.zookeeper import Create
from inbound.testing.world import World
from inbound.topic_partition import TopicPartition
from tests.simulation.stage import seen, with_and_without, world_of

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def counts(world: World) -> dict[str, int]:
    """Return how many partitions of `orders` each consumer owns."""
    return {name: len(owned) for name, owned in world.owned().items()}


@with_and_without("no-watches")
def test_a_leaver_is_replaced_at_once(kept: bool) -> None:
    """R11, Jetstream (g)."""
    world = world_of("a", "b", partitions=2)
    world.leave("b")
    world.run(1)
    assert counts(world) == {"a": 2 if kept else 1}


@with_and_without("everything-moves")
def test_a_joiner_moves_its_share_only(kept: bool) -> None:
    """R11. What stays is not claimed again."""
    world = world_of("a", partitions=4)
    world.join("b")
    world.run(3)
    epochs = [world.ensemble.tree.nodes[world.paths.epoch("orders", p)].version for p in range(4)]
    assert (counts(world), sum(epochs) == 6) == ({"a": 2, "b": 2}, kept)


@with_and_without("ranked-by-id")
def test_a_joiner_takes_nobody_s_place(kept: bool) -> None:
    """R11. Its id sorts before the senior's."""
    world = world_of("z", partitions=3)
    world.join("b")
    world.run(4)
    assert counts(world) == ({"z": 2, "b": 1} if kept else {"z": 1, "b": 2})


@with_and_without("each-topic-by-itself")
def test_shares_count_over_all_topics(kept: bool) -> None:
    """R11, Jetstream (f)."""
    world = World()
    topics = ("orders", "items")
    for topic in topics:
        world.kafka.create_topic(topic, 1)
    for name in ("a", "b"):
        world.join(name, topics=topics)
    world.run(4)
    held = sorted(len(c.channel.parts.schedule.held()) for c in world.consumers.values())
    assert held == ([1, 1] if kept else [0, 2])


@with_and_without("id-node-made-again")
def test_a_short_loss_of_the_connection_moves_nothing(kept: bool) -> None:
    """R11, Jetstream (c). The odd partition is the senior's."""
    world = world_of("a", "b", partitions=3)
    world.ensemble.disconnect("a")
    world.run(4)
    assert counts(world) == ({"a": 2, "b": 1} if kept else {"a": 1, "b": 2})


@with_and_without("static-members-have-no-right")
def test_what_a_static_member_lists_is_given_up_for_it(kept: bool) -> None:
    """R12."""
    world = world_of("a", partitions=1)
    world.join("s", coordinator=StaticCoordinator({"orders": [0]}))
    world.run(4)
    assert world.owned()["s"] == ({0} if kept else set())


@with_and_without("later-partitions-at-their-end")
def test_an_added_partition_is_read_from_its_start_under_latest(kept: bool) -> None:
    """R13. Records come before it is noticed."""
    world = world_of("a", auto_offset_reset="latest")
    world.kafka.create_topic("orders", 2)
    world.kafka.publish(*P1, [b"x"])
    world.run(6)
    assert seen(world, "a") == ([0] if kept else [])


@with_and_without("out-of-range-at-the-end")
def test_what_retention_has_left_is_read(kept: bool) -> None:
    """R13."""
    world = world_of("a")
    world.consumers["a"].channel.parts.schedule.set_paused(True)
    world.kafka.publish(*P0, [b"x"] * 5)
    world.kafka.retain(*P0, 3)
    world.consumers["a"].channel.parts.schedule.set_paused(False)
    world.run(2)
    assert seen(world, "a") == ([3, 4] if kept else [])


@with_and_without("topics-by-name")
def test_a_topic_made_again_is_read_from_its_start(kept: bool) -> None:
    """R13. It was recreated while no member ran, and has more records than the group had read of the old one."""
    world = world_of("a")
    world.kafka.publish(*P0, [b"x"] * 2)
    world.run(1)
    world.leave("a")
    world.kafka.delete_topic("orders")
    world.kafka.create_topic("orders", 1)
    world.kafka.publish(*P0, [b"y"] * 3)
    world.join("b")
    world.run(6)
    assert seen(world, "b") == ([0, 1, 2] if kept else [2])


@with_and_without("strangers-count")
def test_a_node_of_another_tool_gets_no_share(kept: bool) -> None:
    """R14."""
    world = world_of("a", partitions=2)
    world.ensemble.tree.transaction([Create(f"{world.paths.ids}/another", b'{"version":1}')], 0)
    world.run(2)
    assert counts(world)["a"] == (2 if kept else 1)


@with_and_without("topics-from-zookeeper")
def test_partitions_are_kafka_s_to_name(kept: bool) -> None:
    """Jetstream (e)."""
    assert counts(world_of("a")) == {"a": 1 if kept else 0}
