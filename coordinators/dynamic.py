"""An even share for every member."""

from __future__ import annotations

from inbound.coordinators.assignment import choose, classes, share, surplus
from inbound.coordinators.base import GroupView, Plan, ZkCoordinator
from inbound.topic_partition import TopicPartition


class DynamicCoordinator(ZkCoordinator):
    """Counts differ by at most one over all topics that the same members list; only a surplus moves."""

    kind = "dynamic"

    def plan(self, view: GroupView) -> Plan:
        listed = {t: frozenset(m.consumer_id for m in view.members if t in m.topics) for t in view.partitions}
        take: list[TopicPartition] = []
        release: list[TopicPartition] = [tp for tp in view.mine if tp.topic not in view.partitions]
        total = 0
        for members, topics in classes(listed):
            if view.me not in members:
                continue
            ranked = [m.consumer_id for m in view.ranked(list(topics)) if m.consumer_id in members]
            rank = ranked.index(view.me)
            everything = [TopicPartition(t, p) for t in topics for p in range(view.partitions[t])]
            keep = share(rank, len(ranked), len(everything))
            total += keep
            mine = [tp for tp in view.mine if tp.topic in topics]
            if len(mine) > keep:
                release += surplus(mine, keep)
            else:
                free = [tp for tp in everything if tp not in view.owned and tp not in view.mine]
                take += choose(free, keep - len(mine), rank, len(ranked))
        return Plan(tuple(take), tuple(release), total)
