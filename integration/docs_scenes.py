"""What has happened on real servers before the commands of a page are typed: one function per scene.

A page's names are kept: topic `orders`, group `orders-svc`, port 8081. Addresses are put in their place by the environment
(`INBOUND__...`) where a configuration names them, and in the command's text where a command does.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import kafka
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from inbound.embedded import EmbeddedCluster
from inbound.embedded.jars import fetch_tools
from inbound.embedded.java import check_java
from inbound.embedded.ports import free_ports
from tests.docs_shell import Shell, Steps
from tests.waiting import until

#: For whatever a scene waits for, on a machine that does much else. Seconds.
PATIENCE = 120.0


@dataclass
class Stage:
    """Servers of its own, a folder and a shell in it; `close` ends what was started and deletes the topics."""

    cluster: EmbeddedCluster
    folder: Path
    jars: Path
    name: str  # the ZooKeeper nodes of a scene are below a node of this name
    topics: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.admin_port, self.ingress_port, self.exporter_port = free_ports(3)
        hosts, brokers = self.cluster.zookeeper_hosts, self.cluster.bootstrap_servers
        self.shell = Shell(
            self.folder,
            instead={
                "localhost:8081": f"127.0.0.1:{self.admin_port}",
                "127.0.0.1:8081": f"127.0.0.1:{self.admin_port}",
                "127.0.0.1:8080": f"127.0.0.1:{self.ingress_port}",
                "127.0.0.1:9308": f"127.0.0.1:{self.exporter_port}",
                "zookeeper.hosts=HOST:PORT": f"zookeeper.hosts={hosts}",
                "bootstrap.servers=HOST:PORT": f"bootstrap.servers={brokers}",
                "--bootstrap-servers HOST:PORT": f"--bootstrap-servers {brokers}",
                "--bootstrap-server kafka:9092": f"--bootstrap-server {brokers}",
                "/app": str(self.folder),
            },
            environment={
                "INBOUND__ZOOKEEPER__HOSTS": hosts,
                "INBOUND__ZOOKEEPER__CHROOT": f"/{self.name}",
                "INBOUND__ZOOKEEPER__SESSION_TIMEOUT": "6s",
                "INBOUND__KAFKA__BOOTSTRAP_SERVERS": brokers,
                "INBOUND__CONTROLLER__JOIN_DELAY": "200ms",
                "INBOUND__ADMIN__LISTEN": f"127.0.0.1:{self.admin_port}",
                "INBOUND__LEDGER__PATH": str(self.folder / "ledger"),
            },
        )

    def close(self) -> None:
        self.shell.close()
        with self.admin() as admin:
            if self.topics:
                admin.delete_topics(sorted(self.topics))
            until(lambda: not self.topics & set(admin.list_topics()), PATIENCE, f"{self.topics} are deleted")

    @contextmanager
    def admin(self) -> Iterator[KafkaAdminClient]:
        client = KafkaAdminClient(bootstrap_servers=self.cluster.bootstrap_servers)
        try:
            yield client
        finally:
            client.close()

    def topic(self, name: str, partitions: int, **settings: str) -> None:
        """Have a topic, once the brokers know its leaders."""
        with self.admin() as admin:
            admin.create_topics([NewTopic(name, partitions, 1, topic_configs=settings)])
        self.topics.add(name)

    def publish(self, topic: str, counts: Mapping[int, int], at: datetime | None = None) -> None:
        """Publish so many records to each partition, in one go; acknowledged."""
        producer = kafka.KafkaProducer(bootstrap_servers=self.cluster.bootstrap_servers, acks="all", linger_ms=200)
        stamp = None if at is None else round(at.timestamp() * 1000)
        sent = [
            producer.send(topic, b'{"sum": 3}', partition=partition, timestamp_ms=stamp)
            for partition, count in counts.items()
            for _ in range(count)
        ]
        producer.flush()
        for one in sent:
            one.get(timeout=PATIENCE)
        producer.close(timeout=5)

    def configure(self, text: str) -> None:
        """Write `inbound.yaml`."""
        (self.folder / "inbound.yaml").write_text(text)

    def member(self, **environment: str) -> subprocess.Popen[str]:
        """Start a member, and wait until it is ready."""
        (port,) = free_ports(1) if environment else (self.admin_port,)
        one = Shell(self.folder, environment={**self.shell.environment, **environment})
        one.environment = {**one.environment, "INBOUND__ADMIN__LISTEN": f"127.0.0.1:{port}"}
        process = one.begin("inbound run")
        self.shell.running.append(process)
        self.ready(process, f"http://127.0.0.1:{port}/readyz")
        return process

    def ready(self, process: subprocess.Popen[str], url: str) -> None:
        """Wait until a process answers with 200 there."""

        def answers() -> bool:
            assert process.poll() is None, (self.folder / "running.log").read_text()
            return answer(url) is not None

        until(answers, PATIENCE, lambda: f"{url} answers: {(self.folder / 'running.log').read_text()}")

    def partitions(self) -> list[dict[str, Any]]:
        """Return what the member says of its partitions; none, if it does not answer."""
        told = answer(f"http://127.0.0.1:{self.admin_port}/status")
        return [one for channel in json.loads(told)["channels"] for one in channel["partitions"]] if told else []

    def settled(self, count: int) -> None:
        """Wait until the member has so many partitions, and has committed everything in them."""

        def done() -> bool:
            found = self.partitions()
            return len(found) == count and all(one["lag"] == 0 for one in found)

        until(done, PATIENCE, lambda: f"everything is committed: {self.partitions()}")

    def logged(self, what: str) -> None:
        """Wait until a member has logged something."""
        log = self.folder / "running.log"
        until(lambda: what in log.read_text(), PATIENCE, lambda: f"it logs {what!r}: {log.read_text()}")


def answer(url: str) -> str | None:
    """Return what is answered with 200; None if something else is, or nothing."""
    with suppress(HTTPError, URLError, OSError), urlopen(url, timeout=10) as found:
        return str(found.read().decode())
    return None


def everybody_has(stage: Stage, name: str, count: int) -> bool:
    """Whether so many members own one partition of `orders` each, and have committed 300 records in each."""
    zk = KazooClient(stage.cluster.zookeeper_hosts, timeout=30)
    zk.start(timeout=PATIENCE)
    try:
        with suppress(NoNodeError):
            parent = f"/{stage.name}/consumers/{name}"
            owners = {zk.get(f"{parent}/owners/orders/{p}")[0] for p in range(count)}
            return len(owners) == count and all(
                zk.get(f"{parent}/offsets/orders/{p}")[0] == b"300" for p in range(count)
            )
        return False
    finally:
        zk.stop()
        zk.close()


CONFIGURATION = """
channels:
  orders:
    topics: [orders]
    group: orders-svc
    processor: {type: simple, options: {sinks: [{type: jsonl, path: ./orders.jsonl}]}}
