"""Groups over thousands of joins and leaves: what everybody has when they are at rest, and what it took to get there.

The expected rights are worked out here from the rules, not by the code under test.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from inbound import TopicPartition
from inbound.coordinators.dynamic import DynamicCoordinator
from inbound.coordinators.fixed_count import FixedCountCoordinator
from inbound.coordinators.static import StaticCoordinator
from tests.coordinators.coordinator_group import TOPICS, Group, a_coordinator, some_topics

NAMES = tuple("mnopqrstu")


def nobody_yet(seed: int) -> tuple[random.Random, Group]:
    """Return a group without members, and what draws its story."""
    rng = random.Random(seed)
    return rng, Group({t: rng.randint(0, 7) for t in TOPICS})


def change(group: Group, rng: random.Random, *, mixed: bool) -> None:
    """Let a member join or leave."""
    name = rng.choice(NAMES)
    if name in group.members:
        group.leave(name)
    elif mixed:
        group.join(name, a_coordinator(rng), some_topics(rng))
    else:
        group.join(name)


def readers(group: Group, topic: str) -> list[str]:
    """Return the members that read a topic, longest-serving first."""
    return [name for name, member in group.members.items() if topic in member.topics]


def everything(group: Group, topic: str) -> set[TopicPartition]:
    return {TopicPartition(topic, p) for p in range(group.partitions[topic])}


def check_rights(group: Group) -> None:
    """Check a group at rest against the order of right: static, fixed-count, dynamic."""
    shared: dict[str, frozenset[str]] = {}
    for topic in group.partitions:
        reading = {name: group.coordinators[name] for name in readers(group, topic)}
        exist = everything(group, topic)
        lists = {name: c.listed & exist for name, c in reading.items() if isinstance(c, StaticCoordinator)}
        reserved = set().union(*lists.values())
        has = {name: {tp for tp in group.held(name) if tp.topic == topic} for name in reading}
        for tp in reserved:  # a member that lists it has it
            assert group.owner.get(tp) in {name for name, listed in lists.items() if tp in listed}
        for name, listed in lists.items():  # and nothing else
            assert has[name] <= listed
        left = len(exist - reserved)
        for name, coordinator in reading.items():
            if isinstance(coordinator, FixedCountCoordinator):
                assert len(has[name]) == min(coordinator.count, left)
                left -= len(has[name])
        dynamic = frozenset(name for name, c in reading.items() if isinstance(c, DynamicCoordinator))
        assert len([tp for tp in exist if tp not in group.owner]) == (0 if dynamic else left)
        if dynamic:
            shared[topic] = dynamic
    for members in set(shared.values()):  # counts within one of each other over all topics of a class
        topics = {topic for topic, dynamic in shared.items() if dynamic == members}
        counts = [len([tp for tp in group.held(name) if tp.topic in topics]) for name in members]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("seed", range(20))
def test_dynamic_members_are_even_and_move_as_few_as_can_be(seed: int) -> None:
    """After each of 100 joins and leaves: spread at most one, all owned, and only a surplus moved."""
    rng, group = nobody_yet(seed)
    for _ in range(100):
        change(group, rng, mixed=False)
        total, size = sum(group.partitions.values()), len(group.members)
        ranked = list(group.members)
        shares = {name: total // size + (rank < total % size) for rank, name in enumerate(ranked)}
        fewest = sum(max(0, len(group.held(name)) - shares[name]) for name in ranked)
        before = dict(group.owner)
        group.moved.clear()
        group.settle(rng, rounds=3)
        assert {name: len(group.held(name)) for name in ranked} == shares
        assert len([tp for tp, owner in before.items() if group.owner[tp] != owner]) == len(group.moved) == fewest


@pytest.mark.parametrize("seed", range(25))
def test_in_any_mix_everybody_comes_to_what_is_his(seed: int) -> None:
    """After each of 40 joins and leaves of static, fixed-count and dynamic members that read different topics."""
    rng, group = nobody_yet(seed)
    for _ in range(40):
        change(group, rng, mixed=True)
        group.settle(rng, rounds=3)
        check_rights(group)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_members_that_see_different_things_agree_in_the_end(seed: int, mixed: bool) -> None:
    """Each sees members and owners late and apart from each other, and plans are carried out when they are old. Nobody
    takes what has an owner (that is refused), and when the news has reached everybody the group is at rest as it must."""
    rng, group = nobody_yet(seed)
    for _ in range(12):
        change(group, rng, mixed=mixed)
        pending = []
        for _ in range(25):
            if not group.members:
                break
            name = rng.choice(list(group.members))
            action = rng.randrange(5)
            if action == 0:
                group.notice_members(name)
            elif action == 1:
                group.notice_owners(name)
            elif action == 2:
                pending.append((name, group.stale_plan(name)))
            elif action == 3 and pending:
                name, plan = pending.pop(rng.randrange(len(pending)))
                if name in group.members:
                    group.look(name, plan)
            else:
                group.look(name, group.stale_plan(name))
    group.settle(rng, rounds=3)
    check_rights(group)


def rounds_of_old_owners(group: Group, rng: random.Random) -> Iterator[int]:
    """Let all plan on what they saw at the beginning of each round, until nobody did anything."""
    for number in range(1, 100):
        plans = {name: group.plan(name) for name in rng.sample(list(group.members), len(group.members))}
        yield number
        if not sum([group.look(name, plan) for name, plan in plans.items()]):
            return


@pytest.mark.parametrize("seed", range(30))
def test_members_that_all_look_at_the_same_moment_do_not_go_round_in_circles(seed: int) -> None:
    """They want some of the same ones; who loses looks again. A few rounds suffice, the last one finds nothing to do."""
    rng, group = nobody_yet(seed)
    for _ in range(12):
        change(group, rng, mixed=True)
        assert max(rounds_of_old_owners(group, rng)) <= 8
        check_rights(group)


def test_members_that_look_at_the_same_moment_mostly_want_different_ones() -> None:
    """Of any kind: each begins at its own place."""
    group = Group({"a": 8})
    for number in range(4):
        group.join(f"m{number}", FixedCountCoordinator(2) if number % 2 else DynamicCoordinator(), topics=("a",))
    wanted = [tp for name in group.members for tp in group.plan(name).take]
    assert sorted(wanted) == sorted(everything(group, "a"))


def test_a_static_member_releases_what_it_does_not_list() -> None:
    """It may have it from a time when its list was another."""
    group = Group({"a": 3})
    group.join("s", StaticCoordinator({"a": [0]}), topics=("a",))
    group.owner = dict.fromkeys(everything(group, "a"), "s")
    assert group.plan("s").release == (TopicPartition("a", 1), TopicPartition("a", 2))
