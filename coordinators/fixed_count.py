"""A fixed number of partitions of each topic, and no more."""

from __future__ import annotations

from typing import Any

from inbound.coordinators.base import GroupView, Plan, ZkCoordinator
from inbound.coordinators.rights import FIXED_COUNT, Portion, about_group, rights_of, short_of_count, toward


class FixedCountCoordinator(ZkCoordinator):
    """Takes up to `count` unlisted partitions of each topic.

    Unlisted are those that no static member lists.
    """

    kind = FIXED_COUNT

    def __init__(self, count: int) -> None:
        """`count` is the number of partitions per topic, at least 1."""
        super().__init__()
        self.count = count

    def parameters(self) -> dict[str, Any]:
        return {"count": self.count}

    def plan(self, view: GroupView) -> Plan:
        rights = rights_of(view)
        # Empty while our own id node is not seen yet.
        goals = [Portion((of,), of.targets[view.me]) for _, of in sorted(rights.items()) if view.me in of.targets]
        notices = (*short_of_count(view.me, rights), *about_group(view, rights))
        return toward(view, goals, notices, share=False)
