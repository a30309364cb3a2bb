"""Mutants of claims, commits and releases: rules 1 to 4."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from inbound.channel.commit import Pending
from inbound.channel.committer import Committer
from inbound.coordinators.ownership import Claim, Fence, Ownership
from inbound.coordinators.zookeeper import Call, Check, Create, Delete, Node, Op, SetData, Stat
from inbound.group.claims import Claims
from inbound.partition.partition import Fate, Partition, Place
from inbound.partition.schedule import Schedule
from inbound.testing.zookeeper import FakeZooKeeper
from inbound.topic_partition import TopicPartition
from tests.simulation.planting import (
    Mutant,
    Plant,
    family,
    is_claim,
    is_commit,
    is_recovery,
    is_release,
    unchecked,
)

Original = Callable[..., Any]


# -- R1 ----------------------------------------------------------------------------------------------------------------


def _owner_read_first(plant: Plant) -> None:
    async def look(original: Original, self: Ownership, tp: TopicPartition) -> tuple[Node | None, ...]:
        plant.bite()
        paths = self.paths
        order = (paths.owner(*tp), paths.epoch(*tp), paths.member(self.consumer_id), paths.gate(tp.topic))
        calls = [self.zk.get(path) for path in order]
        owner, epoch, member, gate = [await call for call in calls]
        return gate, member, epoch, owner

    plant.around(Ownership, "_look", look)


def _own_id_not_looked_at(plant: Plant) -> None:
    async def look(original: Original, self: Ownership, tp: TopicPartition) -> tuple[Node | None, ...]:
        gate, member, epoch, owner = await original(self, tp)
        if member is None:
            plant.bite()
            member = Node(b"", Stat(0, 0, 0, 0))
        return gate, member, epoch, owner

    plant.around(Ownership, "_look", look)


def _epoch_node_lives_with_the_owner(plant: Plant) -> None:
    def transaction(original: Original, zk: FakeZooKeeper, ops: Sequence[Op]) -> Call[list[Stat | None]]:
        if is_release(ops):
            plant.bite()
            epochs = [op.path for op in ops if family(op) == "epochs"]
            ops = [*ops, *(change for path in epochs for change in (Delete(path), Create(path)))]
        call: Call[list[Stat | None]] = original(zk, ops)
        return call

    plant.around(FakeZooKeeper, "transaction", transaction)


# -- R2 ----------------------------------------------------------------------------------------------------------------


def _offset_read_first(plant: Plant) -> None:
    async def claim(original: Original, self: Ownership, tp: TopicPartition, *rest: Any, **named: Any) -> Claim | None:
        path = self.paths.offset(*tp)
        node = await self.zk.get(path)
        before = int(node.data) if node is not None and node.data else None
        claimed: Claim | None = await original(self, tp, *rest, **named)
        if claimed is None or claimed.recreated:
            return claimed
        if claimed.offset != before:
            plant.bite()
        return replace(claimed, offset=before)

    plant.around(Ownership, "claim", claim)


def _first_position_not_committed(plant: Plant) -> None:
    def submit(original: Original, self: Committer, pending: Pending) -> None:
        if pending.first:
            plant.bite()
            pending.channel.schedule.landed(pending.partition, pending.mark, ())
            pending.channel.schedule.start(pending.partition)
        else:
            original(self, pending)

    plant.around(Committer, "submit", submit)


def _claims_while_the_old_call_runs(plant: Plant) -> None:
    def doom(original: Original, self: Schedule, partition: Partition, fate: Fate) -> None:
        original(self, partition, fate)
        if fate is Fate.DROP and partition.place is Place.RUNNING and self.get(partition.tp) is partition:
            plant.bite()
            self._forget(partition)
            self._dropped.add(partition.tp)

    plant.around(Schedule, "doom", doom)


def _results_have_no_epoch(plant: Plant) -> None:
    _claims_while_the_old_call_runs(plant)

    def submit(original: Original, self: Committer, pending: Pending) -> None:
        now = pending.channel.schedule.get(pending.partition.tp)
        if now is not None and now is not pending.partition:
            plant.bite()
            pending = Pending(pending.channel, now, now.position.advance(pending.offset))
        original(self, pending)

    plant.around(Committer, "submit", submit)


def _claim_without_a_new_epoch(plant: Plant) -> None:
    def change(op: Op) -> Op:
        return Check(op.path, op.version) if isinstance(op, SetData) and family(op) == "epochs" else op

    async def claim(original: Original, *arguments: Any, **named: Any) -> Claim | None:
        claimed: Claim | None = await original(*arguments, **named)
        if claimed is None:
            return None
        return replace(claimed, fence=Fence(claimed.fence.epoch - 1, claimed.fence.session))

    plant.rewrite(is_claim, change)
    plant.around(Ownership, "claim", claim)


def _gate_not_checked(plant: Plant) -> None:
    plant.rewrite(lambda ops: is_claim(ops) or is_recovery(ops), unchecked("gates"))


def _owner_written_afterwards(plant: Plant) -> None:
    def transaction(original: Original, zk: FakeZooKeeper, ops: Sequence[Op]) -> Call[list[Stat | None]]:
        created = [op for op in ops if isinstance(op, Create) and family(op) == "owners"]
        for op in created:
            plant.bite()
            ops = [op._replace(data=b"") if other is op else other for other in ops]
        call: Call[list[Stat | None]] = original(zk, ops)
        for op in created:
            original(zk, [SetData(op.path, op.data)])
        return call

    plant.around(FakeZooKeeper, "transaction", transaction)


# -- R3 ----------------------------------------------------------------------------------------------------------------


def _commit_unchecked(plant: Plant) -> None:
    plant.rewrite(is_commit, unchecked("epochs"))


def _older_value_sent_again(plant: Plant) -> None:
    """What was not done is sent again in a second; until then the partition goes on, and commits newer offsets."""
    waiting: dict[Committer, list[tuple[float, Pending]]] = {}

    def answered(original: Original, self: Committer, call: Call[list[Stat | None]]) -> None:
        group = list(self._group)
        original(self, call)
        for pending in group:
            if pending.partition.position.landed_order < pending.mark.order and not pending.first:
                plant.bite()
                if self._queue.get(pending.partition) is pending:
                    del self._queue[pending.partition]
                waiting.setdefault(self, []).append((self._clock.now() + 1.0, pending))

    def run_once(original: Original, self: Committer) -> float | None:
        due = [entry for entry in waiting.get(self, ()) if entry[0] <= self._clock.now()]
        for entry in due:
            if entry[1].partition not in self._queue:
                waiting[self].remove(entry)
                late, landed = entry[1], entry[1].partition.position.landed_order
                late.mark = late.mark._replace(order=max(late.mark.order, landed + 1))  # else it is seen to be older
                self._queue[late.partition] = late
        again: float | None = original(self)
        later = min((at for at, _ in waiting.get(self, ())), default=None)
        return later if again is None else again if later is None else min(again, later)

    plant.around(Committer, "_answered", answered)
    plant.around(Committer, "run_once", run_once)


# -- R4 ----------------------------------------------------------------------------------------------------------------


def _release_unchecked(plant: Plant) -> None:
    plant.rewrite(is_release, unchecked("epochs"))


def _release_beside_the_last_commit(plant: Plant) -> None:
    def look(original: Original, self: Schedule, partition: Partition, now: float) -> None:
        if partition.fate is Fate.RELEASE and partition.place is Place.SETTLING:
            plant.bite()
            partition.position.withdraw()
        original(self, partition, now)

    plant.around(Schedule, "_look_at_settling", look)


def _ours_but_not_held_is_left_alone(plant: Plant) -> None:
    async def settle_suspects(original: Original, self: Claims, owned: object, ours: object, closed: object) -> bool:
        if self._suspects or self._parts.schedule.take_dropped():
            plant.bite()
        return True

    plant.around(Claims, "settle_suspects", settle_suspects)


def _same_epoch_after_silence(plant: Plant) -> None:
    def ops(original: Original, self: Pending) -> list[Op]:
        if self.epoch is not None:
            plant.bite()
            self.epoch = None
        return original(self)  # type: ignore[no-any-return]

    plant.around(Pending, "ops", ops)


OWNERSHIP = (
    Mutant(
        "owner-read-first", "R1: the order gate, own id node, epoch, owner",
        "of two processes with one id the old one evicts its successor", _owner_read_first,
    ),
    Mutant(
        "own-id-not-looked-at", "R1: the own id node is looked at before a claim",
        "who is not counted as a member holds partitions", _own_id_not_looked_at,
    ),
    Mutant(
        "epoch-node-deleted", "R1: epoch nodes are never deleted",
        "a new node counts from 0: old epochs come again, and zombies commit", _epoch_node_lives_with_the_owner,
    ),
    Mutant(
        "offset-read-first", "R2: the offset is read after the claim",
        "what the owner before commits in between is read again", _offset_read_first,
    ),
    Mutant(
        "first-position-not-committed", "R2: the first position is committed before the first batch",
        "with `latest`, what comes before the first commit is lost in a crash", _first_position_not_committed,
    ),
    Mutant(
        "claims-beside-the-old-call", "R2: no claim while an old call for the partition runs",
        "two callbacks of one partition overlap in one process", _claims_while_the_old_call_runs,
    ),
    Mutant(
        "results-without-epoch", "R2, R3: no claim while an old call runs; a batch carries its epoch",
        "the old call's result is committed under the new epoch", _results_have_no_epoch,
    ),
    Mutant(
        "claim-without-new-epoch", "R2: a claim moves the epoch",
        "the owner before can still commit, also with requests in flight", _claim_without_a_new_epoch,
    ),
    Mutant(
        "gate-not-checked", "R2, R6: claim and recovery check the gate",
        "a claim in flight when the gate closes delivers during the reset", _gate_not_checked,
    ),
    Mutant(
        "owner-written-afterwards", "Jetstream (a): the owner node is created empty and written afterwards",
        "a crash between the two leaves a nameless owner", _owner_written_afterwards,
    ),
    Mutant(
        "commit-unchecked", "R3, Jetstream (d): a commit checks the epoch",
        "a zombie's commit lands over its successor's", _commit_unchecked,
    ),
    Mutant(
        "older-value-sent-again", "R3: after an ambiguous answer or a neighbour's failure the newest position is sent",
        "the offset goes back", _older_value_sent_again,
    ),
    Mutant(
        "release-unchecked", "R4: a release checks the epoch",
        "a release that is sent again deletes the next owner's node", _release_unchecked,
    ),
    Mutant(
        "release-beside-the-last-commit", "R4: released after the last commit was acknowledged, or with it",
        "the release lands, the commit does not: repeats after a rebalance", _release_beside_the_last_commit,
    ),
    Mutant(
        "ours-but-not-held-left-alone", "R4, R9: a node that is ours but not held is claimed again",
        "no member reads the partition any more", _ours_but_not_held_is_left_alone,
    ),
    Mutant(
        "same-epoch-after-silence", "R15: a commit after an unanswered one moves the epoch",
        "the unanswered one executes late and sets the offset back", _same_epoch_after_silence,
    ),
)  # fmt: skip
