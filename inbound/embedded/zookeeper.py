"""A real ZooKeeper server as a child process."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inbound.embedded.server import Server


@dataclass(frozen=True, slots=True)
class ZooKeeperPorts:
    """The ports of one server: for clients, for followers, for leader election."""

    client: int
    peer: int
    election: int


def zoo_cfg(index: int, ensemble: Sequence[ZooKeeperPorts], folder: Path) -> str:
    """Return the text of the zoo.cfg of server `index`."""
    settings = {
        "dataDir": str(folder / "data"),
        "clientPort": ensemble[index].client,
        "clientPortAddress": "127.0.0.1",
        "tickTime": 500,  # milliseconds; sessions expire at the next tick, and the limits below count in it
        "minSessionTimeout": 1000,
        "maxSessionTimeout": 60000,
        "initLimit": 20,
        "syncLimit": 10,
        "maxClientCnxns": 0,  # all clients come from the one loopback address
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "ruok,srvr,mntr",
    }
    if len(ensemble) > 1:
        for number, ports in enumerate(ensemble, 1):
            settings[f"server.{number}"] = f"127.0.0.1:{ports.peer}:{ports.election}"
    return "".join(f"{key}={value}\n" for key, value in settings.items())


class ZooKeeperServer(Server):
    """Server `index` of an ensemble. `srvr` answered with a mode is what counts as serving."""

    def __init__(self, index: int, ensemble: Sequence[ZooKeeperPorts], folder: Path, *, java: str, jars: Path) -> None:
        super().__init__(f"zookeeper-{index}", ensemble[index].client, folder)
        self._java = java
        self._jars = jars
        data = folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        if len(ensemble) > 1:
            (data / "myid").write_text(f"{index + 1}\n")
        (folder / "zoo.cfg").write_text(zoo_cfg(index, ensemble, folder))

    def command(self) -> list[str]:
        return [
            self._java,
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            "-Djava.net.preferIPv4Stack=true",
            "-Djava.awt.headless=true",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Dzookeeper.preAllocSize=1024",  # KiB; the default writes 64 MiB at the first change
            # At "warn" these tell of every client that goes away and every peer that is not up yet, with stacks.
            *simple_logger(
                "warn",
                {
                    "org.apache.zookeeper.server.NIOServerCnxn": "error",
                    "org.apache.zookeeper.server.quorum.QuorumCnxManager": "error",
                    "org.apache.zookeeper.server.quorum.Learner": "error",
                },
            ),
            "-cp",
            f"{self._jars}/*",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(self.folder / "zoo.cfg"),
        ]

    def ready(self, timeout: float) -> bool:
        return self.mode(timeout) is not None

    def mode(self, timeout: float = 2.0) -> str | None:
        """Return what the server says it is: standalone, leader or follower; None if it serves nobody."""
        return zookeeper_mode(self.port, timeout)


def zookeeper_mode(port: int, timeout: float) -> str | None:
    """Return what the server on `port` says it is: standalone, leader or follower; None if it serves nobody."""
    for line in four_letter_word(port, "srvr", timeout).splitlines():
        key, _, value = line.partition(": ")
        if key == "Mode":
            return value.strip()
    return None


def simple_logger(level: str, loggers: Mapping[str, str] | None = None) -> list[str]:
    """Return the JVM flags that make slf4j-simple print `level` and above, each line with its time.

    `loggers` gives single loggers a level of their own.
    """
    prefix = "-Dorg.slf4j.simpleLogger."
    return [
        f"{prefix}defaultLogLevel={level}",
        f"{prefix}showDateTime=true",
        f"{prefix}dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
        f"{prefix}showThreadName=false",
        *(f"{prefix}log.{logger}={own}" for logger, own in (loggers or {}).items()),
    ]


def four_letter_word(port: int, word: str, timeout: float) -> str:
    """Send ZooKeeper one of its four-letter commands; "" if the server cannot be reached or closes at once."""
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout) as connection:
            connection.sendall(word.encode())
            while data := connection.recv(65536):
                answer += data
    except OSError:
        return ""
    return answer.decode("utf-8", "replace")
