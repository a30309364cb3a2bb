"""What a killed broker costs: the partitions of other leaders, and its own after the election.

    make bench-brokers

One process reads a topic on three brokers that is published to all the time. In every second round the third broker is
killed with SIGKILL, in the others nothing happens. `unaffected_pause_ms` is the 99th percentile of the time between two
batches of a partition in whose copies that broker has no part, around the kill; `_quiet` is the same in the rounds without
a fault. `resume_after_election_ms` is the time from when a live broker names a new leader of a partition until the
partition's next record is delivered. A producer that lived through the death needs a second and more to find the new
leader, so one that is made at that moment publishes a record too; `resume_after_published_ms` counts from the first
record that is acknowledged.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
from kafka.admin import KafkaAdminClient, NewTopic

from benchmarks.report import finish, spread
from inbound.cli.shared.files import jar_cache
from inbound.cli.shared.output import table
from inbound.embedded import EmbeddedCluster
from tests.embedded.leaders import partition_leaders

TOPIC = "brokers"
#: The first one leads. Only partitions 2, 5 and 8 have a copy on broker 3, the one that dies.
REPLICAS = {p: [[1, 2], [2, 1], [3, 1 + p % 2]][p % 3] for p in range(9)}
AFFECTED = sorted(p for p, nodes in REPLICAS.items() if 3 in nodes)
OTHERS = sorted(set(REPLICAS) - set(AFFECTED))
PER_SECOND = 100
WINDOW = 12.0  # seconds that a round looks at; an election takes 6 to 9 of them
CONFIG = """\
zookeeper: {{hosts: "{zookeeper}", session_timeout: 10s}}
kafka: {{bootstrap.servers: "{bootstrap}"}}
admin: {{listen: "127.0.0.1:0"}}
ledger: {{path: {ledger}}}
channels:
  brokers:
    topics: [brokers]
    group: brokers
    processor: {{type: "benchmarks.failover:Stamping", options: {{folder: {seen}}}}}
"""


@dataclass
class Round:
    """What one round measured, in seconds."""

    gaps: list[float]  # of partitions whose brokers live
    elected: float | None = None  # after the kill
    resumed: list[float] = field(default_factory=list)  # after the election, one per partition
    published: list[float] = field(default_factory=list)  # when the first record was acknowledged, likewise


def main() -> None:
    """Interleave rounds with and without a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of each kind")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="inbound-bench-") as folder:
        work = Path(folder)
        with EmbeddedCluster(
            jars=jar_cache(), brokers=3, progress=lambda line: print(line, file=sys.stderr)
        ) as cluster:
            quiet, faulty = _rounds(cluster, work, options.rounds)
    _report(quiet, faulty)


