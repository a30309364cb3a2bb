"""The rights of members to partitions in a group of mixed kinds.

The order of right, topic by topic: partitions that live static members list are reserved for them; of the rest each
fixed-count member may have its count, the longest-serving first; the remainder is for the dynamic members. Members of an
unknown kind (custom ones, or of a later version) count as dynamic.

Pure: members that see the same id nodes and partition counts compute the same rights, so their targets add up to no more
than all partitions. Convergence needs nothing else: a member above its target releases, a member below it takes ownerless
partitions, and no two members wait for each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inbound.coordinators.assignment import choose, classes, dealt, surplus
from inbound.coordinators.base import GroupView, Member, Plan
from inbound.topic_partition import TopicPartition

DYNAMIC, FIXED_COUNT, STATIC = "dynamic", "fixed-count", "static"

#: A sentence names so many partitions or topics, and counts the others.
NAMED = 20


def is_dynamic(coordinator: Mapping[str, Any]) -> bool:
    """Return whether a member counts as dynamic, as all unknown kinds do."""
    return coordinator.get("type") not in (STATIC, FIXED_COUNT)


def listed_by(coordinator: Mapping[str, Any]) -> frozenset[TopicPartition]:
    """Return a static member's readable list of partitions, or none."""
    partitions = coordinator.get("partitions")
    if coordinator.get("type") != STATIC or not isinstance(partitions, Mapping):
        return frozenset()
    return frozenset(
        TopicPartition(topic, number)
        for topic, numbers in partitions.items()
        if isinstance(topic, str) and isinstance(numbers, (list, tuple))
        for number in numbers
        if type(number) is int and number >= 0
    )


def count_of(coordinator: Mapping[str, Any]) -> int:
    """Return a fixed-count member's readable count per topic, or 0."""
    count = coordinator.get("count")
    return count if coordinator.get("type") == FIXED_COUNT and type(count) is int and count > 0 else 0


def is_damaged(coordinator: Mapping[str, Any]) -> bool:
    """Return whether no member of this kind writes such parameters."""
    if coordinator.get("type") == FIXED_COUNT:
        return count_of(coordinator) == 0
    if coordinator.get("type") != STATIC:
        return False
    partitions = coordinator.get("partitions")
    if not isinstance(partitions, Mapping) or not all(isinstance(n, (list, tuple)) for n in partitions.values()):
        return True
    return len(listed_by(coordinator)) != sum(map(len, partitions.values())) or not partitions


def described(coordinator: Mapping[str, Any]) -> str:
    """Return kind and parameters for people, as `static, orders 0-2, 5`."""
    kind = str(coordinator.get("type", DYNAMIC))
    if kind == STATIC and not is_damaged(coordinator):
        listed = sorted(listed_by(coordinator))
        topics = sorted({tp.topic for tp in listed})
        return f"{kind}, " + "; ".join(f"{t} {ranges(tp.partition for tp in listed if tp.topic == t)}" for t in topics)
    rest = ", ".join(f"{name} {value}" for name, value in coordinator.items() if name != "type")
    return f"{kind}, {rest}" if rest else kind


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and last number of each unbroken run."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers in order, with long runs abbreviated: `0-2, 5, 6`."""
    return ", ".join(
        f"{first}-{last}" if last > first + 1 else ", ".join(map(str, range(first, last + 1)))
        for first, last in runs(numbers)
    )


def named(things: Iterable[object], most: int = NAMED) -> str:
    """Return the first `most` things with commas, and count the others."""
    every = [str(thing) for thing in things]
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


