"""Traces of a reset: T2, T15, T16.

First the members' part. The reset itself is played there: it closes the gate, moves offset and epoch in one transaction, and
opens the gate. Then that of its leader.
"""

from __future__ import annotations

import pytest

from inbound.controller.reset_offset.command import PATHS
from inbound.controller.reset_offset.model import To
from inbound.coordinators.zookeeper import Check, Delete, RefusedError, SetData
from inbound.topic_partition import TopicPartition
from tests.controller.reset_offset.reset_stage import Leader, Stage
from tests.simulation.stage import commits_of, gate, in_next_batch, reset, seen, with_and_without, world_of

P0 = TopicPartition("orders", 0)
CLOSED = b"/inbound/commands/reset-offset/some"


@with_and_without("ours-but-not-held-left-alone")
def test_a_node_kept_through_a_reset_is_claimed_again(kept: bool) -> None:
    """T2 (R4). The member goes on under the old epoch when the gate opens, and its first commit is refused."""
    world = world_of("a")
    world.kafka.publish(*P0, [b"x"] * 3)
    world.run(0.5)
    gate(world, "orders", CLOSED)
    reset(world, P0, 1)
    gate(world, "orders", b"open")
    world.kafka.publish(*P0, [b"y"])
    world.run(2)
    assert (seen(world, "a"), world.commits()) == (([0, 1, 2, 3, 1, 2, 3], {0: 4}) if kept else ([0, 1, 2, 3], {0: 1}))


@pytest.mark.parametrize("bump", [True, False], ids=["with the rule", "without it: the epoch stays"])
def test_recovery_does_not_bring_back_the_position_from_before_a_reset(bump: bool) -> None:
    """T15 (section 8). A batch is in the callback when its process loses the session, and the reset comes before it is back."""
    world = world_of("a")
    history = commits_of(world, P0)

    def beside_it() -> None:
        world.ensemble.cut_off("a")
        world.ensemble.expire_session("a")
        gate(world, "orders", CLOSED)
        reset(world, P0, 1, bump=bump)
        gate(world, "orders", b"open")
        world.ensemble.heal("a")

    in_next_batch(world, "a", beside_it)
    world.kafka.publish(*P0, [b"x"] * 3)
    world.run(5)
    assert (history, seen(world, "a")) == (([1, 3], [0, 1, 2, 1, 2]) if bump else ([1, 3], [0, 1, 2]))


@with_and_without("commit-unchecked")
def test_a_call_that_hung_through_a_reset_does_not_undo_it(kept: bool) -> None:
    """T16 (section 8, R3). The reset has overtaken it by the epoch; its commit comes when the call has ended."""
    world = world_of("a")
    history = commits_of(world, P0)

    def beside_it() -> None:
        gate(world, "orders", CLOSED)
        reset(world, P0, 1)

    in_next_batch(world, "a", beside_it)
    world.kafka.publish(*P0, [b"x"] * 3)
    world.run(2)
    assert history == ([1] if kept else [1, 3])


# -- leaders -----------------------------------------------------------------------------------------------------------


def stuck_at_its_move(stage: Stage, name: str) -> Leader:
    """Start a leader whose transaction that moves gets stuck on its way, and who then does nothing; its session lives."""
    leader = stage.lead("stuck")
    stage.run_until(lambda: stage.state(name) == "stopped", within=5)
    stage.world.ensemble.stick("stuck", f"transaction at {PATHS.reset(name)}")
    stage.run_until(lambda: "late" in leader.zk.kinds(), within=5)
    leader.stopped = True
    return leader


@with_and_without("reset-moves-unchecked")
def test_a_move_that_executes_late_does_not_move_again_what_another_leader_has_moved(kept: bool) -> None:
    """T15. The member has come further since, and would be thrown back a second time."""
    stage = Stage("a", partitions=1)
    history = stage.history()
    name = stage.submit(To.OFFSET, offset=4)
    late = stuck_at_its_move(stage, name)
    stage.lead("other")
    stage.ended(name)
    stage.run(5)
    late.zk.step("late")
    assert history == ([4, 10] if kept else [4, 10, 4])


@with_and_without("reset-moves-unchecked")
def test_an_old_leader_moves_nothing_of_the_next_reset(kept: bool) -> None:
    """T16. Its command was deleted by hand; without the rules the next one may also have the same name."""
    stage = Stage(partitions=1)
    history = stage.history()
    first = stage.submit(To.OFFSET, offset=4)
    late = stuck_at_its_move(stage, first)
    children = stage.world.ensemble.tree.children(PATHS.reset(first)) or []
    stage.write(*(Delete(f"{PATHS.reset(first)}/{child}") for child in children), Delete(PATHS.reset(first)))
    stage.write(SetData(stage.world.paths.gate("orders"), b"open"))
    second = stage.submit(To.OFFSET, offset=7, name=None if kept else first)
    other = stage.lead("other")
    stage.run_until(lambda: stage.state(second) == "stopped", within=20)
    stage.kill(other)
    late.zk.step("late")
    assert history == ([] if kept else [4])


@with_and_without("abandoned-gate-left-closed")
def test_a_gate_is_opened_whose_reset_was_deleted_while_its_group_was_stopped(kept: bool) -> None:
    """T16. No process carries the reset on, and no other one ever opens its gate."""
    stage = Stage("a", partitions=1)
    leader = stage.lead("leader")
    name = stage.submit()
    stage.run_until(lambda: stage.state(name) == "stopped", within=5)
    stage.kill(leader)
    stage.lead("other")
    children = stage.world.ensemble.tree.children(PATHS.reset(name)) or []
    stage.write(*(Delete(f"{PATHS.reset(name)}/{child}") for child in children), Delete(PATHS.reset(name)))
    stage.run(70)
    assert (stage.gate, stage.world.owned()) == (("open", {"a": {0}}) if kept else (PATHS.reset(name), {"a": set()}))


@with_and_without("reset-fences-nothing")
def test_no_commit_lands_between_the_reading_of_the_old_offsets_and_the_move(kept: bool) -> None:
    """Of a member that lost its session, and its owner node with it, while it worked: the reset does not wait for it.

    It commits under its epoch when it is back. The old offset would not be the last one, and a shift begin from there.
    """
    stage = Stage(partitions=1)
    epoch, offset = stage.world.paths.epoch(*P0), stage.world.paths.offset(*P0)
    held = stage.world.ensemble.tree.nodes[epoch].version
    history = stage.history()
    leader = stage.lead("leader")
    name = stage.submit(To.SHIFT, shift=-3)
    stage.run_until(lambda: stage.state(name) == "stopped", within=5)
    stage.kill(leader)
    try:
        stage.write(Check(epoch, held), SetData(offset, b"8"))
    except RefusedError:
        pass
    stage.lead("other")
    (moved,) = stage.ended(name).moved
    assert (history, (moved.old, moved.new)) == (([7], (10, 7)) if kept else ([8, 7], (10, 7)))
