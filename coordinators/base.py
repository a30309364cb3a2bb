"""The interface of coordinators: the view, the plan, `ZkCoordinator`."""

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
    #: From its id node: `type` and the parameters; see `inbound.coordinators.rights`.
    coordinator: Mapping[str, Any] = field(default_factory=lambda: {"type": "dynamic"})
    #: From its id node: the subscription that it serves; see `inbound.coordinators.subscriber_status`.
    subscriber: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class GroupView:
    """The group as one member saw it at one moment.

    Members' views may differ for a while; claims decide.
    """

    me: str
    members: tuple[Member, ...]  # in no order; without `me` while our own id node is not seen yet
    partitions: Mapping[str, int]  # topic: number of partitions; only topics that `me` lists
    owned: frozenset[TopicPartition]  # those with an owner node, of any member
    mine: frozenset[TopicPartition]

    def ranked(self, topics: tuple[str, ...] | list[str]) -> list[Member]:
        """Return the members that list any of `topics`, longest-serving first."""
        wanted = set(topics)
        return sorted((m for m in self.members if wanted & set(m.topics)), key=lambda m: (m.joined, m.consumer_id))

    def free(self) -> list[TopicPartition]:
        """Return the ownerless partitions, in order, which a plan may take."""
        everything = (TopicPartition(t, p) for t in sorted(self.partitions) for p in range(self.partitions[t]))
        return [tp for tp in everything if tp not in self.owned and tp not in self.mine]


@dataclass(frozen=True)
class Plan:
    """The ownerless partitions to take, and our own to release."""

    take: tuple[TopicPartition, ...] = ()
    release: tuple[TopicPartition, ...] = ()
    #: How many partitions this member should own when all members have done their part.
    share: int = 0
    #: Sentences for people: each names its subject, the finding, and what to do. Logged once; `status` shows them.
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

    #: The kind in the id node, from which other members compute shares. A class that the configuration names has that
    #: name there, and other members count its member as dynamic.
    kind: str = "custom"
    Options: type[Any] | None = None

    def __init__(self, options: Any = None) -> None:
        """Keep the options: an instance of `Options`, else the plain mapping."""
        self.options = options

    def parameters(self) -> dict[str, Any]:
        """Return the parameters that the id node has besides the kind.

        They must fit into JSON, be small, and be the same at every call. No secrets: `status` shows them, and ZooKeeper's
        users can read them.
        """
        return {}

    def registration(self) -> dict[str, Any]:
        """Return the entry in the id node: `type` and the parameters."""
        return {**self.parameters(), "type": self.kind}

    @abstractmethod
    def plan(self, view: GroupView) -> Plan:
        """Return which ownerless partitions to take, and which of `view.mine` to release."""
