"""What a commit costs: how many share a transaction, and how long one takes, beside bare transactions of the same client.

    make bench-commit

800 partitions, 64 workers, batches of 10 records, everything at its default otherwise. Two channels, one after the
other: a processor that only touches its records, and one that then waits for 10 ms as if for a database. Then the same
two while ZooKeeper answers each write 50 ms late, one after another: a proxy in front of the server delays the answers.
A channel processes nothing before it owns all partitions, so that no claim is measured.

Figures of the slowed runs end in `_slowed`. Each is the higher one of the two channels; each channel has its own, too.

- `zk_transactions_per_commit`, `zk_transactions_per_s`: by the committer's own counters.
- `rounds_per_interval`: rounds of transactions in a `commit_interval`, to stay at or below 1 at any load. A round has
  more than one transaction only where one is full (1,000 operations), and writes each partition at most once.
- `largest_transaction_operations`: of those that commit; two for each partition. A slow ZooKeeper must not make it
  grow beyond 1,000, or two for each partition where these are fewer.
- `commit_latency_p50_ms`, `_p99_ms`: from the submission of a commit until it has landed; the ledger's fsync is part
  of it.
- `bare_*`: a check and a set in one transaction, one at a time, and 64 such pairs in one, by kazoo alone on an idle
  machine, before and after each channel that is not slowed.

Takes about 3 minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from benchmarks.configuration import SERVERS
from benchmarks.fill import fill
from benchmarks.records import create_topic
from benchmarks.report import finish
from benchmarks.slow_zookeeper import SlowZooKeeper
from inbound.cli.shared.files import jar_cache
from inbound.cli.shared.output import table
from inbound.embedded import EmbeddedCluster

PARTITIONS = 800
#: The processors: name, and how long it waits with each batch, in seconds.
CHANNELS = {"touching": 0.0, "waiting": 0.01}
#: How much later a slowed ZooKeeper answers each write, in seconds.
SLOWED = 0.05
BARE_SINGLE, BARE_GROUPS, GROUP = 500, 100, 64
CONFIG = (
    SERVERS
    + """\
channels:
  commit:
    topics: [commit]
    group: {group}
    workers: 64
    reader: {{max_batch_records: 10}}
    processor: {{type: "benchmarks.commit_loop:Working", options: {{wait: {wait}}}}}
"""
)


def main() -> None:
    """Run each channel once, with bare transactions around it, and once with a slowed ZooKeeper."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=800_000)
    options = parser.parse_args()
    bare: dict[str, list[float]] = {"single": [], "group": []}
    channels: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="inbound-bench-") as folder:
        work = Path(folder)
        with EmbeddedCluster(jars=jar_cache(), progress=lambda line: print(line, file=sys.stderr)) as cluster:
            create_topic(cluster.bootstrap_servers, "commit", PARTITIONS)
            seconds = fill(cluster.bootstrap_servers, "commit", PARTITIONS, options.records, 100)
            os.sync()  # else the servers' own writes wait for it
            print(f"published {options.records:,} records in {seconds:.0f} s", file=sys.stderr)
            _bare(cluster.zookeeper_hosts, bare)
            with SlowZooKeeper(cluster.zookeepers[0].port) as proxy:
                bench = Bench(cluster, proxy, work, options.records)
                for name, wait in CHANNELS.items():
                    channels[name] = bench.run(name, wait)
                    _bare(cluster.zookeeper_hosts, bare)
                for name, wait in CHANNELS.items():
                    channels[f"{name}_slowed"] = bench.run(f"{name}_slowed", wait, SLOWED)
    _report(channels, bare)


class Bench:
    """Servers, and where files go."""

    def __init__(self, cluster: EmbeddedCluster, proxy: SlowZooKeeper, work: Path, records: int) -> None:
        self._cluster = cluster
        self._proxy = proxy
        self._work = work
        self._records = records

    def run(self, name: str, wait: float, delay: float = 0.0) -> dict[str, Any]:
        """Run a channel; while it processes, ZooKeeper answers each write `delay` seconds late."""
        config, log = self._work / f"{name}.yaml", self._work / f"{name}.log"
        zookeeper = self._proxy.address if delay else self._cluster.zookeeper_hosts
        places = {"bootstrap": self._cluster.bootstrap_servers, "ledger": self._work / "ledger"}
        config.write_text(CONFIG.format(zookeeper=zookeeper, group=name, wait=wait, **places))
        command = [sys.executable, "-m", "benchmarks.commit_loop", str(config), str(self._records), str(PARTITIONS)]
        with (
            log.open("wb") as errors,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process,
        ):
            assert process.stdin is not None
            assert process.stdout is not None
            if process.stdout.readline():  # it owns all partitions: claims are not slowed
                self._proxy.delay = delay
                process.stdin.write("go\n")
                process.stdin.flush()
            line = process.stdout.readline()
            self._proxy.delay = 0.0
            if process.wait(60) or not line:
                raise SystemExit(f"{' '.join(command)} failed:\n{log.read_text()[-3000:]}")
        result: dict[str, Any] = json.loads(line)
        counted = f"{result['commits']:,} commits in {result['transactions']:,} transactions"
        print(f"{name}: {counted}, {result['seconds']:.1f} s", file=sys.stderr)
        return result


