"""`spark validate` on real Kafka, ZooKeeper and Spark: each kind of finding, and what only looks like one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka
import pyarrow.parquet
import pytest
from kafka.admin import KafkaAdminClient

from inbound.embedded import EmbeddedCluster
from integration.spark_stage import Stage, spark
from tests.waiting import until

__all__ = ["spark"]

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def stage(embedded_cluster: EmbeddedCluster, tmp_path: Path, spark: Any) -> Iterator[Stage]:
    """A group on a topic with one partition."""
    one = Stage(embedded_cluster, tmp_path)
    yield one
    one.close()


def test_all_handed_out_once_and_committed_is_proven(stage: Stage, capsys: Capture, tmp_path: Path) -> None:
    """Two consumers, one after the other, each record once: proven, in all forms of output."""
    stage.publish(100)
    stage.consumer("a").claim().batch(0, 30).batch(30, 60).leave()
    stage.consumer("b").claim().batch(60, 100).leave()

    judged = stage.validate(capsys, "--output", str(tmp_path / "proof"))

    assert (judged.code, judged.proof["verdict"], judged.findings) == (0, "proven", set())
    partition = judged.proof["partitions"][0]
    assert {
        name: partition[name] for name in ("proven", "committed", "log_start", "log_end", "handed_out", "missing")
    } == {
        "proven": 100,
        "committed": 100,
        "log_start": 0,
        "log_end": 100,
        "handed_out": 100,
        "missing": [],
    }
    written = {path.name for path in (tmp_path / "proof").iterdir()}
    assert written == {"proof.json", "proof.html", "findings.parquet", "partitions.parquet"}
    assert json.loads((tmp_path / "proof" / "proof.json").read_text()) == judged.proof
    assert pyarrow.parquet.read_table(tmp_path / "proof" / "partitions.parquet")["verdict"].to_pylist() == ["proven"]


def test_what_a_killed_consumer_had_not_committed_is_repeated_and_no_anomaly(stage: Stage, capsys: Capture) -> None:
    """A batch that was handed out and not committed is handed out again: exactly these offsets, exit code 0."""
    stage.publish(100)
    stage.consumer("a").claim().batch(0, 30).begin(30, 60)  # and it is killed
    stage.consumer("b").claim().batch(30, 50).batch(50, 100).leave()

    judged = stage.validate(capsys)

    assert (judged.code, judged.findings) == (0, {("repeated", 30, 60)})


def test_where_no_repeats_are_wanted_a_repeat_is_an_anomaly(stage: Stage, capsys: Capture) -> None:
    """The same with --no-repeats: a duplicate, exit code 1."""
    stage.publish(100)
    stage.consumer("a").claim().batch(0, 30).begin(30, 60)
    stage.consumer("b").claim().batch(30, 100).leave()

    judged = stage.validate(capsys, "--no-repeats")

    assert (judged.code, judged.findings) == (1, {("duplicate", 30, 60)})


def test_what_is_committed_past_and_handed_to_nobody_is_lost(stage: Stage, capsys: Capture) -> None:
    """Ten offsets are never handed out: lost; both modes find them, exact mode counts them."""
    stage.publish(100)
    stage.consumer("a").claim().batch(0, 30).batch(40, 100).leave()

    exact, quick = stage.validate(capsys), stage.validate(capsys, "--quick")

    assert (exact.code, exact.findings) == (1, {("lost", 30, 40)})
    assert (quick.code, quick.findings) == (1, {("lost", 30, 40)})
    assert exact.proof["partitions"][0]["findings"][0]["offsets"] == 10
    assert quick.proof["partitions"][0]["findings"][0]["offsets"] is None


def test_a_batch_with_too_few_records_is_found_by_reading_the_log(stage: Stage, capsys: Capture) -> None:
    """The range is whole, but three records of it were left out: only the log can tell."""
    stage.publish(100)
    stage.consumer("a").claim().batch(0, 30).batch(30, 60, records=27).batch(60, 100).leave()

    exact, quick = stage.validate(capsys), stage.validate(capsys, "--quick")

    assert quick.code == 0
    assert exact.code == 1
    assert [(f["kind"], f["offsets"]) for f in exact.proof["partitions"][0]["findings"]] == [("lost", 3)]


def test_what_was_committed_and_is_handed_out_again_unasked_is_duplicate(stage: Stage, capsys: Capture) -> None:
    """Somebody sets the offset back past inbound: the repeat is nobody's wish."""
    stage.publish(100)
    stage.consumer("a").claim().batch(0, 60).leave()
    stage.set_offset(50)
    stage.consumer("b").claim().batch(50, 100).leave()

    judged = stage.validate(capsys)

    assert (judged.code, judged.findings) == (1, {("duplicate", 50, 60)})


