"""`spark replay` on a real Kafka and Spark: in order, once, whatever dies; the group is left alone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kazoo.client import KazooClient

from inbound.cli import places
from inbound.embedded import EmbeddedCluster
from inbound.spark.gather import Brokers
from inbound.spark.session import SparkSettings, spark_session
from inbound.topic_partition import TopicPartition
from integration.replay_scene import BATCH, ReplayScene
from tests.waiting import until

RECORDS = 400
#: Spark, Kafka and ZooKeeper start within the first; beside others' work that takes minutes.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """One session for all: two tasks at a time, each tried three times."""
    settings = SparkSettings(places.jar_cache(), places.java_command(), "local[2,3]", {"spark.driver.memory": "1g"})
    with spark_session(settings, "tests of replay") as spark:
        assert spark.sparkContext.master == "local[2,3]", "another session runs, which tries each task once"
        yield spark


@pytest.fixture
def scene(embedded_cluster: EmbeddedCluster, tmp_path: Path, session: Any) -> ReplayScene:
    """A topic with two partitions of records."""
    scene = ReplayScene(embedded_cluster, tmp_path)
    for partition in range(2):
        scene.publish(partition, [b"%d" % n for n in range(RECORDS)], headers=[("a", b"1")])
    scene.configure()
    return scene


@pytest.fixture
def replay(scene: ReplayScene) -> Callable[..., int]:
    """Run `spark replay` with these flags; returns its exit code."""
    return scene.replay


WHOLE = {0: list(range(RECORDS)), 1: list(range(RECORDS))}


def wait_decided(scene: ReplayScene, end: int) -> None:
    """Wait until all before this offset of partition 0 is decided: a transaction's end is answered before its marker stands."""
    key = TopicPartition(scene.topic, 0)

    def decided() -> int:
        with Brokers({"bootstrap.servers": scene.cluster.bootstrap_servers}) as brokers:
            return brokers.limits([key])[key].end

    until(lambda: decided() == end, 60, lambda: f"all before {end} is decided: {decided()}")


def test_each_partition_is_replayed_in_order_and_once(scene: ReplayScene, replay: Callable[..., int]) -> None:
    """And what is marked never again: a second run of the same name hands out nothing."""
    assert replay("--name", "whole") == 0
    assert scene.handed() == WHOLE

    assert replay("--name", "whole") == 0

    assert scene.handed() == WHOLE
    assert scene.summary["done"] == 2 * RECORDS


def test_the_group_is_left_alone(scene: ReplayScene, replay: Callable[..., int]) -> None:
    """Its offsets in ZooKeeper, node by node; and Kafka is told of no group."""
    zk = KazooClient(scene.cluster.zookeeper_hosts, timeout=30)
    zk.start(timeout=30)
    try:
        node = f"/consumers/{scene.group}/offsets/{scene.topic}/0"
        zk.create(node, b"17", makepath=True)
        before = zk.get(node)

        assert replay() == 0

        assert zk.get(node) == before
        assert zk.get_children(f"/consumers/{scene.group}") == ["offsets"]
        groups = scene.admin.list_consumer_groups(request_timeout=50).result(60).valid
        assert [found.group_id for found in groups if found.group_id == scene.group] == []
    finally:
        zk.stop()
        zk.close()


def test_a_task_that_dies_repeats_only_what_it_had_not_marked(scene: ReplayScene, replay: Callable[..., int]) -> None:
    """SIGKILL of the worker in the middle of a batch: Spark tries again, from the mark; the repeat is listed."""
    scene.configure(processor={"kill_at": [1, 210]})

    assert replay() == 0

    assert {partition: sorted(set(offsets)) for partition, offsets in scene.handed().items()} == WHOLE
    assert scene.repeated() == scene.listed() == {1: list(range(200, 200 + BATCH))}
    (unit,) = (unit for unit in scene.summary["units"] if unit["partition"] == 1)
    assert (unit["attempts"], unit["repeated"]) == (2, [{"first": 200, "next": 250, "why": "it was killed"}])


def test_a_range_of_times(scene: ReplayScene, replay: Callable[..., int]) -> None:
    """From a time of the records to another."""
    moment = int(time.time()) + 600  # beyond all others
    for offset in range(10):
        scene.publish(0, [b"later"], timestamp=(moment + offset) * 1000)
    start = datetime.fromtimestamp(moment + 2, UTC).isoformat()
    end = datetime.fromtimestamp(moment + 5, timezone(timedelta(hours=2))).isoformat()

    code = replay("--from-time", start, "--to-time", end)

    assert code == 0
    assert scene.handed() == {0: [RECORDS + 2, RECORDS + 3, RECORDS + 4]}


def test_transactions_and_headers(scene: ReplayScene, replay: Callable[..., int]) -> None:
    """Markers and aborted records are no gaps; the range is marked to its end."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": scene.cluster.bootstrap_servers, "transactional.id": f"tx-{scene.topic}", "log_level": 0}
    )
    producer.init_transactions(60)
    for commit in (True, False):
        producer.begin_transaction()
        for _ in range(5):
            producer.produce(scene.topic, b"in a transaction", partition=0)
        producer.flush(60)
        (producer.commit_transaction if commit else producer.abort_transaction)(60)
    wait_decided(scene, RECORDS + 12)

    assert replay("--from-offset", str(RECORDS)) == 0

    assert scene.handed() == {0: list(range(RECORDS, RECORDS + 5))}
    assert [(unit["next"], unit["mark"]) for unit in scene.summary["units"]] == [(RECORDS + 12, RECORDS + 12)]


def test_a_range_without_records_is_done(scene: ReplayScene, replay: Callable[..., int]) -> None:
    """Spark finds nothing there to hand over."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": scene.cluster.bootstrap_servers, "transactional.id": f"tx-{scene.topic}", "log_level": 0}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(scene.topic, b"in a transaction", partition=0)
    producer.flush(60)
    producer.abort_transaction(60)
    wait_decided(scene, RECORDS + 2)

    assert replay("--range", f"0:{RECORDS}:{RECORDS + 2}") == 0

    assert (scene.handed(), scene.summary["done"]) == ({}, 2)


