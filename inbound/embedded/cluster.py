"""`EmbeddedCluster` runs real Kafka and ZooKeeper servers as child processes."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, TypeVar

from inbound.embedded.jars import Progress, check_java, fetch_jars, silent
from inbound.embedded.kafka import KafkaPorts, KafkaServer, Listener, format_template, new_uuid
from inbound.embedded.locks import LockFile, alive, holder
from inbound.embedded.server import START_TIMEOUT, STOP_TIMEOUT, Server
from inbound.embedded.zookeeper import ZooKeeperPorts, ZooKeeperServer
from inbound.errors import EmbeddedClusterError
from inbound.runtime.signals import handled

T = TypeVar("T")

#: How often ports are chosen again when another program takes one between the choice and the server's start.
_PORT_ATTEMPTS = 3
#: The servers of a killed owner end within a second or two, and lock their folder until then. Seconds.
_LEFTOVER_TIMEOUT = 10.0
#: A process that only checks the lock holds it for a moment. Seconds.
_GLANCE = 0.3
#: The format version of the files that are written here.
VERSION = 1
_NAME = "layout.json"
#: Below the ranges that Linux (32768-60999) and macOS (49152-65535) take client ports from. A port of theirs could go
#: to another program's outgoing connection while its server is down, and a client that reconnects could even get it itself
#: and talk to itself.
_LOWEST, _HIGHEST = 15000, 32000


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """The files that all clusters of this machine share."""

    java: str
    kafka: Path
    zookeeper: Path
    template: Path  # Kafka's first metadata records


def prepare(jars: Path, *, java: str = "java", progress: Progress = silent) -> ServerFiles:
    """Check Java, and fetch missing jars into the cache folder `jars`.

    Takes about 40 s once, then 0.1 s. Raises EmbeddedClusterError: Java or PySpark is missing, or the fetch failed.
    """
    java = check_java(java)
    fetched = fetch_jars(jars, java=java, progress=progress)
    return ServerFiles(java, fetched.kafka, fetched.zookeeper, format_template(java, fetched.kafka))


class EmbeddedCluster:
    """Real servers on loopback ports that never outlive this process.

    `directory` keeps data, configuration and logs; a given one is kept at close (and gives the same data and, where they are
    free, the same ports the next time), None is a temporary one that is removed. `jars` is the cache folder of the servers'
    jars, filled at the first start (about 40 s). `java` is a program name or path. `listeners` are added to the brokers' plain
    one: with TLS, with SASL.

    Not for production: one address, and its plain listener has no encryption and no authentication.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        jars: Path,
        brokers: int = 1,
        zookeepers: int = 1,
        java: str = "java",
        progress: Progress = silent,
        listeners: Sequence[Listener] = (),
    ) -> None:
        for what, count in (("brokers", brokers), ("zookeepers", zookeepers)):
            if count < 1:
                raise EmbeddedClusterError(f"embedded cluster: {what} must be at least 1, got {count}.")
        self.brokers: list[KafkaServer] = []
        self.zookeepers: list[ZooKeeperServer] = []
        self._counts = (brokers, zookeepers)
        self._given = directory
        self._directory: Path | None = None
        self._jars = jars
        self._java = java
        self._progress = progress
        self._listeners = tuple(listeners)
        self._lock_file: LockFile | None = None
        self._verb = threading.RLock()

    @property
    def directory(self) -> Path:
        """The folder with data, configuration and logs, while the cluster is started."""
        if self._directory is None:
            raise EmbeddedClusterError("embedded cluster: it is not started. Call start() first.")
        return self._directory

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses, for `kafka.bootstrap.servers`: host:port,host:port."""
        return ",".join(server.address for server in self.brokers)

    def servers_at(self, listener: str) -> str:
        """Return the brokers' addresses at the named listener: host:port,host:port."""
        return ",".join(f"127.0.0.1:{server.ports[listener]}" for server in self.brokers)

    @property
    def zookeeper_hosts(self) -> str:
        """The ZooKeeper servers' addresses, for `zookeeper.hosts`: host:port,host:port."""
        return ",".join(server.address for server in self.zookeepers)

    @property
    def servers(self) -> list[Server]:
        """All servers, ZooKeeper first."""
        return [*self.zookeepers, *self.brokers]

    def start(self) -> EmbeddedCluster:
        """Start all servers in parallel, and wait until they are ready.

        The brokers then see each other. Raises EmbeddedClusterError: Java or PySpark is missing, the directory is in use, or a
        server did not come up; then nothing is left running.
        """
        with self._verb:
            if self._directory is not None:
                raise EmbeddedClusterError(f"embedded cluster: already started in {self._directory}. Close it first.")
            began = time.monotonic()
            parts = prepare(self._jars, java=self._java, progress=self._progress)
            self._take_directory()
            try:
                self._start_servers(parts)
            except BaseException:
                self.close()
                raise
            self._progress(f"{self._describe()} up after {time.monotonic() - began:.1f} s")
        return self

    def close(self) -> None:
        """End all servers and remove a temporary directory; repeated calls do nothing."""
        with self._verb:
            if self._directory is None:
                return
            try:
                if self._given is not None:
                    self._end_gracefully()
            finally:
                for server in self.servers:
                    server.kill()
                if self._lock_file is not None:
                    self._lock_file.release()
                    self._lock_file = None
                if self._given is None:
                    shutil.rmtree(self._directory)
                self._directory = None

    def __enter__(self) -> EmbeddedCluster:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _describe(self) -> str:
        brokers, zookeepers = self._counts
        return (
            f"embedded cluster: {brokers} Kafka server{'s' * (brokers > 1)} "
            f"and {zookeepers} ZooKeeper server{'s' * (zookeepers > 1)}"
        )

    def _take_directory(self) -> None:
        if self._given is None:
            directory = Path(tempfile.mkdtemp(prefix="inbound-cluster-"))
        else:
            directory = self._given.absolute()
            directory.mkdir(parents=True, exist_ok=True)
        lock = LockFile(directory / "cluster.lock")
        if not lock.acquire(_GLANCE):
            owner = holder(lock.path)
            if not owner or not alive(owner):
                # The servers of an owner that was killed; their guardians hold the lock until they are gone.
                self._progress(f"{directory}: waiting for the servers of a cluster that was killed to end")
                taken = lock.acquire(_LEFTOVER_TIMEOUT)
            else:
                taken = False
            if not taken:
                raise EmbeddedClusterError(
                    f"{directory}: in use by the live cluster of pid {owner}. "
                    "End that one (`python -m inbound cluster down` if it is detached), or give another directory."
                )
        self._lock_file = lock
        self._directory = directory

    def _start_servers(self, parts: ServerFiles) -> None:
        assert self._lock_file is not None
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            plan = load_or_choose(self.directory, *self._counts)
            more = iter(free_ports(len(self._listeners) * len(plan.brokers), avoid=plan.ports()))
            self.zookeepers = [
                ZooKeeperServer(
                    index,
                    plan.zookeepers,
                    self.directory / f"zookeeper-{index}",
                    java=parts.java,
                    jars=parts.zookeeper,
                )
                for index in range(len(plan.zookeepers))
            ]
            self.brokers = [
                KafkaServer(
                    index,
                    plan.brokers,
                    self.directory / f"kafka-{index}",
                    cluster_id=plan.cluster_id,
                    java=parts.java,
                    jars=parts.kafka,
                    template=parts.template,
                    listeners={one: next(more) for one in self._listeners},
                )
                for index in range(len(plan.brokers))
            ]
            for server in self.servers:
                server.keep_open = (self._lock_file.fileno(),)
            self._progress(f"{self._describe()} starting in {self.directory}")
            try:
                for server in self.servers:
                    server.start(wait=False)
                self._wait_ready()
                return
            except EmbeddedClusterError:
                taken = any(server.died_of_a_taken_port() for server in self.servers)
                if not taken or attempt == _PORT_ATTEMPTS:
                    raise
                for server in self.servers:
                    server.kill()
                self._progress("another program took a chosen port: choosing others")

    def _wait_ready(self) -> None:
        began = time.monotonic()
        deadline = began + START_TIMEOUT
        for server in self.servers:
            server.wait_ready(max(1.0, deadline - time.monotonic()))
            self._progress(f"{server.name} serves on {server.address} after {time.monotonic() - began:.1f} s")
        everyone = {server.node_id for server in self.brokers}
        # A topic with a copy on each broker can be created once every broker knows of all others.
        while any(server.sees() != everyone for server in self.brokers):
            if time.monotonic() > deadline or not all(server.running for server in self.servers):
                seen = {server.name: sorted(server.sees()) for server in self.brokers}
                raise EmbeddedClusterError(
                    f"{self._describe()}: the brokers do not see each other ({seen}, wanted {sorted(everyone)}). "
                    f"Their logs are in {self.directory}."
                )
            time.sleep(0.05)

    def _end_gracefully(self) -> None:
        """Ask the brokers, then the ZooKeeper servers, to end in time.

        All at once: the last brokers of a quorum can't move their leadership without a majority, and would wait for minutes.
        """
        for group in (self.brokers, self.zookeepers):
            for server in group:
                server.terminate()
            deadline = time.monotonic() + STOP_TIMEOUT / 2
            while any(server.running for server in group) and time.monotonic() < deadline:
                time.sleep(0.05)


