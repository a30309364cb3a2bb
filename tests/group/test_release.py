"""`release`: one member gives one partition up gracefully, and leaves it to others for a while."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from inbound.admin.routes import path_of
from inbound.coordinators.dynamic import DynamicCoordinator
from inbound.coordinators.pauses import OPERATOR, Pause, ask_rebalance
from inbound.coordinators.static import StaticCoordinator
from inbound.errors import InboundError
from inbound.group.operations import BadOperationError, Operation, OperationKind, UnknownTargetError
from inbound.group.partition_backoff import UNTIL_REBALANCE, ReleaseCooldown
from inbound.process.member_operations import operate_member
from inbound.testing.world import GROUP, World
from inbound.topic_partition import TopicPartition
from tests.group.paused_group import SINCE, Group
from tests.observe.jmx.jmx_stage import MakePort, make_port
from tests.processors.simple_stage import join

__all__ = ["make_port"]  # a fixture

ORDERS = TopicPartition("orders", 0)


def asked(world: World, operation: Operation, name: str = "a", channel: str = "orders") -> str:
    """Ask a member, on a thread of its own as the admin port does, while the world goes on. Returns what it says."""
    consumer = world.consumers[name]
    ask = partial(operate_member, [consumer.channel])
    answers: list[str | InboundError] = []

    def run() -> None:
        try:
            answers.append(ask(channel, operation).message)
        except InboundError as error:
            answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        world.run(0.02)
        thread.join(0.02)  # the world's time must not run ahead of a thread that waits for a processor
    (answer,) = answers
    if isinstance(answer, InboundError):
        raise answer
    return answer


def release(world: World, partition: int, seconds: float | None = None) -> None:
    """Have member a begin to give a partition up, now."""
    consumer = world.consumers["a"]
    call = consumer.tasks.spawn(
        consumer.channel.membership.give_up(TopicPartition("orders", partition), seconds), "release"
    )
    world.run_until(lambda: call.done, within=0.1)
    assert call.result() is True


def test_who_also_has_a_right_to_it_takes_it_and_nothing_is_read_twice_or_not_at_all() -> None:
    """Under load; the batch in hand is committed first."""
    world = World()
    world.kafka.create_topic("orders", 2)
    for name in ("a", "b"):
        world.join(
            name,
            coordinator=StaticCoordinator({"orders": [0, 1] if name == "a" else [0]}),
            reader={"max_batch_records": 5},
        )
        world.run(5)
    assert world.owned() == {"a": {0, 1}, "b": set()}
    for partition in (0, 1):
        world.kafka.publish("orders", partition, [b"x"] * 200)
    world.run(0.1)
    told = asked(world, Operation(OperationKind.RELEASE, topic="orders", partition=0))
    world.run(20)
    seen = sorted((tp.partition, offset) for c in world.consumers.values() for tp, offset in c.processor.seen)  # type: ignore[attr-defined]
    assert (world.owned(), world.commits()) == ({"a": {1}, "b": {0}}, {0: 200, 1: 200})
    assert seen == [(partition, offset) for partition in (0, 1) for offset in range(200)]
    assert told.startswith(
        "orders: releases orders/0 when the batch in hand is committed, and leaves it to other members"
    )


@pytest.fixture
def alone() -> World:
    """A member that owns both partitions of its topic, with nobody else there."""
    world = World()
    world.kafka.create_topic("orders", 2)
    world.join("a")
    world.run(5)
    assert world.owned() == {"a": {0, 1}}
    return world


@pytest.mark.parametrize("seconds", [None, 3.0, 25.0])
def test_where_nobody_else_has_room_it_comes_back_after_the_time(alone: World, seconds: float | None) -> None:
    """By default a rebalance_interval; nobody reads it before that, and the status says so."""
    release(alone, 0, seconds)
    alone.run((seconds or UNTIL_REBALANCE) - 1)
    status = alone.consumers["a"].channel.status
    assert (alone.owned(), status().left_to_others) == ({"a": {1}}, ["orders/0"])
    alone.run(4)
    assert (alone.owned(), status().left_to_others) == ({"a": {0, 1}}, [])


def test_a_rebalance_by_an_operator_ends_it() -> None:
    """Also where a time was given: that is how to take it back."""
    group = Group()
    mine = min(group.of("a"))
    release(group.world, mine, seconds=3600)
    group.world.run(5)
    before = mine in group.of("a")
    group.operator(ask_rebalance(group.zk, GROUP, Pause(OPERATOR, None, SINCE, "ann", None)))
    group.world.run(3)
    assert (before, mine in group.of("a")) == (False, True)


def test_a_member_that_joins_takes_it_and_ends_it() -> None:
    """A change of members is a rebalance: shares are others then."""
    group = Group()
    mine = min(group.of("a"))
    release(group.world, mine)
    group.world.run(1)
    group.join("c")
    group.world.run(8)
    owned = group.world.owned()
    assert sorted(map(len, owned.values())) == [1, 1, 2]
    assert group.world.consumers["a"].channel.status().left_to_others == []


def test_what_is_not_held_cannot_be_released() -> None:
    """The answer says what is; nor can another member's be, here."""
    world = World()
    world.kafka.create_topic("orders", 1)
    world.join("a")
    world.run(5)
    with pytest.raises(UnknownTargetError, match="member a does not hold orders/7; it holds orders/0"):
        asked(world, Operation(OperationKind.RELEASE, topic="orders", partition=7))
    with pytest.raises(UnknownTargetError, match="this process is member a, not b"):
        asked(world, Operation(OperationKind.RELEASE, "b", topic="orders", partition=0))
    with pytest.raises(UnknownTargetError, match="no channel 'other' in this process"):
        asked(world, Operation(OperationKind.RELEASE, topic="orders", partition=0), channel="other")
    assert world.owned() == {"a": {0}}


