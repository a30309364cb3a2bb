"""A real Kafka server as a child process: KRaft broker and controller."""

from __future__ import annotations

import base64
import shutil
import socket
import struct
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from inbound.embedded.jars import KAFKA_VERSION
from inbound.embedded.server import Server
from inbound.embedded.zookeeper import simple_logger
from inbound.errors import EmbeddedClusterError

_MEMORY = "-Xmx768m"
_METADATA_API = 3


@dataclass(frozen=True, slots=True)
class KafkaPorts:
    """The ports of one server."""

    client: int  # for other brokers, too
    controller: int  # of the controllers' quorum


@dataclass(frozen=True, slots=True, eq=False)
class Listener:
    """An additional listener of every broker: with TLS, with SASL."""

    name: str  # Kafka's own rule: capitals, digits, underscores
    protocol: str  # SSL, SASL_PLAINTEXT, SASL_SSL
    settings: Mapping[str, str] = field(default_factory=dict)  # of this listener: ssl.keystore.location, ...


def listener_properties(ports: Mapping[Listener, int]) -> dict[str, str]:
    """Return listener settings, to be appended to a server's own values."""
    doors = "".join(f",{one.name}://127.0.0.1:{port}" for one, port in ports.items())
    return {
        "listeners": doors,
        "advertised.listeners": doors,
        "listener.security.protocol.map": "".join(f",{one.name}:{one.protocol}" for one in ports),
        **{f"listener.name.{one.name.lower()}.{key}": value for one in ports for key, value in one.settings.items()},
    }


def server_properties(index: int, cluster: Sequence[KafkaPorts], folder: Path) -> dict[str, str]:
    """Return the settings of server `index`; node ids count from 1."""
    count = len(cluster)
    copies = str(min(3, count))
    in_sync = "2" if count >= 3 else "1"
    client = f"PLAINTEXT://127.0.0.1:{cluster[index].client}"
    return {
        "process.roles": "broker,controller",
        "node.id": str(index + 1),
        "listeners": f"{client},CONTROLLER://127.0.0.1:{cluster[index].controller}",
        "advertised.listeners": client,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.quorum.voters": ",".join(
            f"{number}@127.0.0.1:{ports.controller}" for number, ports in enumerate(cluster, 1)
        ),
        "log.dirs": str(folder / "data"),
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": "8",  # each is a folder and a few open files; the default is 50
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "8",
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "8",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        # A dead broker's partitions get new leaders after this; the default is 9 s.
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "1000",
    }


def render_properties(settings: dict[str, str]) -> str:
    """Return the text of a Java properties file."""
    return "".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in settings.items())


def new_uuid() -> str:
    """Return a random id in Kafka's format: 16 bytes in 22 characters."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass  # it would look like an option
    return text


def format_template(java: str, jars: Path) -> Path:
    """Return the file of Kafka's first metadata records for this version.

    Kafka's own `StorageTool format` writes it. It depends on neither cluster nor node, so it is made once (about 1 s) and kept
    next to the jars; formatting a server's folder is then a copy instead of one more JVM for each.
    """
    kept = jars.parent / f"kafka-format-{KAFKA_VERSION}.checkpoint"
    if kept.exists():
        return kept
    with tempfile.TemporaryDirectory(prefix=".format.", dir=jars.parent) as name:
        folder = Path(name)
        config = folder / "server.properties"
        config.write_text(render_properties(server_properties(0, [KafkaPorts(9092, 9093)], folder)))
        command = [java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *simple_logger("error"), "-cp", f"{jars}/*"]
        ran = subprocess.run(
            [*command, "kafka.tools.StorageTool", "format", "-t", new_uuid(), "-c", str(config)],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        made = folder / "data" / "bootstrap.checkpoint"
        if ran.returncode != 0 or not made.exists():
            said = (ran.stdout + ran.stderr).strip()[-1000:]
            raise EmbeddedClusterError(
                f"kafka: formatting a folder ended with {ran.returncode}: {said}. "
                f"If the jars are damaged, delete {jars} and have them fetched again."
            )
        made.replace(kept)
    return kept


class KafkaServer(Server):
    """Server `index` of a cluster; ready once its metadata answers list it."""

    def __init__(
        self,
        index: int,
        cluster: Sequence[KafkaPorts],
        folder: Path,
        *,
        cluster_id: str,
        java: str,
        jars: Path,
        template: Path,
        listeners: Mapping[Listener, int] | None = None,
    ) -> None:
        super().__init__(f"kafka-{index}", cluster[index].client, folder)
        self.node_id = index + 1
        #: The ports of the listeners besides the plain one, by name.
        self.ports = {one.name: port for one, port in (listeners or {}).items()}
        self._java = java
        self._jars = jars
        data = folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        meta = data / "meta.properties"
        if not meta.exists():
            shutil.copyfile(template, data / "bootstrap.checkpoint")
            identity = {"version": "1", "cluster.id": cluster_id, "node.id": str(index + 1), "directory.id": new_uuid()}
            meta.write_text(render_properties(identity))
        settings = server_properties(index, cluster, folder)
        for key, value in listener_properties(listeners or {}).items():
            settings[key] = settings.get(key, "") + value
        (folder / "server.properties").write_text(render_properties(settings))

    def command(self) -> list[str]:
        return [
            self._java,
            _MEMORY,
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            "-Djava.net.preferIPv4Stack=true",
            "-Djava.awt.headless=true",
            *simple_logger("warn", {"org.apache.kafka.clients.NetworkClient": "error"}),  # peers that are not up yet
            "-cp",
            f"{self._jars}/*",
            "kafka.Kafka",
            str(self.folder / "server.properties"),
        ]

    def ready(self, timeout: float) -> bool:
        return self.node_id in live_brokers(self.port, timeout)

    def sees(self, timeout: float = 2.0) -> frozenset[int]:
        """Return the node ids that this broker sees; empty without an answer."""
        return live_brokers(self.port, timeout)


def live_brokers(port: int, timeout: float) -> frozenset[int]:
    """Ask the broker on `port` for the live brokers' node ids.

    Empty if it gives no answer within `timeout` seconds. The request is made by hand, because a client library would bring
    threads, retries and waits of its own to a simple question.
    """
    try:
        return frozenset(read_brokers(ask_for_metadata(port, timeout))[0])
    except OSError:
        return frozenset()


def ask_for_metadata(port: int, timeout: float, *topics: str) -> bytes:
    """Return a Metadata v1 answer from its correlation id on; raise OSError."""
    client = b"inbound"
    # Request header v1 (api, version, correlation id, client id), then Metadata v1: the list of topics.
    request = struct.pack(f">hhih{len(client)}si", _METADATA_API, 1, 1, len(client), client, len(topics))
    for name in map(str.encode, topics):
        request += struct.pack(f">h{len(name)}s", len(name), name)
    with socket.create_connection(("127.0.0.1", port), timeout) as connection:
        connection.settimeout(timeout)
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _receive(connection, 4))
        return _receive(connection, size)


def read_brokers(answer: bytes) -> tuple[list[int], int]:
    """Return the broker ids in a Metadata v1 answer, and their end."""
    (count,) = struct.unpack_from(">i", answer, 4)
    at = 8
    nodes = []
    for _ in range(count):
        node, host_length = struct.unpack_from(">ih", answer, at)
        at += 6 + host_length + 4  # the host, then the port
        (rack_length,) = struct.unpack_from(">h", answer, at)
        at += 2 + max(rack_length, 0)  # -1: no rack
        nodes.append(node)
    return nodes, at


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionResetError("the broker closed the connection in the middle of an answer")
        data += more
    return data
