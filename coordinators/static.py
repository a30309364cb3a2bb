"""The partitions that the configuration lists, and no others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inbound.coordinators.base import GroupView, Plan, ZkCoordinator
from inbound.coordinators.rights import STATIC, about_group, contested, listed_by, missing, rights_of


class StaticCoordinator(ZkCoordinator):
    """Takes the listed partitions that exist.

    Members that do not list them release them for as long as this member lives. Where another live static member lists the
    same partition, the first claim wins: neither releases it.
    """

    kind = STATIC

    def __init__(self, partitions: Mapping[str, Sequence[int]]) -> None:
        """`partitions` maps a topic to partition numbers, from 0."""
        super().__init__()
        self._partitions = {topic: sorted(numbers) for topic, numbers in sorted(partitions.items())}
        self.listed = listed_by(self.registration())

    def parameters(self) -> dict[str, Any]:
        return {"partitions": {topic: list(numbers) for topic, numbers in self._partitions.items()}}

    def plan(self, view: GroupView) -> Plan:
        release = sorted(tp for tp in view.mine if tp.topic not in view.partitions)
        if all(m.consumer_id != view.me for m in view.members):
            return Plan(release=tuple(release))  # other members don't see us yet, and keep the partitions that we list
        rights = rights_of(view)
        release += sorted(tp for tp in view.mine - self.listed if tp.topic in view.partitions)
        take = [tp for tp in view.free() if tp in self.listed]
        exist = [tp for tp in self.listed if tp.partition < view.partitions.get(tp.topic, 0)]
        notices = (*contested(view.me, rights), *missing(self.listed, view), *about_group(view, rights))
        return Plan(tuple(take), tuple(release), len(exist), notices)
