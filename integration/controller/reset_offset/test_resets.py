"""Resets of running groups: under load, queued, forced, while leaders, replicas and ZooKeeper die; and very large ones."""

from __future__ import annotations

import time
from collections import Counter

import kafka
import pytest

from inbound.cli.shared.zookeeper import with_zookeeper
from inbound.controller.reset_offset import Moved, To
from inbound.coordinators.ownership import Ownership
from inbound.embedded import EmbeddedCluster
from integration.harness import Scenes
from integration.reset_scene import ResetScene, jumps_of
from tests.waiting import until

STEPS_ON_FAKES = "test_reset_faults.py kills the leader after each of its requests; `make test` has `stopped` here"


def begins_at(scene: ResetScene, when: float) -> dict[int, int]:
    """Ask the brokers, with another client than the reset's, where a time begins."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=scene.cluster.bootstrap_servers)
    asked = {kafka.TopicPartition(scene.topic, p): round(when * 1000) for p in range(scene.partitions)}
    found = {tp.partition: answer.offset for tp, answer in consumer.offsets_for_times(asked).items()}
    consumer.close()
    return found


def test_three_replicas_under_load_go_back_and_forth_and_their_other_channel_goes_on(scenes: Scenes) -> None:
    """Earliest, a time between two records, back by three and latest at once: the jumps that the status tells, no other."""
    scene, other = scenes(ResetScene), scenes(partitions=3)
    lines = other.config.read_text().partition("channels:\n  orders:\n")[2]
    scene.config.write_text(scene.config.read_text() + f"  others:\n{lines}")
    other.config = scene.config  # of its consumers
    scene.run_group(3)
    until(lambda: other.all_owned(3), 90, "the other channel's partitions are owned")
    scene.start_load(per_second=20)
    other.start_load(per_second=20)
    scene.wait_read()
    other.wait_read()
    claims = other.claims()
    # A whole millisecond, as Kafka counts: of one between two, each who asks would have to round it to the same.
    half = round(time.time(), 3)
    seen = sum(scene.seen().values())
    until(lambda: sum(scene.seen().values()) > seen + 100, 60, "more was published since")

    earliest = scene.ended(scene.reset())
    until(lambda: all((scene.offset(p) or 0) > (earliest[p].old or 0) for p in range(6)), 90, "all was read again")
    in_time = scene.ended(scene.reset(To.TIME, time=half))
    expected = begins_at(scene, half)
    queued = [scene.command(To.SHIFT, shift=-3), scene.command(To.LATEST)]
    scene.submit(*queued)
    back, latest = (scene.ended(command.name) for command in queued)
    scene.settle_at_the_ends()
    other.settle()

    assert {p: m.new for p, m in earliest.items()} == dict.fromkeys(range(6), 0)
    assert {p: m.new for p, m in in_time.items()} == expected
    assert all(0 < offset < scene.published[p] for p, offset in expected.items())
    assert all(m.old is not None and m.new == max(0, m.old - 3) for m in back.values())
    assert scene.jumps() == jumps_of(6, earliest, in_time, back, latest)
    assert (other.account().clean, other.claims() == claims) == (True, True)
    assert scene.stop_all() == [0, 0, 0]


@pytest.mark.thorough("tests/controller/reset_offset/test_reset_steps.py overtakes a member that is stuck")
def test_a_member_that_hangs_is_overtaken_with_force_after(scenes: Scenes) -> None:
    """The others go on; the offset of its partition is moved, and its own commit, when it comes at last, is void."""
    scene = scenes(ResetScene, partitions=4)
    scene.run_group(2, records=10)
    with scene.first_held():
        name = scene.reset(force_after=2.0)
        until(lambda: scene.state(name) in ("starting", "succeeded"), 60, "it does not wait for the one that hangs")
        # The partition that hangs may be taken by the other member, who is held in it too, or wait for its own one.
        until(
            lambda: all(scene.jumps()[p] == [(11, 0)] for p in (1, 2, 3)), 60,
            lambda: f"the others are read again: {scene.jumps()}",
        )  # fmt: skip
        assert scene.offset(0) == 0
    moved = scene.ended(name)
    scene.settle_at_the_ends()
    assert [moved[p].old for p in range(4)] == [10, 11, 11, 11]
    assert scene.jumps() == {0: [(11, 0)], 1: [(11, 0)], 2: [(11, 0)], 3: [(11, 0)]}
    until(lambda: len(scene.owners()) == 4, 60, "all are owned")
    assert scene.stop_all() == [0, 0]


# -- deaths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "step", [pytest.param("stopping", marks=pytest.mark.thorough(STEPS_ON_FAKES)), "stopped",
             pytest.param("updated", marks=pytest.mark.thorough(STEPS_ON_FAKES))],
)  # fmt: skip
def test_a_leader_that_is_killed_after_a_step_is_followed_by_another(scenes: Scenes, step: str) -> None:
    """One move, in one transaction: two partitions go back, two are moved to where they are and keep that mark of it."""
    scene = scenes(ResetScene, partitions=4)
    scene.run_group(2, records=10)
    before = scene.moves()
    command = scene.command(To.OFFSETS, offsets={0: 0, 1: 10, 2: 4, 3: 10})

    scene.reset_and_kill_the_leader(command, step)

    moved = scene.ended(command.name)
    assert moved == {p: Moved(p, 10, new) for p, new in enumerate((0, 10, 4, 10))}
    scene.settle_at_the_ends()
    after = scene.moves()
    assert [after[p][0] - before[p][0] for p in (1, 3)] == [1, 1]
    assert after[1][1] == after[3][1]
    assert scene.jumps() == jumps_of(4, moved)
    until(lambda: scene.all_owned(2), 60, lambda: f"both own their shares: {scene.owners()}")
    assert scene.stop_all() == [0, 0]


@pytest.mark.thorough("tests/controller/reset_offset/test_reset_steps.py kills a member that stops")
def test_a_replica_that_is_killed_while_it_stops_does_not_hold_up_the_reset(scenes: Scenes) -> None:
    """Its batch was not committed, so the old offset is where that batch began; the others take over from the new one."""
    # The victim's session is waited for, but no other session is to expire while the machine stalls for seconds.
    scene = scenes(ResetScene, partitions=3, session=10.0)
    processes = scene.run_group(3, records=10)
    with scene.first_held() as victim:
        name = scene.reset_while_held()
        assert scene.state(name) == "stopping"
        victim.kill()
        victim.wait()

    moved = scene.ended(name)

    assert [moved[p].old for p in range(3)] == [10, 11, 11]
    scene.settle_at_the_ends()
    account = scene.account()
    assert (account.lost, set(account.repeated)) == ({}, {0, 1, 2})
    assert {p: [last for _, last in jumps] for p, jumps in scene.jumps().items()} == {0: [0], 1: [0], 2: [0]}
    left = [process for process in processes if process is not victim]
    until(lambda: scene.owned_by(left), 60, lambda: f"both own their shares: {scene.owners()}")
    assert scene.stop_all() == [0, 0]


@pytest.mark.thorough(
    "tests/controller/reset_offset/test_reset_steps.py has a member join during one; the simulation takes ZooKeeper away"
)
def test_a_reset_goes_on_with_a_joiner_and_when_zookeeper_is_back(
    mortal_cluster: EmbeddedCluster, scenes: Scenes
) -> None:
    """A replica joins, then ZooKeeper dies, while some have stopped and others not: nothing is read before the move."""
    scene = scenes(
        ResetScene, partitions=4, session=40.0
    )  # no session expires while the server starts on a slow machine
    processes = scene.run_group(2, records=10)
    with scene.first_held():
        name = scene.reset_while_held()
        processes.append(scene.start())
        ids = f"/consumers/{scene.group}/ids"
        until(lambda: len(scene.zk.get_children(ids)) == 3, 60, "the third one has joined")
        assert (scene.state(name), list(scene.owners())) == ("stopping", [0])
        mortal_cluster.zookeepers[0].kill()
        until(lambda: not scene.zk.connected, 60, "ZooKeeper is away")
        mortal_cluster.zookeepers[0].start()
        until(lambda: scene.zk.connected, 60, "ZooKeeper is back")

    moved = scene.ended(name)

    until(lambda: scene.owned_by(processes), 60, lambda: f"all three own partitions: {scene.owners()}")
    scene.settle_at_the_ends()
    assert moved == {p: Moved(p, 11, 0) for p in range(4)}
    assert scene.jumps() == jumps_of(4, moved)
    assert scene.stop_all() == [0, 0, 0]


# -- too large for one transaction -------------------------------------------------------------------------------------

PARTITIONS = 2000


@pytest.mark.thorough("tests/controller/reset_offset/test_reset_commands.py moves as many partitions in chunks")
def test_two_thousand_partitions_with_long_names_are_moved_in_chunks(scenes: Scenes) -> None:
    """The leader is killed after the first; another one moves the rest, each partition once, and opens the gate then."""
    scene = scenes(ResetScene, partitions=PARTITIONS, topic="o" * 200)
    scene.unproven = "no consumer runs, so that there is no ledger"

    async def begun(zk: object) -> None:
        await Ownership(zk, scene.group, "setup").ensure(scene.topic, PARTITIONS)  # type: ignore[arg-type]

    with_zookeeper(scene.loaded.zookeeper, begun)
    before = scene.moves()
    command = scene.command(To.LATEST)
    scene.reset_and_kill_the_leader(command, "moving")
    halfway = Counter(version - before[p][0] for p, (version, _) in scene.moves().items())
    gate = f"/consumers/{scene.group}/gates/{scene.topic}"
    closed_by = scene.zk.get(gate)[0].decode()

    scene.lead(command.name)

    moved = scene.ended(command.name)
    after = scene.moves()
    assert set(moved.values()) == {Moved(p, None, 0) for p in range(PARTITIONS)}
    assert Counter(after[p][0] - before[p][0] for p in range(PARTITIONS)) == {1: PARTITIONS}
    assert (0 < halfway[1] < PARTITIONS, closed_by, scene.zk.get(gate)[0]) == (True, command.path, b"open")
    applied = [name for name in scene.zk.get_children(command.path) if name.startswith("applied-")]
    assert len({mzxid for _, mzxid in after.values()}) == len(applied) > 1
