"""`inbound offsets` on real servers: against an account of its own, Kafka's tool, members that live, and servers that die."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import kafka
import pytest
from kafka.admin import KafkaAdminClient
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition
from prometheus_client.parser import text_string_to_metric_families

from inbound.embedded import EmbeddedCluster
from integration.harness import Scene, Scenes, consumer_groups
from tests.waiting import until

PARTITIONS = 3


@pytest.fixture
def scene(scenes: Scenes) -> Scene:
    """One scene on the shared cluster."""
    return scenes(partitions=PARTITIONS)


def offsets(scene: Scene, *arguments: str, code: int = 0) -> str:
    """Run a command on the scene's configuration; return its output, after `code` 0, or else its stderr."""
    done = scene.inbound("offsets", *arguments, code=code)
    return done.stderr if code else done.stdout


def shown(scene: Scene) -> dict[str, Any]:
    """Return what `show --json` says of the scene's group."""
    (group,) = json.loads(offsets(scene, "show", "--json"))["groups"]
    return dict(group)


def of_partitions(group: dict[str, Any], key: str) -> list[Any]:
    """Return one thing of each partition of the only topic."""
    (topic,) = group["topics"]
    return [partition[key] for partition in topic["partitions"]]


def read_and_stop(scene: Scene, per_partition: int) -> None:
    """Have a consumer read so many records of each partition, and stop it."""
    scene.run_group(1, per_partition)
    assert scene.stop_all() == [0]


def node(scene: Scene, family: str, partition: int) -> Any:
    """Return data and stat of a node, as kazoo reads it."""
    return scene.zk.get(f"/consumers/{scene.group}/{family}/{scene.topic}/{partition}")


def test_show_says_what_the_servers_say(scene: Scene) -> None:
    """While a member lives and afterwards: asked for by kazoo, and by a consumer of kafka-python's."""
    scene.run_group(1, records=20)
    alive = shown(scene)
    assert dict(enumerate(of_partitions(alive, "owner"))) == scene.owners()
    assert len(alive["members"]) == 1
    assert scene.stop_all() == [0]
    scene.publish(7)
    group = shown(scene)
    consumer = kafka.KafkaConsumer(bootstrap_servers=scene.cluster.bootstrap_servers)
    ends = consumer.end_offsets([KafkaPartition(scene.topic, p) for p in range(PARTITIONS)])
    consumer.close()
    read = [node(scene, "offsets", p) for p in range(PARTITIONS)]
    expected = {
        "committed": [int(data) for data, _ in read],
        "committed_at": [stat.mtime / 1000 for _, stat in read],
        "epoch": [node(scene, "epochs", p)[1].version for p in range(PARTITIONS)],
        "log_end": [ends[KafkaPartition(scene.topic, p)] for p in range(PARTITIONS)],
        "lag": [7] * PARTITIONS,
        "owner": [None] * PARTITIONS,
    }
    assert {key: of_partitions(group, key) for key in expected} == expected
    assert (group["members"], group["total"]["lag"]) == ([], 7 * PARTITIONS)


def test_offsets_go_out_and_in_again_and_the_group_reads_from_there(scene: Scene) -> None:
    """What was moved back is read once more, and nothing else is."""
    read_and_stop(scene, 20)
    kept = offsets(scene, "export")
    assert sorted(kept.splitlines()) == [f"{_quoted(scene.topic)},{p},20" for p in range(PARTITIONS)]
    file = scene.folder / "moved.csv"
    file.write_text(f"{scene.topic},0,15\n{scene.topic},1,20\n{scene.topic},2,0\n")
    planned = offsets(scene, "import", str(file))
    assert [scene.offset(p) for p in range(PARTITIONS)] == [20] * PARTITIONS
    assert offsets(scene, "import", str(file), "--execute") == planned
    assert of_partitions(shown(scene), "lag") == [5, 0, 20]
    scene.run_group(1)
    until(lambda: sum(scene.seen().values()) == 20 * PARTITIONS + 25, 60, lambda: f"read again: {scene.seen()}")
    scene.settle()
    refused = offsets(scene, "import", str(file), "--execute", code=2)
    assert "1 live member" in refused
    assert "offsets reset" in refused
    assert scene.account().repeated == {0: list(range(15, 20)), 2: list(range(20))}
    assert not scene.account().lost
    assert scene.stop_all() == [0]
    (scene.folder / "kept.csv").write_text(kept)
    offsets(scene, "import", str(scene.folder / "kept.csv"), "--execute")
    assert of_partitions(shown(scene), "lag") == [0] * PARTITIONS


