"""`spark validate` where something is missing, damaged or away: what it says, its exit code, and that nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inbound.embedded import EmbeddedCluster
from inbound.ledger.format import seal
from integration.spark_stage import Stage, spark
from tests.waiting import until

__all__ = ["spark"]

Capture = pytest.CaptureFixture[str]
#: Nobody listens there.
DEAD = "127.0.0.1:1"


@pytest.fixture
def stage(embedded_cluster: EmbeddedCluster, tmp_path: Path, spark: Any) -> Iterator[Stage]:
    """A group with two consumers that did everything right, with 100 records."""
    one = Stage(embedded_cluster, tmp_path)
    one.publish(100)
    one.consumer("a").claim().batch(0, 30).batch(30, 60).leave()
    one.consumer("b").claim().batch(60, 100).leave()
    yield one
    one.close()


def files_of(stage: Stage) -> list[Path]:
    """The ledger's files, that of `a` first."""
    return sorted((stage.ledger / stage.group).iterdir())


def test_no_ledger_folder(stage: Stage, capsys: Capture) -> None:
    """The configuration names a folder that is not there."""
    stage.write_config(ledger="{path: /no/such/folder}")

    judged = stage.validate(capsys)

    assert judged.code == 3
    assert "ledger directory /no/such/folder: there is no such directory; check ledger.path" in judged.missing


def test_a_group_without_a_ledger(stage: Stage, capsys: Capture) -> None:
    """The folder is there, and holds nothing of this group."""
    for file in files_of(stage):
        file.unlink()
    (stage.ledger / stage.group).rmdir()

    judged = stage.validate(capsys)

    assert judged.code == 3
    assert f"{stage.ledger} has no ledger of it" in judged.missing


def test_a_channel_that_keeps_no_ledger(stage: Stage, capsys: Capture) -> None:
    """ledger.type is none."""
    stage.write_config(ledger="{type: none}")

    judged = stage.validate(capsys)

    assert judged.code == 3
    assert "ledger.type is none" in judged.missing


def test_a_damaged_line(stage: Stage, capsys: Capture) -> None:
    """One digit was changed by a disk: which line of which file is said, and what is missing is not proven."""
    file = files_of(stage)[0]
    lines = file.read_bytes().split(b"\n")
    lines[5] = lines[5].replace(b'"next":60', b'"next":61')
    file.write_bytes(b"\n".join(lines))

    judged = stage.validate(capsys)

    assert judged.code == 3
    assert f"line 6 of {file} can't be read: its checksum is wrong" in judged.missing


def test_a_missing_file_of_a_run(stage: Stage, capsys: Capture) -> None:
    """The ledger of `a` was deleted: where `b` begins, nobody can be seen to have ended."""
    files_of(stage)[0].unlink()

    judged = stage.validate(capsys)

    assert judged.proof["partitions"][0]["proven"] == 100
    assert judged.proof["partitions"][0]["start"] == 60  # what lies below is not claimed to be proven


def test_a_torn_last_line(stage: Stage, capsys: Capture) -> None:
    """A consumer died in the middle of a line: what it was to say did not count yet."""
    stage.publish(10)
    stage.consumer("c").claim().batch(100, 105)
    file = files_of(stage)[2]
    file.write_bytes(file.read_bytes() + b'{"kind":"begun","group"')

    judged = stage.validate(capsys)

    assert (judged.code, judged.missing) == (0, "")


def test_a_file_of_a_future_version(stage: Stage, capsys: Capture) -> None:
    """A newer inbound wrote it: refused, with what to do."""
    file = files_of(stage)[0]
    header, rest = file.read_bytes().split(b"\n", 1)
    body = header[: header.rindex(b',"crc"')].replace(b'{"v":1,', b'{"v":99,')
    file.write_bytes(seal(body) + rest)

    judged = stage.validate(capsys)

    assert judged.code == 3
    assert f"ledger file {file}: it has format version 99, this inbound reads up to 1" in judged.missing


