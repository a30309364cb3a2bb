"""What it costs that members come and go: 20 processes, 1,000 partitions, one ZooKeeper server, one broker.

    make bench-rebalance

Processes join one after another, nothing being published; then some leave, with nothing published but what tells that
their partitions are read on; then, under a steady load over all partitions, two join again and more leave.

- `settle_seconds_max`: from the creation of a joiner's id node to the last creation of an owner node, both by the server's
  clock; looked at once every partition has an owner, shares are even and nothing has moved for a second. The first member
  is left out, as it waits for others (`join_delay`): `first_settle_seconds`.
- `extra_moves`: claims beyond the share of a joiner, or what a leaver had, by the epoch nodes, which count claims.
- `planned_leave_p99_ms`: from when an observer's watch says that a leaver's owner node was deleted to the delivery of the
  partition's next record at another process. That record is published when the observer's watch fires.
- `unmoved_pause_batches`: of a few dozen partitions with a record every 250 ms, those that did not move: how many periods
  the oldest record of a batch had waited for its delivery, at most, while others moved. `unmoved_wait_p99_ms`, beside the
  same while nothing moved, says how long they waited.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka

from benchmarks.group_watch import GroupWatch, HandedOut, Seen, Settled, middle, percentile
from benchmarks.records import create_topic
from benchmarks.report import finish
from inbound.cli.shared.files import jar_cache
from inbound.cli.shared.output import table
from inbound.coordinators.assignment import share
from inbound.embedded import EmbeddedCluster

TOPIC = "rebalance"
DENSE_PERIOD, SPARSE_PERIOD = 0.25, 8.0  # seconds between two records of a partition
DENSE = 25  # every 25th partition is a dense one
CONFIG = """\
zookeeper: {{hosts: "{zookeeper}", session_timeout: 10s}}
kafka: {{bootstrap.servers: "{bootstrap}"}}
admin: {{listen: "127.0.0.1:0"}}
ledger: {{path: {ledger}}}
channels:
  rebalance:
    topics: [rebalance]
    group: rebalance
    reader: {{client: {client}}}
    processor: {{type: "benchmarks.group_watch:Writing", options: {{folder: {seen}}}}}
