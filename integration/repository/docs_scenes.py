"""What has happened on real servers before the commands of a page are typed: one function per scene.

A page's names are kept: topic `orders`, group `orders-svc`, port 8081. Addresses are put in their place by the environment
(`INBOUND__...`) where a configuration names them, and in the command's text where a command does.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import kafka
from kafka.admin import KafkaAdminClient, NewTopic

from inbound.embedded import EmbeddedCluster
from inbound.embedded.cluster import free_ports
from tests.repository.docs_shell import Shell
from tests.waiting import until

#: The longest a scene waits for anything on a quiet machine. Seconds.
PATIENCE = 60.0
#: Who owns a partition, as `inbound offsets show` prints it.
OWNER = r"(?m)^orders +%s .* (\S+-\d+-\w{6}) "


class Stage(Shell):
    """A shell beside topic `orders` on servers of its own; `close` ends what was started and deletes the topic."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path, name: str) -> None:
        self.brokers = cluster.bootstrap_servers
        self.admin = KafkaAdminClient(bootstrap_servers=self.brokers)
        self.admin_port, self.ingress_port, self.exporter_port = free_ports(3)
        instead = {
            "127.0.0.1:8081": f"127.0.0.1:{self.admin_port}",
            "127.0.0.1:8080": f"127.0.0.1:{self.ingress_port}",
            "127.0.0.1:9308": f"127.0.0.1:{self.exporter_port}",
            "/app": str(folder),
        }
        environment = {
            "INBOUND__ZOOKEEPER__HOSTS": cluster.zookeeper_hosts,
            "INBOUND__ZOOKEEPER__CHROOT": f"/{name}",
            "INBOUND__ZOOKEEPER__SESSION_TIMEOUT": "6s",
            "INBOUND__KAFKA__BOOTSTRAP_SERVERS": self.brokers,
            "INBOUND__CONTROLLER__JOIN_DELAY": "200ms",
            "INBOUND__ADMIN__LISTEN": f"127.0.0.1:{self.admin_port}",
            "INBOUND__LEDGER__PATH": str(folder / "ledger"),
        }
        super().__init__(folder, instead, environment)

    def close(self) -> None:
        super().close()
        with suppress(kafka.errors.UnknownTopicOrPartitionError):  # the scene ended before it had one
            self.admin.delete_topics(["orders"])
        until(lambda: "orders" not in self.admin.list_topics(), PATIENCE, "the topic is deleted")
        self.admin.close()

    def orders(self, partitions: int, counts: Mapping[int, int]) -> None:
        """Have the topic, with so many records in each partition."""
        self.admin.create_topics([NewTopic("orders", partitions, 1)])
        self.publish(counts)

    def publish(self, counts: Mapping[int, int]) -> None:
        """Publish so many records to each partition, in one go; acknowledged."""
        producer = kafka.KafkaProducer(bootstrap_servers=self.brokers, acks="all", linger_ms=200)
        numbers = [partition for partition, count in counts.items() for _ in range(count)]
        sent = [producer.send("orders", b'{"sum": 3}', partition=number) for number in numbers]
        for one in sent:
            one.get(timeout=PATIENCE)
        producer.close(timeout=5)

    def configure(self, text: str) -> None:
        """Write `inbound.yaml`."""
        (self.folder / "inbound.yaml").write_text(text)

    def member(self) -> None:
        """Start a member, and wait until it is ready."""
        self.answers(f"http://127.0.0.1:{self.admin_port}/readyz", self.begin("inbound run"))

    def answers(self, url: str, process: subprocess.Popen[str], text: str = "") -> None:
        """Wait until a process answers with 200 there, and with that text."""

        def answered() -> bool:
            assert process.poll() is None, self.log()
            with suppress(HTTPError, URLError, OSError), urlopen(url, timeout=10) as answer:
                return text in answer.read().decode()
            return False

        until(answered, PATIENCE, lambda: f"{url} answers: {self.log()}")

    def settled(self, *wanted: int) -> None:
        """Wait until members own so many partitions each, and everything is committed."""
        printed: list[str] = [""]

        def done() -> bool:
            printed[0] = self.run("inbound offsets show")[1]
            return shares(printed[0]) == list(wanted) and set(re.findall(r", lag (\d+)\n", printed[0])) == {"0"}

        until(done, PATIENCE, lambda: f"everything is committed: {printed[0]}")

    def logged(self, what: str) -> None:
        """Wait until a member has logged something."""
        until(lambda: what in self.log(), PATIENCE, lambda: f"it logs {what!r}: {self.log()}")

    def log(self) -> str:
        """Return what the members have logged."""
        return (self.folder / "running.log").read_text()