@dataclass(frozen=True)
class TopicRights:
    """The members' rights in one topic, by their ids, longest-serving first."""

    topic: str
    partitions: int
    listed: Mapping[TopicPartition, tuple[str, ...]]  # partitions that exist: the static members that list them
    wanted: Mapping[str, int]  # fixed-count member: its count
    targets: Mapping[str, int]  # fixed-count member: the part of its count that it is entitled to
    sharers: tuple[str, ...]  # dynamic members
    left: int  # partitions for the sharers; no member takes them where there are no sharers
    takers: tuple[str, ...]  # members that take ownerless partitions: sharers, and fixed-count members with a target

    def unreserved(self) -> list[TopicPartition]:
        """Return the partitions that no static member lists, in order."""
        everything = (TopicPartition(self.topic, p) for p in range(self.partitions))
        return [tp for tp in everything if tp not in self.listed]


def rights_of(view: GroupView) -> dict[str, TopicRights]:
    """Return the rights in every topic of the view."""
    ranked = sorted(view.members, key=lambda m: (m.joined, m.consumer_id))
    listed: dict[str, dict[TopicPartition, tuple[str, ...]]] = {topic: {} for topic in view.partitions}
    for member in ranked:
        for tp in listed_by(member.coordinator):
            if tp.partition < view.partitions.get(tp.topic, 0) and tp.topic in member.topics:
                by_partition = listed[tp.topic]
                by_partition[tp] = (*by_partition.get(tp, ()), member.consumer_id)
    return {
        topic: _rights(topic, count, [m for m in ranked if topic in m.topics], listed[topic])
        for topic, count in view.partitions.items()
    }


def _rights(
    topic: str, count: int, readers: list[Member], listed: Mapping[TopicPartition, tuple[str, ...]]
) -> TopicRights:
    left = count - len(listed)
    wanted = {m.consumer_id: wish for m in readers if (wish := count_of(m.coordinator))}
    targets = {}
    for name, wish in wanted.items():
        targets[name] = min(wish, left)
        left -= targets[name]
    sharers = tuple(m.consumer_id for m in readers if is_dynamic(m.coordinator))
    takers = tuple(m.consumer_id for m in readers if is_dynamic(m.coordinator) or targets.get(m.consumer_id))
    return TopicRights(topic, count, listed, wanted, targets, sharers, left, takers)


@dataclass(frozen=True)
class Portion:
    """Topics that are counted together, and a member's share of them."""

    topics: tuple[TopicRights, ...]
    keep: int


def portions(me: str, rights: Mapping[str, TopicRights]) -> Iterator[Portion]:
    """Yield the portions that a dynamic member is entitled to.

    Over all topics that the same dynamic members list, counts differ by at most one. Where fixed-count members have a
    right to partitions of a topic, counting the class as a whole is not enough: a dynamic member that has its number
    could own all of a topic that a fixed-count member needs, and neither sees the owner of the other's partitions. So
    each such topic is a portion of its own, and the rest of the class one more. The partitions of all portions are
    dealt out one by one, member after member: each portion is even, and so is their sum.
    """
    for members, topics in classes({topic: frozenset(of.sharers) for topic, of in rights.items()}):
        if me not in members:
            continue
        ranked = rights[topics[0]].sharers
        apart = [(rights[t],) for t in topics if any(rights[t].targets.values())]
        together = tuple(rights[t] for t in topics if not any(rights[t].targets.values()))
        dealt_out = 0
        for portion in [*apart, together] if together else apart:
            left = sum(of.left for of in portion)
            yield Portion(portion, dealt(ranked.index(me), len(ranked), dealt_out, left))
            dealt_out += left


