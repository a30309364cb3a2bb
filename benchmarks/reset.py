"""How long a group is stalled for a reset of its offsets, on real servers and under load.

    make bench-reset

A topic with 64 partitions read by four processes, and one with 1,000 partitions read by four; 2,000 records per second over
all of them, each batch 20 ms in its callback. `inbound offsets reset --to-earliest --execute --wait` from another process, a
few times one after another; each time there is all that was published so far to read again.

- `reset_64_seconds`, `reset_1000_seconds`: from the creation of the command's node to the write that says that it has
  succeeded, all partitions having owners again; both by the server's clock. The longest of all, and the median.
- `..._read_seconds`: from the same creation until the last partition's first record was redelivered.
- `..._command_seconds`: how long the command takes, start of Python included.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
from kazoo.client import KazooClient

from benchmarks.group_watch import GroupWatch, HandedOut, Seen, Writing, middle
from benchmarks.records import create_topic
from benchmarks.report import finish
from inbound import Batch, BatchResponse
from inbound.cli.shared.files import jar_cache
from inbound.cli.shared.output import table
from inbound.coordinators.paths import CommandPaths
from inbound.embedded import EmbeddedCluster

RATE = 2000  # records per second, all partitions together
CALLBACK = 0.02  # seconds in each callback
LIMIT = 120.0  # seconds within which a group is at rest, and a reset over
CONFIG = """\
zookeeper: {{hosts: "{zookeeper}", session_timeout: 10s}}
kafka: {{bootstrap.servers: "{bootstrap}"}}
admin: {{listen: "127.0.0.1:0"}}
ledger: {{path: {ledger}}}
channels:
  reset:
    topics: [{topic}]
    group: {topic}
    processor: {{type: "benchmarks.reset:Working", options: {{folder: {seen}}}}}
"""


class Working(Writing):
    """Takes its time for each batch."""

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        time.sleep(CALLBACK)
        return super().on_next_batch(batch)


@dataclass
class Took:
    """Seconds of each reset of one group."""

    reset: list[float] = field(default_factory=list)
    read: list[float] = field(default_factory=list)
    command: list[float] = field(default_factory=list)


class Load:
    """Publishes over all partitions of a topic, on a thread of its own."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
        self._topic = topic
        self._partitions = partitions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(10)

    def _run(self) -> None:
        began, sent = time.monotonic(), 0
        while not self._stop.wait(0.01):
            due = int((time.monotonic() - began) * RATE)
            for number in range(sent, due):
                self._producer.produce(self._topic, b"x" * 100, partition=number % self._partitions)
            sent = due
            self._producer.poll(0)