def _bare(hosts: str, found: dict[str, list[float]]) -> None:
    """Time checked sets on nodes of their own, one transaction after another; seconds."""
    client = KazooClient(hosts)
    client.start()
    try:
        nodes = [(f"/bare/epochs/{n}", f"/bare/offsets/{n}") for n in range(GROUP)]
        for pair in nodes:
            for path in pair:
                client.ensure_path(path)
        single = [nodes[n % GROUP : n % GROUP + 1] for n in range(BARE_SINGLE)]
        for kind, groups in (("single", single), ("group", [nodes] * BARE_GROUPS)):
            for number, group in enumerate(groups):
                transaction = client.transaction()
                for epoch, offset in group:
                    transaction.check(epoch, 0)
                    transaction.set_data(offset, b"%d" % number)
                began = time.monotonic()
                answers = transaction.commit()
                found[kind].append(time.monotonic() - began)
                if any(isinstance(answer, Exception) for answer in answers):
                    raise SystemExit(f"a bare transaction was refused: {answers[0]!r}")
    finally:
        client.stop()
        client.close()


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def _report(channels: dict[str, dict[str, Any]], bare: dict[str, list[float]]) -> None:
    figures: dict[str, float] = {}
    rows = []
    for name, one in channels.items():
        found = {
            "zk_transactions_per_commit": one["transactions"] / one["commits"],
            "zk_transactions_per_s": one["transactions"] / one["seconds"],
            "rounds_per_interval": one["rounds"] * one["interval"] / one["seconds"],
            "largest_transaction_operations": one["largest"],
            "commit_latency_p50_ms": statistics.median(one["latencies"]) * 1000,
            "commit_latency_p99_ms": _p99(one["latencies"]) * 1000,
        }
        rate = one["commits"] / one["seconds"]
        shown = zip(("{:.4f}", "{:.0f}", "{:.2f}", "{:,}", "{:.2f}", "{:.2f}"), found.values(), strict=True)
        rows.append(
            [f"channel, {name.replace('_', ', ')}", f"{rate:,.0f}", *(form.format(value) for form, value in shown)]
        )
        figures |= {f"{key}_{name}": value for key, value in found.items()}
        figures[f"commits_per_s_{name}"] = rate
    for kind, size in (("single", 1), ("group", GROUP)):
        p50, p99 = statistics.median(bare[kind]) * 1000, _p99(bare[kind]) * 1000
        rate = size / statistics.mean(bare[kind])
        in_transactions = [f"{1 / size:.4f}", f"{rate / size:.0f}", "", str(2 * size)]
        rows.append([f"bare, {size} in a transaction", f"{rate:,.0f}", *in_transactions, f"{p50:.2f}", f"{p99:.2f}"])
        figures[f"bare_{kind}_p50_ms"] = p50
        figures[f"bare_{kind}_p99_ms"] = p99
    heads = ["commits/s", "transactions per commit", "per s", "rounds per interval", "largest, operations"]
    print(table(["", *heads, "p50 ms", "p99 ms"], rows))
    headline = {
        f"{key}{suffix}": max(figures[f"{key}_{name}{suffix}"] for name in CHANNELS)
        for suffix in ("", "_slowed")
        for key in found
    }
    for kind in bare:
        for which in ("p50", "p99"):
            ratio = headline[f"commit_latency_{which}_ms"] / figures[f"bare_{kind}_{which}_ms"]
            figures[f"commit_over_bare_{kind}_{which}"] = ratio
    print(
        "commit over a bare transaction of one: "
        f"p50 {figures['commit_over_bare_single_p50']:.1f}, p99 {figures['commit_over_bare_single_p99']:.1f}; "
        f"of {GROUP}: p50 {figures['commit_over_bare_group_p50']:.1f}, p99 {figures['commit_over_bare_group_p99']:.1f}"
    )
    finish("commit", {**headline, **figures})


if __name__ == "__main__":
    main()