def test_a_revert_beyond_memory_is_read_again(scene: ReplayScene, replay: Callable[..., int]) -> None:
    """By a client of the executor's own; the marks stay, and nothing is called a repeat of a dying task."""
    scene.configure(processor={"revert_at": [0, 120]})

    assert replay("--partitions", "0") == 0

    assert scene.handed() == {0: [*range(150), *range(RECORDS)]}
    assert scene.summary["units"][0]["reverts"] == 1
    assert scene.listed() == {}


def test_a_record_that_fails_holds_its_partition(scene: ReplayScene, replay: Callable[..., int]) -> None:
    """Exit 1, and why; the other partition is done. Corrected options go on in a replay of another name only."""
    scene.configure(processor={"fail_at": [0, 75]}, on_error={"max_attempts": 1, "then": "hold"})

    assert replay("--name", "held") == 1

    assert scene.handed()[1] == WHOLE[1]
    zero, one = scene.summary["units"]
    assert (zero["mark"], one["complete"]) == (75, True)
    assert "the record at offset 75: ValueError: this record is refused" in zero["held"]


def test_what_retention_takes_meanwhile_ends_the_replay(
    scene: ReplayScene, replay: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the plan was made: exit 1, never a gap that nobody hears of."""

    def trim_first(*arguments: Any) -> None:
        trimmed = confluent_kafka.TopicPartition(scene.topic, 0, 100)
        for future in scene.admin.delete_records([trimmed]).values():
            future.result(60)

    monkeypatch.setattr("inbound.cli.spark_replay._make_folder", trim_first)
    scene.configure("simple", {"sinks": ["log"]})

    code = replay("--partitions", "0", "--shadow", str(scene.folder))

    said = capsys.readouterr().err
    assert code == 1
    assert "Kafka's log lost what was to be read" in said, said


def test_a_class_without_order_is_split(scene: ReplayScene, replay: Callable[..., int]) -> None:
    """Each task in order by itself."""
    scene.configure("replayed:Scattered")

    assert replay("--tasks", "6") == 0

    assert len(scene.summary["units"]) == 6
    assert {partition: sorted(offsets) for partition, offsets in scene.handed().items()} == WHOLE


def test_coroutines(scene: ReplayScene, replay: Callable[..., int]) -> None:
    """An event loop per task; another version of the processor than the configuration names."""
    assert replay("--processor", "replayed:Coroutines") == 0

    assert scene.handed() == WHOLE


def test_a_driver_that_dies_is_gone_on_with(scene: ReplayScene, replay: Callable[..., int]) -> None:
    """SIGKILL in the middle: the next run of the name waits for what still runs, and goes on at its marks.

    Both tasks have begun by then, and neither is at its end: one takes eight batches.
    """
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
    assert replay("--name", "survivor", "--from-offset", "7") == 2  # another range: refused, nothing changed
    scene.configure(processor={"seconds_per_batch": 1.0})

    assert replay("--name", "survivor") == 0

    assert {partition: sorted(set(offsets)) for partition, offsets in scene.handed().items()} == WHOLE
    assert scene.repeated() == scene.listed()
    assert all(len(offsets) <= BATCH for offsets in scene.repeated().values())
    assert scene.summary["units"][0]["attempts"] == 2


def test_a_shadow_is_compared_with_what_was_sent(scene: ReplayScene, replay: Callable[..., int]) -> None:
    """Events by source and id: only here, only there, different and in what, repeats; nothing is sent meanwhile."""
    live = scene.folder / "live.jsonl"
    scene.configure("simple", {"sinks": [{"type": "jsonl", "path": str(live)}]})
    event = {"specversion": "1.0", "type": "t", "source": "/s"}
    scene.publish(
        0, [json.dumps({**event, "id": str(n), "data": {"n": n}}).encode() for n in range(6)],
        headers=[("content-type", b"application/cloudevents+json")],
    )  # fmt: skip
    here = ["--from-offset", str(RECORDS), "--shadow", str(scene.folder / "a")]
    assert replay("--shadow", str(scene.folder / "first"), "--from-offset", str(RECORDS)) == 0
    (captured,) = (scene.folder / "first").glob("*.jsonl")
    lines = [json.loads(line) for line in captured.read_text().splitlines()]
    assert replay(*here, "--against", str(scene.folder / "first")) == 0
    lines[1]["event"]["data"] = {"n": "other"}
    lines[2]["event"]["type"] = "u"
    other = {**lines[0], "event": {**lines[0]["event"], "id": "another"}}
    live.write_text("".join(json.dumps(line) + "\n" for line in [*lines[:5], lines[0], other]) + '{"topic": "torn')

    code = replay(*here[:-1], str(scene.folder / "b"), "--against", str(live))

    assert code == 1
    found = json.loads((scene.folder / "b" / "diff.json").read_text())
    assert {name: found[name] for name in ("only_here", "only_there", "different", "same", "repeats_there")} == {
        "only_here": 1, "only_there": 1, "different": 2, "same": 3, "repeats_there": 1,
    }  # fmt: skip
    assert [(one["kind"], one["id"], one["differs"]) for one in found["examples"]] == [
        ("only here", "5", []), ("only there", "another", []), ("different", "1", ["data"]), ("different", "2", ["type"]),
    ]  # fmt: skip
    assert found["broken_there"] == 1
