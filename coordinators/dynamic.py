"""An even share for every member."""

from __future__ import annotations

from inbound.coordinators.assignment import choose, surplus
from inbound.coordinators.base import GroupView, Plan, ZkCoordinator
from inbound.coordinators.notices import about_group
from inbound.coordinators.parameters import DYNAMIC
from inbound.coordinators.rights import portions, rights_of
from inbound.topic_partition import TopicPartition


class DynamicCoordinator(ZkCoordinator):
    """Counts differ by at most one over all topics that the same members list; only a surplus moves.

    What static and fixed-count members are entitled to is theirs: it is released, and the rest is shared.
    """

    kind = DYNAMIC

    def plan(self, view: GroupView) -> Plan:
        rights = rights_of(view)
        take: list[TopicPartition] = []
        release = sorted(tp for tp in view.mine if tp.topic not in view.partitions)
        total = 0
        for portion in portions(view.me, rights):
            total += portion.keep
            topics = {of.topic: of for of in portion.topics}
            mine = sorted(tp for tp in view.mine if tp.topic in topics)
            keepable = [tp for tp in mine if tp not in topics[tp.topic].listed]
            release += [tp for tp in mine if tp in topics[tp.topic].listed]
            if len(keepable) > portion.keep:
                release += surplus(keepable, portion.keep)
            else:
                unreserved = (tp for of in portion.topics for tp in of.unreserved())
                free = [tp for tp in unreserved if tp not in view.owned and tp not in view.mine]
                rank, takers = portion.topics[0].place(view.me)
                shared = sum(len(of.unreserved()) for of in portion.topics)
                take += choose(free, portion.keep - len(keepable), rank, takers, shared)
        return Plan(tuple(take), tuple(release), total, about_group(view, rights))
