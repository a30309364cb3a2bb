"""Mutants of sessions, recovery, ids and evaluation: rules 5 to 10."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from inbound.channel.committer import Committer
from inbound.channel.kafka_channel import InboundKafkaChannel
from inbound.channel.turn import Turns
from inbound.controller.kafka_controller import KafkaController, SessionState
from inbound.coordinators.members import Membership
from inbound.coordinators.nodes import decode_offset
from inbound.coordinators.ownership import Claim, ClaimCheck, Fence, Ownership
from inbound.coordinators.zookeeper import Check, Create, Delete, Node, Op, RefusedError, Session, SetData, ZooKeeper
from inbound.errors import ConsumerIdTakenError
from inbound.group.claims import Claims
from inbound.group.membership import GroupMembership
from inbound.partition.partition import Partition
from inbound.testing.zookeeper import FakeZooKeeper
from inbound.topic_partition import TopicPartition
from tests.simulation.planting import Mutant, Plant, family, is_claim

Original = Callable[..., Any]


# -- R5 ----------------------------------------------------------------------------------------------------------------


def _no_deadline(plant: Plant) -> None:
    def certain_until(original: Original, self: ZooKeeper, session: int) -> float:
        connection = self.connection
        if connection is None or connection.session.id != session:
            return float("-inf")
        if self.clock.now() >= original(self, session):
            plant.bite()
        return float("inf")

    plant.around(ZooKeeper, "certain_until", certain_until)


def _contact_counts_at_receipt(plant: Plant) -> None:
    def heard(original: Original, self: ZooKeeper, session: Session, sent_at: float) -> None:
        if sent_at != self.clock.now():
            plant.bite()
        original(self, session, self.clock.now())

    plant.around(ZooKeeper, "heard", heard)


# -- R6 ----------------------------------------------------------------------------------------------------------------


def _refused_is_lost(plant: Plant) -> None:
    recovering: set[tuple[Ownership, TopicPartition]] = set()

    async def recover(
        original: Original, self: Ownership, tp: TopicPartition, fence: Fence
    ) -> tuple[ClaimCheck, Fence]:
        recovering.add((self, tp))
        try:
            result: tuple[ClaimCheck, Fence] = await original(self, tp, fence)
        finally:
            recovering.discard((self, tp))
        return result

    async def verify(original: Original, self: Ownership, tp: TopicPartition, fence: Fence) -> tuple[ClaimCheck, Fence]:
        if (self, tp) in recovering:  # it was refused
            plant.bite()
            return ClaimCheck.LOST, fence
        result: tuple[ClaimCheck, Fence] = await original(self, tp, fence)
        return result

    async def recover_one(original: Original, self: Claims, partition: Partition) -> ClaimCheck:
        """After an expiry, without a look before."""
        connection = self._parts.zk.connection
        if connection is None or partition.fence.session == connection.session.id:
            seen: ClaimCheck = await original(self, partition)
            return seen
        verdict, fence = await self.ownership.recover(partition.tp, partition.fence)
        if verdict is ClaimCheck.HELD:
            self._parts.schedule.refence(partition, fence)
        return verdict

    plant.around(Ownership, "recover", recover)
    plant.around(Ownership, "verify", verify)
    plant.around(Claims, "_recover_one", recover_one)


def _recovery_by_claim(plant: Plant) -> None:
    async def recover(
        original: Original, self: Ownership, tp: TopicPartition, fence: Fence
    ) -> tuple[ClaimCheck, Fence]:
        claim = await self.claim(tp)
        if claim is None:
            return await self.verify(tp, fence)
        plant.bite()
        return ClaimCheck.HELD, claim.fence

    plant.around(Ownership, "recover", recover)


def _joined_not_kept(plant: Plant) -> None:
    async def register(original: Original, self: Membership) -> bool:
        connection = self.zk.connection
        if connection is not None and self.sessions and connection.session.id not in self.sessions:
            plant.bite()
            self.info = replace(self.info, joined=None)
        registered: bool = await original(self)
        return registered

    plant.around(Membership, "register", register)


def _recovery_deletes_unseen(plant: Plant) -> None:
    async def recover_one(original: Original, self: Claims, partition: Partition) -> ClaimCheck:
        connection = self._parts.zk.connection
        if connection is None or partition.fence.session == connection.session.id:
            verdict: ClaimCheck = await original(self, partition)
            return verdict
        plant.bite()
        path = self._parts.paths.owner(*partition.tp)
        for op in (Delete(path), Create(path, self._parts.consumer_id.encode(), ephemeral=True)):
            with suppress(RefusedError):
                await self._parts.zk.transaction([op])
        self._parts.schedule.refence(partition, replace(partition.fence, session=connection.session.id))
        return ClaimCheck.HELD

    plant.around(Claims, "_recover_one", recover_one)


def _second_session(plant: Plant) -> None:
    def reconnect(original: Original, self: FakeZooKeeper) -> None:
        self.session = None
        original(self)

    async def recover(
        original: Original, self: Ownership, tp: TopicPartition, fence: Fence
    ) -> tuple[ClaimCheck, Fence]:
        connection, path = self.zk.connection, self.paths.owner(*tp)
        owner = await self.zk.get(path)
        if connection is None or owner is None or owner.stat.ephemeral_owner != fence.session:
            result: tuple[ClaimCheck, Fence] = await original(self, tp, fence)
            return result
        plant.bite()
        create = Create(path, self.consumer_id.encode(), ephemeral=True)
        await self.zk.transaction([Check(self.paths.epoch(*tp), fence.epoch), Delete(path), create])
        return ClaimCheck.HELD, replace(fence, session=connection.session.id)

    plant.around(FakeZooKeeper, "reconnect", reconnect)
    plant.around(Ownership, "recover", recover)


# -- R7 and R8 ---------------------------------------------------------------------------------------------------------


def _no_join_delay(plant: Plant) -> None:
    def init(original: Original, *arguments: Any, **named: Any) -> None:
        plant.bite()
        original(*arguments, **{**named, "join_delay": 0.0})

    plant.around(GroupMembership, "__init__", init)


def _id_taken_without_proof(plant: Plant) -> None:
    async def register(original: Original, self: Membership) -> bool:
        known, proves = set(self.dead_sessions), self.owner_is_dead
        if not self.registered:
            self.owner_is_dead = lambda info: True
        try:
            registered: bool = await original(self)
        finally:
            self.owner_is_dead = proves
        if self.dead_sessions != known:
            plant.bite()
        return registered

    plant.around(Membership, "register", register)


def _ours_by_name(plant: Plant) -> None:
    """What bears our name is ours: the id node, and a partition under the epoch that it has."""
    _id_taken_without_proof(plant)

    async def look(original: Original, self: Ownership, tp: TopicPartition) -> tuple[Node | None, ...]:
        gate, member, epoch, owner = await original(self, tp)
        if owner is not None and owner.data == self.consumer_id.encode() and self.zk.connection is not None:
            owner = owner._replace(stat=owner.stat._replace(ephemeral_owner=self.zk.connection.session.id))
        return gate, member, epoch, owner

    async def claim(original: Original, self: Ownership, tp: TopicPartition, *rest: Any, **named: Any) -> Claim | None:
        connection = self.zk.connection
        _, _, epoch, owner = await self._look(tp)
        if connection is None or epoch is None or owner is None or owner.data != self.consumer_id.encode():
            claimed: Claim | None = await original(self, tp, *rest, **named)
            return claimed
        plant.bite()
        path = self.paths.offset(*tp)
        node = await self.zk.get(path)
        return Claim(Fence(epoch.stat.version, connection.session.id), decode_offset(path, node.data if node else b""))

    async def check(original: Original, self: Membership) -> bool:
        try:
            mine: bool = await original(self)
        except ConsumerIdTakenError:
            mine = True
        return mine

    plant.around(Ownership, "_look", look)
    plant.around(Ownership, "claim", claim)
    plant.around(Membership, "check", check)


def _take_over_uncompared(plant: Plant) -> None:
    def replaces(ops: Sequence[Op]) -> bool:
        return is_claim(ops) and any(isinstance(op, Delete) and family(op) == "owners" for op in ops)

    def change(op: Op) -> Op:
        return op._replace(version=-1) if isinstance(op, SetData) and family(op) == "epochs" else op

    async def claim(original: Original, self: Ownership, tp: TopicPartition, *rest: Any, **named: Any) -> Claim | None:
        claimed: Claim | None = await original(self, tp, *rest, **named)
        epoch = await self.zk.get(self.paths.epoch(*tp)) if claimed is not None else None
        if claimed is None or epoch is None:
            return claimed
        return replace(claimed, fence=replace(claimed.fence, epoch=epoch.stat.version))

    plant.rewrite(replaces, change)
    plant.around(Ownership, "claim", claim)


def _fights_for_its_id(plant: Plant) -> None:
    async def register(original: Original, self: Membership) -> bool:
        node = await self.zk.get(self.path) if self.registered else None
        if node is not None:
            self.sessions.add(node.stat.ephemeral_owner)
        registered: bool = await original(self)
        return registered

    async def check(original: Original, self: Membership) -> bool:
        try:
            mine: bool = await original(self)
        except ConsumerIdTakenError:
            plant.bite()
            return False
        return mine

    plant.around(Membership, "register", register)
    plant.around(Membership, "check", check)


# -- R9 and R10 --------------------------------------------------------------------------------------------------------


def _no_evaluation_after_reconnect(plant: Plant) -> None:
    def follow(original: Original, self: KafkaController) -> None:
        before, due = self._generation, [channel.due for channel in self._channels]
        joined = [channel.joined for channel in self._channels]
        original(self)
        if before and self._generation != before and all(joined):
            plant.bite()
            for channel, at in zip(self._channels, due, strict=True):
                channel.due, channel.joined = at, True
            self.state = SessionState.MEMBER

    plant.around(KafkaController, "_follow_connection", follow)


def _no_second_look_at_a_claim(plant: Plant) -> None:
    async def take(original: Original, self: Claims, partitions: Sequence[TopicPartition]) -> bool:
        if not await original(self, partitions):
            plant.bite()
        return True

    plant.around(Claims, "take", take)


def _no_evaluation_after_a_drop(plant: Plant) -> None:
    muted: list[object] = []

    def quietly(original: Original, self: Any, *arguments: Any) -> Any:
        muted.append(self)
        try:
            return original(self, *arguments)
        finally:
            muted.pop()

    def evaluate(original: Original, self: InboundKafkaChannel) -> None:
        if muted:
            plant.bite()
        else:
            original(self)

    async def quietly_told(original: Original, self: Turns, *arguments: Any) -> None:
        muted.append(self)
        try:
            await original(self, *arguments)
        finally:
            muted.pop()

    plant.around(Turns, "_tell_lost", quietly_told)
    plant.around(Committer, "run_once", quietly)
    plant.around(InboundKafkaChannel, "_evaluate", evaluate)


def _beliefs_not_checked(plant: Plant) -> None:
    async def verify(original: Original, self: Claims) -> None:
        plant.bite()
        self._parts.wake_committer()

    plant.around(Claims, "verify", verify)


SESSIONS = (
    Mutant(
        "no-deadline", "R5: the session has a deadline of our own",
        "a process that was stopped delivers as a zombie", _no_deadline,
    ),
    Mutant(
        "contact-at-receipt", "R5: the deadline counts from when an answered request was sent",
        "a process that wakes reads an old answer, and delivers as a zombie", _contact_counts_at_receipt,
    ),
    Mutant(
        "refused-recovery-is-lost", "R6: a refused recovery means evaluate, not lost",
        "the node was our own: what was processed is repeated", _refused_is_lost,
    ),
    Mutant(
        "recovery-by-claim", "R6: recovery keeps the epoch",
        "the commit of what was in a callback while the session expired is void, and it is repeated", _recovery_by_claim,
    ),
    Mutant(
        "joined-not-kept", "R6: the id node keeps `joined`",
        "after an expiry ranks change, and partitions move", _joined_not_kept,
    ),
    Mutant(
        "recovery-deletes-unseen", "R6, Jetstream (b): recovery checks the epoch and deletes nothing",
        "a member that comes back evicts its successor", _recovery_deletes_unseen,
    ),
    Mutant(
        "second-session", "R6: recovery only after the server declared the old session expired",
        "a commit of the old session lands after a newer one: the offset goes back", _second_session,
    ),
    Mutant(
        "no-join-delay", "R7: with a new session nothing but its own is claimed for `join_delay`",
        "the first one back after an outage takes everything", _no_join_delay,
    ),
    Mutant(
        "id-taken-without-proof", "R8: a live process's id is not taken over",
        "a second process with the id takes the first one's partitions away", _id_taken_without_proof,
    ),
    Mutant(
        "ours-by-name", "R8: ours means our session, never our consumer id",
        "two processes commit under one epoch", _ours_by_name,
    ),
    Mutant(
        "take-over-uncompared", "R2, R8: a take-over compares the session",
        "a member that claimed between the look and the take-over is evicted", _take_over_uncompared,
    ),
    Mutant(
        "fights-for-its-id", "R8: the id node changes hands at process start only",
        "two processes with one id take it from each other without end", _fights_for_its_id,
    ),
    Mutant(
        "no-evaluation-after-reconnect", "R9: evaluate after every reconnect",
        "what has to be recovered is not read until the timer", _no_evaluation_after_reconnect,
    ),
    Mutant(
        "no-second-look-at-a-claim", "R9: a claim that was refused or failed is looked at again",
        "no member reads the partition until the timer", _no_second_look_at_a_claim,
    ),
    Mutant(
        "no-evaluation-after-a-drop", "R9: evaluate after every refusal and drop",
        "no member reads the partition until the timer", _no_evaluation_after_a_drop,
    ),
    Mutant(
        "beliefs-not-checked", "R10: coordinate() before each rebalance",
        "what the nodes give to another is held on to", _beliefs_not_checked,
    ),
)  # fmt: skip
