"""What members say of a group's shares, and how often."""

from __future__ import annotations

import logging
import random

import pytest

from inbound import TopicPartition
from inbound.coordinators.base import GroupView, Member, Plan, ZkCoordinator
from inbound.coordinators.custom import CustomCoordinator
from inbound.coordinators.dynamic import DynamicCoordinator
from inbound.coordinators.fixed_count import FixedCountCoordinator
from inbound.coordinators.rights import described
from inbound.coordinators.static import StaticCoordinator
from inbound.group.group_journal import PlanNotices
from tests.coordinators.coordinator_group import Group


def settled(partitions: dict[str, int], **members: ZkCoordinator) -> Group:
    """Return a group at rest whose members read all topics."""
    group = Group(partitions)
    for name, coordinator in members.items():
        group.join(name, coordinator, topics=partitions)
    group.settle(random.Random(0))
    return group


STATIC, COUNT = StaticCoordinator, FixedCountCoordinator


@pytest.mark.parametrize(
    ("partitions", "members", "speakers", "notice"),
    [
        ({"a": 4}, {"s": STATIC({"a": [0]}), "t": STATIC({"a": [2]})}, "st",
         "no member takes a/1, a/3: no static member lists them, and there is no other member for them; list them, or add a "
         "dynamic member"),
        ({"a": 5, "b": 2}, {"f": COUNT(2), "s": STATIC({"a": [4]})}, "fs",
         "no member takes 2 of the 5 partitions of a: the counts of the fixed-count members add up to less; raise a count, or "
         "add a dynamic member"),
        ({"a": 5}, {"f": COUNT(2), "s": STATIC({"a": [4]}), "d": DynamicCoordinator()}, "", ""),
        ({"a": 5, "b": 9}, {"f": COUNT(4), "g": COUNT(4), "d": DynamicCoordinator()}, "g",
         "fixed-count member g gets only 1 of the 5 partitions of a instead of 4: there are no more after static and "
         "longer-serving fixed-count members; lower a count, or add partitions"),
        ({"a": 1}, {"s": STATIC({"a": [0, 7], "z": [1]})}, "s",
         "a/7, z/1: listed by this static member, but Kafka has no such partition (a has 1, z has 0); correct the list, or "
         "add partitions"),
    ],
    ids=["not listed", "beyond all counts", "a dynamic member takes the rest", "too late", "not in Kafka"],
)  # fmt: skip
def test_who_says_what_of_a_group_at_rest(
    partitions: dict[str, int], members: dict[str, ZkCoordinator], speakers: str, notice: str
) -> None:
    """All members say what nobody takes; what one of them lacks, only that one says."""
    group = settled(partitions, **members)
    assert group.notices == {name: (notice,) if name in speakers else () for name in members}


def test_an_id_node_that_cannot_be_read_is_named() -> None:
    """By everybody else; it gets nothing."""
    members = (Member("me", 1, ("a",)), Member("x", 2, ("a",), {"type": "static", "partitions": {"a": ["0"]}}))
    plan = DynamicCoordinator().plan(GroupView("me", members, {"a": 2}, frozenset(), frozenset()))
    assert (len(plan.take), plan.notices) == (
        2,
        (
            "member x: its id node says static, but the parameters cannot be read; it is counted as taking only what can "
            "be read of them; restart it, in the same version as this one",
        ),
    )


# -- custom coordinators -----------------------------------------------------------------------------------------------


class Planning(ZkCoordinator):
    """Answers what it is given, or raises it."""

    def plan(self, view: GroupView) -> Plan:
        if isinstance(self.options, BaseException):
            raise self.options
        return self.options  # type: ignore[no-any-return]


ME = (Member("me", 1, ("a",)), Member("d", 2, ("a",)))
FREE, MINE, THEIRS = (TopicPartition("a", p) for p in range(3))
VIEW = GroupView("me", ME, {"a": 4}, frozenset({MINE, THEIRS}), frozenset({MINE}))


def plan_of(answer: object, view: GroupView = VIEW) -> Plan:
    return CustomCoordinator("mine:Mine", Planning(answer)).plan(view)


