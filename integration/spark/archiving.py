"""What the tests of `spark archive` share: events to publish, and a reader that knows nothing of Spark."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet

from inbound.runtime.signals import Latch
from inbound.spark.archive.batches import Step
from inbound.spark.archive.job import ArchiveJob, ArchivePlan, ArchiveSummary
from inbound.spark.archive.layout import KINDS
from integration.spark.spark_log import Headers, Log, Offset
from integration.spark.spark_stage import CONF


def event(number: int, at: datetime | None = None, kind: str = "orders.placed") -> tuple[bytes, Headers]:
    """Return value and headers of an event in binary mode."""
    headers: Headers = [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"%d" % number),
        ("ce_source", b"/orders"),
        ("ce_type", kind.encode()),
        ("content-type", b"application/json"),
    ]
    if at is not None:
        headers.append(("ce_time", at.isoformat().replace("+00:00", "Z").encode()))
    return b'{"n": %d}' % number, headers


def publish_events(log: Log, first: int, count: int, *, age: timedelta = timedelta()) -> None:
    """Publish events that happened so long ago, in turn to all partitions."""
    at = datetime.now(UTC) - age
    log.publish((number % log.partitions, *event(number, at)) for number in range(first, first + count))


@dataclass
class Archive:
    """An archive's folder, read with pyarrow alone."""

    folder: Path

    @property
    def to(self) -> str:
        return f"file://{self.folder}"

    def rows(self, kind: str = "events") -> list[dict[str, Any]]:
        """Return the rows of one part, sorted by where they came from."""
        if not list((self.folder / kind).rglob("*.parquet")):
            return []
        rows = pyarrow.parquet.read_table(self.folder / kind).to_pylist()
        return sorted(rows, key=lambda row: (row["kafka_topic"], row["kafka_partition"], row["kafka_offset"]))

    def offsets(self) -> Counter[Offset]:
        """Return how often each offset is there."""
        names = ["kafka_topic", "kafka_partition", "kafka_offset"]
        found: Counter[Offset] = Counter()
        for kind in KINDS:
            if self.files(kind):
                columns = pyarrow.parquet.read_table(self.folder / kind, columns=names).to_pydict()
                found.update(zip(*(columns[name] for name in names), strict=True))
        return found

    def files(self, kind: str = "events") -> list[Path]:
        """Return the files of one part."""
        return sorted((self.folder / kind).rglob("*.parquet"))


class Crash(Exception):
    """A run is over, there and then."""


def archive(
    spark: Any, log: Log, to: Archive, *, crash_at: str = "", step: Step | None = None, late: float | None = 86400.0
) -> ArchiveSummary:
    """Archive a topic in this process; with `crash_at`, raise Crash when it is there."""

    def crash(where: str) -> None:
        if where == crash_at:
            raise Crash(where)

    plan = ArchivePlan(to.to, log.kafka, [log.topic], late=late)
    return ArchiveJob(spark, plan, say=print, stop=Latch(), step=step or crash).run()


def configuration(folder: Path, log: Log) -> Path:
    """Write an inbound.yaml whose one channel reads the topic."""
    path = folder / "inbound.yaml"
    path.write_text(
        f"kafka: {json.dumps(log.kafka)}\n"
        f"channels:\n  orders: {{topics: [{log.topic}], group: orders, processor: {{type: simple}}}}\n"
    )
    return path


def command(config: Path, to: Archive, *more: str) -> list[str]:
    """Return the command line of an archive in a process of its own."""
    conf = [part for name, value in CONF.items() for part in ("--conf", f"{name}={value}")]
    inbound = [sys.executable, "-m", "inbound", "spark", "archive"]
    return [*inbound, "-c", str(config), "--to", str(to.folder), "--master", "local[2]", *conf, *more]
