"""A ZooKeeper server that asks for TLS, certificates and log-ins, for the tests of what a client makes of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from inbound.cli.shared.files import jar_cache, java_command
from inbound.embedded.cluster import free_ports
from inbound.embedded.jars import fetch_jars
from inbound.embedded.zookeeper import ZooKeeperPorts, ZooKeeperSecurity, ZooKeeperServer
from integration.certificates import CA, Pem
from tests.embedded.more_jars import fetch_tls

USER, PASSWORD = "inbound", "the-right-pw"
STRANGER, STRANGERS_PASSWORD = "stranger", "another-pw"


class SecureZooKeeper:
    """One server: `plain` is its port without TLS, `secure` the one with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = CA(folder / "ca")
        #: Of a server that is called localhost, and by nothing else.
        self.pem = self.ca.server(("localhost",))
        self.expired = self.ca.expired(("localhost",))
        self.wrong_name = self.ca.server(("elsewhere.example",), file="wrong-name")
        self.client = self.ca.client(USER)
        client, peer, election, self._secure = free_ports(4)
        self._ports = ZooKeeperPorts(client, peer, election)
        self.plain = f"localhost:{client}"
        self.secure = f"localhost:{self._secure}"
        self.server: ZooKeeperServer | None = None

    @contextmanager
    def serving(
        self,
        pem: Pem | None = None,
        *,
        client_certificates: Literal["need", "none"] = "none",
        sasl_required: bool = False,
        users: Mapping[str, str] | None = None,
    ) -> Iterator[ZooKeeperServer]:
        """Run the server with these settings on the data that is there; end it afterwards."""
        security = ZooKeeperSecurity(
            port=self._secure,
            key_store=(pem or self.pem).both,
            trust_store=self.ca.pem,
            jars=fetch_tls(jar_cache(), java=java_command()),
            client_certificates=client_certificates,
            users={USER: PASSWORD, STRANGER: STRANGERS_PASSWORD} if users is None else users,
            sasl_required=sasl_required,
        )
        jars = fetch_jars(jar_cache(), java=java_command()).zookeeper
        self.server = ZooKeeperServer(
            0, [self._ports], self.folder / "zookeeper", java=java_command(), jars=jars, security=security
        )
        try:
            self.server.start()
            yield self.server
        finally:
            self.server.kill()

    def password_file(self, password: str = PASSWORD, name: str = "password") -> Path:
        """Write a password as a mounted secret has it, and return its file."""
        path = self.folder / name
        path.write_text(f"{password}\n")
        return path

    def forget(self) -> None:
        """Remove the data. The server must not run."""
        shutil.rmtree(self.folder / "zookeeper", ignore_errors=True)
