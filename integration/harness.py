"""Consumers as real processes, load, and an account of every offset that does not ask inbound."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import kafka
from kafka.admin import KafkaAdminClient, NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from inbound.embedded import EmbeddedCluster

PLUGINS = Path(__file__).parent / "plugins"
TOPIC, GROUP = "orders", "orders-svc"


def until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Wait for `condition`; fail with `what` if it does not come about within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


@dataclass
class Account:
    """What became of every offset."""

    lost: dict[int, list[int]]  # partition: offsets nobody was handed
    repeated: dict[int, list[int]]  # partition: offsets handed out more than once
    seen: int

    @property
    def clean(self) -> bool:
        return not self.lost and not self.repeated


@dataclass
class Scene:
    """One test's topic, consumers and load; `close` ends everything it started."""

    cluster: EmbeddedCluster
    folder: Path
    partitions: int = 6
    replicas: dict[int, list[int]] | None = None  # partition: brokers, its leader first; None: one copy anywhere
    session: float = 2.0
    topic: str = TOPIC
    seconds_per_record: float = 0.0
    extra: str = ""
    channel_extra: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _load: threading.Thread | None = None
    _stop_load: threading.Event = field(default_factory=threading.Event)
    published: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.seen_folder = self.folder / "seen"
        self.seen_folder.mkdir()
        self.group = f"{GROUP}-{self.folder.name}"
        self.topic = f"{self.topic}-{self.folder.name}"
        self.config = self.folder / "inbound.yaml"
        admin = KafkaAdminClient(bootstrap_servers=self.cluster.bootstrap_servers)
        admin.create_topics([self._new_topic()])
        admin.close()
        self.zk = KazooClient(self.cluster.zookeeper_hosts, timeout=30)
        self.zk.start(timeout=30)
        self.write_config()

    def _new_topic(self) -> NewTopic:
        if self.replicas is None:
            return NewTopic(self.topic, self.partitions, 1)
        configs = {"min.insync.replicas": "1"}
        return NewTopic(self.topic, -1, -1, replica_assignments=self.replicas, topic_configs=configs)

    def write_config(self, **channel: str) -> None:
        """Write the configuration that consumers are started with."""
        lines = "".join(f"    {key}: {value}\n" for key, value in channel.items())
        self.config.write_text(
            f'zookeeper: {{hosts: "{self.cluster.zookeeper_hosts}", session_timeout: {self.session}s}}\n'
            f'kafka: {{bootstrap.servers: "{self.cluster.bootstrap_servers}"}}\n'
            f'admin: {{listen: "127.0.0.1:0"}}\n'
            f"controller: {{join_delay: 1s}}\n"
            f"ledger: {{path: {self.folder / 'ledger'}}}\n{self.extra}"
            f"channels:\n  orders:\n    topics: [{self.topic}]\n    group: {self.group}\n"
            f"{lines}{self.channel_extra}"
            f'    processor: {{type: "recorder:Recorder", options: {{folder: {self.seen_folder}, '
            f"seconds_per_record: {self.seconds_per_record}}}}}\n"
        )

    # -- consumers ---------------------------------------------------------------------------------------------------

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a consumer process."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(PLUGINS), str(PLUGINS.parent.parent), os.environ.get("PYTHONPATH", "")]),
        }
        with open(self.folder / f"consumer-{len(self.processes)}.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "inbound", "run", "-c", str(self.config), *arguments],
                stderr=log,
                env=environment,
            )
        self.processes.append(process)
        return process

    def stop(self, process: subprocess.Popen[bytes]) -> int:
        """SIGTERM; returns the exit code."""
        process.send_signal(signal.SIGTERM)
        return process.wait(timeout=40)

    def log(self, process: subprocess.Popen[bytes]) -> str:
        """Return what a consumer logged."""
        return (self.folder / f"consumer-{self.processes.index(process)}.log").read_text()

    # -- load --------------------------------------------------------------------------------------------------------

    def publish(self, per_partition: int) -> None:
        """Publish so many records to each partition now, acknowledged."""
        producer = kafka.KafkaProducer(bootstrap_servers=self.cluster.bootstrap_servers, acks="all", linger_ms=5)
        futures = [
            producer.send(self.topic, b"%d" % n, partition=p)
            for n in range(per_partition)
            for p in range(self.partitions)
        ]
        for future in futures:
            self.published[future.get(timeout=30).partition] += 1
        producer.close(timeout=5)

    def start_load(self, per_second: float = 40.0) -> None:
        """Publish to every partition at a steady rate until `end_load`."""

        def run() -> None:
            producer = kafka.KafkaProducer(bootstrap_servers=self.cluster.bootstrap_servers, acks="all", linger_ms=2)
            futures = []
            while not self._stop_load.wait(1 / per_second):
                futures += [producer.send(self.topic, b"x", partition=p) for p in range(self.partitions)]
            for future in futures:
                self.published[future.get(timeout=60).partition] += 1
            producer.close(timeout=5)

        self._load = threading.Thread(target=run, name="load")
        self._load.start()

    def end_load(self) -> None:
        """Stop the load; afterwards `published` is complete."""
        self._stop_load.set()
        if self._load is not None:
            self._load.join(timeout=90)
            self._load = None

    # -- the account -------------------------------------------------------------------------------------------------

    def seen(self, pid: int | None = None) -> Counter[tuple[int, int]]:
        """Return how often each (partition, offset) was handed out, to anybody or to one process."""
        counts: Counter[tuple[int, int]] = Counter()
        for path in self.seen_folder.glob("*.seen" if pid is None else f"{pid}.seen"):
            for line in path.read_bytes().split(b"\n")[:-1]:
                if line.startswith(b"R "):
                    _, partition, offset = line.split()
                    counts[int(partition), int(offset)] += 1
        return counts

    def inside(self, pid: int) -> dict[int, int]:
        """Return, of a process, the partitions whose batch has begun and not ended: partition: first offset."""
        begun: dict[int, int] = {}
        for line in (self.seen_folder / f"{pid}.seen").read_bytes().split(b"\n")[:-1]:
            parts = line.split()
            if parts[0] == b"B":
                begun[int(parts[1])] = int(parts[2])
            elif parts[0] == b"E":
                begun.pop(int(parts[1]), None)
        return begun

    def first_seen(self, pid: int) -> float | None:
        """Return when a process was handed its first batch."""
        path = self.seen_folder / f"{pid}.seen"
        line = path.read_bytes().split(b"\n")[0] if path.exists() else b""
        return float(line.split()[4]) if line else None

    def account(self) -> Account:
        """Return what became of every published offset."""
        seen = self.seen()
        lost: dict[int, list[int]] = {}
        repeated: dict[int, list[int]] = {}
        for partition, count in self.published.items():
            for offset in range(count):
                times = seen[partition, offset]
                if times == 0:
                    lost.setdefault(partition, []).append(offset)
                elif times > 1:
                    repeated.setdefault(partition, []).append(offset)
        return Account(lost, repeated, sum(seen.values()))

    def everything_committed(self) -> bool:
        """Whether the group's offsets have come to the ends of the logs."""
        return all(self.offset(p) == self.published[p] for p in range(self.partitions))

    def offset(self, partition: int) -> int | None:
        """Return the group's offset as it stands in ZooKeeper."""
        path = f"/consumers/{self.group}/offsets/{self.topic}/{partition}"
        data = self.zk.get(path)[0] if self.zk.exists(path) else b""
        return int(data) if data else None

    def owners(self) -> dict[int, str]:
        """Return who owns each partition."""
        parent = f"/consumers/{self.group}/owners/{self.topic}"
        names = self.zk.get_children(parent) if self.zk.exists(parent) else []
        found = {}
        for name in names:
            with suppress(NoNodeError):  # released since it was listed
                found[int(name)] = self.zk.get(f"{parent}/{name}")[0].decode()
        return found

    def epochs(self) -> dict[int, int]:
        """Return each partition's epoch."""
        parent = f"/consumers/{self.group}/epochs/{self.topic}"
        return {p: self.zk.exists(f"{parent}/{p}").version for p in range(self.partitions)}

    def claims(self) -> dict[int, str]:
        """Return the nonce of each partition's last claim: a commit can move the epoch on, only a claim changes this."""
        parent = f"/consumers/{self.group}/epochs/{self.topic}"
        return {p: json.loads(self.zk.get(f"{parent}/{p}")[0])["nonce"] for p in range(self.partitions)}

    def all_owned(self, members: int) -> bool:
        """Whether every partition has an owner, and so many members own some."""
        owners = self.owners()
        return len(owners) == self.partitions and len(set(owners.values())) == members

    def settle(self, seconds: float = 40.0) -> None:
        """End the load and wait until everything is committed."""
        self.end_load()
        until(
            self.everything_committed,
            seconds,
            f"all committed: {[self.offset(p) for p in range(self.partitions)]} of {dict(self.published)}",
        )

    def close(self) -> None:
        """End whatever still runs."""
        self._stop_load.set()
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        if self._load is not None:
            self._load.join(timeout=90)
        self.zk.stop()
        self.zk.close()
