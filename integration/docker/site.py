"""Kafka and ZooKeeper in containers, and the networks on which replicas reach them."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from inbound.embedded.cluster import free_ports
from inbound.embedded.kafka import (
    KafkaPorts,
    KafkaServer,
    format_template,
    live_brokers,
    new_uuid,
    render_properties,
    server_properties,
)
from inbound.embedded.zookeeper import ZooKeeperPorts, ZooKeeperServer, zookeeper_mode
from integration.docker.engine import labels, remove, unique
from integration.docker.images import Images
from tests.waiting import until

#: What a replica may lose: the way to one of the servers.
Link = Literal["zookeeper", "kafka"]
LINKS: tuple[Link, ...] = ("zookeeper", "kafka")
#: Where the servers listen in their containers. Kafka's second one is for those outside, at an address that they reach.
PORTS: dict[Link, int] = {"zookeeper": 2181, "kafka": 9092}
_OUTSIDE, _CONTROLLER = 9094, 9093
#: As the embedded servers get. Seconds.
_START = 120.0


class Site:
    """One Kafka and one ZooKeeper, as `inbound.embedded` runs them; made by the session, `close` removes it.

    Each server is alone with the replicas on a network that leads nowhere else, so that to take a replica off one of the
    two cuts just that link. A third network, without replicas, is the door through which the tests look in.
    """

    def __init__(self, client: Any, images: Images, folder: Path) -> None:
        """Start both servers. `folder`: for their data; it is seen in their containers under the same name."""
        self.client = client
        self.images = images
        self.folder = folder
        self._made = ExitStack()
        try:
            self.door = self._network("door", internal=False)
            self.networks: dict[Link, Any] = {link: self._network(link, internal=True) for link in LINKS}
            zookeeper_port, kafka_port = free_ports(2)
            self.zookeeper_hosts = f"127.0.0.1:{zookeeper_port}"
            self.bootstrap_servers = f"127.0.0.1:{kafka_port}"
            self.servers: dict[Link, Any] = {
                "zookeeper": self._server("zookeeper", self._zookeeper_command(), 2181, zookeeper_port),
                "kafka": self._server("kafka", self._kafka_command(kafka_port), _OUTSIDE, kafka_port),
            }
            self._wait("zookeeper", lambda: zookeeper_mode(zookeeper_port, 2.0) is not None)
            self._wait("kafka", lambda: live_brokers(kafka_port, 2.0))
        except BaseException:
            self._made.close()
            raise

    def address(self, link: Link) -> str:
        """Return the server's address on the network that replicas reach it by."""
        server = self.servers[link]
        server.reload()
        address: str = server.attrs["NetworkSettings"]["Networks"][self.networks[link].name]["IPAddress"]
        return address

    def close(self) -> None:
        """Remove servers and networks."""
        self._made.close()

    def user(self) -> str | None:
        """Return whom containers run as that write into folders of the test: its own user, if that is not root."""
        return f"{os.getuid()}:{os.getgid()}" if os.getuid() else None

    def _network(self, name: str, *, internal: bool) -> Any:
        network = self.client.networks.create(unique(name), driver="bridge", internal=internal, labels=labels())
        self._made.callback(remove, network)
        return network

    def _server(self, link: Link, command: list[str], inside: int, outside: int) -> Any:
        server = self.client.containers.create(
            self.images.servers, command, name=unique(link), hostname=link, network=self.door.name, user=self.user(),
            ports={f"{inside}/tcp": ("127.0.0.1", outside)}, labels=labels(),
            volumes={str(self.folder): {"bind": str(self.folder), "mode": "rw"}},
        )  # fmt: skip
        self._made.callback(remove, server)
        self.networks[link].connect(server)
        server.start()
        return server

    def _zookeeper_command(self) -> list[str]:
        server = ZooKeeperServer(
            0, [ZooKeeperPorts(PORTS["zookeeper"], 2888, 3888)], self.folder / "zookeeper",
            java=self.images.java, jars=self.images.jars.zookeeper,
        )  # fmt: skip
        place = server.folder / "zoo.cfg"
        place.write_text(place.read_text().replace("clientPortAddress=127.0.0.1", "clientPortAddress=0.0.0.0"))
        return server.command()

    def _kafka_command(self, outside: int) -> list[str]:
        cluster = [KafkaPorts(PORTS["kafka"], _CONTROLLER)]
        server = KafkaServer(
            0, cluster, self.folder / "kafka", cluster_id=new_uuid(), java=self.images.java,
            jars=self.images.jars.kafka, template=format_template("java", self.images.jars.kafka),
        )  # fmt: skip
        settings = server_properties(0, cluster, server.folder) | {
            "listeners": f"PLAINTEXT://0.0.0.0:{PORTS['kafka']},OUTSIDE://0.0.0.0:{_OUTSIDE},"
            f"CONTROLLER://127.0.0.1:{_CONTROLLER}",
            "advertised.listeners": f"PLAINTEXT://kafka:{PORTS['kafka']},OUTSIDE://127.0.0.1:{outside}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
        (server.folder / "server.properties").write_text(render_properties(settings))
        return server.command()

    def _wait(self, link: Link, ready: Callable[[], object]) -> None:
        server = self.servers[link]

        def ready_or_dead() -> object:
            server.reload()
            if server.status not in ("created", "running"):
                raise AssertionError(f"{link}: its container {server.status}: {_tail(server)}")
            return ready()

        until(ready_or_dead, _START, lambda: f"{link} serves: {_tail(server)}")


def _tail(container: Any) -> str:
    text: str = container.logs(tail=15).decode(errors="replace")
    return text