"""

ORDERS = '''"""Books orders."""
from http.client import HTTPConnection

from inbound import BatchEventProcessor, BatchResponse

class Orders(BatchEventProcessor):
    def on_next_batch(self, batch):
        for record in batch.records:
            self.book(record.value)
        return BatchResponse.advance()

    def book(self, order):
        billing = HTTPConnection("127.0.0.1", PORT)
        billing.request("POST", "/", order)
        billing.getresponse()
'''


def first(stage: Stage) -> Iterator[Steps]:
    """This checkout is what is installed, and the servers of the stage are the cluster."""
    stage.topic("orders", 4)
    stage.publish("orders", dict.fromkeys(range(4), 10))

    def ready(process: subprocess.Popen[str]) -> None:
        stage.ready(process, f"http://127.0.0.1:{stage.admin_port}/readyz")
        stage.settled(4)

    yield Steps(stage.shell, prepared=("pip install", "inbound cluster up"), lasting={"inbound run": ready})


def group(stage: Stage) -> Iterator[Steps]:
    """Read are 3 of orders/0 and all of orders/1; then 7 more came, and 10 to orders/2, where nothing is committed.

    Nobody is there. `orders-old` had read as far.
    """
    stage.topic("orders", 3)
    stage.publish("orders", {0: 3, 1: 10})
    stage.configure(CONFIGURATION + CONFIGURATION.replace("channels:\n  orders", "  old").replace("-svc", "-old"))
    member = stage.member()
    stage.settled(6)
    assert stage.shell.end(member) == 0
    stage.configure(CONFIGURATION)
    assert stage.shell.run("inbound offsets delete --group orders-svc --topic orders:2 --execute")[0] == 0
    stage.publish("orders", {0: 7, 2: 10})

    def serves(process: subprocess.Popen[str]) -> None:
        url = f"http://127.0.0.1:{stage.exporter_port}/metrics"
        until(lambda: "inbound_partition_lag{" in (answer(url) or ""), PATIENCE, f"{url} has lags")

    yield Steps(stage.shell, lasting={"inbound offsets show --metrics": serves})


def kafka_group(stage: Stage) -> Iterator[Steps]:
    """`orders-old` is a group of Kafka's, with offsets and no members."""
    stage.topic("orders", 3)
    stage.publish("orders", dict.fromkeys(range(3), 10))
    stage.configure(CONFIGURATION)
    kept = {KafkaPartition("orders", p): OffsetAndMetadata(5, "", None) for p in range(3)}
    with stage.admin() as admin:

        def altered() -> bool:
            with suppress(kafka.errors.RetriableError):
                return all(error.errno == 0 for error in admin.alter_group_offsets("orders-old", kept).values())
            return False

        until(altered, PATIENCE, "Kafka has a coordinator for the group")
    yield Steps(stage.shell)
    assert stage.shell.run("inbound offsets export")[1] == "".join(f"orders,{p},5\n" for p in range(3))


