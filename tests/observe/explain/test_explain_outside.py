"""`explain` without the owner's word: from the nodes in ZooKeeper and the log alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from inbound.coordinators.base import Member
from inbound.coordinators.nodes import MemberInfo
from inbound.coordinators.pauses import OPERATOR, Pause
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import SetData
from inbound.observe.explain.facts import Cause
from inbound.observe.explain.outside import Nodes, PartitionLog, explain_outside, read_nodes
from inbound.testing import World
from inbound.testing.world import GROUP
from inbound.testing.zookeeper import Who
from inbound.testing.zookeeper_tree import Tree
from inbound.topic_partition import TopicPartition

TP = TopicPartition("orders", 1)
NOW = 10_000.0
FOUR = PartitionLog(partitions=4, start=0, end=100)


def member(
    name: str, topics: tuple[str, ...] = ("orders",), **coordinator: Any
) -> tuple[Member, tuple[str, MemberInfo]]:
    kind = coordinator or {"type": "dynamic"}
    info = MemberInfo(host="host-1", pid=7, started="", topics=topics, coordinator=kind, admin="http://host-1:8081")
    return Member(name, 1, topics, kind), (name, info)


def nodes(*members: tuple[Member, tuple[str, MemberInfo]], **values: Any) -> Nodes:
    found, infos = tuple(m for m, _ in members), dict(i for _, i in members)
    return Nodes(**{"tp": TP, "group": "g", "channel": "orders", "members": found, "infos": infos, **values})


DYNAMIC = member("a")
OWNED = nodes(DYNAMIC, owner="a", owner_since=NOW - 60, owned=frozenset({1}))


@pytest.mark.parametrize(
    ("cause", "given", "log", "silent"),
    [
        (Cause.NO_MEMBER, nodes(), FOUR, None),
        (Cause.BEING_CLAIMED, nodes(DYNAMIC), FOUR, None),
        (Cause.TOPIC_MISSING, nodes(DYNAMIC), PartitionLog(partitions=0), None),
        (Cause.NO_PARTITION, nodes(DYNAMIC), PartitionLog(partitions=1), None),
        (Cause.BROKER_AWAY, nodes(DYNAMIC), PartitionLog(problem="no broker answers"), None),
        (Cause.RESET, nodes(DYNAMIC, gate="/inbound/commands/reset-offset/x", gate_since=NOW - 5), FOUR, None),
        (Cause.RESET, replace(OWNED, gate="/inbound/commands/reset-offset/x"), FOUR, "nothing within 2 s"),
        (Cause.BAD_NODE, nodes(DYNAMIC, gate="closed", gate_since=NOW - 5), FOUR, None),
        (Cause.BAD_NODE, nodes(DYNAMIC, gate="", gate_since=NOW - 5), FOUR, None),
        (Cause.OWNER_SILENT, OWNED, FOUR, "nothing listens there"),
        (Cause.BAD_NODE, replace(OWNED, bad_node="x is not an offset"), FOUR, "it does not hold it, by its own word"),
        (Cause.BAD_NODE, nodes(DYNAMIC, bad_node="x is not allowed to a client"), FOUR, None),
        (Cause.OWNER_SILENT, replace(OWNED, owner_registered=False), FOUR, "no process was asked"),
        (Cause.NONE_ALLOWED, nodes(member("a", ("others",))), FOUR, None),
        (Cause.NONE_ALLOWED, nodes(member("a", type="static", partitions={"orders": [0]})), FOUR, None),
        (Cause.BEING_CLAIMED, nodes(member("a", type="static", partitions={"orders": [1]})), FOUR, None),
        (Cause.NONE_ALLOWED, nodes(member("a", type="fixed-count", count=1), owned=frozenset({0})), FOUR, None),
        (Cause.BEING_CLAIMED, nodes(member("a", type="fixed-count", count=1)), FOUR, None),
        (Cause.BEING_CLAIMED, nodes(member("a", type="fixed-count", count=1), member("b")), FOUR, None),
    ],
)  # fmt: skip
def test_the_cause(cause: Cause, given: Nodes, log: PartitionLog, silent: str | None) -> None:
    found = explain_outside(given, log, NOW, silent)
    assert found is not None
    assert found.cause is cause
    assert found.text
    assert found.todo


def test_an_owner_that_answers_speaks_for_itself() -> None:
    assert explain_outside(OWNED, PartitionLog(), NOW, None) is None
    assert explain_outside(replace(OWNED, bad_node="not allowed to who asks"), PartitionLog(), NOW, None) is None


def test_a_silent_owner_is_named_with_where_it_runs_and_why_it_may_be_silent() -> None:
    paused = replace(OWNED, pauses=(Pause(OPERATOR, None, "12:00", "ann", None), Pause(OPERATOR, "b")))
    found = explain_outside(paused, FOUR, NOW, "nothing within 2 s")
    assert found is not None
    assert (
        found.text
        == "its owner a (pid 7 on host-1) keeps its ZooKeeper session and does not answer: nothing within 2 s"
    )
    assert found.evidence == ("paused since 12:00 by ann; goes on with `inbound resume orders`",)


def test_a_reset_says_whom_it_waits_for() -> None:
    gate = replace(OWNED, gate="/inbound/commands/reset-offset/x", gate_since=NOW - 90)
    found = explain_outside(gate, FOUR, NOW, "nothing within 2 s")
    assert found is not None
    assert found.text == (
        "a reset has closed the gate for 90 s (/inbound/commands/reset-offset/x): no member may take it before that is done; it "
        "waits for a to give it up, which does not answer (nothing within 2 s)"
    )


def test_the_nodes_are_read_as_a_group_leaves_them() -> None:
    world = World()
    world.kafka.create_topic("orders", 2)
    world.join("a")
    world.kafka.publish("orders", 1, [b"x"] * 5)
    world.run(10)
    found = read(world)
    assert (found.owner, found.owner_registered, found.owned, found.committed) == ("a", True, frozenset({0, 1}), 5)
    assert (found.claimed_by, found.gate, list(found.infos)) == ("a", None, ["a"])
    assert found.as_dict()["members"][0]["coordinator"] == "dynamic"


@pytest.mark.parametrize(
    ("node", "do", "said"),
    [
        ("offset", lambda tree, path: tree.transaction([SetData(path, b"nonsense")], 0), "holds b'nonsense', not an offset"),
        ("offset", lambda tree, path: tree.give(path, Who("admin", "creator")), "is not allowed"),
        ("epoch", lambda tree, path: tree.give(path, Who("admin", "creator")), "is not allowed"),
        ("epoch", lambda tree, path: tree.transaction([SetData(path, b"nonsense")], 0), None),
    ],
)  # fmt: skip
def test_a_node_that_cannot_be_used_is_named_and_the_others_are_read(
    node: str, do: Callable[[Tree, str], object], said: str | None
) -> None:
    """An epoch node with nonsense is none of these: the next claim overwrites it, and the offset counts."""
    world = World()
    world.kafka.create_topic("orders", 2)
    world.join("a")
    world.kafka.publish("orders", 1, [b"x"] * 5)
    world.run(10)
    path = getattr(world.paths, node)(*TP)
    do(world.ensemble.tree, path)
    found = read(world)
    assert (found.owner, found.committed) == ("a", None if node == "offset" else 5)
    assert found.bad_node is None if said is None else (path in str(found.bad_node) and said in str(found.bad_node))


def read(world: World) -> Nodes:
    """Return what ZooKeeper says, to a client of its own."""
    zk = world.ensemble.client("asker", 10.0)
    tasks = Tasks(world.clock, lambda: None)
    call = tasks.spawn(read_nodes(zk, TP, GROUP, "orders"), "read")
    world.run_until(lambda: bool(tasks.step() or True) and call.done, within=5)
    return call.result()
