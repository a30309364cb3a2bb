"""`spark archive` on a real log: what is where, each offset once wherever a run dies, compaction, and what is refused."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from inbound.cli.main import main
from inbound.embedded import EmbeddedCluster
from inbound.spark.archive.layout import ArchiveError
from integration.spark.archiving import Archive, Crash, archive, command, configuration, event, publish_events
from integration.spark.spark_log import Log, Offset
from tests.waiting import until

# The first of them waits for a JVM, and for servers: on a busy machine that takes its time.
pytestmark = [pytest.mark.timeout(900)]


@pytest.fixture
def make_log(embedded_cluster: EmbeddedCluster) -> Callable[..., Log]:
    return lambda **settings: Log(embedded_cluster, **settings)


@pytest.fixture
def to(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive")


def test_every_record_is_kept_where_it_belongs(
    spark: Any, make_log: Callable[..., Log], to: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Events in both modes, late ones, and what is no event: each in its part, with typed columns and its bytes."""
    log = make_log(partitions=1)
    now = datetime.now(UTC).replace(microsecond=250)
    structured = {"specversion": "1.0", "id": "s", "source": "/orders", "type": "a/b:c", "time": now.isoformat()}
    structured_with_more = {**structured, "subject": "x", "priority": 3, "urgent": True, "data": {"n": 1}}
    binary = event(0, now)
    log.publish(
        [
            (0, binary[0], [*binary[1], ("ce_traceid", b"42")]),
            (0, json.dumps(structured_with_more).encode(), [("content-type", b"application/cloudevents+json")]),
            (0, *event(2, now - timedelta(days=3))),
            (0, b"no event", [("a", b"\xff"), ("a", None)]),
            (0, None, event(4, now)[1]),
            (0, b"\xff\x00", [*event(5, kind="timeless")[1][:4]]),
        ],
        key=b"k",
    )

    assert main(["spark", "archive", "-c", str(configuration(tmp_path, log)), "--to", str(to.folder), "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["topics"][log.topic].items() >= {
        "events": 4, "late": 1, "undecodable": 1, "until": {"0": 6}, "gaps": [],
    }.items()  # fmt: skip
    today = now.date().isoformat()
    rows = to.rows()
    assert [(row["kafka_offset"], row["type"], row["date"], row["data"], row["time"]) for row in rows] == [
        (0, "orders.placed", today, b'{"n": 0}', now),
        (1, "a/b:c", today, b'{"n":1}', now),
        (4, "orders.placed", today, None, now),
        (5, "timeless", today, b"\xff\x00", None),
    ]
    assert rows[0]["extensions"] == [("traceid", "42")]
    assert rows[1]["extensions"] == [("priority", "3"), ("urgent", "true")]
    assert (rows[1]["subject"], rows[1]["datacontenttype"], rows[0]["key"]) == ("x", "application/json", b"k")
    assert [row["kafka_offset"] for row in to.rows("late")] == [2]
    (apart,) = to.rows("undecodable")
    assert (apart["value"], apart["headers"]) == (
        b"no event",
        [{"key": "a", "value": b"\xff"}, {"key": "a", "value": None}],
    )
    assert apart["reason"].startswith("no CloudEvent: no ce_specversion header")
    assert spark.read.parquet(f"{to.folder}/events").where("type = 'a/b:c'").count() == 1


def test_each_offset_is_there_once_wherever_a_run_dies(spark: Any, make_log: Callable[..., Log], to: Archive) -> None:
    """A run that ends at any of its steps leaves its rest to the next one; readers never see an offset twice."""
    log = make_log()
    publish_events(log, 0, 60)
    publish_events(log, 60, 60, age=timedelta(days=2))
    for where in ("rows staged", "staged", "written down", "moved", "all moved", "done"):
        publish_events(log, 1000, 10)
        with pytest.raises(Crash):
            archive(spark, log, to, crash_at=where)
        assert max(to.offsets().values(), default=1) == 1, where

    summary = archive(spark, log, to)

    assert to.offsets() == log.offsets()
    assert summary.topics[0].totals.rows == log.offsets().total()
    assert list((to.folder / "_archive" / "staging").glob("*")) == []


@pytest.mark.thorough("nine runs; test_each_offset_is_there_once_wherever_a_run_dies has the steps of archiving itself")
def test_the_files_of_closed_days_become_one(
    spark: Any, make_log: Callable[..., Log], to: Archive, tmp_path: Path
) -> None:
    """A batch run compacts what is over; wherever it dies, the next one finishes, and what came later is still there."""
    log = make_log()
    for first in range(3):
        publish_events(log, first * 10, 10, age=timedelta(days=3))
        publish_events(log, first * 10, 10)
        archive(spark, log, to, late=10 * 86400.0)
    assert len(to.files()) == 6
    for where, seen in (
        ("compaction staged", 60),
        ("compaction written down", 60),
        ("old moved out", 30),
        ("new moved in", 60),
    ):
        with pytest.raises(Crash):
            archive(spark, log, to, crash_at=where, late=3600.0)
        assert (to.offsets().total(), max(to.offsets().values())) == (seen, 1), where

    config = str(configuration(tmp_path, log))
    assert main(["spark", "archive", "-c", config, "--to", str(to.folder), "--compact", "--late", "1h"]) == 0

    assert to.offsets() == log.offsets()
    assert len(to.files()) == 4, "one of the day that is over, three of today"
    assert archive(spark, log, to, late=3600.0).compacted.folders == 0


def test_what_kafka_deleted_first_is_reported(
    spark: Any, make_log: Callable[..., Log], to: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records deleted before they were archived are named by offsets, once, with exit code 1; the rest is archived.

    The archive of an empty topic is an empty one. What executors wrote and the driver does not see counts for nothing.
    """
    log = make_log(partitions=1)
    arguments = ["spark", "archive", "-c", str(configuration(tmp_path, log)), "--to", str(to.folder)]
    codes = [main(arguments)]
    empty = to.rows()
    publish_events(log, 0, 10)

    def elsewhere(where: str) -> None:
        if where == "rows staged":
            for path in (to.folder / "_archive" / "staging").rglob("*.parquet"):
                path.unlink()

    with pytest.raises(ArchiveError, match="executors wrote 10 records there, but it has 0"):
        archive(spark, log, to, step=elsewhere)
    codes.append(main(arguments))
    publish_events(log, 10, 20)
    log.delete_records({0: 17})
    capsys.readouterr()

    codes.append(main(arguments))

    assert f"missing: {log.topic}/0, offsets 10 to 16: Kafka deleted them" in capsys.readouterr().out
    assert [row["kafka_offset"] for row in to.rows()] == [*range(10), *range(17, 30)]
    codes.append(main(arguments))
    assert (empty, codes) == ([], [0, 0, 1, 0])


def test_what_is_not_this_archives_is_refused_and_left_alone(
    spark: Any, make_log: Callable[..., Log], to: Archive, tmp_path: Path
) -> None:
    """A topic that is missing, a folder with other things, an archive that lacks a part, a topic that was made again."""
    log, thesis = make_log(partitions=1), tmp_path / "thesis"
    config = str(configuration(tmp_path, log))
    assert main(["spark", "archive", "-c", config, "--to", str(to.folder), "--topic", "nowhere"]) == 1
    assert not to.folder.exists()
    thesis.mkdir()
    (thesis / "thesis.txt").write_text("years of work")
    with pytest.raises(ArchiveError, match="is no archive of inbound, and not empty"):
        archive(spark, log, Archive(thesis))
    assert [path.name for path in thesis.iterdir()] == ["thesis.txt"]
    publish_events(log, 0, 10)
    archive(spark, log, to)
    for gone in ("_checkpoint", "_archive/batches"):  # or offsets would be there twice, or not at all
        (to.folder / gone).rename(tmp_path / "gone")
        with pytest.raises(ArchiveError, match="Restore it, or archive to another --to"):
            archive(spark, log, to)
        (tmp_path / "gone").rename(to.folder / gone)
    old = log.topic_id()
    log.delete()
    until(lambda: _created(log), 60, "the topic can be made again")
    until(lambda: log.topic_id() not in (old, None), 60, "the broker has heard of it")
    publish_events(log, 100, 20)

    with pytest.raises(ArchiveError, match=r"deleted and made again.*Archive the new one to another --to"):
        archive(spark, log, to)

    assert [row["id"] for row in to.rows()] == [str(n) for n in range(10)]


def _created(log: Log) -> bool:
    try:
        log.create()
    except Exception:  # still being deleted
        return False
    return True


def test_continuous_goes_on_until_it_is_asked_to_stop(
    spark: Any, make_log: Callable[..., Log], to: Archive, tmp_path: Path
) -> None:
    """What comes is archived batch by batch; SIGTERM ends it between two of them, with exit code 0."""
    log = make_log()
    publish_events(log, 0, 10)
    config = configuration(tmp_path, log)

    def publish_more() -> None:
        try:
            until(lambda: to.offsets().total() == 10, 150, "the first are archived")
            publish_events(log, 10, 10)
            until(lambda: to.offsets().total() == 20, 150, "the others, too")
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=publish_more)
    thread.start()
    code = main(["spark", "archive", "-c", str(config), "--to", str(to.folder), "--continuous", "--every", "500ms"])
    thread.join()

    assert (code, to.offsets()) == (0, log.offsets())


@pytest.mark.thorough("three JVMs, minutes; the crash test above ends a run at each of its steps")
def test_killed_at_any_moment(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """After every SIGKILL, and at every look in between, no offset is there twice; in the end each is there once."""
    log, to = Log(embedded_cluster), Archive(tmp_path / "archive")
    config = configuration(tmp_path, log)
    moments = random.Random(7)
    over = threading.Event()
    twice: list[Offset] = []
    looks = 0

    def seen() -> int:
        nonlocal looks
        while True:
            try:
                offsets = to.offsets()
            except FileNotFoundError:
                continue  # compacted between listing and reading: readers are told, and look again
            looks += 1
            twice.extend(offset for offset, times in offsets.items() if times > 1)
            return offsets.total()

    def load() -> None:
        number = 0
        while not over.wait(0.2):
            publish_events(log, number, 20, age=timedelta(days=number // 20 % 4))
            number += 20

    loading = threading.Thread(target=load)
    loading.start()
    try:
        for _ in range(2):
            before = seen()
            process = subprocess.Popen(command(config, to, "--continuous", "--every", "100ms", "--late", "never"))
            try:
                until(lambda before=before: seen() > before, 240, "some more are archived")  # type: ignore[misc]
                over.wait(moments.uniform(0, 2))
            finally:
                process.kill()
                process.wait()
            seen()
    finally:
        over.set()
        loading.join()

    ran = subprocess.run(command(config, to, "--late", "never"), capture_output=True, text=True, timeout=300)

    assert ran.returncode == 0, ran.stderr
    assert (to.offsets() - log.offsets(), log.offsets() - to.offsets(), twice) == (Counter(), Counter(), [])
    assert looks > 10