def mirrored(stage: Stage) -> Iterator[Steps]:
    """50 records of one partition are read, and Kafka's own tool is on the path."""
    stage.topic("orders", 1)
    stage.publish("orders", {0: 50})
    stage.configure(CONFIGURATION + "    offsets: {mirror: kafka}\n")
    member = stage.member()
    stage.settled(1)
    assert stage.shell.end(member) == 0
    path = os.pathsep.join(f"{folder}/*" for folder in fetch_tools(stage.jars))
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    quiet = "-XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    stage.shell.command("kafka-consumer-groups", f'exec {check_java()} {quiet} -cp "{path}" {tool} "$@"')
    yield Steps(stage.shell)


def slow_processor(stage: Stage) -> Iterator[Steps]:
    """A member holds all of four partitions, and its processor has waited for billing since it was handed 57 records."""
    with socket.create_server(("127.0.0.1", 0)) as billing:  # takes connections, and never answers
        stage.topic("orders", 4)
        (stage.folder / "orders.py").write_text(ORDERS.replace("PORT", str(billing.getsockname()[1])))
        stage.configure(
            "channels:\n  orders:\n    topics: [orders]\n    group: orders-svc\n    consumer_id: orders-1\n"
            '    shutdown_timeout: 1s\n    processor: {type: "orders:Orders"}\nexplain: {interval: 2s}\n'
        )
        stage.publish("orders", {3: 57})
        stage.member()
        stage.logged("orders/3: stands still")
        yield Steps(stage.shell, codes={"inbound explain": 3})


def ingress(stage: Stage) -> Iterator[Steps]:
    """Two events in a file."""
    stage.topic("orders", 2)
    stage.configure('kafka: {}\ningress: {listen: "127.0.0.1:8080"}\n')
    event = {"specversion": "1.0", "source": "/me", "type": "hello", "data": {"sum": 3}}
    lines = [json.dumps({**event, "id": str(number)}) + "\n" for number in range(2)]
    (stage.folder / "events.jsonl").write_text("".join(lines))
    listen = {"INBOUND__INGRESS__LISTEN": f"127.0.0.1:{stage.ingress_port}"}
    stage.shell.environment = {**stage.shell.environment, **listen}

    def ready(process: subprocess.Popen[str]) -> None:
        stage.ready(process, f"http://127.0.0.1:{stage.ingress_port}/readyz")

    yield Steps(stage.shell, lasting={"inbound ingress": ready})


def replica(stage: Stage) -> Iterator[Steps]:
    """A member with all four partitions."""
    stage.topic("orders", 4)
    stage.configure(CONFIGURATION)
    stage.member()
    stage.settled(4)
    yield Steps(stage.shell)


def reload(stage: Stage) -> Iterator[Steps]:
    """`workers` and options were edited and `audit` was added; that did not start, for it lacked a file, which is there now.

    A member takes in what changes by itself, but for what did not start: that it tries again when it is asked to.
    """
    stage.topic("orders", 2)
    (stage.folder / "auditing.py").write_text(
        "from pathlib import Path\n\nfrom inbound import BatchEventProcessor, BatchResponse\n\n\n"
        "class Audit(BatchEventProcessor):\n"
        "    def open(self, context):\n        Path('data/rules').read_text()\n\n"
        "    def on_next_batch(self, batch):\n        return BatchResponse.advance()\n"
    )
    (stage.folder / "data").mkdir()
    stage.configure(CONFIGURATION)
    stage.member()
    edited = CONFIGURATION.replace("./orders.jsonl", "./others.jsonl") + "    workers: 3\n"
    stage.configure(f"{edited}  audit: {{topics: [orders], group: audit, processor: {{type: 'auditing:Audit'}}}}\n")
    stage.logged("data/rules")
    (stage.folder / "data" / "rules").write_text("")
    yield Steps(stage.shell)


def three_replicas(stage: Stage) -> Iterator[Steps]:
    """Three members have read 90 records of each partition from before 2026-01-31 02:40, and 210 from after."""
    stage.topic("orders", 3, **{"retention.ms": "-1"})
    stage.publish("orders", dict.fromkeys(range(3), 90), datetime.fromisoformat("2026-01-31T02:30:00+00:00"))
    stage.publish("orders", dict.fromkeys(range(3), 210), datetime.fromisoformat("2026-01-31T02:50:00+00:00"))
    stage.configure(CONFIGURATION)
    for number in range(3):
        stage.member(DOCS_MEMBER=str(number))
    until(
        lambda: everybody_has(stage, "orders-svc", 3), PATIENCE, "three members own a partition each, and all is read"
    )
    yield Steps(stage.shell)


SCENES: Mapping[str, Callable[[Stage], Iterator[Steps]]] = {
    "first": first,
    "group": group,
    "ingress": ingress,
    "kafka-group": kafka_group,
    "mirrored": mirrored,
    "reload": reload,
    "replica": replica,
    "slow-processor": slow_processor,
    "three-replicas": three_replicas,
}
