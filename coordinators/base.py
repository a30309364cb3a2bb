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
    #: What its id node says: `type` and the parameters; see `inbound.coordinators.rights`.
    coordinator: Mapping[str, Any] = field(default_factory=lambda: {"type": "dynamic"})
    #: What its id node says of the subscription that it serves; see `inbound.coordinators.members`.
    subscriber: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class GroupView:
    """The group as one member saw it at one moment.

    Members' views may differ for a while; claims settle it.
    """

    me: str
    members: tuple[Member, ...]  # in no order; without `me` while our own id node is not seen yet
    partitions: Mapping[str, int]  # topic: how many partitions, of the topics that `me` lists
    owned: frozenset[TopicPartition]  # those with an owner node, of any member
    mine: frozenset[TopicPartition]

    def ranked(self, topics: tuple[str, ...] | list[str]) -> list[Member]:
        """The members that list any of `topics`, longest-serving first."""
        wanted = set(topics)
        return sorted((m for m in self.members if wanted & set(m.topics)), key=lambda m: (m.joined, m.consumer_id))

    def free(self) -> list[TopicPartition]:
        """The partitions that have no owner, of all topics that `me` lists: what a plan may take. In order."""
        everything = (TopicPartition(t, p) for t in sorted(self.partitions) for p in range(self.partitions[t]))
        return [tp for tp in everything if tp not in self.owned and tp not in self.mine]


@dataclass(frozen=True)
class Plan:
    """What to do about it: `take` are ownerless partitions, `release` are ours."""

    take: tuple[TopicPartition, ...] = ()
    release: tuple[TopicPartition, ...] = ()
    #: How many partitions this member should own when all members have done their part.
    share: int = 0
    #: Sentences for people, each with its subject, what is so, and what to do. Logged once; `status` shows them.
    notices: tuple[str, ...] = ()


class ZkCoordinator(ABC):
    """Decides which partitions of a group this member should own.

    Derive from it, and write `plan`.

        class OnlyEven(ZkCoordinator):
            def plan(self, view: GroupView) -> Plan:
                return Plan(take=tuple(tp for tp in view.free() if tp.partition % 2 == 0))

    It is named in the configuration, `coordinator: {type: "my_module:OnlyEven", options: {...}}`, made once per channel
    with its options, and asked for a plan whenever members, owners or topics change, and every `rebalance_interval`.

    Pure: no I/O, no clock, no memory; the same view gives the same plan. The channel carries the plan out and may fail
    to; members racing for one partition is normal, and the loser sees the winner next time. Members decide each for
    itself, from nodes that they may see at different moments, so two rules keep a group from going round in circles:
    a plan takes no more than it would keep when asked again, and releases only what another member is entitled to.

    `plan` runs on the controller's thread, which also keeps the ZooKeeper session alive: it must return within
    milliseconds. An error is reported, and then nothing moves. What a plan must not do (taking what has an owner,
    releasing what is not ours) is left out and reported.

    Set `Options` to a pydantic model to have the configuration's `options` validated before anything starts.
    """

    #: What stands in the id node, so that other members can count with it. Of a class named in the configuration that
    #: name takes its place: others count such a member as if it were dynamic.
    kind: str = "custom"
    Options: type[Any] | None = None

    def __init__(self, options: Any = None) -> None:
        """Take the options: an instance of `Options`, or the plain mapping where the class has none."""
        self.options = options

    def parameters(self) -> dict[str, Any]:
        """Return what the id node says besides the kind: what goes into JSON, small, the same at every call.

        Everybody who reads ZooKeeper or `status` sees it: no secrets.
        """
        return {}

    def registration(self) -> dict[str, Any]:
        """Return what the id node says of this coordinator: `type` and the parameters."""
        return {**self.parameters(), "type": self.kind}

    @abstractmethod
    def plan(self, view: GroupView) -> Plan:
        """Return what to take (only ownerless partitions of `view`) and what to release (only of `view.mine`)."""