"""


@dataclass
class Figures:
    """What was measured; seconds."""

    settled: list[float] = field(default_factory=list)  # of each join, the first one first
    loaded_settled: list[float] = field(default_factory=list)
    extra: int = 0
    idle: list[float] = field(default_factory=list)  # hand-overs
    loaded: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)  # of unmoved partitions' records
    quiet_waits: list[float] = field(default_factory=list)
    left: list[float] = field(default_factory=list)  # SIGTERM to the process's end


class Publisher:
    """Publishes a steady load over all partitions, and single records when asked."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "log_level": 0})
        self._partitions = partitions
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def one(self, partition: int) -> None:
        """Publish one record. Any thread."""
        self._producer.produce(TOPIC, b"x" * 100, partition=partition)
        self._producer.poll(0)

    def all_once(self) -> None:
        for partition in range(self._partitions):
            self.one(partition)
        self._producer.flush(30)

    def start_load(self) -> None:
        self._thread = threading.Thread(target=self._run, name="load")
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._producer.flush(10)

    def _run(self) -> None:
        step, turn = 0.01, 0
        dense, sparse = round(DENSE_PERIOD / step), round(SPARSE_PERIOD / step)
        began = time.monotonic()
        while not self._stop.wait(max(0.0, began + turn * step - time.monotonic())):
            for partition in range(self._partitions):
                of_dense = partition % DENSE == 0
                # Spread evenly: never a burst over all partitions.
                period, number = (dense, partition // DENSE) if of_dense else (sparse, partition)
                if turn % period == number % period:
                    self._producer.produce(TOPIC, b"x" * 100, partition=partition)
            self._producer.poll(0)
            turn += 1


class Group:
    """The processes, oldest first, and the group that they are."""

    def __init__(self, cluster: EmbeddedCluster, work: Path, partitions: int, figures: Figures, client: str) -> None:
        seen = work / "seen"
        seen.mkdir()
        self._config = work / "inbound.yaml"
        self._config.write_text(
            CONFIG.format(
                zookeeper=cluster.zookeeper_hosts,
                bootstrap=cluster.bootstrap_servers,
                ledger=work / "ledger",
                seen=seen,
                client=client,
            )
        )
        self.processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._joining: subprocess.Popen[bytes] | None = None  # started, and not registered yet
        self.publisher = Publisher(cluster.bootstrap_servers, partitions)
        self._seen = Seen(seen)
        self._watch = GroupWatch(cluster.zookeeper_hosts, "rebalance", TOPIC, partitions)
        self._partitions = partitions
        self._figures = figures
        self._now = Settled({}, 0.0, 0, {})
        self._recent: list[HandedOut] = []  # read from the files while the hand-overs were waited for

    def join(self, settled: list[float]) -> None:
        """Start a process, and wait until the group has settled."""
        process = self._joining = self._start()
        name, registered = self._watch.await_member([n for n, _ in self.processes], lambda: process.poll() is None)
        self.processes.append((name, process))
        self._joining = None
        before, self._now = self._now, self._watch.settled(len(self.processes))
        members = len(self.processes)
        claims = self._now.claims - before.claims
        extra = claims - share(members - 1, members, self._partitions)
        self._figures.extra += extra
        settled.append(self._now.at - registered)
        half = sorted(at for at in self._now.claimed.values() if at >= registered)
        _say(
            f"join {members}: {settled[-1]:.2f} s, first claim after {half[0] - registered:.2f} s, "
            f"half of them after {middle(half) - registered:.2f} s, {claims} claims, {extra} too many"
        )

    def leave(self, took: list[float]) -> None:
        """End the oldest process with SIGTERM, and wait until its partitions are read on."""
        name, process = self.processes.pop(0)
        theirs = [p for p, owner in self._now.owners.items() if owner == name]
        deleted: dict[int, float] = {}

        def on_deletion(partition: int, at: float) -> None:
            deleted[partition] = at
            self.publisher.one(partition)

        self._watch.tell_deletions(theirs, on_deletion)
        self._seen.new()
        began = time.time()
        process.terminate()
        found = self._first_elsewhere(process.pid, theirs, deleted)
        process.wait(timeout=40)
        self._figures.left.append(time.time() - began)
        before, self._now = self._now, self._watch.settled(len(self.processes))
        claims = self._now.claims - before.claims
        self._figures.extra += claims - len(theirs)
        took += [found[p] - deleted[p] for p in theirs]
        handed = [found[p] - deleted[p] for p in theirs]
        claimed = [self._now.claimed[p] - deleted[p] for p in theirs]
        _say(
            f"leave: {len(theirs)} hand-overs, median {middle(handed) * 1000:.0f} ms, longest {max(handed) * 1000:.0f} ms, "
            f"of that until claimed {middle(claimed) * 1000:.0f} and {max(claimed) * 1000:.0f} ms; "
            f"all deleted {max(deleted.values()) - began:.2f} s after the signal, {claims - len(theirs)} claims too many"
        )

    def unmoved(self, change: Callable[[], object], waits: list[float]) -> None:
        """Carry out `change`; add how long records of partitions that did not move waited meanwhile."""
        before = self._now.owners
        self._seen.new()
        self._recent.clear()
        began = time.time()
        change()
        time.sleep(1.0)
        kept = {p for p in range(0, self._partitions, DENSE) if before[p] == self._now.owners[p]}
        batches = self._recent + self._seen.new()
        waits += [b.at - b.published for b in batches if b.partition in kept and b.published >= began]

    def close(self) -> None:
        self.publisher.stop()
        processes = [process for _, process in self.processes] + ([self._joining] if self._joining else [])
        for process in processes:
            process.kill()  # the servers go too: nothing to release
        for process in processes:
            process.wait(timeout=40)
        self._watch.close()

    def _start(self) -> subprocess.Popen[bytes]:
        with open(self._config.parent / "consumers.log", "ab") as log:
            return subprocess.Popen([sys.executable, "-m", "inbound", "run", "-c", str(self._config)], stderr=log)

    def _first_elsewhere(self, leaver: int, theirs: list[int], deleted: dict[int, float]) -> dict[int, float]:
        found: dict[int, float] = {}
        deadline = time.monotonic() + 60
        missing = set(theirs)
        while time.monotonic() < deadline and missing:
            time.sleep(0.1)
            for batch in self._seen_now():
                if (
                    batch.partition in missing
                    and batch.pid != leaver
                    and batch.at >= deleted.get(batch.partition, math.inf)
                ):
                    found[batch.partition] = batch.at
                    missing.discard(batch.partition)
        if missing:
            raise SystemExit(f"partitions {sorted(missing)} of the leaver were read by nobody within a minute")
        return found

    def _seen_now(self) -> list[HandedOut]:
        new = self._seen.new()
        self._recent += new
        return new


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Let processes join and leave."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument(
        "--client", default="kafka-python", help="the reader: kafka-python (default) or confluent-kafka"
    )
    parser.add_argument("--leaves", type=int, default=4, help="of each kind, idle and loaded")
    options = parser.parse_args()
    figures = Figures()
    with (
        tempfile.TemporaryDirectory(prefix="inbound-bench-") as folder,
        EmbeddedCluster(jars=jar_cache(), progress=lambda line: print(line, file=sys.stderr)) as cluster,
    ):
        create_topic(cluster.bootstrap_servers, TOPIC, options.partitions)
        group = Group(cluster, Path(folder), options.partitions, figures, options.client)
        try:
            _play(group, figures, options.processes, options.leaves)
        finally:
            group.close()
    _report(figures, options.processes, options.partitions, options.client)


