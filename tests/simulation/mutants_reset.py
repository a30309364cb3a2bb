"""Mutants of the reset of offsets: section 8 of the design."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from inbound.controller.reset_offset import command_store, controller, reconciler
from inbound.controller.reset_offset.command import ResetCommand
from inbound.controller.reset_offset.data_plane import Replica, ZkDataPlane
from inbound.controller.reset_offset.model import TRANSITIONS, ResetEvent, State
from inbound.controller.reset_offset.moves import ResetNodes
from inbound.controller.reset_offset.reconciler import Reconciler
from inbound.coordinators.nodes import OPEN, EpochInfo
from inbound.coordinators.paths import CommandPaths
from inbound.coordinators.zookeeper import Check, Create, Op, RefusedError, SetData, ZooKeeper
from inbound.group.claims import Claims
from inbound.testing.zookeeper import FakeZooKeeper
from tests.simulation.planting import Mutant, Plant, family, is_claim, is_recovery, unchecked

_COMMAND = f"{CommandPaths.RESETS}/"
Original = Callable[..., Any]


def _is_move(ops: Sequence[Op]) -> bool:
    return ops[0].path.startswith(_COMMAND) and any(isinstance(o, SetData) and family(o) == "offsets" for o in ops)


def _is_marker(op: Op) -> bool:
    return isinstance(op, Create) and op.path.startswith(_COMMAND) and op.path.rpartition("/")[2].startswith("applied-")


def _moves_unchecked(plant: Plant) -> None:
    def change(op: Op) -> Op:
        return op._replace(version=-1) if isinstance(op, Check | SetData) else op

    plant.rewrite(_is_move, change)


def _abandoned_gate_left_closed(plant: Plant) -> None:
    async def open_abandoned(original: Original, *arguments: Any) -> None:
        plant.bite()

    plant.around(controller, "open_abandoned", open_abandoned)


def _nothing_fenced(plant: Plant) -> None:
    def fence_ops(original: Original, *arguments: Any) -> list[list[Op]]:
        plant.bite()
        return []

    plant.around(reconciler, "fence_ops", fence_ops)


def _gate_not_checked(plant: Plant) -> None:
    plant.rewrite(lambda ops: is_claim(ops) or is_recovery(ops), unchecked("gates"))


def _epochs_left_alone(plant: Plant) -> None:
    def transaction(original: Original, zk: FakeZooKeeper, ops: Sequence[Op]) -> Any:
        if _is_move(ops):
            plant.bite()
            ops = [op for op in ops if family(op) != "epochs"]
        return original(zk, ops)

    plant.around(FakeZooKeeper, "transaction", transaction)


def _resolved_before_the_stop(plant: Plant) -> None:
    before: dict[str, dict[int, int | None]] = {}

    async def close(original: Original, self: Reconciler, command: ResetCommand, nodes: ResetNodes) -> Any:
        before.clear()  # at most one reset is between these two steps, mostly
        before[nodes.info.group + nodes.topic] = await nodes.offsets(range(8))
        return await original(self, command, nodes)

    async def offsets(original: Original, self: ResetNodes, partitions: Collection[int]) -> Any:
        found = await original(self, partitions)
        known = before.get(self.info.group + self.topic, {})
        early = {p: known.get(p, offset) for p, offset in found.items()}
        if early != found:
            plant.bite()
        return early

    plant.around(Reconciler, "_close", close)
    plant.around(ResetNodes, "offsets", offsets)


def _none_waited_for(plant: Plant) -> None:
    async def stop(original: Original, *arguments: Any) -> list[Replica]:
        plant.bite()
        return []

    plant.around(ZkDataPlane, "stop", stop)


def _no_markers(plant: Plant) -> None:
    def transaction(original: Original, zk: FakeZooKeeper, ops: Sequence[Op]) -> Any:
        if any(_is_marker(op) for op in ops):
            plant.bite()
            ops = [op for op in ops if not _is_marker(op)]
        return original(zk, ops)

    plant.around(FakeZooKeeper, "transaction", transaction)


def _opened_with_the_first_chunk(plant: Plant) -> None:
    def transaction(original: Original, zk: FakeZooKeeper, ops: Sequence[Op]) -> Any:
        if any(_is_marker(op) for op in ops):
            plant.bite()
            ops = [
                SetData(o.path, OPEN, o.version) if isinstance(o, Check) and family(o) == "gates" else o for o in ops
            ]
        return original(zk, ops)

    plant.around(FakeZooKeeper, "transaction", transaction)


def _opened_by_anybody(plant: Plant) -> None:
    async def open_abandoned(original: Original, zk: ZooKeeper, path: str) -> str | None:
        gate = await zk.get(path)
        if gate is None or gate.data == OPEN:
            return None
        plant.bite()
        try:
            await zk.transaction([SetData(path, OPEN, gate.stat.version)])
        except RefusedError:
            return None
        return gate.data.decode()

    plant.around(controller, "open_abandoned", open_abandoned)


def _cancelled_too_late(plant: Plant) -> None:
    def step(original: Original, state: State, event: ResetEvent) -> State:
        if event is ResetEvent.CANCEL and state in (State.MOVING, State.UPDATED):
            plant.bite()
            return State.CANCELLING
        found: State = original(state, event)
        return found

    plant.put(command_store, "MOVED", frozenset({State.STARTING, State.SUCCEEDED}))
    plant.around(TRANSITIONS, "step", step)


def _nobody_told(plant: Plant) -> None:
    def tell(original: Original, *arguments: Any) -> None:
        plant.bite()

    plant.around(Claims, "_tell_reset", tell)


def _claims_before_forgotten(plant: Plant) -> None:
    """A move does not carry on that a member had claimed the partition."""

    def was_claimed(info: EpochInfo) -> bool:
        if info.claimed:
            plant.bite()
        return bool(info.session)

    plant.put(EpochInfo, "was_claimed", property(was_claimed))


RESETS = [
    Mutant("reset-moves-unchecked", "section 8", "a late move is done again", _moves_unchecked),
    Mutant("abandoned-gate-left-closed", "section 8", "the group stays stalled", _abandoned_gate_left_closed),
    Mutant("reset-fences-nothing", "section 8", "old offsets are not the last ones", _nothing_fenced),
    Mutant("reset-unseen-by-claims", "section 8", "a partition is taken while it is moved", _gate_not_checked, "reset"),
    Mutant("reset-leaves-epochs", "section 8", "the next claimant cannot know of it", _epochs_left_alone, "reset"),
    Mutant(
        "reset-resolved-early", "section 8", "what was committed while it stopped counts for nothing",
        _resolved_before_the_stop, "reset",
    ),
    Mutant("reset-waits-for-none", "section 8", "batches in hand are repeated", _none_waited_for, "reset"),
    Mutant("chunks-unmarked", "section 8", "a chunk is moved again", _no_markers, "reset"),
    Mutant("gate-opened-with-first-chunk", "section 8", "a part is seen moved", _opened_with_the_first_chunk, "reset"),
    Mutant("gate-opened-by-anybody", "section 8", "the group runs while it is moved", _opened_by_anybody, "reset"),
    Mutant("cancelled-after-the-move", "section 8", "it says cancelled, and has moved", _cancelled_too_late, "reset"),
    Mutant(
        "reset-forgets-claims", "section 8", "the proof takes what members had in hand for never claimed",
        _claims_before_forgotten,
    ),
    Mutant("reset-untold", "section 8", "the processor does not hear of it", _nobody_told, "reset"),
]  # fmt: skip
