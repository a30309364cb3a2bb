"""Partitions whose nodes ZooKeeper refuses, or whose nodes hold nonsense: named, left alone for a while, in nobody's way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from inbound.coordinators.zookeeper import Call, Create, SetData
from inbound.ledger.memory import Note
from inbound.testing.world import Consumer, World
from inbound.testing.zookeeper import ANONYMOUS, Who
from tests.controller.reset_offset.reset_by_hand import close, open_again, stopped

PARTITIONS = 4
ADMIN = Who("admin", "creator")
Hand = Callable[[World], None]


@pytest.fixture
def world() -> World:
    """A world with one topic of four partitions, of which a group has read three records each; no member is left."""
    world = World()
    world.kafka.create_topic("orders", PARTITIONS)
    publish(world, 3)
    world.join("a")
    world.run(5)
    world.leave("a")
    return world


def publish(world: World, count: int) -> None:
    """Publish to every partition."""
    for partition in range(PARTITIONS):
        world.kafka.publish("orders", partition, [b"x"] * count)


def requests(consumer: Consumer, during: Callable[[], None]) -> int:
    """Return how many requests a consumer sends to ZooKeeper."""
    send, count = consumer.zk._send, 0

    def counting(*arguments: Any) -> Call[Any]:
        nonlocal count
        count += 1
        return send(*arguments)

    consumer.zk._send = counting  # type: ignore[method-assign, assignment]
    during()
    consumer.zk._send = send  # type: ignore[method-assign]
    return count


def offset(world: World, data: bytes) -> None:
    world.ensemble.tree.transaction([SetData(world.paths.offset("orders", 2), data)], 0)


def give(world: World, node: str, who: Who, partition: int = 2) -> None:
    world.ensemble.tree.give(getattr(world.paths, node)("orders", partition), who)


#: What happens to partition 2, how it is undone, and what the log says.
HANDS: dict[str, tuple[Hand, Hand, str]] = {
    "offset node holds nonsense": (
        lambda world: offset(world, b"nonsense"), lambda world: offset(world, b"3"), "offsets/orders/2: holds b'nonsense', not",
    ),
    "offset node holds more digits than a number may have": (
        lambda world: offset(world, b"9" * 5000), lambda world: offset(world, b"3"), "offsets/orders/2: holds b'999",
    ),
    "offset node holds more than Kafka counts": (
        lambda world: offset(world, b"9223372036854775808"), lambda world: offset(world, b"3"), "not an offset; write the",
    ),
    "offset node not readable": (
        lambda world: give(world, "offset", ADMIN), lambda world: give(world, "offset", ANONYMOUS), "offsets/orders/2 is not all",
    ),
    "epoch node not readable": (
        lambda world: give(world, "epoch", ADMIN), lambda world: give(world, "epoch", ANONYMOUS), "epochs/orders/2 is not allow",
    ),
    "epoch node not writable": (
        lambda world: give(world, "epoch", Who("admin", "readable")), lambda world: give(world, "epoch", ANONYMOUS),
        "epochs/orders/2 is not allowed",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", HANDS)
def test_a_partition_whose_node_cannot_be_used_is_claimed_when_that_is_put_right_and_the_others_at_once(
    world: World, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named, and tried ever more rarely, at least once a minute: that costs ZooKeeper next to nothing."""
    do, undo, words = HANDS[kind]
    do(world)
    c = world.join("c")
    world.run(5)
    publish(world, 2)
    world.run(60)
    before, healthy = world.commits() if kind.startswith("epoch") else {}, PARTITIONS - 1
    held = {p.tp.partition for p in c.channel.parts.schedule.held()}
    sent = requests(c, lambda: world.run(120))
    said = [r.getMessage() for r in caplog.records if "orders/2: its nodes cannot be used: " in r.getMessage()]
    told = c.channel.status().bad_nodes
    undo(world)
    world.run(61)
    assert [(name, words in f": {problem}") for name, problem in told.items()] == [("orders/2", True)], told
    assert c.channel.status().bad_nodes == {}
    assert (held, before.get(2, 3), len(held)) == ({0, 1, 3}, 3, healthy)
    assert (len(said), words in said[0], "looking again in 5 s" in said[0]) == (6, True, True), said
    assert sent < 250, "some 100 are signs of life of the session"
    assert world.commits() == dict.fromkeys(range(PARTITIONS), 5)


#: What no release writes: no number, more than a number holds, nested deeper than can be read, other types.
RUBBISH: dict[str, bytes] = {
    "infinite session": b'{"v":1,"consumer":"a","session":Infinity,"nonce":"n"}',
    "leader epoch beyond 32 bits": b'{"v":1,"consumer":"a","session":1,"nonce":"n","leader_epoch":1099511627776}',
    "negative leader epoch": b'{"v":1,"consumer":"a","session":1,"nonce":"n","leader_epoch":-4}',
    "reset to infinity": b'{"v":1,"consumer":"a","session":1,"nonce":"n","reset":{"command":"x","old":1,"new":1e999}}',
    "nested": b"[" * 100_000,
}


