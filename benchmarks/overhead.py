"""What it costs that operators can see inside: metrics, journal, stall detector, logs.

    make bench-overhead

1. Records per CPU second of a channel with all of it, scraped every 5 s and logging JSON at info as in production, and
   of one without any of it (`benchmarks.overhead_loop`). Records have 100 bytes, are all touched, and each batch is
   committed, until the last commit has landed; the ledger is on in both. In every pair both run once, one right after
   the other; their order takes turns. CPU is that of all threads of the process, in user space and in the kernel, the
   answers to scrapes included.
2. The same of a channel of which a CPU profile is being taken, over HTTP, all the time that it works
   (`benchmarks.overhead_profiling`), and of one of which none is taken. Both have the listener of profiles, and everything
   else on.
3. The same of a channel that makes spans, of which a tenth is recorded and sent by OTLP (`benchmarks.overhead_tracing`),
   and of one that makes none, which is the same run as the second one of 2.
4. How long a scrape takes of a process that owns 1,000 partitions, over HTTP, as Prometheus does it: on one connection,
   the whole answer read. The client's time counts too.

- `observability_cost_ratio_kafka_python`, `observability_cost_ratio_confluent`: 1 - with / without, of records per CPU
  second; the median over the pairs of that client; `_q1`, `_q3`: the middle half of the pairs lies between these
- `observability_cost_ratio`: the higher of the two medians
- `profiling_cost_ratio`, `tracing_cost_ratio`: the same, with a profile or spans / without
- `scrape_1000_partitions_ms`: the median; also the longest, the CPU time of the process for each, and the bytes

Takes about half an hour with 15 pairs for each client; `--only profiling` two fifths of it. `--short` takes a minute,
and says nothing about the cost.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.configuration import SERVERS
from benchmarks.fill import fill
from benchmarks.overhead_profiling import Profiler
from benchmarks.overhead_tracing import Collector
from benchmarks.records import create_topic
from benchmarks.report import finish, quartiles, spread
from inbound.cli.shared.files import jar_cache
from inbound.cli.shared.output import table
from inbound.embedded import EmbeddedCluster

ROOT = Path(__file__).resolve().parent.parent
TOPIC, PARTITIONS, SIZE = "seen", 8, 100
#: Records of a run of about 5 s, by client: long enough for a scrape.
CLIENTS = {"kafka-python": 600_000, "confluent-kafka": 2_500_000}
#: How often Prometheus comes by, in seconds; the first time after half of it, so that a run has its due number.
SCRAPE_EVERY = 5.0
#: The longest time that one run may take, in seconds.
LIMIT = 300.0
MANY, RECORDS_OF_MANY = 1000, 20
#: The kinds of run, in the order in which a round has them, so that those of a pair are neighbours; every second round
#: begins at the end.
KINDS = ("on", "off", "profiled", "quiet", "traced")
#: What is compared, and the kinds of run: with it, and without.
COMPARED = {"observability": ("on", "off"), "profiling": ("profiled", "quiet"), "tracing": ("traced", "quiet")}
PARTS = ("scrapes", *COMPARED)
HEADS = ("client", "pairs", "records/CPU s without", "with", "cost, median (range)", "middle half")
CONFIG = (
    SERVERS
    + """\
logging: {{format: json, level: info}}
{more}
channels:
  {topic}:
    topics: [{topic}]
    group: {group}
    reader: {{client: {client}}}
    processor: {{type: "benchmarks.channel_loop:Touching"}}
