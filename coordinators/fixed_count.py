"""So many partitions of each topic, and no more."""

from __future__ import annotations

from typing import Any

from inbound.coordinators.assignment import choose, surplus
from inbound.coordinators.base import GroupView, Plan, ZkCoordinator
from inbound.coordinators.notices import about_group, short_of_count
from inbound.coordinators.parameters import FIXED_COUNT
from inbound.coordinators.rights import rights_of
from inbound.topic_partition import TopicPartition


class FixedCountCoordinator(ZkCoordinator):
    """Takes `count` partitions of each topic, any that no static member lists; fewer where there are not enough."""

    kind = FIXED_COUNT

    def __init__(self, count: int) -> None:
        """`count`: partitions per topic, at least 1."""
        super().__init__()
        self.count = count

    def parameters(self) -> dict[str, Any]:
        return {"count": self.count}

    def plan(self, view: GroupView) -> Plan:
        rights = rights_of(view)
        take: list[TopicPartition] = []
        release = sorted(tp for tp in view.mine if tp.topic not in view.partitions)
        total = 0
        for topic, of in sorted(rights.items()):
            if view.me not in of.targets:
                continue  # our id node is not seen yet
            target = of.targets[view.me]
            total += target
            mine = sorted(tp for tp in view.mine if tp.topic == topic)
            keepable = [tp for tp in mine if tp not in of.listed]
            release += [tp for tp in mine if tp in of.listed]
            if len(keepable) > target:
                release += surplus(keepable, target)
            else:
                free = [tp for tp in of.unreserved() if tp not in view.owned and tp not in view.mine]
                take += choose(free, target - len(keepable), *of.place(view.me))
        notices = (*short_of_count(view.me, rights), *about_group(view, rights))
        return Plan(tuple(take), tuple(release), total, notices)
