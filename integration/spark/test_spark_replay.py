"""`spark replay` on a real Kafka and Spark: in order, once, after every kill; the group is left alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from inbound.cli.main import main
from inbound.embedded import EmbeddedCluster
from integration.spark.replay_scene import BATCH, ReplayScene
from integration.spark.spark_log import Headers
from integration.spark.spark_standalone import standalone
from tests.waiting import until

RECORDS = 400
WHOLE = list(range(RECORDS))
# Spark, Kafka and ZooKeeper start within the first; beside others' work that takes minutes.
pytestmark = [pytest.mark.timeout(900)]


@pytest.fixture
def make(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> Callable[..., ReplayScene]:
    """Make a topic with so many records in each of so many partitions."""

    def scene(partitions: int = 2, records: int = RECORDS, empty: int = 0) -> ReplayScene:
        one = ReplayScene(embedded_cluster, tmp_path, partitions + empty)
        one.log.publish(
            (partition, b"%d" % n, [("a", b"1")]) for partition in range(partitions) for n in range(records)
        )
        one.configure()
        return one

    return scene


def test_each_partition_is_replayed_in_order_and_once_under_every_fault(
    make: Callable[..., ReplayScene], spark: Any
) -> None:
    """One goes back beyond memory, of one the task is killed, one is held by a bad record; of two, records were aborted.

    A second run of the name redelivers only what is not marked. The group's nodes, and Kafka's groups, stay as they are.
    """
    scene = make(3, empty=2)
    scene.log.publish_transactions(3, True, False)
    scene.log.publish_transactions(4, False)
    options = {"revert_at": [0, 120], "kill_at": [1, 210], "fail_at": [2, 75]}
    scene.configure(processor=options, on_error={"max_attempts": 1, "then": "hold"})
    zk = KazooClient(scene.cluster.zookeeper_hosts, timeout=30)
    zk.start(timeout=30)
    try:
        node = f"/consumers/{scene.group}/offsets/{scene.topic}/0"
        zk.create(node, b"17", makepath=True)
        before = zk.get(node)

        codes = [scene.replay("--name", "whole")]
        delivered, summary = scene.handed(), scene.summary
        repeated, listed = scene.repeated(), scene.listed()
        codes.append(scene.replay("--name", "whole"))

        assert (zk.get(node), zk.get_children(f"/consumers/{scene.group}")) == (before, ["offsets"])
    finally:
        zk.stop()
        zk.close()
    assert codes == [1, 1]
    held = delivered.pop(2)
    assert held[:100] == list(range(100))
    assert set(held) == set(range(100))
    killed = [*range(250), *range(200, RECORDS)]
    assert delivered == {0: [*range(150), *WHOLE], 1: killed, 3: list(range(10))}
    assert {p: offsets for p, offsets in scene.handed().items() if p != 2} == delivered
    # What the processor asked for again is no repeat of a dying task.
    assert (repeated[1], listed) == (list(range(200, 200 + BATCH)), {1: list(range(200, 200 + BATCH))})
    units = {unit["partition"]: unit for unit in summary["units"]}
    assert {p: (unit["mark"], unit["next"]) for p, unit in units.items()} == {
        0: (RECORDS, RECORDS), 1: (RECORDS, RECORDS), 2: (75, RECORDS), 3: (22, 22), 4: (11, 11),
    }  # fmt: skip
    assert (units[0]["reverts"], units[1]["attempts"]) == (1, 2)
    assert units[1]["repeated"] == [{"first": 200, "next": 250, "why": "it was killed"}]
    assert "the record at offset 75: ValueError: this record is refused" in units[2]["held"]
    groups = scene.log.admin.list_consumer_groups(request_timeout=50).result(60).valid
    assert [found.group_id for found in groups if found.group_id == scene.group] == []


def test_what_is_in_the_log_is_asked_of_kafka(
    make: Callable[..., ReplayScene], capsys: pytest.CaptureFixture[str]
) -> None:
    """Times, what retention took, topics that are gone, and Kafka itself; without Spark, and nothing is left behind."""
    scene = make(2, records=10)
    moment = int(time.time()) + 600  # beyond all others
    for offset in range(10):
        scene.log.publish([(0, b"later", [])], timestamp=(moment + offset) * 1000)
    start = datetime.fromtimestamp(moment + 2, UTC).isoformat()
    end = datetime.fromtimestamp(moment + 5, timezone(timedelta(hours=2))).isoformat()

    def run(*flags: str) -> tuple[int, str]:
        code = main(scene.arguments(*flags))
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    planned = run("--dry-run", "--name", "trial", "--from-time", start, "--to-time", end)
    scene.log.delete_records({1: 4})
    trimmed = run("--from-offset", "0")
    scene.log.delete()
    gone = run()
    scene.config.write_text(scene.config.read_text().replace(scene.cluster.bootstrap_servers, "127.0.0.1:1"))
    away = run()

    assert [code for code, _ in (planned, trimmed, gone, away)] == [0, 2, 2, 1]
    assert [scene.topic, "0", "12", "15", "0", "3"] in [line.split() for line in planned[1].splitlines()], planned[1]
    assert f"{scene.topic}/1: offsets 0 to 3 are not in the log any more, which holds 4 to 9 (retention)" in trimmed[1]
    assert f"topic {scene.topic}: Kafka has no such topic; it was deleted, or its name is misspelt" in gone[1]
    assert "Kafka at 127.0.0.1:1 does not answer" in away[1]
    left = [path for path in (scene.folder / "ledger").rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert left == []


@pytest.mark.thorough("reads while retention deletes; test_what_is_in_the_log_is_asked_of_kafka has it before the plan")
def test_what_retention_takes_in_between_ends_the_replay(
    make: Callable[..., ReplayScene], spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the plan was made: exit 1, never a silent gap."""
    scene = make()
    monkeypatch.setattr("inbound.cli.spark.replay._make_folder", lambda folder: scene.log.delete_records({0: 100}))
    scene.configure("simple", {"sinks": ["log"]})

    code = scene.replay("--partitions", "0", "--shadow", str(scene.folder))

    said = capsys.readouterr().err
    assert code == 1
    assert "Kafka's log lost what was to be read" in said, said


