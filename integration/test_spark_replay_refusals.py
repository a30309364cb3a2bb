"""What `spark replay` refuses, before it starts Spark: which thing is wrong, exit code, and nothing overwritten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest

from inbound.cli.main import main
from inbound.embedded import EmbeddedCluster
from inbound.spark.replay.marks import ReplayFolder
from integration.replay_scene import ReplayScene
from tests.waiting import until

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def scene(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> ReplayScene:
    """Ten records in each of two partitions."""
    scene = ReplayScene(embedded_cluster, tmp_path)
    for partition in range(2):
        scene.publish(partition, [b"x"] * 10)
    scene.configure()
    return scene


@pytest.fixture
def run(scene: ReplayScene, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command; returns its exit code, and what it printed."""

    def run(*flags: str) -> tuple[int, str]:
        code = main(scene.arguments(*flags))
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


def files_of(scene: ReplayScene) -> set[str]:
    """Return the plans and marks that there are: locks say nothing."""
    found = (scene.folder / "ledger").rglob("*")
    return {path.name for path in found if path.is_file() and path.suffix != ".lock"}


def test_a_dry_run_prints_what_would_be_replayed(scene: ReplayScene, run: Run) -> None:
    """And leaves nothing behind."""
    code, said = run("--dry-run", "--name", "trial", "--to-offset", "7")

    assert code == 0
    assert [scene.topic, "1", "0", "7", "0", "7"] in [line.split() for line in said.splitlines()]
    assert "14 offsets to replay" in said
    assert not (scene.folder / "ledger").exists()


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--channel", "orrders"], "--channel orrders: there is no such channel; there are orders"),
        (["--range", "0:5:5"], ":5:5: it is empty"),
        (["--range", "0:5:11"], "/0: the log ends before 10, so offset 10 cannot be replayed"),
        (["--from-time", "2100-01-01T00:00:00Z"], "no partition has records there"),
        (["--partitions", "2"], "has no partition 2: it has 0 to 1"),
        (["--tasks", "3"], "--tasks 3: 2 partitions are replayed, each in order"),
        (["--processor", "replayed:Nothing"], "--processor replayed:Nothing: replayed has no 'Nothing'"),
        (["--options", "{"], "--options: no JSON"),
        (["--options", '{"foldr": "x"}'], "foldr"),
        (["--options", "[]"], "--options: need a JSON object, got list"),
        (["--shadow", "x"], "--shadow: processor replayed:Replayed has no option `sinks`"),
        (["--against", "x"], "give --shadow FOLDER too"),
        (["--shadow", "x", "--against", "/not/there"], "--against /not/there: there is no such file or folder"),
        (["--conf", "spark.speculation=true"], "--conf spark.speculation: a replay runs each task once at a time"),
        (["--conf", "x"], "--conf x: need KEY=VALUE"),
        (["--dead-letters", "dead"], "on_error.then is hold, so nothing is sent there; add --set"),
        (["--set", "ledger.type=none"], "say where this replay keeps its marks"),
    ],
)
def test_wrong_input_is_refused(scene: ReplayScene, run: Run, flags: list[str], problem: str) -> None:
    """Exit 2, with the thing and what to do; no plan is written."""
    code, said = run("--name", "refused", *flags)

    assert problem in said
    assert code == 2
    assert files_of(scene) == set()


def test_offsets_that_retention_took_are_refused(scene: ReplayScene, run: Run) -> None:
    """Named, with where the log begins now."""
    trimmed = confluent_kafka.TopicPartition(scene.topic, 1, 4)
    for future in scene.admin.delete_records([trimmed]).values():
        future.result(60)

    code, said = run("--from-offset", "0")

    assert code == 2
    assert f"{scene.topic}/1: offsets 0 to 3 are not in the log any more, which holds 4 to 9 (retention)" in said
    assert run("--dry-run")[0] == 0  # from the earliest there is


def test_a_deleted_topic_is_named(scene: ReplayScene, run: Run) -> None:
    """Before anything is made."""
    for future in scene.admin.delete_topics([scene.topic], operation_timeout=10).values():
        future.result(60)
    # The controller answers first; the broker has to hear of it.
    until(lambda: scene.topic not in scene.admin.list_topics(timeout=30).topics, 60, "the topic is gone")

    code, said = run()

    assert code == 2
    assert f"topic {scene.topic}: Kafka has no such topic; it was deleted, or its name is misspelt" in said


def test_kafka_away_is_said(scene: ReplayScene, run: Run) -> None:
    """Exit 1: nothing is wrong with what was asked."""
    scene.config.write_text(scene.config.read_text().replace(scene.cluster.bootstrap_servers, "127.0.0.1:1"))

    code, said = run()

    assert code == 1
    assert "Kafka at 127.0.0.1:1 does not answer" in said


def test_no_java_is_said(scene: ReplayScene, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Exit 1; the plan stands, and the same command goes on once Java is there."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))

    code, said = run("--name", "java")

    assert code == 1
    assert "no-java" in said
    assert files_of(scene) == {"plan.json"}


def test_what_retention_took_since_is_named(
    scene: ReplayScene, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Between two runs of one name."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    run("--name", "slow")
    trimmed = confluent_kafka.TopicPartition(scene.topic, 1, 4)
    for future in scene.admin.delete_records([trimmed]).values():
        future.result(60)

    code, said = run("--name", "slow")

    assert code == 2
    assert f"{scene.topic}/1: offsets 0 to 9 are left of this replay, but the log holds 4 to 9" in said


def test_marks_that_cannot_be_written_are_said(scene: ReplayScene, run: Run) -> None:
    """A file in the folder's place, here."""
    (scene.folder / "ledger").write_text("a file")

    code, said = run("--name", "unwritable")

    assert code == 1
    assert f"replay folder {scene.folder}/ledger/replays/unwritable: it cannot be written" in said
    assert (scene.folder / "ledger").read_text() == "a file"


def test_a_name_that_is_in_use_is_refused(scene: ReplayScene, run: Run) -> None:
    """Another run of it is under way."""
    other = ReplayFolder(scene.folder / "ledger" / "replays", "twice")
    other.claim()
    try:
        code, said = run("--name", "twice")
    finally:
        other.lock.release()

    assert code == 2
    assert "replay twice: another run of it is under way (pid " in said
