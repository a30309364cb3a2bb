"""Who should own how much: laws for any group, with any members, topics and history."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from inbound import TopicPartition
from inbound.coordinators.assignment import choose, classes, share, surplus
from inbound.coordinators.base import GroupView, Member
from inbound.coordinators.dynamic import DynamicCoordinator
from tests.coordinators.coordinator_group import TOPICS, Group

ALL = [TopicPartition(topic, p) for topic in TOPICS for p in range(4)]

partitions = st.sampled_from(ALL)
some = st.sets(partitions)

# -- the pure functions ------------------------------------------------------------------------------------------------


@given(st.integers(1, 30), st.integers(0, 200))
def test_shares_add_up_and_differ_by_at_most_one(members: int, count: int) -> None:
    """The remainder goes to the longest-serving."""
    shares = [share(rank, members, count) for rank in range(members)]
    assert sum(shares) == count
    assert shares == sorted(shares, reverse=True)
    assert shares[0] - shares[-1] <= 1


@given(st.integers(1, 29), st.integers(0, 200))
def test_a_joiner_makes_nobody_s_share_larger(members: int, count: int) -> None:
    """Who has been there gives, and never takes, when a member joins."""
    for rank in range(members):
        assert share(rank, members + 1, count) <= share(rank, members, count)


@given(some, st.integers(0, 12))
def test_a_surplus_is_what_is_mine_and_leaves_what_is_to_be_kept(mine: set[TopicPartition], keep: int) -> None:
    """Each partition once. A topic that gave something keeps at least as much as any other, but for one."""
    released = surplus(mine, keep)
    assert len(set(released)) == len(released) == max(0, len(mine) - keep)
    assert set(released) <= mine
    left = Counter(tp.topic for tp in mine - set(released))
    for topic in {tp.topic for tp in released}:
        assert left[topic] >= max(left.values(), default=0) - 1


@given(some, st.integers(-3, 20), st.integers(0, 9), st.integers(1, 10))
def test_what_is_chosen_is_free_and_no_more_than_asked_for(
    free: set[TopicPartition], count: int, rank: int, members: int
) -> None:
    """Each partition once, and as many as there are."""
    chosen = choose(free, count, rank % members, members)
    assert len(set(chosen)) == len(chosen) == min(max(count, 0), len(free))
    assert set(chosen) <= free


@given(st.integers(1, 6), st.integers(0, 5))
def test_members_that_choose_at_the_same_time_want_different_ones(members: int, extra: int) -> None:
    """Where there is enough for a place of the ring each."""
    free = [TopicPartition("t", p) for p in range(members * (1 + extra))]
    wanted = [tp for rank in range(members) for tp in choose(free, 1 + extra, rank, members)]
    assert len(set(wanted)) == len(wanted)


def test_topics_are_counted_together_where_the_same_members_list_them() -> None:
    """In an order that all members agree on."""
    both, one = frozenset({"x", "y"}), frozenset({"x"})
    assert classes({"c": both, "a": one, "b": both}) == [(one, ["a"]), (both, ["b", "c"])]


# -- the dynamic coordinator, one look ---------------------------------------------------------------------------------


def member(name: str, joined: int, topics: Iterable[str] = TOPICS) -> Member:
    """A member of the group."""
    return Member(name, joined, tuple(topics))


@st.composite
def views(draw: st.DrawFn) -> GroupView:
    """What a member may see, right or wrong: members' views differ, owners come and go."""
    names = draw(st.lists(st.sampled_from("mnopqr"), unique=True, max_size=6))
    lists = st.sets(st.sampled_from(TOPICS), min_size=1)
    members = [member(name, draw(st.integers(0, 5)), draw(lists)) for name in names]
    topics = draw(lists)
    if draw(st.booleans()):
        members.append(member("me", draw(st.integers(0, 5)), topics))
    counts = {topic: draw(st.integers(0, 4)) for topic in topics}
    mine = frozenset(draw(some))
    return GroupView("me", tuple(members), counts, frozenset(draw(some)) | mine, mine)


@given(views())
def test_a_plan_leads_to_the_share_and_not_beyond(view: GroupView) -> None:
    """Carried out, it gives at most the share, and gives nothing away that belongs to it."""
    plan = DynamicCoordinator().plan(view)
    known = {tp for tp in view.mine if tp.topic in view.partitions}
    after = (known - set(plan.release)) | set(plan.take)
    listed = any(m.consumer_id == "me" for m in view.members)
    assert not listed or len(after) <= plan.share
    assert set(plan.release) >= view.mine - known


# -- and again and again -----------------------------------------------------------------------------------------------

PARTITIONS = dict.fromkeys(TOPICS, 4)


def settled(size: int) -> Group:
    """Return a group of so many members in which no member has anything left to do."""
    group = Group(PARTITIONS)
    for n in range(size):
        group.join(f"m{n}")
    group.settle(random.Random(0))
    group.moved.clear()
    return group


@given(st.lists(st.sampled_from("uvwxyz"), min_size=1, max_size=12), st.randoms())
def test_repeated_plans_come_to_an_even_share_after_any_joins_and_leaves(names: list[str], rng: random.Random) -> None:
    """Each name joins, or leaves if it is there; who looks first makes no difference to the counts."""
    group = Group(PARTITIONS)
    for name in names:
        if name in group.members:
            group.leave(name)
        else:
            group.join(name)
        group.settle(rng)
        if group.members:
            size = len(group.members)
            assert set(group.owner) == set(ALL)
            assert [len(group.held(name)) for name in group.members] == [
                share(rank, size, len(ALL)) for rank in range(size)
            ]


@given(st.integers(1, 8), st.randoms())
def test_a_join_moves_only_the_joiner_s_share(size: int, rng: random.Random) -> None:
    """Nothing moves between the other members."""
    group = settled(size)
    before = dict(group.owner)
    group.join("new")
    group.settle(rng)
    assert len(group.moved) == share(size, size + 1, len(ALL))
    assert {tp for tp in ALL if group.owner[tp] != before[tp]} == group.held("new")


@given(st.integers(2, 8), st.integers(0, 7), st.randoms())
def test_a_leave_moves_nothing_but_what_is_left_without_an_owner(size: int, who: int, rng: random.Random) -> None:
    """But for the remainder, which goes with seniority."""
    group = settled(size)
    group.leave(f"m{who % size}")
    group.settle(rng)
    assert group.moved == []
    assert set(group.owner) == set(ALL)


@given(st.lists(st.sets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=6), st.randoms())
def test_members_with_different_topics_share_what_they_have_in_common(
    lists: list[set[str]], rng: random.Random
) -> None:
    """A member owns only topics that it lists, every listed topic has owners, and each class of topics with the same
    members is shared evenly.
    """
    group = Group(PARTITIONS)
    for n, topics in enumerate(lists):
        group.join(f"m{n}", topics=topics)
    group.settle(rng)
    for tp, owner in group.owner.items():
        assert tp.topic in group.members[owner].topics
    wanted = {topic for topics in lists for topic in topics}
    assert set(group.owner) == {tp for tp in ALL if tp.topic in wanted}
    listed = {topic: frozenset(m for m in group.members if topic in group.members[m].topics) for topic in wanted}
    for members, topics_of_class in classes(listed):
        counts = Counter(owner for tp, owner in group.owner.items() if tp.topic in topics_of_class)
        each = [counts[name] for name in members]
        assert max(each) - min(each) <= 1
