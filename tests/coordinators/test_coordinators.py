"""Every coordinator, held against what all must do."""

from __future__ import annotations

import random
from typing import Any

from inbound.coordinators.base import GroupView, Plan, ZkCoordinator
from inbound.coordinators.custom import CustomCoordinator
from inbound.coordinators.dynamic import DynamicCoordinator
from inbound.coordinators.fixed_count import FixedCountCoordinator
from tests.coordinators.coordinator_conformance import CoordinatorConformance
from tests.coordinators.coordinator_group import a_static


class TestDynamic(CoordinatorConformance):
    def make(self, rng: random.Random) -> ZkCoordinator:
        return DynamicCoordinator()


class TestFixedCount(CoordinatorConformance):
    def make(self, rng: random.Random) -> ZkCoordinator:
        return FixedCountCoordinator(rng.randint(1, 5))


class TestStatic(CoordinatorConformance):
    def make(self, rng: random.Random) -> ZkCoordinator:
        return a_static(rng)


class OnlyEven(ZkCoordinator):
    """Takes what others might be entitled to, and never gives anything back."""

    def plan(self, view: GroupView) -> Plan:
        return Plan(take=tuple(tp for tp in view.free() if tp.partition % 2 == 0))


class TestOneThatTakesMoreThanItsShare(CoordinatorConformance):
    def make(self, rng: random.Random) -> ZkCoordinator:
        return CustomCoordinator("even:OnlyEven", OnlyEven())


class HighestFirst(DynamicCoordinator):
    """Takes as many as a dynamic one, beginning at the other end; its notice says how its weight was set."""

    def parameters(self) -> dict[str, Any]:
        return {"from": "the end", "weights": [1, 2.5, None]}

    def plan(self, view: GroupView) -> Plan:
        plan = super().plan(view)
        topics = {tp.topic for tp in plan.take}
        same = [tp for tp in view.free() if tp in plan.take or (len(topics) == 1 and tp.topic in topics)]
        return Plan(tuple(same[::-1][: len(plan.take)]), plan.release, plan.share)


class TestOneThatSharesInItsOwnWay(CoordinatorConformance):
    def make(self, rng: random.Random) -> ZkCoordinator:
        return CustomCoordinator("mine:HighestFirst", HighestFirst())
