"""What a coordinator decides, and on what grounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inbound.topic_partition import TopicPartition


@dataclass(frozen=True)
class Member:
    """A live consumer of the group."""

    consumer_id: str
    joined: int  # zxid of its first registration: the order of seniority
    topics: tuple[str, ...]
    coordinator: Mapping[str, Any] = field(default_factory=lambda: {"type": "dynamic"})


@dataclass(frozen=True)
class GroupView:
    """The group as one member saw it at one moment. Members' views may differ for a while; claims settle it."""

    me: str
    members: tuple[Member, ...]
    partitions: Mapping[str, int]  # topic: how many partitions, of the topics that `me` lists
    owned: frozenset[TopicPartition]  # those with an owner node, whoever's
    mine: frozenset[TopicPartition]

    def ranked(self, topics: tuple[str, ...] | list[str]) -> list[Member]:
        """The members that list any of `topics`, longest-serving first."""
        wanted = set(topics)
        return sorted((m for m in self.members if wanted & set(m.topics)), key=lambda m: (m.joined, m.consumer_id))


@dataclass(frozen=True)
class Plan:
    """What to do about it: `take` are ownerless partitions, `release` are ours."""

    take: tuple[TopicPartition, ...] = ()
    release: tuple[TopicPartition, ...] = ()
    #: How many partitions this member should own when all members have done their part.
    share: int = 0


class ZkCoordinator(ABC):
    """Decides which partitions of a group this member should own.

    Pure: no I/O, no clock, no memory. The channel carries the plan out and may fail to; members racing for one
    partition is normal, and the loser sees the winner next time.
    """

    #: What stands in the id node, so that other members can count with it.
    kind: str = "custom"

    def parameters(self) -> dict[str, Any]:
        """Return what the id node says besides the kind."""
        return {}

    @abstractmethod
    def plan(self, view: GroupView) -> Plan:
        """Return what to take (only ownerless partitions of `view`) and what to release (only of `view.mine`)."""
