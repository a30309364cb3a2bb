"""What a commit costs: how many share a transaction, and how long one takes, beside bare transactions of the same client.

    make bench-commit

800 partitions, 64 workers, batches of 10 records, everything at its default otherwise. Two channels, one after the other:
a processor that only touches its records, and one that then waits for 10 ms as if for a database.

- `zk_transactions_per_commit`: by the committer's own counters, of the channel where it is higher.
- `commit_latency_p50_ms`, `_p99_ms`: from the submission of a commit until it has landed; the ledger's fsync is part of
  it. Of the channel where they are higher; each has its own figures.
- `bare_*`: a check and a set in one transaction, one at a time, and 64 such pairs in one, by kazoo alone on an idle
  machine, before and after each channel.

Takes about 90 s.
"""

from __future__ import annotations

import argparse
import json
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
from inbound.cli.places import jar_cache
from inbound.cli.table import table
from inbound.embedded import EmbeddedCluster

PARTITIONS = 800
#: The processors: name, and how long it waits with each batch, in seconds.
CHANNELS = {"touching": 0.0, "waiting": 0.01}
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
    """Run each channel once, bare transactions around them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=400_000)
    options = parser.parse_args()
    bare: dict[str, list[float]] = {"single": [], "group": []}
    channels: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="inbound-bench-") as folder:
        work = Path(folder)
        with EmbeddedCluster(jars=jar_cache(), progress=lambda line: print(line, file=sys.stderr)) as cluster:
            create_topic(cluster.bootstrap_servers, "commit", PARTITIONS)
            seconds = fill(cluster.bootstrap_servers, "commit", PARTITIONS, options.records, 100)
            print(f"published {options.records:,} records in {seconds:.0f} s", file=sys.stderr)
            _bare(cluster.zookeeper_hosts, bare)
            for name, wait in CHANNELS.items():
                channels[name] = _channel(cluster, work, name, wait, options.records)
                one = channels[name]
                print(
                    f"{name}: {one['commits']:,} commits in {one['transactions']:,} transactions, {one['seconds']:.1f} s",
                    file=sys.stderr,
                )
                _bare(cluster.zookeeper_hosts, bare)
    _report(channels, bare)


def _channel(cluster: EmbeddedCluster, work: Path, name: str, wait: float, records: int) -> dict[str, Any]:
    config = work / f"{name}.yaml"
    places = {"zookeeper": cluster.zookeeper_hosts, "bootstrap": cluster.bootstrap_servers, "ledger": work / "ledger"}
    config.write_text(CONFIG.format(**places, group=name, wait=wait))
    command = [sys.executable, "-m", "benchmarks.commit_loop", str(config), str(records)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
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
    rows, figures = [], {}
    for name, one in channels.items():
        per_commit = one["transactions"] / one["commits"]
        p50, p99 = statistics.median(one["latencies"]) * 1000, _p99(one["latencies"]) * 1000
        rate = one["commits"] / one["seconds"]
        rows.append([f"channel, {name}", f"{rate:,.0f}", f"{per_commit:.4f}", f"{p50:.2f}", f"{p99:.2f}"])
        figures[f"zk_transactions_per_commit_{name}"] = per_commit
        figures[f"commit_latency_p50_ms_{name}"] = p50
        figures[f"commit_latency_p99_ms_{name}"] = p99
        figures[f"commits_per_s_{name}"] = rate
    for kind, size in (("single", 1), ("group", GROUP)):
        p50, p99 = statistics.median(bare[kind]) * 1000, _p99(bare[kind]) * 1000
        rate = size / statistics.mean(bare[kind])
        rows.append([f"bare, {size} in a transaction", f"{rate:,.0f}", f"{1 / size:.4f}", f"{p50:.2f}", f"{p99:.2f}"])
        figures[f"bare_{kind}_p50_ms"] = p50
        figures[f"bare_{kind}_p99_ms"] = p99
    print(table(["", "commits/s", "transactions per commit", "p50 ms", "p99 ms"], rows))
    headline = {
        key: max(figures[f"{key}_{name}"] for name in channels)
        for key in ("zk_transactions_per_commit", "commit_latency_p50_ms", "commit_latency_p99_ms")
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
