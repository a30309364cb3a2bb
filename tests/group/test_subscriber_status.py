"""A subscription's condition follows from what its members say; a table, and what stands in the node."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from inbound.coordinators.base import GroupView, Member
from inbound.coordinators.nodes import MemberInfo, decode_member
from inbound.coordinators.subscriber_status import SubscriberSaid, SubscriberStatus, status_of
from inbound.topic_partition import TopicPartition

SAID = SubscriberSaid(uid="u", generation=3, digest="d")
UNCOUNTED = SubscriberSaid(uid="u", generation=None, digest="d")


def member(name: str, joined: int = 1, **said: Any) -> Member:
    """Return a member that serves the subscriber in generation 3, but for the given differences."""
    told = {"uid": "u", "generation": 3, "digest": "d", **said}
    return Member(name, joined, ("t",), {"type": "dynamic"}, told)


def view(*members: Member, owned: int = 4, partitions: int = 4) -> GroupView:
    """Return a group of which the first `owned` partitions have an owner."""
    return GroupView(
        "a", members, {"t": partitions}, frozenset(TopicPartition("t", p) for p in range(owned)), frozenset()
    )


ONE = (member("a"),)


@pytest.mark.parametrize(
    ("said", "seen", "ready", "message"),
    [
        (SAID, view(*ONE), "True", ""),
        (SAID, view(member("a"), member("b", 2)), "True", ""),
        (SAID, None, "Unknown", "not known yet: this process is still joining the group"),
        (SAID, view(), "False", "the group has no member"),
        (SAID, view(*ONE, owned=3), "False", "no owner for 1 of 4 partitions: t/3"),
        (SAID, view(*ONE, owned=0, partitions=9), "False",
         "no owner for 9 of 9 partitions: t/0, t/1, t/2, t/3, t/4 and 4 more"),
        (SAID, view(*ONE, partitions=0), "False", "its topic has no partition that Kafka knows of"),
        (SAID, view(*ONE, member("b", 2, generation=2)), "False", "member b is at generation 2"),
        (SAID, view(member("b", 2, generation=2, stopped=["x"]), *ONE, owned=3), "False",
         "no owner for 1 of 4 partitions: t/3; member b is at generation 2; member b: x"),
        (SAID, view(*ONE, member("b", 2, digest="other")), "True", ""),  # the generation says it
        (UNCOUNTED, view(*ONE, member("b", 2, digest="other")), "False", "member b runs other options"),
        (SAID, view(*ONE, member("b", 2, uid="v")), "False", "member b serves the subscriber v"),
        (SAID, view(*ONE, Member("b", 2, ("t",))), "False",
         "member b does not say which generation it runs; is it of an older version?"),
        (SAID, view(member("a", stopped=["stopped at t/1: no event"])), "False", "member a: stopped at t/1: no event"),
        (SAID, view(member("a", note="the subscriber: 503"), member("b", 2, note="the subscriber: 503")), "True",
         "the subscriber: 503"),
    ],
)  # fmt: skip
def test_the_condition(said: SubscriberSaid, seen: GroupView | None, ready: Any, message: str) -> None:
    """Ready when all members run the generation and all partitions have an owner; else the reasons."""
    expected = SubscriberStatus(uid="u", observedGeneration=said.generation, ready=ready, message=message)
    assert status_of(said, seen, connected=True) == expected


def test_without_zookeeper_nothing_is_known() -> None:
    """The last reading may not hold any more."""
    assert status_of(SAID, view(*ONE), connected=False).ready == "Unknown"


def test_the_node_carries_its_format() -> None:
    """Beside what Knative names."""
    status = status_of(SAID, view(*ONE, owned=3), connected=True)

    assert json.loads(status.encode()) == {"v": 1, **asdict(status)}
    assert status.encode().startswith(b'{"v":1,"uid":"u","observedGeneration":3,"ready":"False"')


def test_an_id_node_says_what_is_served_and_older_versions_do_not_mind() -> None:
    """Without a subscription the node is what it always was."""
    info = MemberInfo(host="h", pid=1, started="s", topics=("t",), subscriber=SAID.as_dict())

    assert decode_member("/p", info.encode()).subscriber == {"uid": "u", "generation": 3, "digest": "d"}
    assert b"subscriber" not in MemberInfo(host="h", pid=1, started="s", topics=("t",)).encode()
    assert (
        decode_member("/p", info.encode().replace(b'{"uid":"u","generation":3,"digest":"d"}', b"7")).subscriber is None
    )
