"""How long a killed consumer's partitions are stalled.

    make bench-failover

Three processes read a topic that is published to all the time. One is killed with SIGKILL; for each of its partitions
the time to the first record at another process is taken. `seconds_over_session_timeout` is the longest of these times
over all rounds, less the negotiated session: until that has passed nobody can know that the process is dead.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import kafka
from kazoo.client import KazooClient

from benchmarks.records import create_topic
from benchmarks.report import finish, spread
from inbound import Batch, BatchEventProcessor, BatchResponse
from inbound.admin.client import fetch_status
from inbound.cli.shared.files import jar_cache
from inbound.cli.shared.output import table
from inbound.embedded import EmbeddedCluster

PARTITIONS = 12
SESSION = 4.0
CONFIG = """\
zookeeper: {{hosts: "{zookeeper}", session_timeout: {session}s}}
kafka: {{bootstrap.servers: "{bootstrap}"}}
admin: {{listen: "127.0.0.1:0"}}
ledger: {{path: {ledger}}}
channels:
  failover:
    topics: [failover]
    group: failover
    processor: {{type: "benchmarks.failover:Stamping", options: {{folder: {seen}}}}}
"""


class Stamping(BatchEventProcessor):
    """Writes down when it was handed records of which partition."""

    def open(self, context: object) -> None:
        folder = Path(context.options["folder"])  # type: ignore[attr-defined]
        self._file = open(folder / f"{os.getpid()}.txt", "ab", buffering=0)  # noqa: SIM115 - closed in close()

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        self._file.write(b"%d %.4f\n" % (batch.partition, time.clock_gettime(time.CLOCK_MONOTONIC)))
        return BatchResponse.advance()

    def close(self) -> None:
        self._file.close()


def main() -> None:
    """Kill a process in each round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="inbound-bench-") as folder:
        work = Path(folder)
        with EmbeddedCluster(jars=jar_cache(), progress=lambda line: print(line, file=sys.stderr)) as cluster:
            create_topic(cluster.bootstrap_servers, "failover", PARTITIONS)
            rounds = _rounds(cluster, work, options.rounds)
    _report(rounds)


def _rounds(cluster: EmbeddedCluster, work: Path, count: int) -> list[tuple[float, list[float]]]:
    seen = work / "seen"
    seen.mkdir()
    config = work / "inbound.yaml"
    config.write_text(
        CONFIG.format(
            zookeeper=cluster.zookeeper_hosts,
            bootstrap=cluster.bootstrap_servers,
            session=SESSION,
            ledger=work / "ledger",
            seen=seen,
        )
    )
    stop = threading.Event()
    publisher = threading.Thread(target=_publish, args=(cluster.bootstrap_servers, stop))
    publisher.start()
    zookeeper = KazooClient(cluster.zookeeper_hosts)
    zookeeper.start()
    processes = [_consumer(config) for _ in range(3)]
    rounds = []
    try:
        for number in range(count):
            _await_even_shares(seen, processes)
            victim = processes.pop(0)
            session = _session(zookeeper, victim.pid)
            owned = _partitions_of(seen, victim.pid)
            # At any point of the heartbeat: what is measured must not depend on when the victim was last heard.
            time.sleep(0.37 * (number % 5))
            killed_at = time.clock_gettime(time.CLOCK_MONOTONIC)
            victim.kill()
            victim.wait()
            took = _first_elsewhere(seen, victim.pid, owned, killed_at)
            rounds.append((session, took))
            print(f"round {number}: {len(took)} partitions, {max(took):.2f} s after the kill", file=sys.stderr)
            processes.append(_consumer(config))
    finally:
        stop.set()
        publisher.join()
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(timeout=40)
        zookeeper.stop()
        zookeeper.close()
    return rounds


def _consumer(config: Path) -> subprocess.Popen[bytes]:
    log = open(config.parent / "consumers.log", "ab")  # noqa: SIM115 - the child's, closed below
    with log:
        return subprocess.Popen([sys.executable, "-m", "inbound", "run", "-c", str(config)], stderr=log)


def _publish(bootstrap: str, stop: threading.Event) -> None:
    """100 records per second to every partition."""
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, linger_ms=0)
    try:
        while not stop.wait(0.01):
            for partition in range(PARTITIONS):
                producer.send("failover", b"x" * 100, partition=partition)
    finally:
        producer.close(timeout=5)


def _stamps(seen: Path, pid: int) -> list[tuple[int, float]]:
    path = seen / f"{pid}.txt"
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    return [(int(line.split()[0]), float(line.split()[1])) for line in lines if line.endswith("\n")]


def _partitions_of(seen: Path, pid: int, last: float = 0.5) -> set[int]:
    since = time.clock_gettime(time.CLOCK_MONOTONIC) - last
    return {partition for partition, at in _stamps(seen, pid)[-2000:] if at >= since}


def _await_even_shares(seen: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        shares = [len(_partitions_of(seen, process.pid)) for process in processes]
        if shares == [PARTITIONS // 3] * 3:
            time.sleep(0.6)  # steady for longer than a share is counted over
            return
        time.sleep(0.2)
    raise SystemExit(f"the consumers did not come to even shares within a minute: {shares}")


def _session(zookeeper: KazooClient, pid: int) -> float:
    """Return the session time-out that a consumer negotiated, as its own status says."""
    ids = "/consumers/failover/ids"
    for name in zookeeper.get_children(ids):
        info = json.loads(zookeeper.get(f"{ids}/{name}")[0])
        if info["pid"] == pid:
            return float(fetch_status(info["admin"])["session"]["timeout"])
    raise SystemExit(f"process {pid} is not registered")


def _first_elsewhere(seen: Path, victim: int, owned: set[int], killed_at: float) -> list[float]:
    deadline = time.monotonic() + SESSION + 30
    found: dict[int, float] = {}
    while time.monotonic() < deadline and set(found) != owned:
        time.sleep(0.1)
        for path in seen.iterdir():
            if path.stem == str(victim):
                continue
            for partition, at in _stamps(seen, int(path.stem)):
                if partition in owned and at >= killed_at:
                    found[partition] = min(at, found.get(partition, at))
    if set(found) != owned:
        raise SystemExit(f"partitions {sorted(owned - set(found))} were read by nobody within {SESSION + 30:.0f} s")
    return [at - killed_at for at in found.values()]


def _report(rounds: list[tuple[float, list[float]]]) -> None:
    over = [max(took) - session for session, took in rounds]
    print(
        table(
            ["round", "partitions", "session s", "longest s", "over session s"],
            [
                [str(i), str(len(took)), f"{s:.1f}", f"{max(took):.2f}", f"{o:.2f}"]
                for i, ((s, took), o) in enumerate(zip(rounds, over, strict=True))
            ],
        )
    )
    print(f"over the session: {spread(over)}")
    finish(
        "failover",
        {
            "seconds_over_session_timeout": max(over),
            "seconds_over_session_timeout_median": statistics.median(over),
            "session_timeout": rounds[0][0],
            "rounds": len(rounds),
        },
    )


if __name__ == "__main__":
    main()
