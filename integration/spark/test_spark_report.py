"""`inbound spark report` on a real group, a real log and Spark, held against an account that uses none of its code."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from inbound.cli.main import main
from inbound.embedded import EmbeddedCluster
from inbound.ledger.format import FileName
from inbound.report.figures import to_json
from inbound.spark.cluster_state import Subject
from inbound.spark.ledger_topic import LedgerTopicName
from inbound.spark.report.job import ReportRequest, make_report
from integration.admin.browser import Browser
from integration.harness import Scene
from integration.spark.spark_log import Log, read_all
from tests.waiting import until

# Spark itself takes most of it, and several times as long on a machine that does something else too.
pytestmark = [pytest.mark.timeout(900)]


@dataclass
class Reported:
    """A group that has read, died, read on and left something unread; and what was reported of it."""

    scene: Scene
    said: str
    figures: dict[str, Any]
    page: Path


@pytest.fixture(scope="module")
def reported(
    embedded_cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory, spark: Any
) -> Iterator[Reported]:
    """One group of a killed consumer and its heir; 200 records of each partition are left unread."""
    scene = Scene(embedded_cluster, tmp_path_factory.mktemp("report"), partitions=2, seconds_per_record=0.002)
    try:
        first = scene.start()
        scene.start_load(150)
        until(lambda: sum(filter(None, map(scene.offset, range(2)))) > 300, 120, "some are committed")
        first.kill()
        first.wait()
        second = scene.start()
        scene.settle(90)
        scene.stop(second)
        scene.publish(200)
        page, figures = scene.folder / "report.html", scene.folder / "report.json"
        said = StringIO()
        arguments = ["spark", "report", "-c", str(scene.config), "--bucket", "1s", "--output", str(page)]
        with redirect_stdout(said):
            assert main([*arguments, "--json", str(figures)]) == 0
        yield Reported(scene, said.getvalue(), json.loads(figures.read_text()), page)
    finally:
        scene.close()


@dataclass
class Account:
    """When each record came, and when it landed (None: it has not), in milliseconds since 1970."""

    records: list[tuple[int, int | None]]
    handed_out: int

    @property
    def delays(self) -> list[int]:
        return sorted(max(0, landed - came) for came, landed in self.records if landed is not None)


@pytest.fixture(scope="module")
def account(reported: Reported) -> Account:
    """What plain loops over the ledger's lines and a plain consumer find."""
    scene = reported.scene
    lines = [
        json.loads(line)
        for path in (scene.folder / "ledger").glob("*/*.jsonl")
        for line in path.read_bytes().split(b"\n")[:-1]
    ]
    landed = [line for line in lines if line["kind"] == "settled" and line["outcome"] == "landed"]
    landed.sort(key=lambda line: line["mzxid"])
    records: list[tuple[int, int | None]] = []
    for record in read_all({"bootstrap.servers": scene.cluster.bootstrap_servers}, scene.topic):
        at = next(
            (
                round(line["wall"] * 1000)
                for line in landed
                if line["partition"] == record.partition() and line["commit"] > record.offset()
            ),
            None,
        )
        records.append((record.timestamp()[1], at))
    return Account(records, sum(line["records"] for line in lines if line["kind"] == "begun"))


def test_the_figures_are_those_of_an_independent_account(reported: Reported, account: Account) -> None:
    """Every record is counted once, where it landed, with its delay; what was delivered twice, and what is unread."""
    (series,) = reported.figures["series"]

    assert (series["group"], series["topic"], series["partitions"]) == (reported.scene.group, reported.scene.topic, 2)
    begin = reported.figures["window"]["begin"] * 1000
    steps = range(reported.figures["window"]["buckets"])
    came = Counter(int((at - begin) // 1000) for at, _ in account.records)
    landed = Counter(int((at - begin) // 1000) for _, at in account.records if at is not None)
    assert series["published"] == [came[step] for step in steps]
    assert series["landed"] == [landed[step] for step in steps]
    assert series["lag"][-1] == 400
    assert sum(series["handed_out"]) == account.handed_out >= len(account.delays)
    delays = account.delays
    for share, said in ((0.5, series["overall_p50"]), (0.99, series["overall_p99"])):
        exact = delays[math.ceil(share * len(delays)) - 1]
        assert said == pytest.approx(exact, rel=0.01, abs=1)
    assert max(filter(None, series["longest"])) == delays[-1]


def test_a_person_sees_the_table_and_the_charts(reported: Reported, tmp_path: Path) -> None:
    """One row on the terminal; three charts with lines in a browser that complains of nothing."""
    (row,) = [line for line in reported.said.splitlines() if line.startswith(f"{reported.scene.group}  ")]
    landed = sum(reported.figures["series"][0]["landed"])
    assert row.split()[1:3] == [reported.scene.topic, f"{landed:,}"]
    browser = Browser(tmp_path / "profile")
    try:
        browser.open(reported.page)
        assert browser.run("document.querySelectorAll('tbody tr').length") == 1
        assert browser.run("document.querySelectorAll('svg.chart').length") == 3
        lines = "[...document.querySelectorAll('svg.chart path.line')]"
        assert browser.run(f"{lines}.filter(line => line.getBoundingClientRect().width > 50).length") == 5
        assert browser.problems == []
    finally:
        browser.close()


def in_a_topic(scene: Scene) -> LedgerTopicName:
    """Put the ledger's lines into a topic, as a consumer with such a ledger does: keyed by run."""
    log = Log(scene.cluster, 2, f"ledger-{scene.topic}")
    for path in sorted((scene.folder / "ledger").glob("*/*.jsonl")):
        name = FileName.parse(path.name)
        assert name is not None
        partition = sum(name.run.encode()) % 2
        log.publish(((partition, line, []) for line in path.read_bytes().split(b"\n")[:-1]), name.run.encode())
    return LedgerTopicName(log.topic)


def test_a_large_ledger_and_one_in_a_topic_are_read_by_spark(reported: Reported, spark: Any) -> None:
    """Their pieces go to tasks; the figures are the same as those that one process finds in files."""
    scene = reported.scene
    window = reported.figures["window"]
    wanted = ReportRequest(
        [Subject(scene.group)], begin=window["begin"], end=window["begin"] + window["buckets"] - 0.5, bucket=1
    )
    kafka_properties = {"bootstrap.servers": scene.cluster.bootstrap_servers}

    reports = [
        make_report(wanted, place, kafka_properties, lambda: spark, made=reported.figures["made"], small=0)
        for place in (scene.folder / "ledger", in_a_topic(scene))
    ]

    assert [json.loads(to_json(report))["series"] for report in reports] == [reported.figures["series"]] * 2


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--set", "ledger.type=kafka", "--set", "ledger.topic=no-such"), 1, "topic no-such: Kafka has no such topic"),
        (("--from", "2001-01-01", "--bucket", "1s"), 2, "--bucket: "),
        (("--set", "kafka.bootstrap.servers=127.0.0.1:1"), 1, "Kafka at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_reported_is_an_error(
    reported: Reported, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, said: str
) -> None:
    """A message that names the thing, the right exit code, and no Spark for it. More in tests/cli/test_spark_command.py."""
    before = reported.page.read_bytes()

    ended = main(["spark", "report", "-c", str(reported.scene.config), "--output", str(reported.page), *arguments])

    assert (ended, said in capsys.readouterr().err) == (code, True)
    assert reported.page.read_bytes() == before
