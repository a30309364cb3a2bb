"""An even share for every member."""

from __future__ import annotations

from inbound.coordinators.base import GroupView, Plan, ZkCoordinator
from inbound.coordinators.rights import DYNAMIC, about_group, portions, rights_of, toward


class DynamicCoordinator(ZkCoordinator):
    """Shares evenly over all topics that the same members list.

    Counts differ by at most one; only a surplus moves. Partitions that static and fixed-count members are entitled to are
    released, and the rest is shared.
    """

    kind = DYNAMIC

    def plan(self, view: GroupView) -> Plan:
        rights = rights_of(view)
        return toward(view, list(portions(view.me, rights)), about_group(view, rights), share=True)