def _play(group: Group, figures: Figures, processes: int, leaves: int) -> None:
    for _ in range(processes):
        group.join(figures.settled)
    group.publisher.all_once()
    time.sleep(1.0)
    for _ in range(leaves):
        group.leave(figures.idle)
    group.publisher.start_load()
    time.sleep(3.0)
    group.unmoved(lambda: time.sleep(4.0), figures.quiet_waits)
    for _ in range(2):
        group.unmoved(lambda: group.join(figures.loaded_settled), figures.waits)
    for _ in range(leaves):
        group.unmoved(lambda: group.leave(figures.loaded), figures.waits)


def _report(figures: Figures, processes: int, partitions: int, client: str) -> None:
    joins = figures.settled[1:] + figures.loaded_settled
    handed = figures.idle + figures.loaded
    waits, quiet = figures.waits, figures.quiet_waits
    ms = [
        ("hand-over, idle", figures.idle),
        ("hand-over, loaded", figures.loaded),
        ("wait of a record, partition not moved", waits),
        ("the same while nothing moves", quiet),
    ]
    print(
        table(
            ["ms", "number", "median", "p99", "longest"],
            [
                [what, str(len(v)), *(f"{x * 1000:.0f}" for x in (middle(v), percentile(v, 99), max(v)))]
                for what, v in ms
            ],
        )
    )
    print(f"joins settled after {middle(joins):.2f} s (median), {max(joins):.2f} s (longest of {len(joins)})")
    finish(
        "rebalance",
        {
            "client": client,
            "processes": processes,
            "partitions": partitions,
            "settle_seconds_max": max(joins),
            "settle_seconds_median": middle(joins),
            "first_settle_seconds": figures.settled[0],
            "extra_moves": figures.extra,
            "hand_overs_idle": len(figures.idle),
            "hand_overs_loaded": len(figures.loaded),
            "planned_leave_p99_ms": percentile(handed, 99) * 1000,
            "planned_leave_p99_ms_idle": percentile(figures.idle, 99) * 1000,
            "planned_leave_p99_ms_loaded": percentile(figures.loaded, 99) * 1000,
            "planned_leave_max_ms": max(handed) * 1000,
            "leave_seconds_max": max(figures.left),
            "unmoved_pause_batches": int(max(waits) / DENSE_PERIOD),
            "unmoved_wait_p99_ms": percentile(waits, 99) * 1000,
            "unmoved_wait_max_ms": max(waits) * 1000,
            "quiet_wait_p99_ms": percentile(quiet, 99) * 1000,
            "quiet_wait_max_ms": max(quiet) * 1000,
        },
    )


if __name__ == "__main__":
    main()