@pytest.mark.parametrize("error", [ValueError("no\nidea"), SystemExit(3)])
def test_a_plan_that_raises_moves_nothing_and_is_reported(error: BaseException) -> None:
    """With class, error and place."""
    plan = plan_of(error)
    assert (plan.take, plan.release, plan.share) == ((), (), 2)
    (notice,) = plan.notices
    assert notice.startswith(f"mine:Mine.plan failed: {type(error).__name__}: {error} ({__file__}:")
    assert notice.endswith("; nothing is taken or released until it returns a plan; correct it")


@pytest.mark.parametrize("answer", [None, 7, Plan(take=3), Plan(release=([],)), Plan(share="x")])  # type: ignore[arg-type]
def test_what_is_no_plan_moves_nothing_and_is_reported(answer: object) -> None:
    """As an error in it would be."""
    plan = plan_of(answer)
    assert (plan.take, plan.release, len(plan.notices)) == ((), (), 1)
    assert plan.notices[0].startswith("mine:Mine.plan failed: TypeError") or answer == Plan(share="x")  # type: ignore[arg-type]


def test_what_a_plan_must_not_do_is_left_out_and_reported() -> None:
    """The rest of it is done."""
    plan = plan_of(Plan(take=(FREE, THEIRS, FREE, TopicPartition("z", 0)), release=(MINE, THEIRS), share=1))
    assert (plan.take, plan.release, plan.share) == ((FREE,), (MINE,), 1)
    assert plan.notices[:2] == (
        "mine:Mine.plan takes a/2, z/0, which is not among the ownerless partitions of its topics; that is left out; "
        "correct it",
        "mine:Mine.plan releases a/2, which this member does not have; that is left out; correct it",
    )


def test_a_custom_member_that_leaves_its_share_says_so() -> None:
    """The others count on it to take that."""
    assert plan_of(Plan()).notices == (
        "mine:Mine has 1 of the partitions of a where the other members leave it 2; without an owner: 1; let its plan take "
        "that many more",
    )


def test_a_custom_member_that_keeps_what_others_need_says_so() -> None:
    """They cannot know whose it is."""
    static = Member("s", 3, ("a",), StaticCoordinator({"a": [0]}).registration())
    held = frozenset(TopicPartition("a", p) for p in range(4))
    view = GroupView("me", (*ME, static), {"a": 4}, held, held)
    assert plan_of(Plan(), view).notices == (
        "mine:Mine keeps a/0 from the static member that lists them; let its plan release them",
        "mine:Mine has 3 of the partitions of a where the other members leave it 2, and they go without; let its plan "
        "release the rest",
    )


# -- how often ---------------------------------------------------------------------------------------------------------


def test_a_notice_is_logged_once_when_it_has_stood_and_again_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    """What is so for a moment only, while members come and go, is not."""
    caplog.set_level(logging.INFO)
    notices = PlanNotices("orders")
    looks = [notices.say(now_so, now) for now, now_so in [
        (0.0, ["moment", "stays"]), (1.0, ["stays"]), (3.0, ["stays"]), (9.0, ["stays"]), (10.0, []), (11.0, ["stays"]),
    ]]  # fmt: skip
    assert looks == [3.0, 3.0, None, None, None, 14.0]
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "channel orders: stays"),
        ("INFO", "channel orders: over: stays"),
    ]


def test_a_notice_with_an_address_in_memory_is_the_same_notice(caplog: pytest.LogCaptureFixture) -> None:
    """An error's text may hold one, another each time."""
    notices = PlanNotices("orders")
    for now in range(9):
        notices.say([f"failed: <object at 0x7f{now}a>"], float(now))
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("coordinator", "text"),
    [
        (DynamicCoordinator().registration(), "dynamic"),
        (FixedCountCoordinator(4).registration(), "fixed-count, count 4"),
        (StaticCoordinator({"b": [7], "a": [2, 0, 1, 5, 6]}).registration(), "static, a 0-2, 5, 6; b 7"),
        ({"rack": "r1", "type": "mine:Mine"}, "mine:Mine, rack r1"),
        ({"type": "static", "partitions": 3}, "static, partitions 3"),
    ],
)
def test_coordinators_are_named_with_their_parameters(coordinator: dict[str, object], text: str) -> None:
    """On one line."""
    assert described(coordinator) == text
