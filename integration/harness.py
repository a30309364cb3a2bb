"""Consumers as real processes, with the load and the account of `books.py`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, overload

import pytest
from kafka.admin import KafkaAdminClient, NewTopic
from kazoo.client import KazooClient

from inbound.cli.shared.proof_text import shown
from inbound.embedded import EmbeddedCluster
from inbound.embedded.jars import check_java
from inbound.proof.model import Proof, Verdict
from integration.books import Account, Books
from integration.demo.proving import disagreements, proof_of
from tests.embedded.more_jars import fetch_tools
from tests.waiting import patient, until

__all__ = ["GROUP", "PLUGINS", "STEADY", "TOPIC", "Account", "Scene", "Scenes", "both_clients"]

PLUGINS = Path(__file__).parent / "plugins"
TOPIC, GROUP = "orders", "orders-svc"
#: A session that outlives any delay of a busy machine, for consumers of which none is to expire. Seconds.
STEADY = 15.0
#: How long a command of `inbound` may take. Seconds.
COMMAND = 90.0
S = TypeVar("S", bound="Scene")


#: Runs a test with each of the Kafka clients that a channel can read with; `make test` with the first.
both_clients = pytest.mark.parametrize(
    "client",
    ["kafka-python", pytest.param("confluent-kafka", marks=pytest.mark.thorough("the second twin of a test"))],
)


@dataclass
class Scene(Books):
    """One test's topic, consumers and load; `close` ends everything it started."""

    cluster: EmbeddedCluster
    folder: Path
    partitions: int = 6
    replicas: dict[int, list[int]] | None = None  # partition: brokers, its leader first; None: one copy anywhere
    topic_configs: dict[str, str] = field(default_factory=dict)  # of a topic with replicas
    session: float = 2.0
    topic: str = TOPIC
    seconds_per_record: float = 0.0
    client: str = "kafka-python"
    extra: str = ""
    channel_extra: str = ""
    zookeeper: str | None = None  # what the consumers' configuration says of it; None: the cluster's, plain
    kafka: str = ""  # the whole section of the configuration; "": the plain listener
    zk: Any = None  # with which the scene looks at it; None: a client of the cluster's
    verdict: Verdict = Verdict.PROVEN  # what the proof says of it in the end
    unproven: str = ""  # why there is nothing to prove, or another judge; empty: it is proven when the test has passed
    former: Counter[tuple[int, int]] = field(default_factory=Counter)  # seen of a topic that was deleted since
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _load: threading.Thread | None = None
    _stop_load: threading.Event = field(default_factory=threading.Event)
    published: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.bootstrap_servers = self.cluster.bootstrap_servers
        self.seen_folder = self.folder / "seen"
        self.seen_folder.mkdir()
        self.group = f"{GROUP}-{self.folder.name}"
        self.topic = f"{self.topic}-{self.folder.name}"
        self.config = self.folder / "inbound.yaml"
        admin = KafkaAdminClient(bootstrap_servers=self.cluster.bootstrap_servers)
        admin.create_topics([self._new_topic()])
        admin.close()
        self.zk = self.zk or KazooClient(self.cluster.zookeeper_hosts, timeout=30)
        self.zk.start(timeout=30)
        self.write_config()

    def _new_topic(self) -> NewTopic:
        if self.replicas is None:
            return NewTopic(self.topic, self.partitions, 1)
        configs = {"min.insync.replicas": "1", **self.topic_configs}
        return NewTopic(self.topic, -1, -1, replica_assignments=self.replicas, topic_configs=configs)

    def write_config(self, **channel: str) -> None:
        """Write the configuration that consumers are started with."""
        reader = channel.pop("reader", "{}").strip("{}")
        channel["reader"] = f"{{{', '.join(filter(None, (f'client: {self.client}', reader)))}}}"
        lines = "".join(f"    {key}: {value}\n" for key, value in channel.items())
        plain = f'{{hosts: "{self.cluster.zookeeper_hosts}", session_timeout: {self.session}s}}'
        self.config.write_text(
            f"zookeeper: {self.zookeeper or plain}\n"
            f"kafka: {self.kafka or json.dumps({'bootstrap.servers': self.cluster.bootstrap_servers})}\n"
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

    def run_group(self, replicas: int, records: int = 0) -> list[subprocess.Popen[bytes]]:
        """Start so many consumers, wait until each owns its share; let them read so many records of each partition."""
        processes = [self.start() for _ in range(replicas)]
        until(lambda: self.owned_by(processes), 90, lambda: f"{replicas} own partitions: {self.owners()}")
        if records:
            self.publish(records)
            self.settle()
        return processes

    def stop(self, process: subprocess.Popen[bytes]) -> int:
        """SIGTERM; returns the exit code."""
        process.send_signal(signal.SIGTERM)
        return process.wait(timeout=120)

    def stop_all(self) -> list[int]:
        """SIGTERM to all consumers that still run; returns their exit codes."""
        running = [process for process in self.processes if process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        return [process.wait(timeout=120) for process in running]

    def inbound(self, *arguments: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run a command of `inbound` with the scene's configuration; it must end with `code`, unless that is None."""
        done = subprocess.run(
            self.command_line(*arguments), capture_output=True, text=True, check=False, timeout=patient(COMMAND)
        )
        assert code in (None, done.returncode), f"{arguments} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done

    def command_line(self, *arguments: str) -> list[str]:
        """Return the command line of `inbound` with these arguments and the scene's configuration."""
        return [sys.executable, "-m", "inbound", *arguments, "-c", str(self.config)]

    def admin_url(self, process: subprocess.Popen[bytes]) -> str:
        """Return the address of a consumer's admin listener, as soon as its log names it."""
        found = until(lambda: re.search(r"admin: (http\S+)/status", self.log(process)), 60, "its admin listener is up")
        assert found is not None
        return found[1]

    def log(self, process: subprocess.Popen[bytes]) -> str:
        """Return what a consumer logged."""
        return (self.folder / f"consumer-{self.processes.index(process)}.log").read_text()

    def prove(self, *options: str) -> Proof:
        """Validate the group: the verdict is the expected one, and the proof says nothing else than the processors' journals.

        `options`: more of the command's.
        """
        before = self.seen() - self.former
        proof = proof_of(self.config, "--group", self.group, "--topic", self.topic, *options)
        wrong = disagreements(proof, self.topic, before, self.seen() - self.former) if before else []
        assert (proof.verdict, wrong) == (self.verdict, []), f"{wrong}\n{shown(proof)}"
        return proof

    def owned_by(self, running: Sequence[subprocess.Popen[bytes]]) -> bool:
        """Whether these processes own everything, each its share, and nobody else any.

        `all_owned` counts a process that was killed until its session expires: with as many members as before, it is
        true at once. Who is about to stop a process must know that it is up: before it listens to SIGTERM, that ends it.
        """
        owners = self.owners()
        pids = {int(owner.split("-")[-2]) for owner in owners.values()}
        return pids == {process.pid for process in running} and self._shared_out(owners, len(running))

    def close(self) -> None:
        """End all that still runs."""
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


class Scenes:
    """Makes scenes of one test, each in a folder of its own; `close` ends what they started."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path, **settings: Any) -> None:
        self._cluster, self._folder = cluster, folder
        self._settings = {"session": STEADY, **settings}
        self._made: list[Scene] = []

    @overload
    def __call__(self, /, *, cluster: EmbeddedCluster | None = None, **settings: Any) -> Scene: ...
    @overload
    def __call__(self, kind: type[S], /, *, cluster: EmbeddedCluster | None = None, **settings: Any) -> S: ...
    def __call__(self, kind: type[Any] = Scene, /, *, cluster: EmbeddedCluster | None = None, **settings: Any) -> Any:
        """Return a scene of this kind, on the shared cluster if not told otherwise."""
        folder = self._folder / f"scene-{os.urandom(4).hex()}"
        folder.mkdir()
        self._made.append(kind(cluster or self._cluster, folder, **{**self._settings, **settings}))
        return self._made[-1]

    def prove(self) -> None:
        """Validate each scene whose consumers have committed something."""
        for scene in self._made:
            if not scene.unproven and scene.zk.exists(f"/consumers/{scene.group}/offsets/{scene.topic}"):
                scene.prove()

    def close(self) -> None:
        """End all of them."""
        for scene in self._made:
            scene.close()


def serve_again(cluster: EmbeddedCluster) -> None:
    """Resume and start what was frozen or ended."""
    for server in cluster.servers:
        if server.paused:
            server.resume()
        server.start(wait=False)
    for server in cluster.servers:
        server.wait_ready()


def consumer_groups(servers: str, jars: Path, *arguments: str) -> str:
    """Run Kafka's own `kafka-consumer-groups`; return what it printed."""
    command = [
        check_java(), "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-cp", os.pathsep.join(f"{folder}/*" for folder in fetch_tools(jars)),
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", servers, *arguments,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=patient(COMMAND))
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout + done.stderr
