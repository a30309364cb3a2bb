"""A real ZooKeeper server as a child process."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from inbound.embedded.server import Server
from inbound.errors import EmbeddedClusterError


@dataclass(frozen=True, slots=True)
class ZooKeeperPorts:
    """The ports of one server: for clients, for followers, for leader election."""

    client: int
    peer: int
    election: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSecurity:
    """What a server demands of clients on its TLS port.

    The plain port stays open to this machine. Stores are PEM files; a key store holds the key (PKCS #8), then its certificate.
    """

    port: int
    key_store: Path
    #: Who may have signed clients' certificates.
    trust_store: Path
    #: The folder of the jars that TLS needs (Netty).
    jars: Path
    client_certificates: Literal["need", "none"] = "none"
    #: Passwords of SASL DIGEST-MD5 by user; without any, the server speaks no SASL.
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Whether a client without SASL is refused.
    sasl_required: bool = False

    def settings(self) -> dict[str, object]:
        """Return its lines of zoo.cfg."""
        found: dict[str, object] = {
            "secureClientPort": self.port,
            "secureClientPortAddress": "127.0.0.1",
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": self.key_store,
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": self.trust_store,
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": self.client_certificates,
        }
        if self.users:
            found["authProvider.sasl"] = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
        if self.sasl_required:
            found |= {"enforce.auth.enabled": "true", "enforce.auth.schemes": "sasl"}
        return found

    def jaas(self) -> str:
        """Return the file that names the users to Java.

        Raises EmbeddedClusterError: a name or a password has characters that it cannot hold.
        """
        for user, password in self.users.items():
            if not user.isidentifier() or '"' in password or "\\" in password or not password.isprintable():
                raise EmbeddedClusterError(f"zookeeper: user {user!r} or its password cannot stand in a JAAS file.")
        users = "".join(f'\n  user_{user}="{password}"' for user, password in self.users.items())
        return f"Server {{\n  org.apache.zookeeper.server.auth.DigestLoginModule required{users};\n}};\n"


def zoo_cfg(
    index: int, ensemble: Sequence[ZooKeeperPorts], folder: Path, security: ZooKeeperSecurity | None = None
) -> str:
    """Return the text of the zoo.cfg of server `index`."""
    settings: dict[str, object] = {
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
    if security is not None:
        settings |= security.settings()
    return "".join(f"{key}={value}\n" for key, value in settings.items())


class ZooKeeperServer(Server):
    """Server `index` of an ensemble; ready once `srvr` names a mode."""

    def __init__(
        self,
        index: int,
        ensemble: Sequence[ZooKeeperPorts],
        folder: Path,
        *,
        java: str,
        jars: Path,
        security: ZooKeeperSecurity | None = None,
    ) -> None:
        super().__init__(f"zookeeper-{index}", ensemble[index].client, folder)
        self._java = java
        self._class_path = f"{jars}/*"
        self._jaas: list[str] = []
        self._secure_port = security.port if security is not None else None
        data = folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        if len(ensemble) > 1:
            (data / "myid").write_text(f"{index + 1}\n")
        (folder / "zoo.cfg").write_text(zoo_cfg(index, ensemble, folder, security))
        if security is not None:
            self._class_path += f":{security.jars}/*"
            if security.users:
                place = folder / "jaas.conf"
                place.touch(0o600)
                place.write_text(security.jaas())
                # In FIPS mode, which is the default, ZooKeeper 3.9 offers no DIGEST-MD5.
                self._jaas = [f"-Djava.security.auth.login.config={place}", "-Dzookeeper.fips-mode=false"]

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
            # At "warn" these log every client that disconnects and every peer that is not up yet, with stacks.
            *simple_logger(
                "warn",
                {
                    "org.apache.zookeeper.server.NIOServerCnxn": "error",
                    "org.apache.zookeeper.server.quorum.QuorumCnxManager": "error",
                    "org.apache.zookeeper.server.quorum.Learner": "error",
                },
            ),
            *self._jaas,
            "-cp",
            self._class_path,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(self.folder / "zoo.cfg"),
        ]

    def ready(self, timeout: float) -> bool:
        return self.mode(timeout) is not None and (self._secure_port is None or _speaks_tls(self._secure_port, timeout))

    def mode(self, timeout: float = 2.0) -> str | None:
        """Return standalone, leader or follower; None if it does not serve."""
        return zookeeper_mode(self.port, timeout)


def zookeeper_mode(port: int, timeout: float) -> str | None:
    """Return a server's `mode`; None if it does not serve."""
    for line in four_letter_word(port, "srvr", timeout).splitlines():
        key, _, value = line.partition(": ")
        if key == "Mode":
            return value.strip()
    return None


def _speaks_tls(port: int, timeout: float) -> bool:
    """Return whether a TLS handshake succeeds, with any certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout) as connection,
            context.wrap_socket(connection) as secure,
        ):
            return secure.version() is not None
    except OSError:
        return False


def simple_logger(level: str, loggers: Mapping[str, str] | None = None) -> list[str]:
    """Return JVM flags that make slf4j-simple print `level` and above.

    Each line has its time. `loggers` gives single loggers a level of their own.
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
    """Send a four-letter command; return "" if the server does not answer."""
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout) as connection:
            connection.sendall(word.encode())
            while data := connection.recv(65536):
                answer += data
    except OSError:
        return ""
    return answer.decode("utf-8", "replace")