def test_what_is_left_to_others() -> None:
    """Of two rules the one ends with the first rebalance, the other does not."""
    aside, members = ReleaseCooldown(), {"a", "b"}
    assert aside.left(0.0, members) == frozenset()
    other = TopicPartition("orders", 1)
    aside.add(ORDERS, 0.0, None)
    aside.add(other, 0.0, 100.0)
    assert (aside.left(1.0, members), aside.due()) == (frozenset({ORDERS, other}), UNTIL_REBALANCE)
    assert aside.left(2.0, members | {"c"}) == frozenset({other})
    left = [aside.left(now, members) for now in (99.0, 100.0)]
    assert (left, aside.due()) == ([frozenset({other}), frozenset()], None)


# -- rate ----------------------------------------------------------------------------------------------------------


def test_the_rate_is_set_while_it_reads() -> None:
    """From the next turn on; None is as fast as it goes."""
    world = World()
    world.kafka.create_topic("orders", 1)
    journal = join(world, {"max_read_rate": 10})
    world.kafka.publish("orders", 0, [b"x"] * 900)

    def in_5_seconds(rate: float | None) -> int:
        asked(world, Operation(OperationKind.RATE, per_second=rate))
        before = len(journal.offsets)
        world.run(5)
        return len(journal.offsets) - before

    slow, fast = in_5_seconds(10), in_5_seconds(100)
    asked(world, Operation(OperationKind.RATE, per_second=None))
    world.run(5)
    assert (35 <= slow <= 65, 400 <= fast <= 600) == (True, True), (slow, fast)
    assert (journal.offsets, world.commits()) == (list(range(900)), {0: 900})


def test_a_rate_can_be_set_where_there_was_none() -> None:
    """And the status says what it is."""
    world = World()
    world.kafka.create_topic("orders", 1)
    journal = join(world, {})
    status = world.consumers["a"].channel.status
    before = (status().paced, status().max_read_rate)
    told = asked(world, Operation(OperationKind.RATE, per_second=20.0))
    world.kafka.publish("orders", 0, [b"x"] * 1000)
    world.run(10)
    assert (before, status().max_read_rate) == ((True, None), 20.0)
    assert 180 <= len(journal.offsets) <= 230
    assert (
        told
        == "orders: reads at most 20 records per second, until its options are changed or the process ends (member a)"
    )


def test_a_processor_that_does_not_pace_itself_says_so() -> None:
    """It would not be slower for it."""
    world = World()
    world.kafka.create_topic("orders", 1)
    world.join("a", coordinator=DynamicCoordinator())
    world.run(1)
    with pytest.raises(BadOperationError, match="a Recording has no read rate that could be set"):
        asked(world, Operation(OperationKind.RATE, per_second=5.0))
    assert world.consumers["a"].channel.status().paced is False


# -- by POST -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("release?topic=a%2Fb&partition=3", Operation(OperationKind.RELEASE, topic="a/b", partition=3)),
        (
            "release?topic=orders&partition=0&seconds=2.5&consumer=a-1",
            Operation(OperationKind.RELEASE, "a-1", topic="orders", partition=0, seconds=2.5),
        ),
        ("rate?per_second=100", Operation(OperationKind.RATE, per_second=100.0)),
        ("rate?per_second=none&consumer=a-1", Operation(OperationKind.RATE, "a-1")),
    ],
)
def test_a_post_says_what_to_do_with_one_member(make_port: MakePort, path: str, operation: Operation) -> None:
    """And what is passed on to another process is read there as the same."""
    port = make_port()
    answers = [
        port.ask(f"/channels/orders/{path}", method="POST"),
        port.ask(path_of("orders", operation), method="POST"),
    ]
    assert ([answer.code for answer in answers], port.made.asked) == ([200, 200], [("orders", operation)] * 2)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("release", "release: needs topic=NAME&partition=NUMBER; got nothing"),
        ("release?topic=orders", "release: needs topic=NAME&partition=NUMBER; got topic=orders"),
        ("release?topic=orders&partition=-1", "release: needs topic=NAME&partition=NUMBER"),
        ("release?topic=orders&partition=1&seconds=0", "release: seconds must be a number above 0"),
        ("release?topic=orders&partition=1&seconds=inf", "release: seconds must be a number above 0"),
        ("rate", "rate: needs per_second=RECORDS, or per_second=none for as fast as it goes"),
        ("rate?per_second=many", "rate: per_second must be a number above 0"),
        ("rate?per_second=nan", "rate: per_second must be a number above 0"),
        ("rate?rate=3", "rate: parameters are consumer, per_second, each once"),
    ],
)
def test_a_post_that_makes_no_sense_does_nothing(make_port: MakePort, path: str, said: str) -> None:
    """It says what is needed."""
    port = make_port()
    answer = port.ask(f"/channels/orders/{path}", method="POST")
    assert (answer.code, answer.text.startswith(said), port.made.asked) == (400, True, []), answer.text


def test_a_processor_without_a_rate_is_a_conflict(make_port: MakePort) -> None:
    """Not a request that nobody understands."""
    port = make_port()
    answer = port.ask("/channels/orders/pause?reason=bad", method="POST")
    assert (answer.code, answer.text) == (409, "it cannot be paused\n")