#: Seconds between the owner's checks for servers that have ended.
_LOOK_EVERY = 0.5


class _Signalled(BaseException):
    """SIGINT or SIGTERM arrived; no `except Exception` may handle it."""


def own_until_signalled(cluster: EmbeddedCluster, when_up: Callable[[], None], report: Progress) -> None:
    """Run `cluster` until SIGINT or SIGTERM, and then close it.

    Call it from the main thread; it calls `when_up` once the servers are ready. A signal during the start ends it too; a second
    one during the close kills what has not ended. A server that ends unexpectedly is reported once; the others continue.
    Raises EmbeddedClusterError: the cluster did not come up.
    """
    with handled(_raise):
        try:
            try:
                cluster.start()
                when_up()
                gone: set[str] = set()
                while True:
                    for server in cluster.servers:
                        if not server.running and server.name not in gone:
                            gone.add(server.name)
                            report(f"{server.name}: the server has ended unexpectedly; its log is {server.log_path}")
                    time.sleep(_LOOK_EVERY)
            finally:
                cluster.close()
        except _Signalled:
            cluster.close()


def _raise(number: int, frame: FrameType | None) -> None:
    raise _Signalled(number)


# -- the layout that a cluster's directory keeps, and free ports -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layout:
    """The cluster's id, and the ports of each server."""

    cluster_id: str
    brokers: tuple[KafkaPorts, ...]
    zookeepers: tuple[ZooKeeperPorts, ...]

    def ports(self) -> list[int]:
        """Return every port of every server."""
        kafka = [port for one in self.brokers for port in (one.client, one.controller)]
        return kafka + [port for one in self.zookeepers for port in (one.client, one.peer, one.election)]


