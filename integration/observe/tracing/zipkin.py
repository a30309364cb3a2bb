"""A real Zipkin server as a child process, with its spans in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from inbound.embedded.cluster import free_ports
from inbound.embedded.jars import Bundle, check_java, fetch
from inbound.embedded.server import Server

VERSION = "3.5.1"
#: It is up in some 5 s of CPU time, which can be minutes on a busy machine. Seconds.
START_TIMEOUT = 300.0
#: The one file that is a whole server.
ZIPKIN = Bundle(
    f"zipkin-server-{VERSION}", (("io.zipkin", "zipkin-server", VERSION),), transitive=False, classifier="exec"
)


class ZipkinServer(Server):
    """Serves Zipkin's API. Its spans are gone when it stops."""

    def __init__(self, port: int, folder: Path, *, java: str, jars: Path) -> None:
        super().__init__("zipkin", port, folder)
        self._java = java
        (self._jar,) = jars.glob("*.jar")

    def command(self) -> list[str]:
        """Return the command line: in memory, for this machine alone, without its pages."""
        return [
            self._java, "-Xms64m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", str(self._jar),
            f"--armeria.ports[0].port={self.port}", "--armeria.ports[0].address=127.0.0.1", "--armeria.ports[0].protocols=http",
            "--zipkin.storage.type=mem", "--zipkin.ui.enabled=false", "--zipkin.self-tracing.enabled=false",
        ]  # fmt: skip

    def ready(self, timeout: float) -> bool:
        """Ask for its health."""
        try:
            with urlopen(f"{self.url}/health", timeout=timeout) as answer:
                return bool(answer.status == 200)
        except (HTTPError, OSError):
            return False

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def spans_url(self) -> str:
        """Where spans are posted to."""
        return f"{self.url}/api/v2/spans"

    def trace(self, trace_id: str) -> list[dict[str, Any]]:
        """Return the spans of a trace, as its API has them; none: it does not know it."""
        try:
            with urlopen(f"{self.url}/api/v2/trace/{trace_id}", timeout=10) as answer:
                found: list[dict[str, Any]] = json.load(answer)
                return found
        except HTTPError as error:
            if error.code == 404:
                return []
            raise


@contextmanager
def zipkin_server(jars: Path, folder: Path) -> Iterator[ZipkinServer]:
    """Run one while the block runs; `jars` is the cache of jars."""
    java = check_java("java")
    server = ZipkinServer(free_ports(1)[0], folder / "zipkin", java=java, jars=fetch(jars, ZIPKIN, java=java))
    server.start(timeout=START_TIMEOUT)
    try:
        yield server
    finally:
        server.stop()