"""
)


class Scraper:
    """Scrapes a process every so many seconds, in a thread of its own, until `end`."""

    def __init__(self, url: str, every: float) -> None:
        self._url = url
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.scrapes = 0
        self._thread.start()

    def end(self) -> int:
        """Return how often it was done."""
        self._over.set()
        self._thread.join()
        return self.scrapes

    def _run(self) -> None:
        connection = connect(self._url)
        wait = self._every / 2
        while not self._over.wait(wait):
            wait = self._every
            try:
                scrape(connection)
                self.scrapes += 1
            except OSError:  # the process ends
                return


@dataclass(frozen=True)
class Run:
    """One run of a pair."""

    speed: float  # records per CPU second
    scrapes: int  # or looks of the profile, or requests with spans
    log_lines: int


@dataclass(frozen=True)
class Pairs:
    """The runs of one comparison, by client."""

    costs: dict[str, list[float]]  # 1 - with / without, of records per CPU second, a pair each
    runs: dict[str, list[tuple[Run, Run]]] = field(default_factory=dict)  # with, without

    def add(self, client: str, run: Run, without: Run) -> None:
        """Note a pair."""
        self.costs[client].append(1 - run.speed / without.speed)
        self.runs.setdefault(client, []).append((run, without))

    def medians(self) -> dict[str, float]:
        """Return the cost for each client."""
        return {client: statistics.median(costs) for client, costs in self.costs.items()}

    def rows(self, *facts: Callable[[Run], int]) -> list[tuple[str, ...]]:
        """Return a row for each client: its speed without and with, the cost, and medians of facts of the runs with."""
        return [
            (
                client,
                str(len(runs)),
                f"{statistics.median(without.speed for _, without in runs):,.0f}",
                f"{statistics.median(run.speed for run, _ in runs):,.0f}",
                spread(self.costs[client]),
                "{:.3f} to {:.3f}".format(*quartiles(self.costs[client])),
                *(f"{statistics.median(fact(run) for run, _ in runs):g}" for fact in facts),
            )
            for client, runs in self.runs.items()
        ]


@dataclass(frozen=True)
class Scrapes:
    """What scrapes of many partitions took."""

    milliseconds: list[float]
    cpu_milliseconds: float  # of the process, for each
    size: int  # bytes


def main() -> None:
    """Run the pairs, then the scrapes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15, metavar="N", help="for each client")
    parser.add_argument("--scale", type=float, default=1.0, metavar="X", help="so many times the records")
    parser.add_argument("--scrapes", type=int, default=100, metavar="N", help="of the process with 1,000 partitions")
    parser.add_argument("--short", action="store_true", help="one pair of a few records, 20 scrapes: does it work?")
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="measure this alone; may be given more than once"
    )
    options = parser.parse_args()
    if options.short:
        options.pairs, options.scale, options.scrapes = 1, 0.05, 20
    every = SCRAPE_EVERY if not options.short else 0.5
    counts = {client: int(records * options.scale) for client, records in CLIENTS.items()}
    wanted = options.only or list(PARTS)
    results: dict[str, Pairs] = {}
    scrapes: Scrapes | None = None
    with tempfile.TemporaryDirectory(prefix="inbound-bench-") as folder:
        work = Path(folder)
        with EmbeddedCluster(jars=jar_cache(), progress=_say) as cluster:
            if "scrapes" in wanted:
                create_topic(cluster.bootstrap_servers, "many", MANY)
                fill(cluster.bootstrap_servers, "many", MANY, MANY * RECORDS_OF_MANY, SIZE)
                scrapes = _scrape_many(cluster, work, options.scrapes)
                _say(f"scrapes of {MANY} partitions: {statistics.median(scrapes.milliseconds):.1f} ms")
            compared = {part: kinds for part, kinds in COMPARED.items() if part in wanted}
            if compared:
                create_topic(cluster.bootstrap_servers, TOPIC, PARTITIONS)
                # Nobody reads all: a partition that comes late still has enough.
                total = max(counts.values()) * 3 // 2
                seconds = fill(cluster.bootstrap_servers, TOPIC, PARTITIONS, total, SIZE)
                _say(f"published {total:,} records of {SIZE} bytes in {seconds:.0f} s")
                for client, records in counts.items():  # not counted: the broker's code is cold for the first who reads
                    _run(cluster, work, client, "off", min(records, 500_000), "warm-up")
            results = {part: Pairs({client: [] for client in counts}) for part in compared}
            kinds = [kind for kind in KINDS if any(kind in pair for pair in compared.values())]
            for number in range(options.pairs if compared else 0):
                for client, records in counts.items():
                    turns = kinds[:: 1 if number % 2 else -1]
                    runs = {kind: _run(cluster, work, client, kind, records, str(number), every) for kind in turns}
                    for part, (kind, without) in compared.items():
                        results[part].add(client, runs[kind], runs[without])
                        _say(f"pair {number}: {client}: {part} {results[part].costs[client][-1]:+.3f}")
    _report(results, scrapes)


def _write_config(cluster: EmbeddedCluster, work: Path, client: str, topic: str, group: str, more: str = "") -> Path:
    config = work / f"{group}.yaml"
    config.write_text(
        CONFIG.format(
            zookeeper=cluster.zookeeper_hosts, bootstrap=cluster.bootstrap_servers,
            ledger=json.dumps(str(work / f"ledger-{group}")), topic=topic, group=group, client=client, more=more,
        )
    )  # fmt: skip
    return config


# -- the cost ----------------------------------------------------------------------------------------------------------


def _run(
    cluster: EmbeddedCluster, work: Path, client: str, kind: str, records: int, name: str, every: float = SCRAPE_EVERY
) -> Run:
    """Run a channel once, alone but for who scrapes it."""
    group = f"{client}-{kind}-{name}"
    collector = Collector() if kind == "traced" else None
    more = 'profiling: {listen: "127.0.0.1:0"}' if kind in ("profiled", "quiet") else ""
    more = collector.configuration if collector is not None else more
    config = _write_config(cluster, work, client, TOPIC, group, more)
    log = work / f"{group}.log"
    command = [
        sys.executable,
        "-m",
        "benchmarks.overhead_loop",
        str(config),
        str(records),
        "off" if kind == "off" else "on",
    ]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        visitor: Scraper | Profiler | Collector | None = collector
        if kind == "profiled":
            visitor = Profiler(log, process)
        elif kind == "on" and url:
            visitor = Scraper(url, every)
        out, _ = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
        process.wait()
    lines = log.read_text().splitlines()
    if process.returncode:
        raise SystemExit(f"{group}: failed:\n{log.read_text()[-3000:]}")
    said = [line for line in lines if line.startswith("{")]
    if bool(said) != (kind != "off"):
        raise SystemExit(f"{group}: it logs if it should not, or the other way round:\n{log.read_text()[:1000]}")
    result = json.loads(out.splitlines()[-1])
    return Run(result["records"] / result["cpu"], visitor.end() if visitor else 0, len(said))


