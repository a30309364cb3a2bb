"""How fast a channel drains a topic, against the plain kafka-python loop, in interleaved pairs.

    make bench-drain

`kafka_python_ratio`: records per second of a channel with all defaults on (ledger, metrics, a commit per batch) over
the plain loop with its best settings doing the same touching and an asynchronous commit per poll; median of the pairs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.records import create_topic, publish
from benchmarks.report import finish, spread
from inbound.cli.places import jar_cache
from inbound.cli.table import table
from inbound.embedded import EmbeddedCluster

PARTITIONS = 8
CONFIG = """\
zookeeper: {{hosts: "{zookeeper}"}}
kafka: {{bootstrap.servers: "{bootstrap}"}}
admin: {{listen: "127.0.0.1:0"}}
ledger: {{path: {ledger}}}
controller: {{join_delay: 500ms}}
channels:
  drain:
    topics: [drain]
    group: {group}
    processor: {{type: "benchmarks.channel_loop:Touching"}}
"""


def main() -> None:
    """Run the pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--records", type=int, default=300_000)
    options = parser.parse_args()
    rows: list[dict[str, dict[str, float]]] = []
    with tempfile.TemporaryDirectory(prefix="inbound-bench-") as folder:
        work = Path(folder)
        with EmbeddedCluster(jars=jar_cache(), progress=lambda line: print(line, file=sys.stderr)) as cluster:
            create_topic(cluster.bootstrap_servers, "drain", PARTITIONS)
            seconds = publish(cluster.bootstrap_servers, "drain", PARTITIONS, options.records)
            print(f"published {options.records:,} records of 1 KiB in {seconds:.0f} s", file=sys.stderr)
            for number in range(-1, options.pairs):
                # The first pair only warms the page cache and is not counted. Who begins takes turns.
                order = ["channel", "plain"] if number % 2 else ["plain", "channel"]
                pair = {who: _run(who, cluster, work, number, options.records) for who in order}
                print(f"pair {number}: " + _line(pair), file=sys.stderr)
                if number >= 0:
                    rows.append(pair)
    _report(rows)


def _run(who: str, cluster: EmbeddedCluster, work: Path, number: int, records: int) -> dict[str, float]:
    group = f"{who}{number}"
    if who == "plain":
        command = ["benchmarks.plain_loop", cluster.bootstrap_servers, "drain", str(records), group]
    else:
        config = work / f"{group}.yaml"
        config.write_text(
            CONFIG.format(
                zookeeper=cluster.zookeeper_hosts,
                bootstrap=cluster.bootstrap_servers,
                ledger=work / "ledger",
                group=group,
            )
        )
        command = ["benchmarks.channel_loop", str(config), str(records)]
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, timeout=400, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _rate(run: dict[str, float]) -> float:
    return run["records"] / run["seconds"]


def _line(pair: dict[str, dict[str, float]]) -> str:
    return ", ".join(
        f"{who} {_rate(run):,.0f}/s ({run['cpu'] / run['records'] * 1e5:.2f} CPU s per 100,000)"
        for who, run in sorted(pair.items())
    )


def _report(rows: list[dict[str, dict[str, float]]]) -> None:
    ratios = [_rate(pair["channel"]) / _rate(pair["plain"]) for pair in rows]
    cpu = {who: [pair[who]["cpu"] / pair[who]["records"] * 1e5 for pair in rows] for who in ("channel", "plain")}
    rates = {who: [_rate(pair[who]) for pair in rows] for who in ("channel", "plain")}
    print(
        table(
            ["", "records/s", "CPU s per 100,000 records"],
            [[who, f"{statistics.median(rates[who]):,.0f}", spread(cpu[who])] for who in ("channel", "plain")],
        )
    )
    print(f"channel over plain loop, {len(rows)} pairs: {spread(ratios)}")
    finish(
        "drain",
        {
            "kafka_python_ratio": statistics.median(ratios),
            "channel_records_per_s": statistics.median(rates["channel"]),
            "plain_records_per_s": statistics.median(rates["plain"]),
            "channel_cpu_s_per_100k": statistics.median(cpu["channel"]),
            "plain_cpu_s_per_100k": statistics.median(cpu["plain"]),
        },
    )


if __name__ == "__main__":
    main()