@pytest.mark.thorough("starts Kafka's tool twice; tests/offsets/test_offsets_csv.py has its lines")
def test_the_csv_is_what_kafkas_tool_writes_and_reads(scene: Scene, inbound_jars: Path) -> None:
    """The same lines, for a Kafka group with the same offsets, and no complaint about ours."""
    read_and_stop(scene, 9)
    name = f"kafka-{scene.group}"
    admin = KafkaAdminClient(bootstrap_servers=scene.cluster.bootstrap_servers)
    same = {KafkaPartition(scene.topic, p): OffsetAndMetadata(9, "", None) for p in range(PARTITIONS)}
    until(lambda: _altered(admin, name, same), 60, "Kafka has a coordinator for the group")
    admin.close()
    ours = offsets(scene, "export")
    dry_run = ("--reset-offsets", "--group", name, "--all-topics", "--dry-run")
    exported = consumer_groups(scene.bootstrap_servers, inbound_jars, *dry_run, "--to-current", "--export")
    assert sorted(line for line in exported.splitlines() if "," in line) == sorted(ours.splitlines())
    file = scene.folder / "ours.csv"
    file.write_text(ours)
    read = consumer_groups(scene.bootstrap_servers, inbound_jars, *dry_run, "--from-file", str(file))
    found = re.findall(rf"(?m)^{re.escape(name)}\s+{re.escape(scene.topic)}\s+(\d+)\s+(\d+)", read)
    assert sorted(found) == [(str(p), "9") for p in range(PARTITIONS)], read


@pytest.mark.thorough("waits for a Kafka group to become empty; tests/cli/test_offsets_command.py takes one over")
def test_a_kafka_groups_offsets_are_taken_over(scene: Scene) -> None:
    """Not while it has members; then exactly, and the first consumer of inbound reads what that group had not."""
    scene.publish(20)
    name = f"kafka-{scene.group}"
    consumer = kafka.KafkaConsumer(
        scene.topic, bootstrap_servers=scene.cluster.bootstrap_servers, group_id=name, auto_offset_reset="earliest",
        enable_auto_commit=False,
    )  # fmt: skip
    mine: dict[KafkaPartition, OffsetAndMetadata] = {}
    until(
        lambda: consumer.poll(timeout_ms=200) and len(consumer.assignment()) == PARTITIONS, 60, "it has its partitions"
    )
    for p in range(PARTITIONS):
        mine[KafkaPartition(scene.topic, p)] = OffsetAndMetadata(5 + p, "", -1)
    consumer.commit(mine)
    take = ("import", "--from-kafka-group", name, "--group", scene.group, "--execute")
    assert "it has members" in offsets(scene, *take, code=2)
    consumer.close(autocommit=False)
    admin = KafkaAdminClient(bootstrap_servers=scene.cluster.bootstrap_servers)

    def states() -> dict[str, str]:
        return {str(one["group_id"]): str(one["group_state"]) for one in admin.list_groups()}

    until(lambda: states().get(name) == "Empty", 120, lambda: f"its member has left: {states()}")
    offsets(scene, *take)
    kept = admin.list_group_offsets({name: None})[name]
    admin.close()
    assert {p: scene.offset(p) for p in range(PARTITIONS)} == {key.partition: at.offset for key, at in kept.items()}
    scene.start()
    scene.settle()
    assert scene.account().lost == {p: list(range(5 + p)) for p in range(PARTITIONS)}
    assert not scene.account().repeated
    assert "has no group" in offsets(scene, "import", "--from-kafka-group", "unknown", "--group", scene.group, code=2)


