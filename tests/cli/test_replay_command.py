"""`spark replay` before Spark starts: refused options, and the plan of an earlier run."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from inbound.cli.main import main
from inbound.kafka.base import LogRange, TopicMeta
from inbound.spark.replay.marks import Attempt, ReplayFolder, Standing
from inbound.testing.kafka import FakeKafka
from inbound.topic_partition import TopicPartition

Run = Callable[..., tuple[int, str]]
PROCESSOR = """
from pydantic import BaseModel
from tests.spark.replay_stage import Told

class Mine(Told):
    class Options(BaseModel, extra="forbid"):
        folder: str = ""
"""


class FakeLog:
    """Asks a FakeKafka what a replay asks the brokers."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka

    def topics(self, names: Collection[str], pattern: str | None) -> dict[str, TopicMeta]:
        return {name: meta for name, meta in self._kafka.topics().items() if name in names}

    def limits(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
        found = {tp: self._kafka.log_range(tp) for tp in partitions}
        return {tp: limits for tp, limits in found.items() if limits is not None}


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    """Ten records in each of two partitions."""
    one = FakeKafka()
    one.create_topic("orders", 2)
    for partition in range(2):
        one.publish("orders", partition, [b"x"] * 10)

    @contextmanager
    def open_log(properties: Mapping[str, Any], read_committed: bool) -> Iterator[FakeLog]:
        yield FakeLog(one)

    monkeypatch.setattr("inbound.cli.spark.replay.KafkaLogs", open_log)
    return one


@pytest.fixture
def run(tmp_path: Path, kafka: FakeKafka, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command where there is no Java; returns its exit code and its output."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no-java"))
    (tmp_path / "told.py").write_text(PROCESSOR)
    channel = {"topics": ["orders"], "group": "g", "processor": {"type": "told:Mine"}}
    config = {"ledger": {"path": str(tmp_path / "ledger")}, "channels": {"orders": channel}}
    (tmp_path / "inbound.yaml").write_text(json.dumps(config))

    def run(*flags: str) -> tuple[int, str]:
        code = main(["spark", "replay", "-c", str(tmp_path / "inbound.yaml"), "--channel", "orders", *flags])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


def files_of(folder: Path) -> list[str]:
    """Return the plans and marks that there are: locks say nothing."""
    found = (folder / "ledger").rglob("*")
    return [path.name for path in found if path.is_file() and path.suffix != ".lock"]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--channel", "orrders"], "no channel 'orrders' in this configuration; there are: orders"),
        (["--processor", "told:Nothing"], "--processor told:Nothing: told has no 'Nothing'"),
        (["--options", "{"], "--options: no JSON"),
        (["--options", '{"foldr": "x"}'], "foldr"),
        (["--options", "[]"], "--options: need a JSON object, got list"),
        (["--shadow", "x"], "--shadow: processor told:Mine has no option `sinks`"),
        (["--against", "x"], "give --shadow FOLDER too"),
        (["--shadow", "x", "--against", "/not/there"], "--against /not/there: there is no such file or folder"),
        (["--conf", "spark.speculation=true"], "--conf spark.speculation: a replay runs each task once at a time"),
        (["--dead-letters", "dead"], "on_error.then is hold, so nothing is sent there; add --set"),
        (["--set", "ledger.type=none"], "name the folder for the marks of this replay"),
    ],
)
def test_wrong_input_is_refused(tmp_path: Path, run: Run, flags: list[str], problem: str) -> None:
    """Exit 2, with the thing and what to do; no plan is written."""
    code, said = run("--name", "refused", *flags)

    assert problem in said
    assert (code, files_of(tmp_path)) == (2, [])


def test_a_dry_run_prints_what_would_be_replayed(tmp_path: Path, run: Run) -> None:
    """And leaves nothing behind."""
    code, said = run("--dry-run", "--name", "trial", "--to-offset", "7")

    assert code == 0
    assert ["orders", "1", "0", "7", "0", "7"] in [line.split() for line in said.splitlines()]
    assert "14 offsets to replay" in said
    assert not (tmp_path / "ledger").exists()


def test_a_summary_that_cannot_be_written_is_no_failed_replay(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says that the replay has ended: it need not be repeated."""
    run("--name", "done")  # without Java it ends with its plan
    monkeypatch.setattr(
        ReplayFolder, "standing", lambda self, unit: Standing(unit, (Attempt(1, unit.first, unit.next),))
    )
    missing = tmp_path / "missing" / "summary.json"

    code, said = run("--name", "done", "--json", str(missing))

    assert code == 1
    assert f"--json: {missing} cannot be written: No such file or directory; the replay itself has ended" in said


def test_an_earlier_plan_goes_on_and_must_still_be_in_the_log(tmp_path: Path, run: Run, kafka: FakeKafka) -> None:
    """Without Java it waits for the same command; what retention took between two runs of a name is named."""
    without_java = run("--name", "slow")
    kafka.retain("orders", 1, 4)
    trimmed = run("--name", "slow")

    assert (without_java[0], "no-java" in without_java[1]) == (1, True)
    assert files_of(tmp_path) == ["plan.json"]
    assert trimmed[0] == 2
    assert "orders/1: offsets 0 to 9 are left of this replay, but the log holds 4 to 9" in trimmed[1]
