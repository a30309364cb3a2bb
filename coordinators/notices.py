"""What people should know of a group's shares: sentences with subject, what is so, and what to do."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from inbound.coordinators.base import GroupView
from inbound.coordinators.parameters import is_damaged, named
from inbound.coordinators.rights import TopicRights
from inbound.topic_partition import TopicPartition


def about_group(view: GroupView, rights: Mapping[str, TopicRights]) -> tuple[str, ...]:
    """Return what every member reports, whatever its own coordinator."""
    if all(m.consumer_id != view.me for m in view.members):
        return ()  # a view without ourselves says nothing about the group
    return (*_nobody_takes(rights), *_damaged(view))


def _nobody_takes(rights: Mapping[str, TopicRights]) -> Iterator[str]:
    left_over = [of for _, of in sorted(rights.items()) if of.left and not of.sharers]
    if unlisted := [of for of in left_over if not of.wanted]:
        yield (
            f"nobody takes {named(tp for of in unlisted for tp in of.unreserved())}: no static member lists them, and "
            "there is no other member for them; list them, or add a dynamic member"
        )
    if beyond := [of for of in left_over if of.wanted]:
        numbers = named(f"{of.left} of the {of.partitions} partitions of {of.topic}" for of in beyond)
        yield (
            f"nobody takes {numbers}: the counts of the fixed-count members add up to less; raise a count, or add a "
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
    """Yield what else than a static member itself lists its partitions."""
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
    """Yield which of the partitions that a static member lists do not exist."""
    absent = sorted(tp for tp in listed if tp.partition >= view.partitions.get(tp.topic, 0))
    if absent:
        counts = named(f"{topic} has {view.partitions.get(topic, 0)}" for topic in sorted({tp.topic for tp in absent}))
        yield (
            f"{named(absent)}: listed by this static member, but Kafka has no such partition ({counts}); correct the "
            "list, or add partitions"
        )


def short_of_count(me: str, rights: Mapping[str, TopicRights]) -> Iterator[str]:
    """Yield where a fixed-count member gets less than its count."""
    short = [of for _, of in sorted(rights.items()) if of.targets.get(me, 0) < of.wanted.get(me, 0)]
    if short:
        numbers = named(f"{of.targets[me]} of the {of.partitions} partitions of {of.topic}" for of in short)
        yield (
            f"fixed-count member {me} gets only {numbers} instead of {short[0].wanted[me]}: there are no more after "
            "static and longer-serving fixed-count members; lower a count, or add partitions"
        )