@pytest.mark.thorough(
    "tests/spark/test_replay_plan.py decides how a range is split, and the test above that each part is replayed"
)
def test_a_class_without_order_is_split(make: Callable[..., ReplayScene], spark: Any) -> None:
    """Each task in order; another version of the processor than the configuration names."""
    scene = make()

    assert scene.replay("--tasks", "6", "--processor", "replayed:Scattered") == 0

    assert len(scene.summary["units"]) == 6
    assert {partition: sorted(offsets) for partition, offsets in scene.handed().items()} == {0: WHOLE, 1: WHOLE}


@pytest.mark.thorough("starts a driver of its own; the second run of the first test here goes on at the same marks")
def test_a_driver_that_dies_is_gone_on_with(make: Callable[..., ReplayScene], spark: Any) -> None:
    """SIGKILL in the middle: the next run of the name waits for what still runs, and goes on at its marks.

    Both tasks have begun by then, and neither is at its end: one takes eight batches.
    """
    scene = make()
    scene.configure(processor={"seconds_per_batch": 1.0})
    process = scene.process("--name", "survivor", "--master", "local[2]")
    try:
        until(
            lambda: len(scene.handed()) == 2 and sum(map(len, scene.handed().values())) >= 3 * BATCH,
            300,
            lambda: (scene.folder / "replay.log").read_text(),
        )
    finally:
        process.kill()
        process.wait()
    assert scene.replay("--name", "survivor", "--from-offset", "7") == 2  # another range: refused, nothing changed

    assert scene.replay("--name", "survivor") == 0

    assert {partition: sorted(set(offsets)) for partition, offsets in scene.handed().items()} == {0: WHOLE, 1: WHOLE}
    assert scene.repeated() == scene.listed()
    assert all(len(offsets) <= BATCH for offsets in scene.repeated().values())
    assert scene.summary["units"][0]["attempts"] == 2