def test_a_group_is_deleted_only_when_it_is_silent(scene: Scene) -> None:
    """Refused while a member lives; afterwards nothing of it is left, and the next member begins afresh."""
    scene.session = 10.0  # deleting waits for one
    scene.write_config()
    scene.run_group(1, records=6)
    assert "1 live member" in offsets(scene, "delete", "--group", scene.group, "--execute", code=2)
    assert scene.stop_all() == [0]
    one = f"{scene.topic}:1"
    offsets(scene, "delete", "--group", scene.group, "--topic", one, "--execute")
    assert [scene.offset(p) for p in range(PARTITIONS)] == [6, None, 6]
    assert of_partitions(shown(scene), "lag") == [0, 6, 0]
    begun = time.monotonic()
    said = offsets(scene, "delete", "--group", scene.group, "--execute")
    assert re.search(rf"{scene.group}: deleted, \d+ nodes", said)
    assert time.monotonic() - begun > scene.session
    assert scene.zk.exists(f"/consumers/{scene.group}") is None
    scene.start()
    until(scene.everything_committed, 60, "everything is read again")
    assert scene.account().repeated == {p: list(range(6)) for p in range(PARTITIONS)}


@pytest.mark.thorough("kills both servers; tests/offsets/test_offsets_exporter.py has them unavailable")
def test_the_exporter_serves_lags_without_a_replica_and_over_a_brokers_death(
    mortal_cluster: EmbeddedCluster, scene: Scene
) -> None:
    """Nothing rather than old numbers while a server is away; it ends on SIGTERM with 0."""
    read_and_stop(scene, 10)
    scene.publish(4)
    text = scene.folder / "exporter.log"
    with text.open("wb") as log:
        arguments = ("offsets", "show", "--metrics", "--listen", "127.0.0.1:0", "--interval", "1")
        exporter = subprocess.Popen(scene.command_line(*arguments), stderr=log)
    scene.processes.append(exporter)
    found = until(lambda: re.search(r"offsets: (http\S+)/metrics", text.read_text()), 60, "it says where it listens")

    assert found is not None
    listening = found[1]

    def value(name: str) -> dict[str, float]:
        with urlopen(f"{listening}/metrics", timeout=30) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        samples = [s for family in families for s in family.samples if s.name == name]
        return {s.labels.get("partition", ""): s.value for s in samples}

    each = [str(p) for p in range(PARTITIONS)]
    lags, committed = dict.fromkeys(each, 4.0), dict.fromkeys(each, 10.0)
    until(lambda: value("inbound_partition_lag") == lags, 60, text.read_text)
    assert value("inbound_partition_committed_offset") == committed
    mortal_cluster.brokers[0].kill()
    until(lambda: value("inbound_offsets_kafka_available") == {"": 0.0}, 60, "the broker's death is seen")
    assert value("inbound_partition_lag") == {}
    assert value("inbound_partition_committed_offset") == committed
    shown_without = scene.inbound("offsets", "show", code=1)
    assert ("error: Kafka" in shown_without.stderr, "lag ?" in shown_without.stdout) == (True, True)
    mortal_cluster.brokers[0].start()
    until(lambda: value("inbound_partition_lag") == lags, 90, text.read_text)
    mortal_cluster.zookeepers[0].kill()
    until(lambda: value("inbound_offsets_zookeeper_available") == {"": 0.0}, 60, "ZooKeeper's death is seen")
    assert value("inbound_partition_committed_offset") == {}
    mortal_cluster.zookeepers[0].start()
    until(lambda: value("inbound_partition_lag") == lags, 90, text.read_text)
    exporter.send_signal(signal.SIGTERM)
    assert exporter.wait(timeout=60) == 0


# -- inside ------------------------------------------------------------------------------------------------------------


def _altered(admin: KafkaAdminClient, group: str, to: dict[KafkaPartition, OffsetAndMetadata]) -> bool:
    """Set a Kafka group's offsets; False: its coordinator is not there yet."""
    try:
        return all(error.errno == 0 for error in admin.alter_group_offsets(group, to).values())
    except kafka.errors.RetriableError:
        return False


def _quoted(name: str) -> str:
    return f'"{name}"' if len(name) > 24 else name
