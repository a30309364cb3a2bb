"""Static, fixed-count and dynamic consumers in one group: what moves, what is repeated, and what is logged."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from inbound import TopicPartition
from inbound.cli.inspect.status_text import shown
from inbound.controller.kafka_controller import Timing
from inbound.coordinators.base import GroupView, Plan, ZkCoordinator
from inbound.coordinators.custom import CustomCoordinator
from inbound.coordinators.fixed_count import FixedCountCoordinator
from inbound.coordinators.nodes import decode_member
from inbound.coordinators.static import StaticCoordinator
from inbound.testing.world import Recording, World
from tests.observe.status.made_status import NOW, process

EACH = 30


@pytest.fixture
def world() -> World:
    """A world with one topic of six partitions, and records in each, whose members look often without a reason."""
    world = World(timing=Timing(rebalance_interval=2))
    world.kafka.create_topic("orders", 6)
    for partition in range(6):
        world.kafka.publish("orders", partition, [b"%d" % n for n in range(EACH)])
    return world


def seen(world: World) -> Counter[tuple[TopicPartition, int]]:
    """Return how often each record was handed to anybody, also to those who have left."""
    return Counter(
        one for c in world.consumers.values() if isinstance(c.processor, Recording) for one in c.processor.seen
    )


def publish_more(world: World) -> None:
    for partition in range(6):
        world.kafka.publish("orders", partition, [b"more"] * EACH)


def everything_once(offsets: int) -> Counter[tuple[TopicPartition, int]]:
    return Counter({(TopicPartition("orders", p), offset): 1 for p in range(6) for offset in range(offsets)})


def notices(world: World, name: str) -> list[str]:
    return world.consumers[name].channel.status().notices


def test_a_static_consumer_gets_what_it_lists_from_a_dynamic_group_and_gives_it_back_when_it_leaves(
    world: World,
) -> None:
    """Nothing is repeated or lost on either way, and the rest of the group stays even."""
    world.join("a")
    world.join("b")
    world.run(5)
    publish_more(world)
    world.join("pinned", coordinator=StaticCoordinator({"orders": [4, 0]}))
    world.run(3)
    with_it = world.owned()
    publish_more(world)
    world.leave("pinned")
    world.run(3)
    assert with_it["pinned"] == {0, 4}
    assert sorted(len(partitions) for partitions in with_it.values()) == [2, 2, 2]
    assert sorted(len(partitions) for partitions in world.owned().values()) == [3, 3]
    assert seen(world) == everything_once(3 * EACH)
    assert world.commits() == dict.fromkeys(range(6), 3 * EACH)


def test_the_id_node_says_kind_and_parameters(world: World) -> None:
    """So that the others can count with it."""
    for name, coordinator in (
        ("a", None),
        ("b", FixedCountCoordinator(2)),
        ("c", StaticCoordinator({"orders": [1]})),
    ):
        world.join(name, coordinator=coordinator)
    world.run(5)
    nodes = {name: world.nodes(world.paths.ids)[world.paths.member(name)] for name in "abc"}
    assert {name: decode_member(name, data).coordinator for name, data in nodes.items()} == {
        "a": {"type": "dynamic"},
        "b": {"type": "fixed-count", "count": 2},
        "c": {"type": "static", "partitions": {"orders": [1]}},
    }


def test_two_static_consumers_that_contest_a_partition_leave_it_where_it_is_and_say_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """In the status of both, once in the log of each, and again when it is over."""
    caplog.set_level(logging.INFO, "inbound.group.group_journal")
    world.join("first", coordinator=StaticCoordinator({"orders": [0, 1, 2]}))
    world.join("rest")
    world.run(5)
    world.join("second", coordinator=StaticCoordinator({"orders": [2, 3]}))
    world.run(9)
    contest = (
        "orders/2: listed by the static members first and second; who claims first keeps it, and the others go without; "
        "list each partition for one member"
    )
    owned, said = world.owned(), [record.getMessage() for record in caplog.records]
    assert owned == {"first": {0, 1, 2}, "second": {3}, "rest": {4, 5}}
    assert {name: notices(world, name) for name in owned} == {"first": [contest], "second": [contest], "rest": []}
    assert said == [f"channel orders: {contest}"] * 2
    world.leave("first")
    world.run(5)
    assert (world.owned(), notices(world, "second")) == ({"second": {2, 3}, "rest": {0, 1, 4, 5}}, [])
    assert [record.getMessage() for record in caplog.records][2:] == [f"channel orders: over: {contest}"]


def test_what_nobody_takes_is_in_the_status_that_people_read(world: World) -> None:
    """With the coordinator and its parameters, below the figures."""
    world.join("two", coordinator=FixedCountCoordinator(2))
    world.run(5)
    status = world.consumers["two"].channel.status()
    lines = shown([process(channels=[status])], NOW).splitlines()
    assert "Channel orders: group group as two (fixed-count, count 2)" in lines
    assert lines[-1] == (
        "Notice: no member takes 4 of the 6 partitions of orders: the counts of the fixed-count members add up to less; raise a "
        "count, or add a dynamic member"
    )


class Failing(ZkCoordinator):
    """Takes everything, until it is made to fail."""

    broken = False

    def plan(self, view: GroupView) -> Plan:
        if self.broken:
            raise KeyError("rack")
        return Plan(take=tuple(view.free()))


def test_a_custom_plan_that_fails_costs_nothing_but_its_moves(world: World) -> None:
    """What is held is held and read on; `status` says what failed; when it works again, so does the rest."""
    failing = Failing()
    world.join("own", coordinator=CustomCoordinator("mine:Failing", failing))
    world.run(5)
    failing.broken = True
    publish_more(world)
    world.kafka.create_topic("orders", 8)
    world.run(7)
    assert world.owned() == {"own": {0, 1, 2, 3, 4, 5}}
    assert seen(world) == everything_once(2 * EACH)
    (notice,) = notices(world, "own")
    assert notice.startswith("mine:Failing.plan failed: KeyError: 'rack' (")
    failing.broken = False
    world.run(7)
    assert (world.owned(), notices(world, "own")) == ({"own": set(range(8))}, [])


def test_a_notice_is_in_the_log_soon_though_nothing_else_happens(caplog: pytest.LogCaptureFixture) -> None:
    """Not only at the next rebalance that nothing triggered, a minute later."""
    world = World()
    world.kafka.create_topic("orders", 6)
    world.join("two", coordinator=FixedCountCoordinator(2))
    world.join("rest")
    world.run(5)
    world.leave("rest")
    world.run(5)
    assert [r.getMessage()[:46] for r in caplog.records if r.name == "inbound.group.group_journal"] == [
        "channel orders: no member takes 4 of the 6 par"
    ]
