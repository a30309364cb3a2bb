"""The exporter shows lags while no replica lives, and nothing rather than old numbers."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from inbound.coordinators.zookeeper import Create, SetData
from inbound.kafka.base import LogClient
from inbound.observe.metrics import Exposition
from inbound.offsets.gather import Reads, Way
from inbound.offsets.model import ALL
from inbound.process.exporter import OffsetsExporter, Subjects
from inbound.runtime.driver import Wakeup
from inbound.testing.world import GROUP
from tests.group.paused_group import PARTITIONS, Group


class AutoWakeup(Wakeup):
    """Lets the world go on while a caller waits, and the clock where nothing happens."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self._group = group

    def wait(self, seconds: float | None) -> None:
        self._group.world.run(min(0.2, seconds or 0.2))


class Scene:
    """A group, and an exporter that looks at it."""

    def __init__(self) -> None:
        self.group = Group()
        self.world = self.group.world
        self.connected = 0
        self.group.publish(5)
        self.world.run(5)
        reads = {GROUP: Reads(channels={"orders": "orders"}, begins={"orders": "earliest"})}
        self.exporter = OffsetsExporter(
            self.world.ensemble.client("exporter", 10.0),
            self.world.clock,
            Subjects(groups=[GROUP], reads=reads, selection=ALL),
            self.connect,
            interval=15.0,
            wakeup=AutoWakeup(self.group),
        )

    def connect(self, way: Way) -> LogClient:
        client = self.world.kafka.client()
        self.connected += 1
        return client

    def scrape(self) -> dict[str, dict[Any, float]]:
        """Look, and return the values of our metrics, by name and partition."""
        self.exporter.look()
        body, _ = Exposition(self.exporter.status).render()
        return {
            family.name: {s.labels.get("partition", s.labels.get("group")): s.value for s in family.samples}
            for family in text_string_to_metric_families(body.decode())
            if family.name.startswith(("inbound_offsets", "inbound_partition", "inbound_ready"))
        }


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_the_lag_is_served_while_no_replica_lives(scene: Scene) -> None:
    """Under the names that a channel's have, with the channel's name."""
    for name in ("a", "b"):
        scene.world.leave(name)
    scene.group.publish(3)
    found = scene.scrape()
    each = [str(p) for p in range(PARTITIONS)]
    assert found["inbound_partition_lag"] == dict.fromkeys(each, 3.0)
    assert found["inbound_partition_committed_offset"] == dict.fromkeys(each, 5.0)
    of_group = {name: found[f"inbound_offsets_{name}"][GROUP] for name in ("members", "unowned_partitions")}
    assert of_group == {"members": 0.0, "unowned_partitions": 4.0}
    assert found["inbound_offsets_zookeeper_available"] == found["inbound_offsets_kafka_available"] == {None: 1.0}
    body, _ = Exposition(scene.exporter.status).render()
    assert (
        f'inbound_partition_lag{{channel="orders",group="{GROUP}",topic="orders",partition="0"}} 3.0' in body.decode()
    )


def test_kafka_away_leaves_no_lag(scene: Scene) -> None:
    """What is committed is ZooKeeper's word and stays; and back again, with a new client."""
    scene.scrape()
    scene.world.kafka.down()
    found = scene.scrape()
    assert "inbound_partition_lag" not in found
    assert len(found["inbound_partition_committed_offset"]) == PARTITIONS
    assert found["inbound_offsets_kafka_available"] == {None: 0.0}
    scene.world.kafka.up()
    assert len(scene.scrape()["inbound_partition_lag"]) == PARTITIONS
    assert scene.connected == 2


def test_a_leader_away_leaves_its_partition_without_a_lag(scene: Scene) -> None:
    """The others have theirs."""
    scene.world.kafka.lose_leader("orders", 2)
    found = scene.scrape()
    assert set(found["inbound_partition_lag"]) == {"0", "1", "3"}
    assert found["inbound_offsets_kafka_available"] == {None: 0.0}


def test_zookeeper_away_leaves_no_series_of_groups(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    """Said once in the log, by a gauge, and by the time of the last look; and back again."""
    at = scene.scrape()["inbound_offsets_last_look_timestamp_seconds"]
    scene.world.ensemble.down()
    scene.world.run(1)
    for _ in range(2):
        found = scene.scrape()
    assert {name for name in found if "partition" in name or "members" in name} == set()
    assert (found["inbound_offsets_zookeeper_available"], found["inbound_offsets_last_look_timestamp_seconds"]) == (
        {None: 0.0},
        at,
    )
    assert len([r for r in caplog.records if "does not answer" in r.getMessage() and r.name == "inbound"]) == 1
    scene.world.ensemble.up()
    scene.world.run(15)
    assert len(scene.scrape()["inbound_partition_lag"]) == PARTITIONS


def test_what_is_wrong_with_nodes_is_counted(scene: Scene) -> None:
    """An offset that cannot be read, a partition that has none, a gate that a reset has closed."""
    for name in ("a", "b"):
        scene.world.leave(name)
    paths = scene.world.paths
    scene.world.ensemble.tree.transaction(
        [
            SetData(paths.offset("orders", 0), b"x"),
            SetData(paths.offset("orders", 1), b""),
            SetData(paths.gate("orders"), b"/inbound/commands/reset-offset/r"),
            Create(paths.member("someone"), b"{}"),
        ],
        0,
    )
    found = scene.scrape()
    names = ("unreadable_partitions", "uncommitted_partitions", "closed_gates", "members")
    assert [found[f"inbound_offsets_{name}"][GROUP] for name in names] == [1.0, 2.0, 1.0, 1.0]
    assert found["inbound_partition_lag"] == {"1": 5.0, "2": 0.0, "3": 0.0}


def test_a_client_is_kept_from_look_to_look(scene: Scene) -> None:
    """A look each interval is all that it costs, however often it is scraped; it is ready once it has looked."""
    before = scene.exporter.status().ready()
    for _ in range(3):
        scene.exporter.look()
    for _ in range(10):
        Exposition(scene.exporter.status).render()
    found = scene.exporter.status()
    assert found.offsets is not None
    assert (scene.connected, found.offsets.looks_total) == (1, 3)
    assert before == ["offsets: not looked at yet: the first look has not ended"]
    assert found.ready() == []


def test_it_ends_when_told_and_closes_its_clients(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the look under way."""
    look = scene.exporter.look

    def look_and_stop() -> None:
        look()
        scene.exporter.stop()

    monkeypatch.setattr(scene.exporter, "look", look_and_stop)
    scene.exporter.run()
    assert scene.exporter.status().stopping
    assert scene.world.kafka.clients[-1].closed


def test_a_defect_of_a_look_is_reported_and_the_next_one_comes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With nothing shown until then."""
    looks = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 2:
            scene.exporter.stop()
            return
        raise RuntimeError("a defect")

    scene.exporter.look()
    monkeypatch.setattr(scene.exporter, "look", look)
    scene.exporter.run()
    found = scene.exporter.status()
    assert found.offsets is not None
    assert (len(looks), found.offsets.partitions, found.threads[0].failures) == (2, [], 1)
    assert "a look failed" in caplog.text