# -- scrapes -----------------------------------------------------------------------------------------------------------


def connect(url: str) -> http.client.HTTPConnection:
    """Return a connection to an admin port, to be kept."""
    parts = urlsplit(url)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)


def scrape(connection: http.client.HTTPConnection) -> bytes:
    """Return one answer of `/metrics`, whole.

    Raises:
        OSError: it does not answer.
    """
    connection.request("GET", "/metrics", headers={"Accept": "text/plain;version=0.0.4"})
    answer = connection.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise SystemExit(f"/metrics answered {answer.status}: {body[:500]!r}")
    return body


def _scrape_many(cluster: EmbeddedCluster, work: Path, count: int) -> Scrapes:
    """Run a process that owns all partitions, let it read everything, and scrape it."""
    config = _write_config(cluster, work, "kafka-python", "many", "many")
    log = work / "many.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "inbound", "run", "-c", str(config)],
            stderr=errors,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
        )
    try:
        connection = connect(_announced(process, log))
        deadline = time.monotonic() + LIMIT
        while not _all_read(scrape(connection)):
            if time.monotonic() > deadline:
                raise SystemExit(f"not all of {MANY} partitions were read:\n{log.read_text()[-3000:]}")
            time.sleep(0.5)
        taken = []
        began, busy = time.monotonic(), _cpu_seconds(process.pid)
        body = b""
        for _ in range(count):
            before = time.perf_counter()
            body = scrape(connection)
            taken.append((time.perf_counter() - before) * 1000)
            time.sleep(0.1)
        seconds, busy = time.monotonic() - began, _cpu_seconds(process.pid) - busy
        idle = _cpu_seconds(process.pid)
        time.sleep(seconds)
        idle = _cpu_seconds(process.pid) - idle
        return Scrapes(taken, max(0.0, busy - idle) / count * 1000, len(body))
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _announced(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return the address that a process logs when it starts."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"admin: (http://[^\s/]+)/status", log.read_text())
        if found is not None:
            return found.group(1)
        time.sleep(0.1)
    raise SystemExit(f"it does not say where its admin port is:\n{log.read_text()[-3000:]}")


def _all_read(body: bytes) -> bool:
    """Whether all partitions are owned, and everything in them is committed."""
    lags = re.findall(rb"(?m)^inbound_partition_lag\{.*\} (\S+)$", body)
    return len(lags) == MANY and not any(map(float, lags))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def _report(results: Mapping[str, Pairs], scrapes: Scrapes | None) -> None:
    figures: dict[str, Any] = {}
    if (pairs := results.get("observability")) is not None:
        print(table((*HEADS, "scrapes", "log lines"), pairs.rows(lambda run: run.scrapes, lambda run: run.log_lines)))
    if (pairs := results.get("profiling")) is not None:
        print(table((*HEADS, "looks"), pairs.rows(lambda run: run.scrapes)))
    if (pairs := results.get("tracing")) is not None:
        print(table((*HEADS, "requests to the collector"), pairs.rows(lambda run: run.scrapes)))
    for part, pairs in results.items():
        medians = pairs.medians()
        figures |= {
            f"{part}_cost_ratio": max(medians.values()),
            f"{part}_cost_ratio_kafka_python": medians["kafka-python"],
            f"{part}_cost_ratio_confluent": medians["confluent-kafka"],
            "pairs": len(pairs.costs["kafka-python"]),
        }
        for client, name in (("kafka-python", "kafka_python"), ("confluent-kafka", "confluent")):
            first, third = quartiles(pairs.costs[client])
            figures |= {f"{part}_cost_ratio_{name}_q1": first, f"{part}_cost_ratio_{name}_q3": third}
    if scrapes is not None:
        median, longest = statistics.median(scrapes.milliseconds), max(scrapes.milliseconds)
        print(
            f"a scrape of {MANY:,} partitions: {median:.1f} ms, at most {longest:.1f} ms; "
            f"{scrapes.cpu_milliseconds:.1f} ms of CPU; {scrapes.size:,} bytes"
        )
        figures |= {
            "scrape_1000_partitions_ms": median,
            "scrape_1000_partitions_ms_max": longest,
            "scrape_1000_partitions_cpu_ms": scrapes.cpu_milliseconds,
            "scrape_1000_partitions_bytes": scrapes.size,
        }
    finish("overhead", figures)


def _say(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
