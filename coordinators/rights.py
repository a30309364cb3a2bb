"""Who is entitled to what, where static, fixed-count and dynamic members mix in one group.

The order of right, topic by topic: what a live static member lists is reserved for those who list it; of the rest each
fixed-count member may have its count, the longest-serving first; what remains is for the dynamic members. Members of a
kind that is not known here (custom ones, or of a later version) count as dynamic.

Pure: members that see the same id nodes and partition counts come to the same answer, and so their targets add up to
no more than there is. That is all that convergence needs: whoever has more than its target gives, whoever has less
takes what has no owner, and nobody waits for somebody who waits for him.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from inbound.coordinators.assignment import classes, dealt
from inbound.coordinators.base import GroupView, Member
from inbound.coordinators.parameters import count_of, is_dynamic, listed_by
from inbound.topic_partition import TopicPartition


@dataclass(frozen=True)
class TopicRights:
    """One topic. Members are given by their ids, longest-serving first."""

    topic: str
    partitions: int
    listed: Mapping[TopicPartition, tuple[str, ...]]  # partitions that exist: the static members that list them
    wanted: Mapping[str, int]  # fixed-count member: how many it asks for
    targets: Mapping[str, int]  # fixed-count member: how many of them it is entitled to
    sharers: tuple[str, ...]  # dynamic members
    left: int  # partitions for the sharers; nobody takes them where there are none
    takers: tuple[str, ...]  # those who take what they find ownerless: sharers, and fixed-count members with a target

    def unreserved(self) -> list[TopicPartition]:
        """Return the partitions that no static member lists, in order."""
        everything = (TopicPartition(self.topic, p) for p in range(self.partitions))
        return [tp for tp in everything if tp not in self.listed]

    def place(self, member: str) -> tuple[int, int]:
        """Return the member's place among the takers, and how many they are: where it begins to look."""
        return self.takers.index(member) if member in self.takers else 0, len(self.takers)


def rights_of(view: GroupView) -> dict[str, TopicRights]:
    """Return the rights in every topic that the member itself lists."""
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
    """Topics over which a dynamic member's partitions are counted together, and how many it should have of them."""

    topics: tuple[TopicRights, ...]
    keep: int


def portions(me: str, rights: Mapping[str, TopicRights]) -> Iterator[Portion]:
    """Yield what a dynamic member is entitled to.

    Over all topics that the same dynamic members list, counts differ by at most one. Where fixed-count members have a
    right to partitions of a topic, counting the class as a whole is not enough: a dynamic member that has its number
    could sit on all of a topic that a fixed-count member needs, and neither sees whose the other's partitions are. So
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
