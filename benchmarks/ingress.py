"""Events per second through the ingress, over a plain confluent-kafka producer loop that writes the same events.

    make bench-ingress

Events of 1 KiB, acks=all, 8 partitions, one broker, all on this machine. Each round runs, one after the other on fresh
topics: the plain loop; the ingress with one event per request, posted by 64 connections that each have 8 requests under
way (`single`) and by 256 with one (`one_at_a_time`); and with 100 events per request, by 32 connections (`batched`). A
ratio is the median, over the rounds, of the ingress's events/s over those of the plain loop before and after it.
`acknowledged_missing` counts the events that were answered with 202 and are not in the topic. The clients are one small
Go program; needs Go. Takes about a minute per round.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
from kafka.admin import KafkaAdminClient

from benchmarks.peers.environments import NotInstalledError, go_program
from benchmarks.processes import Measured
from benchmarks.records import create_topic
from benchmarks.report import finish, spread
from inbound.cli.shared.files import jar_cache
from inbound.cli.shared.output import table
from inbound.embedded import EmbeddedCluster

PARTITIONS = 8
SIZE = 1024
CONFIG = """\
kafka: {{bootstrap.servers: "{bootstrap}"}}
admin: {{listen: "127.0.0.1:0"}}
ingress: {{listen: "127.0.0.1:0", client: {client}}}
"""
_ID = re.compile(rb'"id":"([0-9]{12})"')


@dataclass(frozen=True)
class Way:
    """How events are posted."""

    connections: int
    depth: int  # requests under way on each
    per_request: int
    events: int


WAYS: Mapping[str, Way] = {
    "single": Way(64, 8, 1, 100_000),
    "one_at_a_time": Way(256, 1, 1, 60_000),
    "batched": Way(32, 1, 100, 300_000),
}
PLAIN_EVENTS = 300_000


@dataclass(frozen=True)
class Run:
    """What one run measured."""

    rate: float  # events per second
    cpu: float  # CPU microseconds of the ingress, or of the plain loop, per event
    longest: float = 0.0  # milliseconds from the first byte of a request to its answer
    missing: int = 0
    refused: int = 0  # requests answered with anything but 202


def main() -> None:
    """Run the rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--client", choices=["confluent-kafka", "kafka-python"], default="confluent-kafka")
    options = parser.parse_args()
    rounds: list[dict[str, Run]] = []
    with tempfile.TemporaryDirectory(prefix="inbound-bench-") as folder:
        try:
            posts = go_program(jar_cache().parent / "peers", "posts")
        except NotInstalledError as error:
            raise SystemExit(f"the clients of this benchmark cannot be built: {error}") from None
        with EmbeddedCluster(jars=jar_cache(), progress=lambda line: print(line, file=sys.stderr)) as cluster:
            bench = Bench(cluster.bootstrap_servers, Path(folder), posts, options.client)
            bench.plain("warm-up")
            for number in range(options.rounds):
                rounds.append(bench.round(number))
                said = ", ".join(f"{way} {run.rate:,.0f}/s" for way, run in rounds[-1].items())
                print(f"round {number}: {said}", file=sys.stderr)
    report(rounds)