def test_a_reset_explains_its_repeat(stage: Stage, capsys: Capture) -> None:
    """The processor's on_claim gave an offset of its own, and the ledger says so: no finding."""
    stage.publish(100)
    stage.consumer("a").claim().batch(0, 60).leave()
    second = stage.consumer("b").claim().note("reset", old=60, new=50, reason="on_claim").commit(50)
    second.batch(50, 100).leave()

    judged = stage.validate(capsys)

    assert (judged.code, judged.findings) == (0, set())


def test_a_commit_of_an_older_claim_after_one_of_a_newer_is_unfenced(stage: Stage, capsys: Capture) -> None:
    """A zombie's commit lands after its successor's: found by ZooKeeper's transaction numbers."""
    stage.publish(100)
    zombie = stage.consumer("a").claim().batch(0, 30).begin(30, 40).answer(30, 40)
    heir = stage.consumer("b").claim().batch(30, 50)
    zombie.commit(40)
    heir.batch(50, 100).leave()

    judged = stage.validate(capsys)

    assert judged.code == 1
    assert "unfenced" in {kind for kind, _, _ in judged.findings}


def test_what_comes_after_higher_offsets_is_reordered(stage: Stage, capsys: Capture) -> None:
    """A claim hands out 40 to 60 before 30 to 40."""
    stage.publish(100)
    player = stage.consumer("a").claim().batch(0, 30).begin(40, 60).begin(30, 40)
    player.begin(60, 100).answer(60, 100).commit(100).leave()

    judged = stage.validate(capsys)

    assert judged.code == 1
    assert ("reordered", 30, 40) in judged.findings


def test_a_commit_behind_the_end_of_the_log_is_named(stage: Stage, capsys: Capture) -> None:
    """The brokers lost their newest records, say."""
    stage.publish(100)
    stage.consumer("a").claim().batch(0, 100).batch(100, 120).leave()

    judged = stage.validate(capsys)

    assert (judged.code, judged.findings) == (1, {("beyond-end", 100, 120)})


def test_what_retention_deleted_unread_is_lost_to_retention(stage: Stage, capsys: Capture) -> None:
    """The log begins at 40 by the time somebody comes back, and the consumer notes what it could not read."""
    stage.publish(100)
    stage.consumer("a").claim().batch(0, 30).leave()
    admin = KafkaAdminClient(bootstrap_servers=stage.cluster.bootstrap_servers)
    admin.delete_records({kafka.TopicPartition(stage.topic, 0): 40})
    admin.close()
    stage.consumer("b").claim().note("retention", first=30, next=40).batch(40, 100).leave()

    judged = stage.validate(capsys)

    assert (judged.code, judged.findings) == (1, {("lost-to-retention", 30, 40)})