def load_or_choose(directory: Path, brokers: int, zookeepers: int) -> Layout:
    """Return the layout that `directory` keeps, or a new one.

    A kept layout gets fresh ports if one of its ports is taken. Raises EmbeddedClusterError: the directory holds a cluster of
    another size (its quorums can't change theirs), or its layout cannot be read.
    """
    path = directory / _NAME
    remedies = {"other": "Give another directory.", "unreadable": "Delete the directory, or give another."}
    old = read_json(path, _layout, **remedies) if path.exists() else None
    if old is not None:
        sizes = (len(old.brokers), len(old.zookeepers))
        if sizes != (brokers, zookeepers):
            raise EmbeddedClusterError(
                f"{directory}: holds the data of {sizes[0]} Kafka and {sizes[1]} ZooKeeper servers, "
                f"asked for were {brokers} and {zookeepers}. Ask for the same, delete the directory, or give another."
            )
        if all(is_free(port) for port in old.ports()):
            return old
    ports = iter(free_ports(2 * brokers + 3 * zookeepers))
    new = Layout(
        cluster_id=old.cluster_id if old is not None else new_uuid(),
        brokers=tuple(KafkaPorts(next(ports), next(ports)) for _ in range(brokers)),
        zookeepers=tuple(ZooKeeperPorts(next(ports), next(ports), next(ports)) for _ in range(zookeepers)),
    )
    write_json(path, {"version": VERSION, **asdict(new)})
    return new


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write `value` atomically: a reader never finds a part of it."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(value, indent=2) + "\n")
    part.replace(path)


def read_json(path: Path, make: Callable[[dict[str, Any]], T], *, other: str, unreadable: str) -> T:
    """Read a file of `write_json`, and convert its value with `make`.

    Raises EmbeddedClusterError: it has another version, or cannot be read; `other` or `unreadable` says what to do then.
    """
    try:
        value = json.loads(path.read_text())
        if value["version"] != VERSION:
            raise EmbeddedClusterError(
                f"{path}: has format version {value['version']}, this inbound reads {VERSION}. {other}"
            )
        return make(value)
    except (ValueError, KeyError, TypeError) as error:
        raise EmbeddedClusterError(f"{path}: cannot be read ({error!r}). {unreadable}") from error


def _layout(value: dict[str, Any]) -> Layout:
    return Layout(
        cluster_id=str(value["cluster_id"]),
        brokers=tuple(KafkaPorts(**ports) for ports in value["brokers"]),
        zookeepers=tuple(ZooKeeperPorts(**ports) for ports in value["zookeepers"]),
    )


def is_free(port: int) -> bool:
    """Return whether a server could listen on loopback `port` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers do: ignore closing connections
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_ports(count: int, avoid: Collection[int] = ()) -> list[int]:
    """Return `count` different free ports, none of them in `avoid`."""
    candidates = random.SystemRandom().sample(range(_LOWEST, _HIGHEST), _HIGHEST - _LOWEST)
    free = (port for port in candidates if port not in avoid and is_free(port))
    return [next(free) for _ in range(count)]