def _rounds(cluster: EmbeddedCluster, work: Path, count: int) -> tuple[list[Round], list[Round]]:
    seen = work / "seen"
    seen.mkdir()
    config = work / "inbound.yaml"
    places = {"zookeeper": cluster.zookeeper_hosts, "bootstrap": cluster.bootstrap_servers}
    config.write_text(CONFIG.format(**places, ledger=work / "ledger", seen=seen))
    _create_topic(cluster)
    stop = threading.Event()
    acknowledged: dict[int, list[float]] = defaultdict(list)
    publisher = threading.Thread(target=_publish, args=(cluster.bootstrap_servers, stop, acknowledged))
    publisher.start()
    with open(work / "consumer.log", "wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "inbound", "run", "-c", str(config)], stderr=log)
    quiet, faulty = [], []
    try:
        for number in range(count):
            _await_flow(cluster, seen, process.pid)
            quiet.append(_quiet(seen, process.pid))
            _await_flow(cluster, seen, process.pid)
            faulty.append(_kill(cluster, seen, process.pid, acknowledged))
            one = faulty[-1]
            print(
                f"round {number}: elected after {one.elected:.1f} s, resumed {max(one.resumed):.2f} s later, longest gap "
                f"of the others {max(one.gaps) * 1000:.0f} ms, without a fault {max(quiet[-1].gaps) * 1000:.0f} ms",
                file=sys.stderr,
            )
    finally:
        stop.set()
        publisher.join()
        process.terminate()
        process.wait(timeout=40)
    return quiet, faulty


def _create_topic(cluster: EmbeddedCluster) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    configs = {"min.insync.replicas": "1"}
    admin.create_topics([NewTopic(TOPIC, -1, -1, replica_assignments=REPLICAS, topic_configs=configs)])
    admin.close()


def _publish(bootstrap: str, stop: threading.Event, acknowledged: dict[int, list[float]]) -> None:
    """`PER_SECOND` records to every partition; those without a leader hold up no others, and are fast to find theirs."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 1,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 50,
            "retry.backoff.max.ms": 50,
            "topic.metadata.refresh.fast.interval.ms": 50,
            "log_level": 0,
        }
    )

    def delivered(error: object, message: Any) -> None:
        if error is None:
            acknowledged[message.partition()].append(_now())

    while not stop.wait(1 / PER_SECOND):
        for partition in REPLICAS:
            producer.produce(TOPIC, b"x" * 100, partition=partition, on_delivery=delivered)
        producer.poll(0)
    producer.flush(10)


def _now() -> float:
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def _stamps(seen: Path, pid: int, since: float) -> dict[int, list[float]]:
    """Return when each partition was handed a batch."""
    found: dict[int, list[float]] = defaultdict(list)
    path = seen / f"{pid}.txt"
    for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else ():
        partition, at = line.split()
        if float(at) >= since:
            found[int(partition)].append(float(at))
    return found


def _await_flow(cluster: EmbeddedCluster, seen: Path, pid: int) -> None:
    """Wait until each broker leads its partitions and all are read."""
    deadline = time.monotonic() + 60
    wanted = {partition: nodes[0] for partition, nodes in REPLICAS.items()}
    while time.monotonic() < deadline:
        led = partition_leaders(cluster.brokers[0].port, TOPIC, 2.0)
        if led == wanted and set(_stamps(seen, pid, _now() - 0.5)) == set(REPLICAS):
            time.sleep(1.0)
            return
        if led != wanted and len(led) == len(wanted):
            _elect_preferred(cluster)
        time.sleep(0.3)
    raise SystemExit(f"a minute later not all partitions are led by their first replica ({led}) and read")


def _elect_preferred(cluster: EmbeddedCluster) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    partitions = [confluent_kafka.TopicPartition(TOPIC, p) for p in AFFECTED]
    admin.elect_leaders(confluent_kafka.ElectionType.PREFERRED, partitions).result(20)


def _gaps(seen: Path, pid: int, since: float) -> list[float]:
    found = _stamps(seen, pid, since)
    return [later - earlier for p in OTHERS for earlier, later in pairwise(found[p])]


def _quiet(seen: Path, pid: int) -> Round:
    since = _now()
    time.sleep(WINDOW)
    return Round(_gaps(seen, pid, since))


def _kill(cluster: EmbeddedCluster, seen: Path, pid: int, acknowledged: dict[int, list[float]]) -> Round:
    victim = cluster.brokers[2]
    since = _now()
    time.sleep(1.0)
    victim.kill()
    killed = _now()
    elected: dict[int, float] = {}
    while len(elected) < len(AFFECTED):
        led = partition_leaders(cluster.brokers[0].port, TOPIC, 2.0)
        at = _now()
        new = [p for p in AFFECTED if p not in elected and led.get(p, -1) not in (-1, 3)]
        elected.update(dict.fromkeys(new, at))
        _publish_once(cluster, new, acknowledged)
        if at > killed + 40:
            raise SystemExit("no new leaders within 40 s of the kill")
        time.sleep(0.005)
    time.sleep(max(2.0, since + WINDOW - _now()))
    one = Round(_gaps(seen, pid, since), max(elected.values()) - killed)
    found = _stamps(seen, pid, killed)
    for partition, at in elected.items():
        after = [stamp for stamp in found[partition] if stamp >= at]
        if not after:
            raise SystemExit(f"partition {partition} was not read within {_now() - at:.0f} s of its election")
        one.resumed.append(after[0] - at)
        one.published.append(min(stamp for stamp in acknowledged[partition] if stamp >= at) - at)
    victim.start()
    return one


def _publish_once(cluster: EmbeddedCluster, partitions: list[int], acknowledged: dict[int, list[float]]) -> None:
    """Publish a record to each of these by a producer that knows nothing yet, neither new leaders nor dead brokers."""
    if not partitions:
        return
    alive = ",".join(cluster.bootstrap_servers.split(",")[:2])
    producer = confluent_kafka.Producer({"bootstrap.servers": alive, "acks": 1, "linger.ms": 0, "log_level": 0})

    def delivered(error: object, message: Any) -> None:
        if error is None:
            acknowledged[message.partition()].append(_now())

    for partition in partitions:
        producer.produce(TOPIC, b"x" * 100, partition=partition, on_delivery=delivered)
    producer.flush(10)


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98] * 1000


def _report(quiet: list[Round], faulty: list[Round]) -> None:
    rows = [
        [str(i), f"{_p99(q.gaps):.0f}", f"{_p99(f.gaps):.0f}", f"{max(q.gaps) * 1000:.0f}", f"{max(f.gaps) * 1000:.0f}",
         f"{f.elected:.1f}", f"{max(f.resumed) * 1000:.0f}"]
        for i, (q, f) in enumerate(zip(quiet, faulty, strict=True))
    ]  # fmt: skip
    heads = ["round", "p99 ms quiet", "p99 ms killed", "max ms quiet", "max ms killed", "elected s", "resumed ms"]
    print(table(heads, rows))
    calm, pauses = ([gap for one in rounds for gap in one.gaps] for rounds in (quiet, faulty))
    resumed = [took * 1000 for one in faulty for took in one.resumed]
    print(f"resumed after the election, ms: {spread(resumed)}")
    finish(
        "brokers",
        {
            "unaffected_pause_ms": _p99(pauses),
            "unaffected_pause_ms_quiet": _p99(calm),
            "unaffected_pause_ms_max": max(pauses) * 1000,
            "unaffected_pause_ms_max_quiet": max(calm) * 1000,
            "resume_after_election_ms": max(resumed),
            "resume_after_election_ms_median": statistics.median(resumed),
            "resume_after_published_ms": max(
                max(0.0, read - sent) * 1000
                for one in faulty
                for read, sent in zip(one.resumed, one.published, strict=True)
            ),
            "published_after_election_ms_median": statistics.median(t * 1000 for one in faulty for t in one.published),
            "election_seconds_median": statistics.median(one.elected or 0.0 for one in faulty),
            "rounds": len(faulty),
        },
    )


if __name__ == "__main__":
    main()
