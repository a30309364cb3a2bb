"""What the tests of `spark archive` share: a topic with all that can be in one, and a reader that knows nothing of Spark."""

from __future__ import annotations

import json
import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow.parquet
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic, TopicPartition

from inbound.embedded import EmbeddedCluster
from inbound.latch import Latch
from inbound.spark.archive.batches import Step
from inbound.spark.archive.job import ArchiveJob, ArchivePlan, Summary
from inbound.spark.archive.layout import KINDS
from integration.spark_stage import CONF

Headers = list[tuple[str, str | bytes | None]]
Offset = tuple[str, int, int]  # topic, partition, offset


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


@dataclass
class Log:
    """A topic of a test's own."""

    cluster: EmbeddedCluster
    partitions: int = 2
    topic: str = field(default_factory=lambda: f"orders-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.kafka: dict[str, Any] = {"bootstrap.servers": self.cluster.bootstrap_servers}
        self._admin = AdminClient({**self.kafka, "log_level": 0})
        self.create()

    def create(self) -> None:
        """Make the topic. The controller answers first: see `topic_id` for whether the broker has heard of it."""
        for future in self._admin.create_topics([NewTopic(self.topic, self.partitions, 1)]).values():
            future.result(30)

    def delete(self) -> None:
        """Delete the topic."""
        for future in self._admin.delete_topics([self.topic]).values():
            future.result(30)

    def topic_id(self) -> str | None:
        """Return the id that the broker knows the topic by; None: it knows no such topic."""
        asked = self._admin.describe_topics(TopicCollection([self.topic]), request_timeout=30)
        try:
            return str(asked[self.topic].result(60).topic_id)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise

    def delete_records(self, before: Mapping[int, int]) -> None:
        """Delete what is below these offsets, as retention does."""
        parts = [TopicPartition(self.topic, partition, offset) for partition, offset in before.items()]
        for future in self._admin.delete_records(parts).values():
            future.result(30)

    def publish(self, records: Iterable[tuple[int, bytes | None, Headers]], key: bytes | None = None) -> None:
        """Publish (partition, value, headers); acknowledged."""
        producer = confluent_kafka.Producer({**self.kafka, "linger.ms": 5, "log_level": 0})
        for partition, value, headers in records:
            producer.produce(self.topic, value, key, partition=partition, headers=headers)
        assert producer.flush(30) == 0

    def publish_events(self, first: int, count: int, *, age: timedelta = timedelta()) -> None:
        """Publish events that happened so long ago, in turn to all partitions."""
        at = datetime.now(UTC) - age
        self.publish((number % self.partitions, *event(number, at)) for number in range(first, first + count))

    def offsets(self) -> Counter[Offset]:
        """Return every offset of the log, once, as a consumer of Kafka's own sees it."""
        consumer = confluent_kafka.Consumer({**self.kafka, "group.id": "unused", "enable.partition.eof": True})
        consumer.assign(
            [TopicPartition(self.topic, p, confluent_kafka.OFFSET_BEGINNING) for p in range(self.partitions)]
        )
        found: Counter[Offset] = Counter()
        ended = 0
        while ended < self.partitions:
            for message in consumer.consume(500, 0.2):
                partition, offset = message.partition(), message.offset()
                error = message.error()
                if error is not None:  # others are told, too, and are over when records come again
                    ended += error.code() == confluent_kafka.KafkaError._PARTITION_EOF
                elif partition is not None and offset is not None:
                    found[self.topic, partition, offset] += 1
        consumer.close()
        return found


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
) -> Summary:
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
