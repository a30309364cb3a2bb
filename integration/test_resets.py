"""Resets of running groups: under load, queued, cancelled, forced, and while ZooKeeper is away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import kafka
import pytest

from inbound.controller.reset_offset import To
from inbound.embedded import EmbeddedCluster
from integration.harness import Scene
from integration.reset_scene import ResetScene, jumps_of, maker
from tests.waiting import until

MakeScene = Callable[..., ResetScene]


@pytest.fixture
def make(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[MakeScene]:
    """Make scenes on the shared cluster."""
    yield from maker(embedded_cluster, tmp_path)


@pytest.fixture
def other(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[Scene]:
    """A topic and a group that are not reset."""
    folder = tmp_path / "other"
    folder.mkdir()
    scene = Scene(embedded_cluster, folder, partitions=3)
    yield scene
    scene.close()


def begins_at(scene: ResetScene, when: float) -> dict[int, int]:
    """Ask the brokers, with another client than the reset's, where a time begins."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=scene.cluster.bootstrap_servers)
    asked = {kafka.TopicPartition(scene.topic, p): round(when * 1000) for p in range(scene.partitions)}
    found = {tp.partition: answer.offset for tp, answer in consumer.offsets_for_times(asked).items()}
    consumer.close()
    return found


def test_three_replicas_under_load_go_back_and_forth_and_their_other_channel_goes_on(
    make: MakeScene, other: Scene
) -> None:
    """Earliest, a time between two records, latest. Processors see the very jumps that the status tells of, and no other."""
    scene = make(partitions=6)
    lines = other.config.read_text().partition("channels:\n  orders:\n")[2]
    scene.config.write_text(scene.config.read_text() + f"  others:\n{lines}")
    processes = scene.run_group(3)
    until(lambda: other.all_owned(3), 90, "the other channel's partitions are owned")
    scene.start_load()
    other.start_load()
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
    latest = scene.ended(scene.reset(To.LATEST))
    scene.settle()
    other.settle()

    until(scene.read_to_the_ends, 60, "read to the end")
    assert {p: m.new for p, m in earliest.items()} == dict.fromkeys(range(6), 0)
    assert {p: m.new for p, m in in_time.items()} == expected
    assert all(0 < offset < scene.published[p] for p, offset in expected.items())
    assert scene.jumps() == jumps_of(6, earliest, in_time, latest)
    assert (other.account().clean, other.claims() == claims) == (True, True)
    assert [scene.stop(process) for process in processes] == [0, 0, 0]


def test_ten_resets_at_once_are_carried_out_one_after_another(make: MakeScene) -> None:
    """In the order in which they were submitted, while the group is under load."""
    scene = make(partitions=4)
    processes = scene.run_group(2)
    scene.start_load(per_second=20)
    until(lambda: all((scene.offset(p) or 0) > 10 for p in range(4)), 60, "all consume")
    kinds = [
        (To.EARLIEST, {}),
        (To.OFFSET, {"offset": 5}),
        (To.LATEST, {}),
        (To.SHIFT, {"shift": -3}),
        (To.EARLIEST, {}),
    ]
    commands = [scene.command(to, **fields) for to, fields in kinds * 2]
    scene.submit(*commands)
    moved = [scene.ended(command.name) for command in commands]
    scene.settle()
    until(scene.read_to_the_ends, 60, "read to the end")
    assert [{m.new for m in one.values()} for one in moved[:2]] == [{0}, {5}]
    assert scene.jumps() == jumps_of(4, *moved)
    assert scene.account().lost == {}
    until(lambda: scene.all_owned(2), 60, lambda: f"both own their shares: {scene.owners()}")
    assert [scene.stop(process) for process in processes] == [0, 0]


def test_a_cancelled_reset_starts_again_what_it_has_stopped(make: MakeScene) -> None:
    """Nothing is read twice, and nothing was moved."""
    scene = make(partitions=4)
    processes = scene.run_group(2, records=10)
    with scene.held(0):
        scene.publish(1)
        until(lambda: all(scene.offset(p) == 11 for p in (1, 2, 3)), 60, "the others have committed")
        until(lambda: any(0 in scene.inside(p.pid) for p in processes), 60, "a batch of the first is held")
        name = scene.reset()
        until(lambda: list(scene.owners()) == [0], 60, "the others have stopped")
        scene.cancel(name)
        until(lambda: len(scene.owners()) == 4, 60, "they have started again")
    assert scene.ended(name, "cancelled") == {}
    scene.publish(5)
    scene.settle()
    assert (scene.account().clean, scene.jumps()) == (True, jumps_of(4))
    assert [scene.stop(process) for process in processes] == [0, 0]


def test_a_member_that_hangs_is_overtaken_with_force_after(make: MakeScene) -> None:
    """The others go on; the offset of its partition is moved, and its own commit, when it comes at last, is void."""
    scene = make(partitions=4)
    processes = scene.run_group(2, records=10)
    with scene.held(0):
        scene.publish(1)
        until(lambda: all(scene.offset(p) == 11 for p in (1, 2, 3)), 60, "the others have committed")
        until(lambda: any(0 in scene.inside(p.pid) for p in processes), 60, "a batch of the first is held")
        name = scene.reset(force_after=2.0)
        until(lambda: scene.state(name) in ("starting", "succeeded"), 60, "it does not wait for the one that hangs")
        # The partition that hangs may be taken by the other member, who is held in it too, or wait for its own one.
        until(
            lambda: all(scene.jumps()[p] == [(11, 0)] for p in (1, 2, 3)), 60,
            lambda: f"the others are read anew: {scene.jumps()}",
        )  # fmt: skip
        assert scene.offset(0) == 0
    moved = scene.ended(name)
    until(scene.read_to_the_ends, 60, lambda: f"all are read: {scene.handed_out()}")
    until(scene.everything_committed, 60, "all committed")
    assert [moved[p].old for p in range(4)] == [10, 11, 11, 11]
    assert scene.jumps() == {0: [(11, 0)], 1: [(11, 0)], 2: [(11, 0)], 3: [(11, 0)]}
    until(lambda: len(scene.owners()) == 4, 60, "all are owned")
    assert [scene.stop(process) for process in processes] == [0, 0]
