"""Mutants of rebalancing, coordinators and topics: rules 11 to 14."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import inbound.coordinators.dynamic as dynamic
import inbound.coordinators.members as members
from inbound.channel.out_of_range import OutOfRange
from inbound.coordinators.assignment import share
from inbound.coordinators.base import GroupView, Member, Plan
from inbound.coordinators.members import Members, Membership
from inbound.coordinators.nodes import BadNodeError, MemberInfo
from inbound.coordinators.ownership import Claim, Ownership
from inbound.coordinators.rights import STATIC, Portion, TopicRights
from inbound.coordinators.zookeeper import Call, Delete, Node
from inbound.errors import OffsetOutOfRangeError
from inbound.group.membership import GroupMembership
from inbound.partition.partition import Fate, Partition
from inbound.partition.topics import Topics
from inbound.testing.zookeeper import FakeZooKeeper
from inbound.topic_partition import TopicPartition
from tests.simulation.planting import Mutant, Plant, storm_has

Original = Callable[..., Any]


# -- R11 ---------------------------------------------------------------------------------------------------------------


def _no_watches(plant: Plant) -> None:
    def read(
        original: Original, self: FakeZooKeeper, path: str, watch: Callable[[], None] | None = None
    ) -> Call[Node | None] | Call[list[str] | None]:
        if watch is not None:
            plant.bite()
        call: Call[Node | None] | Call[list[str] | None] = original(self, path)
        return call

    plant.around(FakeZooKeeper, "get", read)
    plant.around(FakeZooKeeper, "children", read)


def _everything_moves(plant: Plant) -> None:
    changed: set[GroupMembership] = set()

    async def calc_rebalance(original: Original, self: GroupMembership) -> Plan | None:
        before = {member.consumer_id for member in self.members}
        plan: Plan | None = await original(self)
        if before and before != {member.consumer_id for member in self.members}:
            changed.add(self)
        if plan is None or self not in changed:
            return plan
        plant.bite()
        held = self._parts.schedule.held()
        return Plan((), tuple(p.tp for p in held if p.fate is Fate.KEEP), plan.share)

    async def release_partitions(original: Original, self: GroupMembership, partitions: object) -> None:
        changed.discard(self)
        await original(self, partitions)

    plant.around(GroupMembership, "calc_rebalance", calc_rebalance)
    plant.around(GroupMembership, "release_partitions", release_partitions)


def _ranked_by_id(plant: Plant) -> None:
    async def read(original: Original, self: Members) -> tuple[Member, ...]:
        plant.bite()
        return tuple(replace(member, joined=0) for member in await original(self))

    plant.around(Members, "read", read)


def _each_topic_alone(plant: Plant) -> None:
    def portions(original: Original, me: str, rights: Mapping[str, TopicRights]) -> Iterator[Portion]:
        plant.bite()
        for of in rights.values():
            ranked = sorted(of.sharers)
            if me in ranked:
                yield Portion((of,), share(ranked.index(me), len(ranked), of.left))

    plant.around(dynamic, "portions", portions)


def _id_node_recreated(plant: Plant) -> None:
    async def register(original: Original, self: Membership) -> bool:
        connection = self.zk.connection
        node = await self.zk.get(self.path) if self.registered else None
        if node is not None and connection is not None and node.stat.ephemeral_owner == connection.session.id:
            plant.bite()
            await self.zk.transaction([Delete(self.path)])
        if self.registered:
            self.info = replace(self.info, joined=None)
        registered: bool = await original(self)
        return registered

    plant.around(Membership, "register", register)


# -- R12 ---------------------------------------------------------------------------------------------------------------


def _static_members_have_no_right(plant: Plant) -> None:
    def rights_of(original: Original, view: GroupView) -> dict[str, TopicRights]:
        others = tuple(
            replace(member, coordinator={"type": STATIC, "partitions": {}})
            if member.coordinator.get("type") == STATIC
            else member
            for member in view.members
        )
        if others != view.members:
            plant.bite()
        rights: dict[str, TopicRights] = original(replace(view, members=others))
        return rights

    plant.around(dynamic, "rights_of", rights_of)


# -- R13 and R14 -------------------------------------------------------------------------------------------------------


def _later_partitions_at_their_end(plant: Plant) -> None:
    async def claim(original: Original, *arguments: Any, **named: Any) -> Claim | None:
        claimed: Claim | None = await original(*arguments, **named)
        if claimed is None or not claimed.added_later:
            return claimed
        plant.bite()
        return replace(claimed, added_later=False)

    plant.around(Ownership, "claim", claim)


def _out_of_range_at_the_end(plant: Plant) -> None:
    def after_retention(
        original: Original, self: OutOfRange, partition: Partition, error: OffsetOutOfRangeError
    ) -> Any:
        plant.bite()
        return original(self, partition, error)._replace(target=error.end)

    plant.around(OutOfRange, "_after_retention", after_retention)


def _topics_by_name(plant: Plant) -> None:
    async def claim(
        original: Original, self: Ownership, tp: TopicPartition, dead: Any = (), topic_id: Any = None, **named: Any
    ) -> Claim | None:
        if topic_id is not None:
            plant.bite()
        claimed: Claim | None = await original(self, tp, dead, None)
        return claimed

    def is_another(original: Original, self: Topics, partition: Partition) -> bool:
        return False

    plant.around(Ownership, "claim", claim)
    plant.around(Topics, "is_another", is_another)


def _strangers_count(plant: Plant) -> None:
    def decode_member(original: Original, path: str, data: bytes) -> MemberInfo:
        try:
            info: MemberInfo = original(path, data)
        except BadNodeError:
            plant.bite()
            return MemberInfo(host="", pid=0, started="", topics=("orders", "items"))
        return info

    plant.around(members, "decode_member", decode_member)


def _topics_from_zookeeper(plant: Plant) -> None:
    async def calc_rebalance(original: Original, self: GroupMembership) -> Plan | None:
        if await self._parts.zk.children("/brokers/topics") is None:
            plant.bite()
            return Plan()  # brokers without ZooKeeper register nothing there
        plan: Plan | None = await original(self)
        return plan

    plant.around(GroupMembership, "calc_rebalance", calc_rebalance)


SHARES = (
    Mutant(
        "no-watches", "R11, Jetstream (g): a rebalance is triggered by watches",
        "what a dead or leaving member had is not read until the timer", _no_watches,
    ),
    Mutant(
        "everything-moves", "R11: only a surplus is released",
        "a joiner stops everybody's partitions", _everything_moves,
    ),
    Mutant(
        "ranked-by-id", "R11: members rank by `joined`",
        "a joiner takes a senior's place, and more moves than has to", _ranked_by_id,
    ),
    Mutant(
        "each-topic-by-itself", "R11, Jetstream (f): shares are counted over all topics",
        "with many small topics the first ids have everything", _each_topic_alone,
    ),
    Mutant(
        "id-node-made-again", "R11, Jetstream (c): a reconnect leaves the id node as it is",
        "others count one member fewer for a moment, and the order of seniority changes", _id_node_recreated,
    ),
    Mutant(
        "static-members-have-no-right", "R12: what a live static member lists is its own",
        "a dynamic member keeps it", _static_members_have_no_right,
        drawn=lambda plan: any(kind.startswith("static") for kind in plan.setup.others),
    ),
    Mutant(
        "later-partitions-at-their-end", "R13: a partition added to a known topic starts at its smallest offset",
        "under `latest`, what came before it was noticed is lost", _later_partitions_at_their_end,
    ),
    Mutant(
        "out-of-range-at-the-end", "R13: never a silent jump to latest",
        "records are skipped that no member has seen", _out_of_range_at_the_end,
        drawn=storm_has("retain"),
    ),
    Mutant(
        "topics-by-name", "R13: a topic that was deleted and made again starts at its smallest offset",
        "the new topic's first records are skipped", _topics_by_name,
    ),
    Mutant(
        "strangers-count", "R14: an id node that cannot be read is no member",
        "its share is taken by no member", _strangers_count,
    ),
    Mutant(
        "topics-from-zookeeper", "Jetstream (e): partitions come from Kafka's metadata",
        "brokers without ZooKeeper register nothing there, and nothing is read", _topics_from_zookeeper,
    ),
)  # fmt: skip