def test_foreign_files_are_named_and_not_read(stage: Stage, capsys: Capture) -> None:
    """Somebody's notes lie in the ledger's folder."""
    (stage.ledger / stage.group / "notes.txt").write_text("remember the milk")

    judged = stage.validate(capsys)

    assert judged.code == 0
    assert "notes.txt: is no file of a ledger, and was not read" in judged.said


def test_a_deleted_topic(stage: Stage, capsys: Capture) -> None:
    """Kafka does not know the topic any more."""
    stage.delete_topic()

    judged = stage.validate(capsys)

    assert judged.code == 3
    assert f"topic {stage.topic}: Kafka has no such topic" in judged.missing


def test_a_topic_deleted_and_made_again(stage: Stage, capsys: Capture) -> None:
    """The group's offset is about the topic that was deleted: nothing of it is held against the new one."""
    stage.topic_id = stage.kafka_id()
    stage.publish(10)
    stage.consumer("c").claim().batch(100, 110).leave()
    stage.delete_topic()
    stage.make_topic()
    until(lambda: stage.kafka_id() not in (None, stage.topic_id), 60, "the new topic is there")

    judged = stage.validate(capsys)

    assert (judged.code, judged.findings) == (3, set())
    assert "the topic was deleted and made again" in judged.missing


@pytest.mark.parametrize(
    ("away", "said"),
    [
        ({"kafka": f'{{bootstrap.servers: "{DEAD}"}}'}, f"Kafka at {DEAD} does not answer"),
        ({"zookeeper": f'{{hosts: "{DEAD}"}}'}, "does not answer within 5 s; is it running?"),
    ],
)
def test_servers_that_are_away(stage: Stage, capsys: Capture, tmp_path: Path, away: dict[str, str], said: str) -> None:
    """Kafka or ZooKeeper does not answer: not provable, and an older proof stays as it was."""
    output = tmp_path / "proof"
    assert stage.validate(capsys, "--output", str(output)).code == 0
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    stage.write_config(**away)

    judged = stage.validate(capsys, "--output", str(output))

    assert judged.code == 3
    assert said in judged.said
    assert said in judged.missing
    assert {path.name: path.read_bytes() for path in output.iterdir()} == before


def test_a_group_that_zookeeper_does_not_know(stage: Stage, capsys: Capture) -> None:
    """The name is misspelt."""
    judged = stage.validate(capsys, "--group", "nobody")

    assert judged.code == 3
    assert "group nobody: neither the configuration nor ZooKeeper knows it" in judged.said


def test_a_group_that_is_not_configured(stage: Stage, capsys: Capture) -> None:
    """ZooKeeper knows its topics."""
    stage.write_config(
        channels="{other: {topics: [other], group: other, processor: {type: simple, options: {sinks: [{type: log}]}}}}"
    )

    judged = stage.validate(capsys, "--group", stage.group)

    assert (judged.code, judged.proof["totals"]["proven_offsets"]) == (0, 100)


def test_an_empty_topic(embedded_cluster: EmbeddedCluster, tmp_path: Path, spark: Any, capsys: Capture) -> None:
    """A consumer has claimed a partition in which nothing ever was."""
    stage = Stage(embedded_cluster, tmp_path)
    until(lambda: stage.kafka_id() is not None, 60, "the broker knows the topic: the controller answers first")
    stage.set_offset(0)
    stage.consumer("a").claim().leave()

    judged = stage.validate(capsys)
    stage.close()

    assert (judged.code, judged.findings, judged.missing) == (0, set(), "")


def test_partitions_that_no_topic_has(stage: Stage, capsys: Capture) -> None:
    """Said, and not taken for proven."""
    judged = stage.validate(capsys, "--partitions", "0,7")

    assert judged.code == 3
    assert "partitions 7: no topic of group" in judged.missing


def test_a_folder_of_something_else_is_not_written_to(stage: Stage, capsys: Capture, tmp_path: Path) -> None:
    """--output names a folder that is in use: bad configuration, and nothing is read either."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "proof.json").write_text("{}")

    judged = stage.validate(capsys, "--output", str(tmp_path / "mine"))

    assert judged.code == 2
    assert "is no folder of a proof, so nothing is written there" in judged.said
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["proof.json"]
