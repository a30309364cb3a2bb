"""What a proof costs, over what Spark needs for the bare reading; and whether it finds what was planted.

    make bench-validate

Values of 100 bytes, four partitions, filled by Kafka's own producer-perf-test; ledgers as one consumer would have written
them for batches of 2,000. All in one Spark session with the settings that the command has by default.

- `exact_vs_scan_ratio_1m`, `_5m` (median of five interleaved pairs), `_20m` (one): exact mode from the first question to
  the verdict, over a count per partition of the same topic by the same session.
- `quick_vs_aggregate_ratio`: quick mode over a ledger of 10 million batches (30 million lines), over a bare aggregation
  of the same files by Spark (count, lowest and highest offset per partition); median of three pairs. The files are
  Parquet, as the product keeps all but those that are being written; `quick_vs_aggregate_ratio_lines`: before that.
- `driver_rss_growth_mib`: how much more memory this process, the driver, ever had while it proved than before.
- `anomalies_missed`, `false_alarms`: of what `benchmarks.planted` plants among 5 million records.

Takes about 25 min. `--smoke` does all of it with a hundredth of the records.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient

from benchmarks.ledgers import write_run
from benchmarks.perf_test import fill
from benchmarks.planted import Planted
from benchmarks.records import create_topic
from benchmarks.report import finish, spread
from inbound.cli.shared.files import jar_cache, java_command
from inbound.cli.shared.zookeeper import with_zookeeper
from inbound.config import ZooKeeperConfig
from inbound.coordinators.nodes import EpochInfo
from inbound.coordinators.paths import GroupPaths
from inbound.embedded import EmbeddedCluster
from inbound.ledger.columns import write_parquet
from inbound.ledger.jsonl import split_lines
from inbound.proof.model import Proof
from inbound.spark.cluster_state import KafkaLogs, Subject
from inbound.spark.kafka_source import read_log
from inbound.spark.session import SparkSettings, spark_session
from inbound.spark.validate import ProofRequest, validate
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROUP = "bench"
PARTITIONS, BATCH = 4, 2_000
#: Name of the figure, records, pairs.
SCANS = (("1m", 1_000_000, 5), ("5m", 5_000_000, 5), ("20m", 20_000_000, 1))
#: Offsets in a batch of the ledger that quick mode reads: 20 million make 10 million batches.
SMALL_BATCH = 2
QUICK_PAIRS = 3
_COLUMNS = "kind string, topic string, partition int, first long, next long"
PLANTED = 5_000_000


def main() -> None:
    """Measure all, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="with a hundredth of the records: does it work?")
    parser.add_argument("--only", choices=("exact", "quick", "planted"), help="one part")
    parser.add_argument("--driver-memory", default="2g", help="of Spark; default: %(default)s")
    args = parser.parse_args()
    scale = 100 if args.smoke else 1
    figures: dict[str, float | int | str | None] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-validate-")))
        cluster = stack.enter_context(EmbeddedCluster(folder / "cluster", jars=jar_cache(), java=java_command()))
        settings = SparkSettings(jar_cache(), java_command(), conf={"spark.driver.memory": args.driver_memory})
        bench = Bench(cluster, folder, stack.enter_context(spark_session(settings, "bench")))
        if args.only in (None, "exact", "quick"):
            bench.warm_up()
        if args.only in (None, "exact"):
            for name, records, pairs in SCANS:
                figures[f"exact_vs_scan_ratio_{name}"] = bench.scans(name, records // scale, pairs)
        if args.only in (None, "quick"):
            figures |= bench.quick(SCANS[-1][1] // scale, QUICK_PAIRS)
        if args.only in (None, "planted"):
            figures |= bench.planted(PLANTED // scale)
        figures["driver_rss_growth_mib"] = bench.memory.growth
    finish("validate", figures)


class Bench:
    """The servers, the session, and what is measured with them."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path, spark: SparkSession) -> None:
        self.cluster = cluster
        self.spark = spark
        self.memory = Memory()
        self._folder = folder
        self._kafka = {"bootstrap.servers": cluster.bootstrap_servers}
        self._zk = ZooKeeperConfig(hosts=cluster.zookeeper_hosts)

    def warm_up(self) -> None:
        """Let the JVM compile what is measured."""
        topic, ends = self._filled("warm", 20_000)
        self._write("warm", topic, ends, BATCH)
        for _ in range(2):
            self._bare(topic, ends)
            self._prove("exact", topic, "warm")

    def scans(self, name: str, records: int, pairs: int) -> float:
        """Return exact mode over a bare scan."""
        topic, ends = self._filled(f"scan-{name}", records)
        self._write(topic, topic, ends, BATCH)
        return self._pairs(
            f"exact, {records:,} records",
            pairs,
            lambda: self._bare(topic, ends),
            lambda: self._proven(self._prove("exact", topic, topic), records),
        )

    def quick(self, records: int, pairs: int) -> dict[str, float]:
        """Return quick mode over a bare aggregation of the ledger: as Parquet, and as it was written."""
        topic = f"scan-{SCANS[-1][0]}"
        with KafkaLogs(self._kafka) as brokers:
            there = bool(brokers.topics([topic]))
        ends = self._ends(topic) if there else self._filled(topic, records)[1]
        began = time.monotonic()
        lines = self._write("quick", topic, ends, SMALL_BATCH)
        print(f"ledger of {lines:,} lines written in {time.monotonic() - began:.0f} s", flush=True)
        files = self._folder / "ledgers" / "quick" / GROUP

        def compared(what: str, read: Callable[[], DataFrame]) -> float:
            return self._pairs(
                f"quick, {lines:,} lines {what}",
                pairs,
                lambda: self._aggregated(read(), records),
                lambda: self._proven(self._prove("quick", topic, "quick"), records),
            )

        try:
            as_lines = compared("as written", lambda: self.spark.read.schema(_COLUMNS).json(str(files)))
            began = time.monotonic()
            with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
                list(pool.map(_convert, files.glob("*.jsonl")))
            print(f"turned into Parquet in {time.monotonic() - began:.0f} s", flush=True)
            as_parquet = compared("in Parquet", lambda: self.spark.read.parquet(str(files)))
        finally:
            shutil.rmtree(files.parent)
        return {"quick_vs_aggregate_ratio": as_parquet, "quick_vs_aggregate_ratio_lines": as_lines}

    def planted(self, records: int) -> dict[str, float | int | str | None]:
        """Return how many anomalies were missed, and how many alarms were false."""
        planted = Planted(self.cluster, self._folder / "ledgers" / "planted", records)
        planted.plant()
        seconds = time.monotonic()
        proof = self._validated("exact", planted.group, planted.topics, self._folder / "ledgers" / "planted")
        missed, false = planted.compare(proof)
        print(f"planted: proved in {time.monotonic() - seconds:.1f} s; missed {missed}, false {false}", flush=True)
        return {"anomalies_missed": len(missed), "false_alarms": len(false)}

    # -- what is measured --------------------------------------------------------------------------------------------

    def _bare(self, topic: str, ends: dict[int, int]) -> None:
        ranges = {topic: {partition: (0, end) for partition, end in ends.items()}}
        rows = read_log(self.spark, self._kafka, ranges).groupBy("topic", "partition").count().collect()
        assert sum(row["count"] for row in rows) == sum(ends.values())

    def _aggregated(self, lines: DataFrame, records: int) -> None:
        from pyspark.sql import functions as sql

        begun = lines.where("kind = 'begun'").groupBy("topic", "partition")
        rows = begun.agg(sql.count("*").alias("n"), sql.min("first"), sql.max("next")).collect()
        assert sum(row["n"] for row in rows) >= records // SMALL_BATCH

    def _prove(self, mode: Any, topic: str, ledger: str) -> Proof:
        with self.memory.watched():
            return self._validated(mode, GROUP, (topic,), self._folder / "ledgers" / ledger)

    def _validated(self, mode: Any, group: str, topics: tuple[str, ...], ledger: Path) -> Proof:
        question = ProofRequest((Subject(group, topics),), mode, self._kafka, self._kafka, ledger)
        proof, _ = validate(question, lambda work: with_zookeeper(self._zk, work), lambda: self.spark)
        return proof

    def _proven(self, proof: Proof, records: int) -> None:
        proven = sum(one.proven or 0 for one in proof.partitions)
        assert (proof.verdict, proven) == (0, records), (proof.verdict, proven, proof.missing, proof.partitions)

    def _pairs(self, what: str, pairs: int, bare: Callable[[], None], ours: Callable[[], None]) -> float:
        ratios = []
        for number in range(pairs):
            first, second = (bare, ours) if number % 2 == 0 else (ours, bare)
            seconds = {one: _seconds(one) for one in (first, second)}
            ratios.append(seconds[ours] / seconds[bare])
            print(f"{what}: bare {seconds[bare]:.2f} s, proof {seconds[ours]:.2f} s", flush=True)
        print(f"{what}: ratio {spread(ratios)}", flush=True)
        return statistics.median(ratios)

    # -- what it is measured on --------------------------------------------------------------------------------------

    def _filled(self, topic: str, records: int) -> tuple[str, dict[int, int]]:
        create_topic(self.cluster.bootstrap_servers, topic, PARTITIONS)
        seconds = fill(self.cluster.bootstrap_servers, topic, records)
        print(f"{topic}: {records:,} records in {seconds:.0f} s", flush=True)
        return topic, self._ends(topic)

    def _ends(self, topic: str) -> dict[int, int]:
        with KafkaLogs(self._kafka) as brokers:
            limits = brokers.limits(TopicPartition(topic, partition) for partition in range(PARTITIONS))
        return {tp.partition: limits[tp].end for tp in limits}

    def _write(self, ledger: str, topic: str, ends: dict[int, int], batch: int) -> int:
        """Write a ledger, and ZooKeeper's nodes as that consumer would have left them."""
        zk = KazooClient(self.cluster.zookeeper_hosts, timeout=30)
        zk.start(timeout=30)
        paths = GroupPaths(GROUP)
        for partition, end in ends.items():
            for path in (paths.epoch(topic, partition), paths.offset(topic, partition)):
                zk.ensure_path(path)
            if zk.exists(paths.epoch(topic, partition)).version == 0:
                zk.set(paths.epoch(topic, partition), EpochInfo("a-1", 1, "n").encode())
            zk.set(paths.offset(topic, partition), b"%d" % end)
        zk.stop()
        zk.close()
        return write_run(self._folder / "ledgers" / ledger, GROUP, topic, ends, batch)


def _convert(path: Path) -> None:
    """Do what the product's housekeeping does with a file that is ended."""
    with path.open("rb") as data:
        write_parquet(split_lines(data), path, path.with_suffix(".parquet"))
    path.unlink()


class Memory:
    """How much this process grows while it proves: the most, over what it had when a proof began."""

    def __init__(self) -> None:
        self.growth = 0.0

    @contextmanager
    def watched(self) -> Iterator[None]:
        over = threading.Event()
        before = _rss_mib()

        def run() -> None:
            while not over.wait(0.02):
                self.growth = max(self.growth, _rss_mib() - before)

        thread = threading.Thread(target=run, name="memory", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _rss_mib() -> float:
    with open("/proc/self/statm") as numbers:
        return int(numbers.read().split()[1]) * 4096 / 2**20


def _seconds(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


if __name__ == "__main__":
    main()