class Group:
    """The processes, what they wrote, and the operator who resets them."""

    def __init__(self, cluster: EmbeddedCluster, work: Path, partitions: int, replicas: int) -> None:
        self.topic = f"reset-{partitions}"
        create_topic(cluster.bootstrap_servers, self.topic, partitions)
        seen = work / f"seen-{partitions}"
        seen.mkdir()
        self._config = work / f"{self.topic}.yaml"
        self._config.write_text(
            CONFIG.format(
                zookeeper=cluster.zookeeper_hosts, bootstrap=cluster.bootstrap_servers, topic=self.topic,
                ledger=work / f"ledger-{partitions}", seen=seen,
            )
        )  # fmt: skip
        self._partitions, self._replicas = partitions, replicas
        self._seen = Seen(seen)
        self._log = work / f"{self.topic}.log"
        self._watch = GroupWatch(cluster.zookeeper_hosts, self.topic, self.topic, partitions)
        self._zk = KazooClient(cluster.zookeeper_hosts, timeout=30)
        self._zk.start(timeout=30)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._load: Load | None = None
        self._bootstrap = cluster.bootstrap_servers

    def start(self) -> None:
        """Start the processes and the load; return when all partitions have owners and are read."""
        for _ in range(self._replicas):
            with open(self._log, "ab") as log:
                command = [sys.executable, "-m", "inbound", "run", "-c", str(self._config)]
                self._processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        self._watch.settled(self._replicas)
        self._load = Load(self._bootstrap, self.topic, self._partitions)
        self._until_read(set(range(self._partitions)), lambda batch: True)

    def reset(self, took: Took) -> None:
        """Move the group to the beginning, and wait until it reads there."""
        self._seen.new()
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "inbound", "offsets", "reset", "-c", str(self._config), "--group", self.topic,
             "--topic", self.topic, "--to-earliest", "--execute", "--wait", "--json"],
            capture_output=True, text=True, check=False, timeout=LIMIT,
        )  # fmt: skip
        took.command.append(time.monotonic() - began)
        if done.returncode != 0:
            raise SystemExit(f"reset of {self.topic}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        stat = self._last_command()
        created = stat.ctime / 1000
        took.reset.append(stat.mtime / 1000 - created)
        read = self._until_read(
            set(range(self._partitions)), lambda batch: batch.first_offset == 0 and batch.at > created
        )
        took.read.append(max(read.values()) - created)
        _say(
            f"{self._partitions} partitions, {self._replicas} processes: {took.reset[-1]:.2f} s, all read again after "
            f"{took.read[-1]:.2f} s, the command took {took.command[-1]:.2f} s; load average {os.getloadavg()[0]:.1f}"
        )

    def close(self) -> None:
        if self._load is not None:
            self._load.close()
        for process in self._processes:
            process.kill()  # the servers go too: nothing to release
        for process in self._processes:
            process.wait(timeout=40)
        self._watch.close()
        self._zk.stop()
        self._zk.close()

    def _last_command(self) -> Any:
        """Return the Stat of the reset that was submitted last, which has succeeded."""
        names = self._zk.get_children(CommandPaths.RESETS)
        found = [self._zk.get(f"{CommandPaths.RESETS}/{name}") for name in names]
        data, stat = max(found, key=lambda node: node[1].czxid)
        state = json.loads(data)["state"]
        if state != "succeeded":
            raise SystemExit(f"reset of {self.topic}: is {state}")
        return stat

    def _until_read(self, partitions: set[int], counts: Any) -> dict[int, float]:
        """Return when each partition was first delivered, of the batches that count."""
        found: dict[int, float] = {}
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            for batch in self._new():
                if counts(batch):
                    found.setdefault(batch.partition, batch.at)
            if partitions <= set(found):
                return found
            time.sleep(0.05)
        raise SystemExit(f"{self.topic}: {len(partitions - set(found))} partitions were not read within {LIMIT:.0f} s")

    def _new(self) -> list[HandedOut]:
        return self._seen.new()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Reset groups of both sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[64, 1000])
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--resets", type=int, default=5, help="of each size")
    options = parser.parse_args()
    results: dict[int, Took] = {}
    with (
        tempfile.TemporaryDirectory(prefix="inbound-bench-") as folder,
        EmbeddedCluster(jars=jar_cache(), progress=_say) as cluster,
    ):
        for partitions in options.partitions:
            group = Group(cluster, Path(folder), partitions, options.processes)
            took = results[partitions] = Took()
            try:
                group.start()
                for _ in range(options.resets):
                    group.reset(took)
            finally:
                group.close()
    _report(results, options.processes)


def _report(results: dict[int, Took], processes: int) -> None:
    print(
        table(
            ["partitions", "resets", "median s", "longest s", "until read, longest", "command, longest"],
            [
                [str(partitions), str(len(took.reset)), f"{middle(took.reset):.2f}",
                 *(f"{max(values):.2f}" for values in (took.reset, took.read, took.command))]
                for partitions, took in results.items()
            ],
        )
    )  # fmt: skip
    figures: dict[str, float | int | str | None] = {"processes": processes, "load_average": os.getloadavg()[0]}
    for partitions, took in results.items():
        figures[f"reset_{partitions}_seconds"] = max(took.reset, default=math.nan)
        figures[f"reset_{partitions}_median_seconds"] = middle(took.reset)
        figures[f"reset_{partitions}_read_seconds"] = max(took.read, default=math.nan)
        figures[f"reset_{partitions}_command_seconds"] = max(took.command, default=math.nan)
    finish("reset", figures)


if __name__ == "__main__":
    main()
