"""Resets that are too large for one transaction, and one during which ZooKeeper is restarted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inbound.cli.zookeeper import with_zookeeper
from inbound.controller.reset_offset import Moved, To
from inbound.coordinators.ownership import Ownership
from inbound.embedded import EmbeddedCluster
from integration.reset_scene import ResetScene, jumps_of, maker
from tests.waiting import until

PARTITIONS = 2000


@pytest.fixture(scope="module")
def cluster(cluster_factory: Callable[..., EmbeddedCluster]) -> Iterator[EmbeddedCluster]:
    """Servers of this module's own: one is restarted, and so many partitions would slow other tests down."""
    one = cluster_factory()
    yield one
    one.close()


@pytest.fixture
def make(cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[Callable[..., ResetScene]]:
    """Make scenes on that cluster."""
    yield from maker(cluster, tmp_path)


def test_a_reset_goes_on_when_zookeeper_is_back(make: Callable[..., ResetScene], cluster: EmbeddedCluster) -> None:
    """It was down while some had stopped and others had not."""
    scene = make(partitions=4, session=40.0)  # nobody's expires while the server starts on a slow machine
    processes = scene.run_group(2, records=10)
    with scene.held(0):
        scene.publish(1)
        until(lambda: all(scene.offset(p) == 11 for p in (1, 2, 3)), 60, "the others have committed")
        until(lambda: any(0 in scene.inside(p.pid) for p in processes), 60, "a batch of the first is held")
        name = scene.reset()
        until(lambda: list(scene.owners()) == [0], 60, "the others have stopped")
        cluster.zookeepers[0].kill()
        until(lambda: not scene.zk.connected, 60, "ZooKeeper is away")
        cluster.zookeepers[0].start()
        until(lambda: scene.zk.connected, 60, "ZooKeeper is back")
    moved = scene.ended(name)
    until(scene.read_to_the_ends, 60, "read again")
    until(scene.everything_committed, 60, "all committed")
    assert moved == {p: Moved(p, 11, 0) for p in range(4)}
    assert scene.jumps() == jumps_of(4, moved)
    assert [scene.stop(process) for process in processes] == [0, 0]


def test_two_thousand_partitions_with_long_names_are_moved_in_chunks(make: Callable[..., ResetScene]) -> None:
    """The leader is killed after the first; another one moves the rest, each partition once, and opens the gate then."""
    scene = make(partitions=PARTITIONS, topic="o" * 200)

    async def begun(zk: object) -> None:
        await Ownership(zk, scene.group, "nobody").ensure(scene.topic, PARTITIONS)  # type: ignore[arg-type]

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
