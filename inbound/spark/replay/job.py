"""The driver's side of a replay: tasks, their progress and their results."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from inbound.clock import SystemClock
from inbound.errors import SparkError
from inbound.ledger.base import Done
from inbound.proof.model import OffsetRange
from inbound.spark.kafka_source import read_log
from inbound.spark.replay.marks import ReplayFolder, Standing
from inbound.spark.replay.plan import Unit, layers
from inbound.spark.replay.task import RESULT, ReplayJob, ReplayTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Time between two displays of progress. Seconds.
SHOW_EVERY = 0.5
#: Records that Spark passes to Python at once, at most; a batch of the channel, if that is smaller.
ARROW_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay."""

    standings: tuple[Standing, ...]
    held: Mapping[int, str]  # unit: why its partition was held

    @property
    def complete(self) -> bool:
        return all(standing.complete for standing in self.standings)


def replay(
    spark: SparkSession,
    job: ReplayJob,
    folder: ReplayFolder,
    kafka: Mapping[str, object],
    import_paths: Sequence[str],
    show: Callable[[int], None] = lambda offsets: None,
) -> ReplayResult:
    """Run the rest of a replay, and wait for it.

    `kafka` has the properties of Spark's client. `show` gets the number of done offsets, on this thread.

    Raises:
        SparkError: a task failed for good; the marks stay.
        LedgerError: the marks cannot be read.
    """
    before = [folder.standing(unit) for unit in job.units]
    left = {one.unit: one.mark for one in before if not one.complete}
    held: dict[int, str] = {}
    if left:
        reader = job.config.reader
        bounds = {
            "maxRecordsPerBatch": min(ARROW_RECORDS, reader.max_batch_records),
            "maxBytesPerBatch": reader.batch_bytes,
        }
        with configured(spark, {f"spark.sql.execution.arrow.{name}": bound for name, bound in bounds.items()}):
            scan = _scan(spark, job, kafka, left)
            rows = _shown(
                spark,
                lambda: scan.mapInArrow(ReplayTask(job, tuple(import_paths)), RESULT).collect(),  # type: ignore[arg-type]
                lambda: show(sum(folder.position(unit) - unit.first for unit in job.units)),
            )
        held = {row.unit: row.held for row in rows if row.held is not None}
        _mark_empty(folder, left.keys() - {job.units[row.unit] for row in rows})
    ended = ReplayResult(tuple(folder.standing(unit) for unit in job.units), held)
    show(sum(one.mark - one.unit.first for one in ended.standings))
    return ended


def _scan(spark: SparkSession, job: ReplayJob, kafka: Mapping[str, object], left: Mapping[Unit, int]) -> DataFrame:
    """Return each unit's records as one Spark partition, ordered by offset."""
    scans = []
    for layer in layers(left):
        ranges: dict[str, dict[int, OffsetRange]] = {
            topic: {partition: (left[unit], unit.next) for partition, unit in units.items()}
            for topic, units in layer.items()
        }
        committed = job.config.isolation == "read_committed"
        scans.append(read_log(spark, kafka, ranges, read_committed=committed, headers=True))
    columns = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    return reduce(lambda some, more: some.union(more), [scan.select(*columns) for scan in scans])


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, int]) -> Iterator[None]:
    """Change settings of the session until the block ends."""
    before = {key: spark.conf.get(key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, text in before.items():
            if text is not None:
                spark.conf.set(key, text)


def _shown(spark: SparkSession, run: Callable[[], list[Any]], show: Callable[[], None]) -> list[Any]:
    """Run a job on a thread with progress; cancel it on interrupt."""
    rows: list[Any] = []
    failed: list[Exception] = []

    def collect() -> None:
        try:
            rows.extend(run())
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=collect, name="replay", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(SHOW_EVERY)
            show()
    except BaseException:
        spark.sparkContext.cancelAllJobs()
        thread.join(10.0)
        raise
    if failed:
        raise SparkError(reason_of(failed[0])) from failed[0]
    return rows


def _mark_empty(folder: ReplayFolder, units: set[Unit]) -> None:
    """Mark units without records, whose offsets are markers or compacted."""
    for unit in units:
        mark = folder.standing(unit).mark
        ledger = folder.ledger_of(unit, SystemClock())
        ledger.note("claimed", **unit.tp._asdict(), epoch=0, position=mark, session=None)
        ledger.done([Done(*unit.tp, 0, mark, unit.next, unit.next)])
        ledger.note("released", **unit.tp._asdict(), epoch=0, why="the log holds no records there")
        ledger.close()


def reason_of(error: Exception) -> str:
    """Return why a job failed, without stacks: Python's error, if any."""
    text = str(error)
    own = re.findall(r"^(?:\w+\.)*errors\.\w+: (.+)$", text, re.MULTILINE)
    if own:
        return f"a task failed: {own[-1]}"
    if "OffsetOutOfRange" in text or "failOnDataLoss" in text or "KafkaIllegalStateException" in text:
        found = re.search(
            r"^.*(?:out of range|data loss|Cannot fetch|missed offset|aged out).*$", text, re.MULTILINE | re.I
        )
        return f"Kafka's log lost what was to be read ({found[0].strip()[:300] if found else 'see above'}); begin later"
    python = re.findall(r"^(\w[\w.]*(?:Error|Exception|Exit): .*)$", text, re.MULTILINE)
    line = python[-1] if python else next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return f"a task failed: {line.strip()[:500]}"
