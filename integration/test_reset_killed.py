"""Resets whose leader or replicas are killed: the offsets move exactly once, and all partitions are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inbound.controller.reset_offset import Moved, To
from inbound.embedded import EmbeddedCluster
from integration.reset_scene import ResetScene, jumps_of, maker
from tests.waiting import until

MakeScene = Callable[..., ResetScene]


@pytest.fixture
def make(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[MakeScene]:
    """Make scenes on the shared cluster."""
    yield from maker(embedded_cluster, tmp_path)


@pytest.mark.parametrize("step", ["mapped", "acquired", "stopping", "stopped", "updated", "starting"])
def test_a_leader_that_is_killed_after_a_step_is_followed_by_another(make: MakeScene, step: str) -> None:
    """One move, in one transaction: two partitions go back, two are moved to where they are and keep that mark of it."""
    scene = make(partitions=4)
    processes = scene.run_group(2, records=10)
    before = scene.moves()
    command = scene.command(To.OFFSETS, offsets={0: 0, 1: 10, 2: 4, 3: 10})

    scene.reset_and_kill_the_leader(command, step)

    moved = scene.ended(command.name)
    assert moved == {p: Moved(p, 10, new) for p, new in enumerate((0, 10, 4, 10))}
    until(scene.read_to_the_ends, 60, lambda: f"read again: {scene.handed_out()}")
    until(scene.everything_committed, 60, "all committed")
    after = scene.moves()
    assert [after[p][0] - before[p][0] for p in (1, 3)] == [1, 1]
    assert after[1][1] == after[3][1]
    assert scene.jumps() == jumps_of(4, moved)
    until(lambda: scene.all_owned(2), 60, lambda: f"both own their shares: {scene.owners()}")
    assert [scene.stop(process) for process in processes] == [0, 0]


def test_a_replica_that_is_killed_while_it_stops_does_not_hold_up_the_reset(make: MakeScene) -> None:
    """Its batch was not committed, so the old offset is where that batch began; the others take over from the new one."""
    # The victim's session is waited for, but nobody's is to expire while the machine stands still for seconds.
    scene = make(partitions=3, session=8.0)
    processes = scene.run_group(3, records=10)
    with scene.held(0):
        scene.publish(5)
        until(lambda: scene.offset(1) == scene.offset(2) == 15, 60, "the others have committed")
        victim = next(p for p in processes if f"-{p.pid}-" in scene.owners()[0])
        until(lambda: 0 in scene.inside(victim.pid), 60, "the victim is inside a batch")
        committed = scene.offset(0)
        name = scene.reset()
        until(lambda: list(scene.owners()) == [0], 60, "the others have stopped")
        assert scene.state(name) == "stopping"
        victim.kill()
        victim.wait()

    moved = scene.ended(name)

    assert [moved[p].old for p in range(3)] == [committed, 15, 15]
    until(scene.read_to_the_ends, 60, "read again")
    until(scene.everything_committed, 60, "all committed")
    account = scene.account()
    assert (account.lost, set(account.repeated)) == ({}, {0, 1, 2})
    assert {p: [last for _, last in jumps] for p, jumps in scene.jumps().items()} == {0: [0], 1: [0], 2: [0]}
    left = [process for process in processes if process is not victim]
    until(lambda: scene.owned_by(left), 60, lambda: f"both own their shares: {scene.owners()}")
    assert [scene.stop(process) for process in left] == [0, 0]


def test_a_replica_that_joins_between_stop_and_start_reads_nothing_before_the_move(make: MakeScene) -> None:
    """It takes its share when the gate opens, from the new offsets."""
    scene = make(partitions=4)
    processes = scene.run_group(2, records=10)
    with scene.held(0):
        scene.publish(1)
        until(lambda: all(scene.offset(p) == 11 for p in (1, 2, 3)), 60, "the others have committed")
        until(lambda: any(0 in scene.inside(p.pid) for p in processes), 60, "a batch of the first is held")
        name = scene.reset()
        until(lambda: list(scene.owners()) == [0], 60, "the others have stopped")
        processes.append(scene.start())
        ids = f"/consumers/{scene.group}/ids"
        until(lambda: len(scene.zk.get_children(ids)) == 3, 60, "the third one has joined")
        assert (scene.state(name), list(scene.owners())) == ("stopping", [0])

    moved = scene.ended(name)

    until(lambda: scene.owned_by(processes), 60, lambda: f"all three own partitions: {scene.owners()}")
    until(scene.read_to_the_ends, 60, "read again")
    until(scene.everything_committed, 60, "all committed")
    assert moved == {p: Moved(p, 11, 0) for p in range(4)}
    assert scene.jumps() == jumps_of(4, moved)
    assert [scene.stop(process) for process in processes] == [0, 0, 0]