@pytest.mark.thorough("starts a master and two workers; the first test here kills a task where a driver has all tasks")
def test_an_executor_that_dies_is_replaced(make: Callable[..., ReplayScene]) -> None:
    """SIGKILL of the executor's JVM inside a batch; no other attempt begins while its Python worker runs on, for a second.

    What is marked is not repeated, and what is repeated is listed, for every attempt.
    """
    scene = make(records=300)
    scene.configure(processor={"kill_at": [1, 160], "kill_executor": True})
    (scene.folder / "cluster").mkdir()
    with standalone(scene.folder / "cluster") as master:
        process = scene.process(
            "--master", master.url, "--json", str(scene.folder / "summary.json"), "--conf", "spark.executor.memory=512m",
            "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1",
        )  # fmt: skip
        try:
            until(lambda: process.poll() is not None, 500, lambda: (scene.folder / "replay.log").read_text())
            code = process.returncode
        finally:
            process.kill()
            process.wait()

    assert code == 0, (scene.folder / "replay.log").read_text()
    assert (scene.seen / "kill").exists()
    assert {p: sorted(set(offsets)) for p, offsets in scene.handed().items()} == {p: list(range(300)) for p in range(2)}
    assert scene.repeated() == scene.listed()
    assert all(len(offsets) <= BATCH for offsets in scene.repeated().values())
    (unit,) = (unit for unit in scene.summary["units"] if unit["partition"] == 1)
    assert unit["attempts"] >= 2


def test_a_shadow_is_compared_with_what_was_sent(make: Callable[..., ReplayScene], spark: Any) -> None:
    """Events by source and id: only here, only there, different and in what, repeats; nothing is sent."""
    scene = make(1)
    live = scene.folder / "live.jsonl"
    scene.configure("simple", {"sinks": [{"type": "jsonl", "path": str(live)}]})
    event = {"specversion": "1.0", "type": "t", "source": "/s"}
    structured: Headers = [("content-type", b"application/cloudevents+json")]
    scene.log.publish((0, json.dumps({**event, "id": str(n), "data": {"n": n}}).encode(), structured) for n in range(6))
    here = ["--from-offset", str(RECORDS), "--shadow", str(scene.folder / "a")]
    assert scene.replay("--shadow", str(scene.folder / "first"), "--from-offset", str(RECORDS)) == 0
    (captured,) = (scene.folder / "first").glob("*.jsonl")
    lines = [json.loads(line) for line in captured.read_text().splitlines()]
    assert scene.replay(*here, "--against", str(scene.folder / "first")) == 0
    lines[1]["event"]["data"] = {"n": "other"}
    lines[2]["event"]["type"] = "u"
    other = {**lines[0], "event": {**lines[0]["event"], "id": "another"}}
    live.write_text("".join(json.dumps(line) + "\n" for line in [*lines[:5], lines[0], other]) + '{"topic": "torn')

    code = scene.replay(*here[:-1], str(scene.folder / "b"), "--against", str(live))

    assert code == 1
    found = json.loads((scene.folder / "b" / "diff.json").read_text())
    assert {name: found[name] for name in ("only_here", "only_there", "different", "same", "repeats_there")} == {
        "only_here": 1, "only_there": 1, "different": 2, "same": 3, "repeats_there": 1,
    }  # fmt: skip
    assert [(one["kind"], one["id"], one["differs"]) for one in found["examples"]] == [
        ("only here", "5", []), ("only there", "another", []), ("different", "1", ["data"]), ("different", "2", ["type"]),
    ]  # fmt: skip
    assert found["broken_there"] == 1
