"""`inbound spark archive`: options that are refused before Spark starts, and the summary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inbound.cli.main import main
from inbound.cli.spark.archive import as_json, shown
from inbound.spark.archive.compaction import Compacted
from inbound.spark.archive.job import ArchiveSummary, TopicSummary
from inbound.spark.archive.layout import Counts, Gap

SUMMARY = ArchiveSummary(
    (
        TopicSummary("orders", Counts(10, 2, 1, 3, 4096), Counts(100, 2, 1, 9, 9999), {0: 8, 1: 5}, (Gap(1, 3, 5),)),
        TopicSummary("empty", Counts(), Counts(), {}, ()),
    ),
    Compacted(2, 10, 3),
    1.5,
)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "inbound.yaml"
    path.write_text("channels:\n  orders: {topics: [orders], group: g, processor: {type: simple}}\n")
    return str(path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--every", "5s"], "--every goes with --continuous"),
        (["--continuous", "--every", "5"], "--every: need a duration such as 10s"),
        (["--continuous", "--every", "0s"], "--every: need more than 0"),
        (["--late", "soon"], "--late: need a duration such as 10s"),
        (["--compact", "--continuous"], "--compact archives nothing"),
        (["--compact", "--topic", "x"], "--compact archives nothing"),
        (["--channel", "payments"], "no channel 'payments' in this configuration; there are: orders"),
        (["--to", "data/*"], "--to data/*: Spark reads *, ?, brackets and braces as patterns"),
        (["--conf", "x"], "--conf x: need KEY=VALUE"),
    ],
)
def test_impossible_wishes_are_refused(
    config: str, options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With exit code 2, before anything is started or written."""
    to = tmp_path / "archive"

    assert main(["spark", "archive", "-c", config, "--to", str(to), *options]) == 2

    assert said in capsys.readouterr().err
    assert not to.exists()


def test_the_summary_for_people() -> None:
    """A line for each topic, what is missing by offsets, and what was compacted."""
    assert shown(SUMMARY, "./archive").splitlines() == [
        "topic   events  late  undecodable  files  bytes  archived up to (partition: offset)",
        "orders      10     2            1      3  4,096  0: 8, 1: 5",
        "empty        0     0            0      0      0",
        "",
        "missing: orders/1, offsets 3 to 4: Kafka deleted them before they were archived; archive more often, or let the "
        "topic keep its records longer",
        "compacted: 10 files in 2 folders to 3",
        "archive: ./archive (1.5 s)",
    ]


def test_the_summary_for_programs() -> None:
    """The same, with names."""
    made = json.loads(json.dumps(as_json(SUMMARY, "./archive")))

    assert made["compacted"] == {"folders": 2, "files_before": 10, "files_after": 3}
    assert made["topics"]["orders"] == {
        "events": 10,
        "late": 2,
        "undecodable": 1,
        "files": 3,
        "bytes": 4096,
        "until": {"0": 8, "1": 5},
        "gaps": [{"partition": 1, "first": 3, "next": 5}],
        "ever": {"events": 100, "late": 2, "undecodable": 1},
    }
