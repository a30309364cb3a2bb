"""`spark validate` and `spark report` before Kafka is asked: what is wrong with options, and what Spark needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from inbound.cli.main import main
from inbound.cli.shared.command import partition_numbers
from inbound.errors import SparkError
from inbound.spark.session import SparkSettings, spark_session
from tests.embedded.fake_java import fake_java
from tests.spark.test_spark_stories import Consumer

CONFIG = """\
channels:
  orders: {topics: [orders], group: orders-svc, processor: {type: simple, options: {sinks: [{type: log}]}}}
  bills: {topics: [bills], group: bills-svc, processor: {type: simple, options: {sinks: [{type: log}]}}}
"""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--channel", "unknown"], "no channel 'unknown' in this configuration; there are: orders, bills"),
        (["--conf", "spark.ui"], "--conf spark.ui: need KEY=VALUE"),
        (["--wheel", "/no/such.whl"], "--wheel /no/such.whl: there is no such file"),
        (["--py-files", "/no/such.py"], "--py-files /no/such.py: there is no such file"),
        (["--state", "state.json"], "--state: is the file of one group; name it with --group or --channel"),
        (
            ["--set", "kafka.ssl.truststore.location=/no/such.pem"],
            "kafka.ssl.truststore.location: /no/such.pem cannot be read: No such file",
        ),
    ],
)
def test_options_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    """Exit code 2, and the problem; no server is asked."""
    config = tmp_path / "inbound.yaml"
    config.write_text(CONFIG)

    code = main(["spark", "validate", "-c", str(config), *options])

    assert code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--set", "ledger.path=nowhere"], 3, "nothing to report: ledger nowhere: there is no such folder"),
        (["--channel", "bills"], 3, "no batch of bills-svc stands in it for bills; check --channel and --topic"),
        (["--topic", "unheard-of"], 3, "stands in it for unheard-of"),
        (["--channel", "x"], 2, "no channel 'x' in this configuration; there are: orders, bills"),
        (["--set", "ledger.type=none"], 2, "ledger.type: none: a report is made from the ledger; keep one"),
        (["--from", "1h", "--to", "2h"], 2, "--from and --to: the time ends before it begins"),
        (["--output", "no/such/r.html"], 2, "--output no/such/r.html: there is no such folder"),
    ],
)
def test_what_no_report_can_be_made_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], code: int, said: str
) -> None:
    """Nothing to report from, or bad input; nothing is written."""
    config, page = tmp_path / "inbound.yaml", tmp_path / "report.html"
    config.write_text(f"{CONFIG}ledger: {{path: {tmp_path}/ledger}}\n".replace("orders-svc", "g"))
    Consumer(tmp_path / "ledger", "a", 1, 0).batches(3).ledger.close()

    assert main(["spark", "report", "-c", str(config), "--output", str(page), *options]) == code

    assert said in capsys.readouterr().err
    assert not page.exists()


@pytest.mark.parametrize(("text", "numbers"), [("0", (0,)), ("0,3-5", (0, 3, 4, 5)), ("7-7", (7,))])
def test_partitions_are_numbers_and_ranges(text: str, numbers: tuple[int, ...]) -> None:
    """As people write them."""
    assert partition_numbers(text) == numbers


@pytest.mark.parametrize("text", ["", "a", "5-3", "-1", "1,,2"])
def test_what_are_no_partitions(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    """Exit code 2 by the parser."""
    with pytest.raises(SystemExit) as exit_:
        main(["spark", "validate", f"--partitions={text}"])

    assert exit_.value.code == 2
    assert "argument --partitions: need " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("version", "said"),
    [("", r"spark: java: no program '.*/java' was found\. Install a Java"), ("11.0.2", "is version 11")],
)
def test_no_java_or_an_old_one(tmp_path: Path, version: str, said: str) -> None:
    """Said, with how to get one, and with the version that it is."""
    java = fake_java(tmp_path, f'openjdk version "{version}"') if version else str(tmp_path / "java")
    settings = SparkSettings(tmp_path, java=java)

    with pytest.raises(SparkError, match=said), spark_session(settings, "test"):
        pass


def test_a_connector_that_cannot_be_fetched(tmp_path: Path) -> None:
    """The repository is not to be reached, say: what could not be fetched is named, and nothing half is left."""
    cache = tmp_path / "cache"
    cache.mkdir()
    settings = SparkSettings(cache, java=fake_java(tmp_path))

    with (
        pytest.raises(SparkError, match=r"spark-sql-kafka-0-10_2\.13-4\.0\.0: Ivy ended with 1 and could not fetch"),
        spark_session(settings, "test"),
    ):
        pass

    assert [path.name for path in cache.iterdir()] == ["spark-sql-kafka-0-10_2.13-4.0.0.lock"]