def toward(view: GroupView, goals: Sequence[Portion], notices: Iterable[str], *, share: bool) -> Plan:
    """Return the plan by which a member comes to own its goals.

    A goal is `keep` partitions of its topics, none of them listed. `share`: the takers share all unlisted partitions of these
    topics; see `choose`.
    """
    take: list[TopicPartition] = []
    release = sorted(tp for tp in view.mine if tp.topic not in view.partitions)
    for goal in goals:
        of_topic = {of.topic: of for of in goal.topics}
        mine = sorted(tp for tp in view.mine if tp.topic in of_topic)
        keepable = [tp for tp in mine if tp not in of_topic[tp.topic].listed]
        release += [tp for tp in mine if tp in of_topic[tp.topic].listed]
        if len(keepable) > goal.keep:
            release += surplus(keepable, goal.keep)
            continue
        unreserved = [tp for of in goal.topics for tp in of.unreserved()]
        free = [tp for tp in unreserved if tp not in view.owned and tp not in view.mine]
        takers = goal.topics[0].takers
        rank = takers.index(view.me) if view.me in takers else 0
        take += choose(free, goal.keep - len(keepable), rank, len(takers), len(unreserved) if share else None)
    return Plan(tuple(take), tuple(release), sum(goal.keep for goal in goals), tuple(notices))


def about_group(view: GroupView, rights: Mapping[str, TopicRights]) -> tuple[str, ...]:
    """Return the notices that every member reports, with any coordinator."""
    if all(m.consumer_id != view.me for m in view.members):
        return ()  # a view without ourselves says nothing about the group
    return (*_without_takers(rights), *_damaged(view))


def _without_takers(rights: Mapping[str, TopicRights]) -> Iterator[str]:
    left_over = [of for _, of in sorted(rights.items()) if of.left and not of.sharers]
    if unlisted := [of for of in left_over if not of.wanted]:
        yield (
            f"no member takes {named(tp for of in unlisted for tp in of.unreserved())}: no static member lists them, and "
            "there is no other member for them; list them, or add a dynamic member"
        )
    if beyond := [of for of in left_over if of.wanted]:
        numbers = named(f"{of.left} of the {of.partitions} partitions of {of.topic}" for of in beyond)
        yield (
            f"no member takes {numbers}: the counts of the fixed-count members add up to less; raise a count, or add a "
            "dynamic member"
        )


def _damaged(view: GroupView) -> Iterator[str]:
    for member in sorted(view.members, key=lambda m: m.consumer_id):
        if is_damaged(member.coordinator):
            yield (
                f"member {member.consumer_id}: its id node says {member.coordinator.get('type')}, but the parameters "
                "cannot be read; it is counted as taking only what can be read of them; restart it, in the same version "
                "as this one"
            )


def contested(me: str, rights: Mapping[str, TopicRights]) -> Iterator[str]:
    """Yield a notice for a static member's partitions that others list, too."""
    by_members: dict[tuple[str, ...], list[TopicPartition]] = {}
    for _, of in sorted(rights.items()):
        for tp, members in sorted(of.listed.items()):
            if me in members and len(members) > 1:
                by_members.setdefault(tuple(sorted(members)), []).append(tp)
    for members, partitions in by_members.items():
        yield (
            f"{named(partitions)}: listed by the static members {' and '.join(members)}; who claims first keeps it, and "
            "the others go without; list each partition for one member"
        )


def missing(listed: Collection[TopicPartition], view: GroupView) -> Iterator[str]:
    """Yield a notice for listed partitions that do not exist."""
    absent = sorted(tp for tp in listed if tp.partition >= view.partitions.get(tp.topic, 0))
    if absent:
        counts = named(f"{topic} has {view.partitions.get(topic, 0)}" for topic in sorted({tp.topic for tp in absent}))
        yield (
            f"{named(absent)}: listed by this static member, but Kafka has no such partition ({counts}); correct the "
            "list, or add partitions"
        )


def short_of_count(me: str, rights: Mapping[str, TopicRights]) -> Iterator[str]:
    """Yield a notice where a fixed-count member gets less than its count."""
    short = [of for _, of in sorted(rights.items()) if of.targets.get(me, 0) < of.wanted.get(me, 0)]
    if short:
        numbers = named(f"{of.targets[me]} of the {of.partitions} partitions of {of.topic}" for of in short)
        yield (
            f"fixed-count member {me} gets only {numbers} instead of {short[0].wanted[me]}: there are no more after "
            "static and longer-serving fixed-count members; lower a count, or add partitions"
        )