def shares(printed: str) -> list[int]:
    """Return how many partitions each owner has, as `inbound offsets show` prints it."""
    return sorted(Counter(re.findall(OWNER % r"\d+", printed)).values())


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


def first(stage: Stage) -> Iterator[None]:
    """Servers that listen, a topic, and nothing else: what a newcomer types. This checkout is what is installed."""
    stage.orders(4, dict.fromkeys(range(4), 10))

    def ready(process: subprocess.Popen[str]) -> None:
        stage.answers(f"http://127.0.0.1:{stage.admin_port}/readyz", process)
        stage.settled(4)

    stage.prepared, stage.lasting = ("pip install", "inbound cluster up"), {"inbound run": ready}
    yield


def group(stage: Stage) -> Iterator[None]:
    """No members. 3 and 10 records are committed; then 7 came to orders/0, and 10 to orders/2, which has no commit.

    `orders-old` had read as far.
    """
    stage.orders(3, {0: 3, 1: 10})
    stage.configure(CONFIGURATION + CONFIGURATION.replace("channels:\n  orders", "  old").replace("-svc", "-old"))
    stage.member()
    stage.settled(3, 3)
    stage.end()
    stage.configure(CONFIGURATION)
    assert stage.run("inbound offsets delete --group orders-svc --topic orders:2 --execute")[0] == 0
    stage.publish({0: 7, 2: 10})
    served = partial(stage.answers, f"http://127.0.0.1:{stage.exporter_port}/metrics", text="inbound_partition_lag{")
    stage.lasting = {"inbound offsets show --metrics": served}
    yield


def slow_processor(stage: Stage) -> Iterator[None]:
    """A member holds all of four partitions, and its processor has waited for billing since 57 records were delivered."""
    with socket.create_server(("127.0.0.1", 0)) as billing:  # takes connections, and never answers
        (stage.folder / "orders.py").write_text(ORDERS.replace("PORT", str(billing.getsockname()[1])))
        stage.configure(
            "channels:\n  orders:\n    topics: [orders]\n    group: orders-svc\n    consumer_id: orders-1\n"
            '    shutdown_timeout: 1s\n    processor: {type: "orders:Orders"}\nexplain: {interval: 2s}\n'
        )
        stage.orders(4, {3: 57})
        stage.member()
        stage.logged("orders/3: stalled for")
        yield


def ingress(stage: Stage) -> Iterator[None]:
    """Two events in a file."""
    stage.orders(2, {})
    stage.configure(f'kafka: {{}}\ningress: {{listen: "127.0.0.1:{stage.ingress_port}"}}\n')
    event = {"specversion": "1.0", "source": "/me", "type": "hello", "data": {"sum": 3}}
    lines = [json.dumps({**event, "id": str(number)}) + "\n" for number in range(2)]
    (stage.folder / "events.jsonl").write_text("".join(lines))
    ready = partial(stage.answers, f"http://127.0.0.1:{stage.ingress_port}/readyz")
    stage.lasting = {"inbound ingress": ready}
    yield


#: By the names that blocks say; with real servers. `tutorial` is a scene of its own: `test_tutorial.py`.
SCENES: Mapping[str, Callable[[Stage], Iterator[None]]] = {
    scene.__name__.replace("_", "-"): scene for scene in (first, group, ingress, slow_processor)
}