@dataclass(frozen=True)
class Bench:
    """The machinery of one benchmark run."""

    bootstrap: str
    folder: Path
    posts: Path
    client: str

    def round(self, number: int) -> dict[str, Run]:
        """Return one run of each way, and of the plain loop before and after."""
        found = {"before": self.plain(f"before-{number}")}
        found |= {way: self.ingress(f"{way}-{number}", settings) for way, settings in WAYS.items()}
        return found | {"after": self.plain(f"after-{number}")}

    def plain(self, topic: str) -> Run:
        """Run the plain producer loop."""
        create_topic(self.bootstrap, topic, PARTITIONS)
        command = [
            sys.executable,
            "-m",
            "benchmarks.producer_loop",
            self.bootstrap,
            topic,
            str(PLAIN_EVENTS),
            str(SIZE),
        ]
        said = self._output(command)
        self._delete(topic)
        return Run(said["events"] / said["seconds"], said["cpu"] / said["events"] * 1e6)

    def ingress(self, topic: str, way: Way) -> Run:
        """Start an ingress, post to it, and look for what it acknowledged."""
        create_topic(self.bootstrap, topic, PARTITIONS)
        config, log, acknowledged = (self.folder / f"{topic}.{kind}" for kind in ("yaml", "log", "ids"))
        config.write_text(CONFIG.format(bootstrap=self.bootstrap, client=self.client))
        with Measured(log, "inbound", "ingress", "-c", str(config)) as process:
            process.wait_for("the ingress knows the topics", lambda: "Kafka answers" in process.said(), 30.0)
            address = re.findall(r"ingress: http://(\S+),", process.said())[0]
            self._posted(address, topic, way, way.connections * way.depth * way.per_request, acknowledged)  # warm up
            known = _ids(acknowledged)
            before = process.cpu_seconds()
            said = self._posted(address, topic, way, way.events, acknowledged)
            cpu = process.cpu_seconds() - before
        answers: dict[str, int] = said["answers"]
        missing = len((_ids(acknowledged) | known) - self._in_topic(topic))
        self._delete(topic)
        return Run(
            said["acknowledged"] / said["seconds"],
            cpu / max(1, said["acknowledged"]) * 1e6,
            said["longest_s"] * 1e3,
            missing,
            sum(answers.values()) - answers.get("202", 0) + said["broken_connections"],
        )

    def _posted(self, address: str, topic: str, way: Way, events: int, acknowledged: Path) -> Mapping[str, Any]:
        numbers = (way.connections, way.depth, events, way.per_request, SIZE)
        return self._output([str(self.posts), address, f"/topics/{topic}", *map(str, numbers), str(acknowledged)])

    def _output(self, command: list[str]) -> Mapping[str, Any]:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        result: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result

    def _in_topic(self, topic: str) -> set[int]:
        """Return the numbers of the events that are in a topic."""
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": f"check-{topic}", "auto.offset.reset": "earliest",
             "enable.auto.commit": False, "queued.min.messages": 100_000, "fetch.queue.backoff.ms": 5}
        )  # fmt: skip
        found: set[int] = set()
        try:
            partitions = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
            left = sum(consumer.get_watermark_offsets(partition, timeout=10)[1] for partition in partitions)
            consumer.assign(partitions)
            while left > 0:
                messages = consumer.consume(2000, 10.0)
                if not messages:
                    raise SystemExit(f"{topic}: {left} records were not read within 10 s")
                left -= len(messages)
                for message in messages:
                    identity = dict(message.headers() or ()).get("ce_id")
                    if identity is None:
                        identity = _ID.search(message.value() or b"")[1]  # type: ignore[index]
                    found.add(int(identity))
        finally:
            consumer.close()
        return found

    def _delete(self, topic: str) -> None:
        """Make room: the rounds together would fill small disks."""
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        admin.delete_topics([topic])
        admin.close()


def _ids(acknowledged: Path) -> set[int]:
    return set(map(int, acknowledged.read_bytes().split()))


def report(rounds: list[dict[str, Run]]) -> None:
    """Print the table and the closing line."""
    plain = [statistics.mean((one["before"].rate, one["after"].rate)) for one in rounds]
    rows = [["plain producer loop", f"{statistics.median(plain):,.0f}", "", _cpu(rounds, "before"), ""]]
    figures: dict[str, float | int | str | None] = {"plain_events_per_s": statistics.median(plain)}
    for way in WAYS:
        runs = [one[way] for one in rounds]
        rate = statistics.median(run.rate for run in runs)
        ratios = [run.rate / base for run, base in zip(runs, plain, strict=True)]
        longest = f"{max(run.longest for run in runs):.0f}"
        rows.append([way, f"{rate:,.0f}", spread(ratios), _cpu(rounds, way), longest])
        figures |= {f"{way}_ratio": statistics.median(ratios), f"{way}_events_per_s": rate}
        figures[f"{way}_cpu_us_per_event"] = statistics.median(run.cpu for run in runs)
    figures["acknowledged_missing"] = sum(one[way].missing for one in rounds for way in WAYS)
    figures["refused"] = sum(one[way].refused for one in rounds for way in WAYS)
    print(table(["events of 1 KiB", "events/s", "over the plain loop", "CPU us per event", "longest answer, ms"], rows))
    print(f"acknowledged and missing: {figures['acknowledged_missing']}; refused requests: {figures['refused']}")
    finish("ingress", figures)


def _cpu(rounds: list[dict[str, Run]], way: str) -> str:
    return f"{statistics.median(one[way].cpu for one in rounds):.1f}"


if __name__ == "__main__":
    main()
