"""What `spark replay` costs over a bare job of Spark's: `make bench-replay`.

Records of a preloaded topic go through the same no-op processor in batches of the same size, in interleaved pairs: by a
replay, marks and all, and by a bare `df.foreachPartition` that makes the batches of Spark's rows and calls the processor.
Prints one JSON line; `replay_vs_bare_ratio` is the median of the pairs' ratios of records per second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kafka.admin import KafkaAdminClient, NewTopic

from benchmarks.fill import fill
from inbound import Batch, BatchEventProcessor, BatchResponse, Context
from inbound.cli.shared.files import jar_cache, java_command
from inbound.config import ChannelConfig
from inbound.embedded import EmbeddedCluster
from inbound.processors.batch import PlainRecord
from inbound.spark.kafka_source import read_log
from inbound.spark.replay.marks import ReplayFolder
from inbound.spark.replay.plan import ReplayPlan, RequestedOffsets, Unit
from inbound.spark.session import SparkSettings, spark_session

TOPIC = "replayed"
VALUE_BYTES = 100
BATCH_RECORDS = 2000


class NoOp(BatchEventProcessor):
    """Does nothing with its batches."""

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        return BatchResponse.advance()


def bare(rows: Iterator[Any]) -> None:
    """Make batches of Spark's rows, and hand them to the same processor."""
    processor = NoOp()
    processor.open(Context("bench", "bench", "bare"))
    records: list[PlainRecord] = []
    topic, partition = "", 0

    def deliver() -> None:
        processor.on_next_batch(Batch(topic, partition, records[0].offset, records[-1].offset + 1, records))

    for row in rows:
        topic, partition = row.topic, row.partition
        headers = [(header.key, header.value) for header in row.headers or ()]
        records.append(PlainRecord(row.offset, row.timestamp, row.key, row.value, headers))
        if len(records) == BATCH_RECORDS:
            deliver()
            records = []
    if records:
        deliver()
    processor.close()


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--master", default="local[2]")
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="bench-replay-") as folder,
        EmbeddedCluster(None, jars=jar_cache()) as cluster,
    ):
        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        admin.create_topics([NewTopic(TOPIC, args.partitions, 1)])
        admin.close()
        fill(cluster.bootstrap_servers, TOPIC, args.partitions, args.records, VALUE_BYTES, headers=())
        settings = SparkSettings(jar_cache(), java_command(), args.master)
        with spark_session(settings, "bench-replay") as spark:
            pairs = Pairs(spark, cluster.bootstrap_servers, Path(folder), args.partitions)
            ratios, speeds = [], []
            pairs.replay(-1)  # both once, unmeasured: classes are loaded, code is compiled, the log is in memory
            pairs.bare()
            for number in range(args.pairs):
                bare_first = number % 2 == 0
                first = pairs.bare() if bare_first else pairs.replay(number)
                second = pairs.replay(number) if bare_first else pairs.bare()
                bare_seconds, replay_seconds = (first, second) if bare_first else (second, first)
                ratios.append(bare_seconds / replay_seconds)
                speeds.append(pairs.records / replay_seconds)
                print(f"pair {number + 1}: {ratios[-1]:.2f}", file=sys.stderr)
    result = {
        "replay_vs_bare_ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "replay_records_per_second": round(statistics.median(speeds)),
        "records": pairs.records,
    }
    print(json.dumps(result))
    return 0


class Pairs:
    """The two ways over the same records, timed from outside."""

    def __init__(self, spark: Any, servers: str, folder: Path, partitions: int) -> None:
        from inbound.spark.cluster_state import KafkaLogs
        from inbound.topic_partition import TopicPartition

        self._spark = spark
        self._kafka = {"bootstrap.servers": servers}
        self._folder = folder
        with KafkaLogs(self._kafka) as log:
            logs = log.limits([TopicPartition(TOPIC, partition) for partition in range(partitions)])
        self._units = tuple(Unit(n, *tp, held.start, held.end) for n, (tp, held) in enumerate(sorted(logs.items())))
        self.records = sum(unit.next - unit.first for unit in self._units)
        self._config = ChannelConfig.model_validate(
            {
                "topics": [TOPIC],
                "group": "bench",
                "processor": {"type": "benchmarks.replay:NoOp"},
                "reader": {"max_batch_records": BATCH_RECORDS},
            }
        )

    def bare(self) -> float:
        """Return the seconds of the bare job."""
        ranges = {TOPIC: {unit.partition: (unit.first, unit.next) for unit in self._units}}
        scan = read_log(self._spark, self._kafka, ranges, headers=True)
        columns = ("topic", "partition", "offset", "unix_millis(timestamp) timestamp", "key", "value", "headers")
        return _timed(lambda: scan.selectExpr(*columns).foreachPartition(bare))

    def replay(self, number: int) -> float:
        """Return the seconds of a replay of its own, with the marks of all its batches."""
        from inbound.spark.replay.job import replay
        from inbound.spark.replay.task import ReplayJob

        folder = ReplayFolder(self._folder, f"run-{number}")
        folder.claim()
        folder.write_plan(
            ReplayPlan(
                folder.name,
                "bench",
                "bench",
                RequestedOffsets((TOPIC,)),
                "benchmarks.replay:NoOp",
                "",
                None,
                self._units,
            )
        )
        job = ReplayJob(
            folder.root, folder.name, self._units, "bench", self._config, "benchmarks.replay:NoOp", {}, self._kafka
        )
        try:
            seconds = _timed(lambda: _complete(replay(self._spark, job, folder, self._kafka, [str(Path.cwd())])))
        finally:
            folder.lock.release()
        return seconds


def _complete(ended: Any) -> None:
    if not ended.complete:
        raise RuntimeError(f"not all was replayed: {ended.held}")


def _timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
