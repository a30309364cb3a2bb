"""How long a single record takes from the publisher to the processor, against the plain poll loop of the same client.

    make bench-latency

One process publishes 200 records a second, one at a time, with the time in each. In interleaved pairs a channel with all
defaults on and a plain loop (asynchronous commit per poll) read them, each a fresh process: `latency_p50_ms` and
`latency_p99_ms` are from the call that publishes to the begin of `on_next_batch`, or to the return of `poll`.
`latency_p99_ratio` is the median, over the pairs, of the channel's 99th percentile over the plain loop's; of two clients
the worse one. Takes about 30 s per pair.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka

from benchmarks.configuration import SERVERS
from benchmarks.plain_reader import CLIENTS
from benchmarks.processes import Measured
from benchmarks.records import create_topic
from benchmarks.report import finish, spread
from benchmarks.stamps import read_stamps, stamped
from inbound.cli.shared.files import jar_cache
from inbound.cli.shared.output import table
from inbound.embedded import EmbeddedCluster

TOPIC = "latency"
PARTITIONS = 8
PER_SECOND = 200
#: After every partition was seen: connections are made and code is warm. Seconds, not counted.
WARM_UP = 1.5
CONFIG = (
    SERVERS
    + """\
channels:
  latency:
    topics: [latency]
    group: {group}
    auto_offset_reset: latest
    reader: {{client: {client}}}
    processor: {{type: "benchmarks.stamps:Stamping", options: {{folder: {folder}, partitions: {partitions}}}}}
"""
)

#: What one run measured: milliseconds, one for each record.
Latencies = list[float]


def main() -> None:
    """Run the pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", choices=[*CLIENTS, "both"], default="both")
    parser.add_argument("--pairs", type=int, default=4, help="for each client")
    parser.add_argument("--seconds", type=float, default=8.0, help="that a run looks at")
    options = parser.parse_args()
    clients = CLIENTS if options.client == "both" else (options.client,)
    found: dict[str, list[dict[str, Latencies]]] = {client: [] for client in clients}
    with tempfile.TemporaryDirectory(prefix="inbound-bench-") as folder:
        work = Path(folder)
        with EmbeddedCluster(jars=jar_cache(), progress=lambda line: print(line, file=sys.stderr)) as cluster:
            create_topic(cluster.bootstrap_servers, TOPIC, PARTITIONS)
            with _publishing(cluster.bootstrap_servers):
                for number in range(options.pairs):
                    for client in clients:
                        order = ["channel", "plain"] if number % 2 else ["plain", "channel"]
                        pair = {who: _run(who, client, cluster, work, number, options.seconds) for who in order}
                        found[client].append(pair)
                        said = ", ".join(f"{who} p50 {_p50(v):.2f} p99 {_p99(v):.2f} ms" for who, v in pair.items())
                        print(f"pair {number}, {client}: {said}", file=sys.stderr)
    _report(found)


@contextmanager
def _publishing(bootstrap: str) -> Iterator[None]:
    """Publish to all partitions in turn, evenly in time, until the block ends."""
    stop = threading.Event()
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": 1})

    def publish() -> None:
        due, number = time.monotonic(), 0
        while not stop.wait(max(0.0, due - time.monotonic())):
            producer.produce(TOPIC, stamped(), partition=number % PARTITIONS)
            producer.poll(0)
            due, number = due + 1 / PER_SECOND, number + 1

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        producer.flush(10)


def _run(who: str, client: str, cluster: EmbeddedCluster, work: Path, number: int, seconds: float) -> Latencies:
    group = f"{who}-{client}-{number}"
    folder = work / group
    folder.mkdir()
    if who == "plain":
        command = ["benchmarks.plain_reader", client, cluster.bootstrap_servers, TOPIC, str(PARTITIONS), str(folder)]
    else:
        config = folder / "inbound.yaml"
        config.write_text(
            CONFIG.format(
                zookeeper=cluster.zookeeper_hosts,
                bootstrap=cluster.bootstrap_servers,
                ledger=work / "ledger",
                group=group,
                client=client,
                folder=folder,
                partitions=PARTITIONS,
            )
        )
        command = ["inbound", "run", "-c", str(config)]
    with Measured(folder / "log", *command) as process:
        process.wait_for("a record of every partition came", (folder / "ready").exists, 60.0)
        time.sleep(WARM_UP)
        since = time.monotonic_ns()
        time.sleep(seconds)
        until = time.monotonic_ns()
        time.sleep(0.5)  # what was published last is on its way
    latencies = [(seen - sent) / 1e6 for sent, seen in read_stamps(folder) if since <= sent < until]
    wanted = round(seconds * PER_SECOND)
    if len(latencies) < 0.98 * wanted:
        raise SystemExit(f"{group}: {len(latencies)} records of {wanted}; the publisher or the consumer fell behind")
    return latencies


def _p50(values: Latencies) -> float:
    return statistics.median(values)


def _p99(values: Latencies) -> float:
    return statistics.quantiles(values, n=100)[98]


def _report(found: dict[str, list[dict[str, Latencies]]]) -> None:
    rows, figures = [], {}
    ratios = {}
    for client, pairs in found.items():
        name = client.replace("-", "_")
        for who in ("channel", "plain"):
            together = [value for pair in pairs for value in pair[who]]
            rows.append(
                [f"{client}, {who}", str(len(together)), *(f"{f(together):.2f}" for f in (_p50, _p99, max))],
            )
            prefix = "" if who == "channel" else "plain_"
            figures[f"{prefix}latency_p50_ms_{name}"] = _p50(together)
            figures[f"{prefix}latency_p99_ms_{name}"] = _p99(together)
        ratios[client] = [_p99(pair["channel"]) / _p99(pair["plain"]) for pair in pairs]
        figures[f"latency_p50_ratio_{name}"] = statistics.median(_p50(p["channel"]) / _p50(p["plain"]) for p in pairs)
        figures[f"latency_p99_ratio_{name}"] = statistics.median(ratios[client])
    print(table(["publish to hand-over, ms", "records", "p50", "p99", "longest"], rows))
    for client, values in ratios.items():
        print(f"{client}: channel's p99 over the plain loop's, {len(values)} pairs: {spread(values)}")
    worst = max(found, key=lambda client: statistics.median(ratios[client])).replace("-", "_")
    headline = {
        "latency_p50_ms": figures[f"latency_p50_ms_{worst}"],
        "latency_p99_ms": figures[f"latency_p99_ms_{worst}"],
        "plain_latency_p50_ms": figures[f"plain_latency_p50_ms_{worst}"],
        "plain_latency_p99_ms": figures[f"plain_latency_p99_ms_{worst}"],
        "latency_p99_ratio": figures[f"latency_p99_ratio_{worst}"],
    }
    finish("latency", {**headline, **figures, "records_per_s": PER_SECOND})


if __name__ == "__main__":
    main()