def test_what_was_read_before_retention_deleted_it_is_no_loss(stage: Stage, capsys: Capture) -> None:
    """The log begins in the midst of what was handed out; behind it batches are still held against the log."""
    stage.publish(100)
    stage.consumer("a").claim().batch(0, 30).batch(30, 60).batch(60, 80, records=19).batch(80, 100).leave()
    admin = KafkaAdminClient(bootstrap_servers=stage.cluster.bootstrap_servers)
    admin.delete_records({kafka.TopicPartition(stage.topic, 0): 40})
    admin.close()

    judged = stage.validate(capsys)

    assert judged.code == 1
    assert [(f["kind"], f["offsets"]) for f in judged.proof["partitions"][0]["findings"]] == [("lost", 1)]


def test_an_answer_whose_commit_did_not_land_is_uncommitted(stage: Stage, capsys: Capture) -> None:
    """The last owner died between answer and commit, and nobody has come since: said, and no anomaly."""
    stage.publish(100)
    stage.consumer("a").claim().batch(0, 30).begin(30, 60).answer(30, 60)

    judged = stage.validate(capsys)

    assert (judged.code, judged.findings) == (0, {("uncommitted", 30, 60)})


def test_gaps_of_transactions_are_no_losses(stage: Stage, capsys: Capture) -> None:
    """Markers and aborted records have offsets that nobody is handed; what is committed counts."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=stage.cluster.bootstrap_servers, transactional_id=f"tx-{stage.topic}"
    )
    producer.init_transactions()
    for commits in (True, False, True):
        producer.begin_transaction()
        for n in range(10):
            producer.send(stage.topic, b"%d" % n, partition=0)
        producer.flush()  # or what is aborted would never be sent
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    until(lambda: stage.log_end() == 33, 60, "the last transaction is complete")
    stage.consumer("a").claim().batch(0, 22, records=10).batch(22, 33, records=10).leave()

    judged = stage.validate(capsys)

    assert (judged.code, judged.findings) == (0, set())
    assert judged.proof["partitions"][0]["log_end"] == 33


def test_a_ledger_in_a_topic_proves_the_same(
    embedded_cluster: EmbeddedCluster, tmp_path: Path, spark: Any, capsys: Capture
) -> None:
    """Two groups share the ledger's topic, and even their consumers' ids: one did all right, the other left some out."""
    stages = []
    for name in ("right", "wrong"):
        (tmp_path / name).mkdir()
        stages.append(Stage(embedded_cluster, tmp_path / name))
    for stage, skipped in zip(stages, (0, 10), strict=True):
        stage.keep_ledgers_in("ledgers-of-two")
        stage.publish(100)
        stage.consumer("a").claim().batch(0, 30).begin(30, 60)  # and it is killed
        stage.consumer("b").claim().batch(30, 60).batch(60 + skipped, 100).leave()

    judged = [stage.validate(capsys, "--state", str(stage.folder / "proven.json")) for stage in stages]
    for stage in stages:
        stage.close()

    assert [(one.code, one.findings, one.missing) for one in judged] == [
        (0, {("repeated", 30, 60)}, ""),
        (1, {("repeated", 30, 60), ("lost", 60, 70)}, ""),
    ]


def test_compacted_offsets_are_no_losses(
    embedded_cluster: EmbeddedCluster, tmp_path: Path, spark: Any, capsys: Capture
) -> None:
    """The log lacks most offsets by the time of the proof: what was left out and is compacted away is no loss any more."""
    stage = Stage(
        embedded_cluster, tmp_path, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="100",
    )  # fmt: skip
    stage.let_the_cleaner_look_often()
    stage.publish(200, keys=3)
    stage.consumer("a").claim().batch(0, 60).batch(70, 200).leave()  # 60 to 69 are handed to nobody
    time.sleep(0.2)  # the segment is old enough to be followed by another, which makes the cleaner take it
    stage.publish(1, keys=1)

    def cleaned() -> bool:
        return not stage.validate(capsys, "--from-start").findings

    try:
        assert ("lost", 60, 70) in stage.validate(capsys, "--quick").findings
        until(cleaned, 200, lambda: str(stage.validate(capsys).findings))
        assert stage.validate(capsys).code == 0
    finally:
        stage.close()