@pytest.mark.parametrize("kind", RUBBISH)
def test_rubbish_in_an_epoch_node_is_named_and_overwritten(
    world: World, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The offset beside it is what counts: reading goes on there, and nothing is taken for a log that was cut."""
    world.ensemble.tree.transaction([SetData(world.paths.epoch("orders", 2), RUBBISH[kind])], 0)
    c = world.join("c")
    publish(world, 2)
    world.run(10)
    said = [r.getMessage() for r in caplog.records if "epochs/orders/2: " in r.getMessage()]
    assert (world.commits(), c.channel.status().records_total) == (dict.fromkeys(range(PARTITIONS), 5), 8)
    assert (len(said), "claimed all the same" in said[0]) == (1, True), said


@pytest.mark.parametrize(
    "data",
    [
        b'{"v":1,"host":"h","pid":Infinity,"started":"s","topics":["orders"],"coordinator":{"type":"dynamic"}}',
        b'{"v":1,"host":"h","pid":1,"started":"s","topics":[["orders"]],"coordinator":{"type":"dynamic"}}',
        b'{"v":1,"host":"h","pid":1,"started":"s","topics":["orders"],"coordinator":{"type":"dynamic"},"joined":"x"}',
        b"[" * 100_000,
    ],
)  # fmt: skip
def test_rubbish_among_the_id_nodes_counts_as_no_member(
    world: World, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    world.ensemble.tree.transaction([Create(world.paths.member("zz"), data)], 0)
    world.join("c")
    publish(world, 2)
    world.run(10)
    said = [r.getMessage() for r in caplog.records if "ids/zz: " in r.getMessage()]
    assert world.commits() == dict.fromkeys(range(PARTITIONS), 5)
    assert (len(said), said[0].endswith("it is not counted as a member")) == (1, True), said


def test_rubbish_in_a_topics_node_is_named_with_what_to_do(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Emptied, as the message says, it is used at once."""
    node = world.paths.epochs("orders")
    world.ensemble.tree.transaction([SetData(node, b'{"v":1,"partitions":Infinity}')], 0)
    world.join("c")
    publish(world, 2)
    world.run(10)
    before, said = world.commits(), {r.getMessage() for r in caplog.records if "epochs/orders: " in r.getMessage()}
    world.ensemble.tree.transaction([SetData(node, b"")], 0)
    world.run(10)
    assert (before[2], world.commits()) == (3, dict.fromkeys(range(PARTITIONS), 5))
    assert ["empty the node, but keep it and its children" in text for text in said] == [True]


@pytest.mark.parametrize("data", [b"", b"closed", b"\xff"])
def test_a_gate_that_no_reset_has_closed_is_named_with_what_opens_it(
    world: World, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody opens it but who wrote it: a message about a reset would have people wait for its end."""
    gate = world.paths.gate("orders")
    world.ensemble.tree.transaction([SetData(gate, data)], 0)
    c = world.join("c")
    publish(world, 2)
    world.run(10)
    (told,), before = c.channel.status().resets, world.commits()
    said = [r.getMessage() for r in caplog.records if "the gate of topic orders" in r.getMessage()]
    world.ensemble.tree.transaction([SetData(gate, b"open")], 0)
    world.run(10)
    words = f"which is no reset, so no reset opens it; write `open` into {gate}"
    assert (words in told.step, [words in text for text in said]) == (True, [True])
    assert (before[2], world.commits()) == (3, dict.fromkeys(range(PARTITIONS), 5))


def test_a_held_partition_whose_epoch_cannot_be_read_keeps_no_other_from_moving(world: World) -> None:
    """A joiner gets its share; what the member holds it goes on with, but for the commits of that partition."""
    world.join("c")
    world.run(5)
    give(world, "epoch", ADMIN, 0)
    world.join("d")
    world.run(8)
    publish(world, 2)
    world.run(2)
    owned, committed = world.owned(), world.commits()
    give(world, "epoch", ANONYMOUS, 0)
    world.run(70)
    assert sorted(map(len, owned.values())) == [2, 2]
    assert committed == {0: 3, 1: 5, 2: 5, 3: 5}
    assert (world.commits(), sorted(map(len, world.owned().values()))) == (dict.fromkeys(range(4), 5), [2, 2])


def test_a_held_partition_whose_epoch_cannot_be_read_while_the_session_expires_is_got_back_when_it_can(
    world: World,
) -> None:
    """The other partitions are got back at once; all under the same epochs, and nothing is repeated."""
    c = world.join("c")
    world.run(5)
    give(world, "epoch", ADMIN)
    world.ensemble.expire_session("c")
    world.run(5)
    during = world.owned()
    give(world, "epoch", ANONYMOUS)
    publish(world, 2)
    world.run(70)
    assert (during, world.owned()) == ({"c": {0, 1, 3}}, {"c": {0, 1, 2, 3}})
    assert (world.commits(), c.channel.status().records_total) == (dict.fromkeys(range(4), 5), 8)


def test_a_reset_does_not_wait_for_a_partition_whose_offset_cannot_be_read(world: World) -> None:
    """Its claim made an owner node under which nothing is held: that goes when the gate closes. What the reset writes is read."""
    offset(world, b"nonsense")
    world.join("c")
    world.run(40)
    before = world.owned()
    close(world)
    world.run_until(lambda: stopped(world), within=2)
    offset(world, b"1")
    open_again(world)
    publish(world, 2)
    world.run(3)
    assert (before, world.commits()) == ({"c": {0, 1, 2, 3}}, dict.fromkeys(range(PARTITIONS), 5))


def test_a_topic_that_was_recreated_is_logged_also_where_the_old_offset_cannot_be_read(world: World) -> None:
    """The claim overwrites it; the ledger has the topic's ids, and no old offset."""
    offset(world, b"nonsense")
    world.kafka.delete_topic("orders")
    world.kafka.create_topic("orders", PARTITIONS)
    c = world.join("c")
    publish(world, 2)
    world.run(10)
    old = {entry.partition: entry.facts["old"] for entry in c.ledger.entries if isinstance(entry, Note)
            and entry.kind == "reset"}  # fmt: skip
    assert (world.commits(), old) == (dict.fromkeys(range(PARTITIONS), 2), {0: 3, 1: 3, 2: None, 3: 3})
