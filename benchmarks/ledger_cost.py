"""What the ledger costs: records per CPU second of a channel with it, and without.

    make bench-ledger

Each run is a fresh process with one channel that touches every record of 100 bytes and commits each batch; everything is
at its default but for the ledger, which is in files or of type `none`. In every pair both run once, one after the other;
who begins takes turns. CPU is that of all threads of the process, in user space and in the kernel.

- `ledger_cost_ratio_kafka_python`, `ledger_cost_ratio_confluent`: 1 - with / without, of records per CPU second; the
  median over the pairs, for either client
- `ledger_cost_ratio`: the higher of the two

Takes about 8 min.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.configuration import SERVERS
from benchmarks.fill import fill
from benchmarks.records import create_topic
from benchmarks.report import finish, spread
from inbound.cli.shared.files import jar_cache
from inbound.cli.shared.output import table
from inbound.embedded import EmbeddedCluster

ROOT = Path(__file__).resolve().parent.parent
TOPIC, PARTITIONS, SIZE = "ledger", 8, 100
#: Records of a run of a few seconds, by client.
CLIENTS = {"kafka-python": 500_000, "confluent-kafka": 1_500_000}
#: The longest time that one run may take, in seconds.
LIMIT = 120.0
CHANNEL = """\
channels:
  ledger:
    topics: [{topic}]
    group: {group}
    reader: {{client: {client}}}
    processor: {{type: "benchmarks.channel_loop:Touching"}}
"""


def main() -> None:
    """Run the pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15, metavar="N", help="for each client")
    parser.add_argument("--scale", type=float, default=1.0, metavar="X", help="so many times the records")
    options = parser.parse_args()
    counts = {client: int(records * options.scale) for client, records in CLIENTS.items()}
    costs: dict[str, list[float]] = {client: [] for client in counts}
    speeds: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="inbound-bench-") as folder:
        work = Path(folder)
        with EmbeddedCluster(jars=jar_cache(), progress=_say) as cluster:
            create_topic(cluster.bootstrap_servers, TOPIC, PARTITIONS)
            # Nobody reads all: a partition that comes late still has enough.
            total = max(counts.values()) * 3 // 2
            seconds = fill(cluster.bootstrap_servers, TOPIC, PARTITIONS, total, SIZE)
            _say(f"published {total:,} records of {SIZE} bytes in {seconds:.0f} s")
            for client, records in counts.items():  # not counted: the broker's code is cold for the first who reads
                _run(cluster, work, client, "none", records, "warm-up")
            for number in range(options.pairs):
                for client, records in counts.items():
                    kinds = ["files", "none"][:: 1 if number % 2 else -1]
                    pair = {kind: _run(cluster, work, client, kind, records, str(number)) for kind in kinds}
                    costs[client].append(1 - pair["files"] / pair["none"])
                    for kind, speed in pair.items():
                        speeds.setdefault((client, kind), []).append(speed)
                    _say(f"pair {number}: {client}: {costs[client][-1]:+.3f}")
    _report(costs, speeds)


def _run(cluster: EmbeddedCluster, work: Path, client: str, kind: str, records: int, name: str) -> float:
    """Return the records per CPU second of one run."""
    group = f"{client}-{kind}-{name}"
    config = work / f"{group}.yaml"
    ledger = work / f"ledger-{group}"
    text = SERVERS.replace("{{path: {ledger}}}", "{{type: {kind}, path: {ledger}}}") + CHANNEL
    config.write_text(
        text.format(
            zookeeper=cluster.zookeeper_hosts, bootstrap=cluster.bootstrap_servers, ledger=json.dumps(str(ledger)),
            kind=kind, topic=TOPIC, group=group, client=client,
        )
    )  # fmt: skip
    command = [sys.executable, "-m", "benchmarks.channel_loop", str(config), str(records)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{group}: failed:\n{done.stderr[-3000:]}")
    if (kind == "files") != any(ledger.glob("*/*.jsonl")):
        raise SystemExit(f"{group}: a ledger is there if none is wanted, or the other way round")
    result = json.loads(done.stdout.splitlines()[-1])
    return float(result["records"] / result["cpu"])


def _report(costs: Mapping[str, list[float]], speeds: Mapping[tuple[str, str], list[float]]) -> None:
    rows = [
        (client, *(f"{statistics.median(speeds[client, kind]):,.0f}" for kind in ("none", "files")), spread(values))
        for client, values in costs.items()
    ]
    print(table(("client", "records/CPU s without", "with", "cost, median (range)"), rows))
    medians = {client: statistics.median(values) for client, values in costs.items()}
    figures = {
        "ledger_cost_ratio": max(medians.values()),
        "ledger_cost_ratio_kafka_python": medians["kafka-python"],
        "ledger_cost_ratio_confluent": medians["confluent-kafka"],
        "pairs": len(costs["kafka-python"]),
    }
    finish("ledger", figures)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
