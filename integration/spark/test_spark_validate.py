"""`spark validate` on real Kafka, ZooKeeper and Spark: all kinds of findings, and what only looks like one.

Which history is which finding is decided in tests/proof/test_proof_stories.py and tests/proof/test_proof_endings.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from inbound.embedded import EmbeddedCluster
from integration.spark.spark_stage import Stage
from tests.waiting import until

pytestmark = [pytest.mark.timeout(900)]

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def stage(embedded_cluster: EmbeddedCluster, tmp_path: Path, spark: Any) -> Iterator[Stage]:
    """A group on a topic with a partition for each history."""
    one = Stage(embedded_cluster, tmp_path, partitions=13)
    yield one
    one.close()


def plant(stage: Stage) -> None:
    """Let each partition have a history of its own."""
    stage.publish(100, *range(12))
    stage.log.publish_transactions(12, True, False, True)  # 33 offsets, with their markers
    # Two consumers, one after the other, each record once.
    stage.consumer("a", 0).claim().batch(0, 30).batch(30, 60).leave()
    stage.consumer("b", 0).claim().batch(60, 100).leave()
    # Killed with a batch that was not committed.
    stage.consumer("a", 1).claim().batch(0, 30).begin(30, 60)
    stage.consumer("b", 1).claim().batch(30, 50).batch(50, 100).leave()
    # Ten offsets are never delivered.
    stage.consumer("a", 2).claim().batch(0, 30).batch(40, 100).leave()
    # The ranges are whole, but three records of one were left out.
    stage.consumer("a", 3).claim().batch(0, 30).batch(30, 60, records=27).batch(60, 100).leave()
    # The offset is set back past inbound.
    stage.consumer("a", 4).claim().batch(0, 60).leave()
    stage.set_offset(50, 4)
    stage.consumer("b", 4).claim().batch(50, 100).leave()
    # The processor's on_claim gave an offset of its own.
    stage.consumer("a", 5).claim().batch(0, 60).leave()
    reset = stage.consumer("b", 5).claim().note("reset", old=60, new=50, reason="on_claim").commit(50)
    reset.batch(50, 100).leave()
    # A zombie's commit lands after its successor's.
    zombie = stage.consumer("a", 6).claim().batch(0, 30).begin(30, 40).answer(30, 40)
    heir = stage.consumer("b", 6).claim().batch(30, 50)
    zombie.commit(40)
    heir.batch(50, 100).leave()
    # 40 to 60 are delivered before 30 to 40.
    disorderly = stage.consumer("a", 7).claim().batch(0, 30).begin(40, 60).begin(30, 40)
    disorderly.begin(60, 100).answer(60, 100).commit(100).leave()
    # The brokers lost their newest records.
    stage.consumer("a", 8).claim().batch(0, 100).batch(100, 120).leave()
    # Retention deletes what was not read, and what was: behind it batches are still held against the log.
    stage.consumer("a", 9).claim().batch(0, 30).leave()
    stage.consumer("a", 10).claim().batch(0, 30).batch(30, 60).batch(60, 80, records=19).batch(80, 100).leave()
    stage.log.delete_records({9: 40, 10: 40})
    stage.consumer("b", 9).claim().note("retention", first=30, next=40).batch(40, 100).leave()
    # The last owner died between answer and commit.
    stage.consumer("a", 11).claim().batch(0, 30).begin(30, 60).answer(30, 60)
    # Markers and aborted records have offsets that are never delivered.
    stage.consumer("a", 12).claim().batch(0, 22, records=10).batch(22, 33, records=10).leave()


def test_every_kind_of_finding_is_known_from_what_only_looks_like_it(
    stage: Stage, capsys: Capture, tmp_path: Path
) -> None:
    """Exact mode finds all, quick mode what ranges show; the proof is the same in all forms of output."""
    plant(stage)

    exact, quick = stage.validate(capsys, "--output", str(tmp_path / "proof")), stage.validate(capsys, "--quick")
    strict = stage.validate(capsys, "--quick", "--no-repeats", "--partitions", "0,1")

    found = {
        1: {("repeated", 30, 60)},
        2: {("lost", 30, 40)},
        4: {("duplicate", 50, 60)},
        6: {("repeated", 30, 40), ("unfenced", 40, 100)},
        7: {("reordered", 30, 40)},
        8: {("beyond-end", 100, 120)},
        9: {("lost-to-retention", 30, 40)},
        11: {("uncommitted", 30, 60)},
    }
    inside = {3: {("lost", 0, 100)}, 10: {("lost", 60, 100)}}  # that a batch lacks records, only the log can tell
    assert (exact.code, exact.findings, exact.missing) == (1, found | inside, "")
    assert (quick.code, quick.findings, quick.missing) == (1, found, "")
    assert (strict.code, strict.findings) == (1, {1: {("duplicate", 30, 60)}})
    counts = [[finding["offsets"] for finding in exact.of_each("findings")[p]] for p in (2, 3, 10)]
    assert (counts, quick.of_each("findings")[2][0]["offsets"]) == ([[10], [3], [1]], None)
    first = exact.proof["partitions"][0]
    names = ("verdict", "proven", "committed", "log_start", "log_end", "handed_out", "missing")
    assert [first[name] for name in names] == ["proven", 100, 100, 0, 100, 100, []]
    assert (exact.of_each("log_end")[12], exact.of_each("explained")[5]) == (33, [[50, 60]])
    written = {path.name for path in (tmp_path / "proof").iterdir()}
    assert written == {"proof.json", "proof.html", "findings.parquet", "partitions.parquet"}
    assert json.loads((tmp_path / "proof" / "proof.json").read_text()) == exact.proof
    table = pyarrow.parquet.read_table(tmp_path / "proof" / "partitions.parquet")
    assert table["verdict"].to_pylist() == exact.of_each("verdict")


def test_the_next_proof_goes_on_from_the_last_and_forgets_nothing(stage: Stage, capsys: Capture) -> None:
    """Only the new part of a log is read; an anomaly is found until it is mended, also below what was proven long ago."""
    stage.publish(100, *range(4))
    straight, lacking, passing, reset = (stage.consumer("a", p).claim().batch(0, 60) for p in range(4))
    of_four = ("--partitions", "0-3")

    first = stage.validate(capsys, *of_four)
    straight.batch(60, 100)
    lacking.batch(60, 80).batch(80, 100, records=18)  # the claim is one long span by now
    passing.batch(70, 100)
    reset.leave()
    stage.set_offset(40, 3)
    stage.consumer("b", 3).claim().batch(40, 100).leave()
    second, third = (stage.validate(capsys, *of_four) for _ in range(2))
    again = stage.validate(capsys, "--from-start", "--partitions", "0")

    assert (first.code, first.proof["continued"], first.of_each("proven")) == (0, False, [60] * 4)
    found = {1: {("lost", 60, 100)}, 2: {("lost", 60, 70)}, 3: {("duplicate", 40, 60)}}
    assert [(one.code, one.proof["continued"], one.findings) for one in (second, third)] == [(1, True, found)] * 2
    assert [one["offsets"] for one in second.of_each("findings")[1]] == [2]
    assert (second.of_each("start"), second.of_each("proven")[0]) == ([60] * 4, 100)
    assert "continuing the proof of" in second.said
    assert (again.code, again.proof["continued"], again.of_each("start"), again.of_each("proven")) == (
        0,
        False,
        [0],
        [100],
    )


def test_a_ledger_in_a_topic_proves_the_same(
    embedded_cluster: EmbeddedCluster, tmp_path: Path, spark: Any, capsys: Capture
) -> None:
    """Two groups share the ledger's topic, and even their consumers' ids: one did all right, the other left some out."""
    judged = []
    with ExitStack() as stack:
        for name, skipped in (("right", 0), ("wrong", 10)):
            (tmp_path / name).mkdir()
            stage = Stage(embedded_cluster, tmp_path / name)
            stack.callback(stage.close)
            stage.keep_ledgers_in("ledgers-of-two")
            stage.publish(100)
            stage.consumer("a").claim().batch(0, 30).begin(30, 60)  # and it is killed
            stage.consumer("b").claim().batch(30, 60).batch(60 + skipped, 100).leave()
            judged.append(stage.validate(capsys, "--state", str(stage.folder / "proven.json")))

    assert [(one.code, one.findings, one.missing) for one in judged] == [
        (0, {0: {("repeated", 30, 60)}}, ""),
        (1, {0: {("repeated", 30, 60), ("lost", 60, 70)}}, ""),
    ]


def test_a_topic_deleted_and_made_again(stage: Stage, capsys: Capture, spark: Any) -> None:
    """The group's offset is about the topic that was deleted: nothing of it is held against the new one."""
    stage.publish(10)
    stage.topic_id = stage.kafka_id()
    stage.consumer("a").claim().batch(0, 10).leave()
    stage.log.delete()
    deleted = stage.validate(capsys)
    stage.log.create()
    until(lambda: stage.kafka_id() not in (None, stage.topic_id), 60, "the new topic is there")

    recreated = stage.validate(capsys)

    assert deleted.code == 3
    assert f"topic {stage.topic}: Kafka has no such topic" in deleted.missing
    assert (recreated.code, recreated.findings) == (3, {})
    assert "the topic was deleted and made again" in recreated.missing


@pytest.mark.parametrize(
    ("away", "said"),
    [
        ("kafka: {bootstrap.servers: '127.0.0.1:1'}", "Kafka at 127.0.0.1:1 does not answer"),
        ("zookeeper: {hosts: '127.0.0.1:1'}", "does not answer within 5 s; is it running?"),
    ],
)
def test_servers_that_are_away(
    embedded_cluster: EmbeddedCluster, tmp_path: Path, capsys: Capture, away: str, said: str
) -> None:
    """Not provable, without Spark, and an older proof stays as it was."""
    stage = Stage(embedded_cluster, tmp_path)
    stage.publish(10)
    stage.consumer("a").claim().batch(0, 10).leave()
    output = tmp_path / "proof"
    assert stage.validate(capsys, "--quick", "--output", str(output)).code == 0
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    key, _, value = away.partition(": ")
    stage.write_config(**{key: value})
    stage.close()

    judged = stage.validate(capsys, "--output", str(output))

    assert (judged.code, said in judged.said, said in judged.missing) == (3, True, True)
    assert {path.name: path.read_bytes() for path in output.iterdir()} == before
