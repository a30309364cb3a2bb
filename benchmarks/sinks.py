"""Subscribers for `benchmarks.dispatch`, as child processes on this machine. What they compute is nobody's but theirs."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from inbound.embedded.cluster import free_ports

#: How long a sink may take to listen, or to end, in seconds.
LIMIT = 10.0
NGINX = """\
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr warn;
events {{ worker_connections 1000; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    client_max_body_size 64m;
    client_body_buffer_size 2m;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location / {{ return 202; }}
        location = /status {{ stub_status; }}
    }}
}}
"""


class Sink(ABC):
    """An HTTP server that answers every POST with an empty 202; ended with the `with` block."""

    def __init__(self, command: list[str], port: int) -> None:
        """Start it, and wait until it listens."""
        self._port = port
        self._process = subprocess.Popen(command)
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)
        deadline = time.monotonic() + LIMIT
        while True:
            try:
                self._connection.connect()
                break
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    self.stop()
                    raise SystemExit(f"{command[0]} does not listen on port {port}: {error}") from None
                time.sleep(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End it."""
        self._connection.close()
        self._process.terminate()
        try:
            self._process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def url(self, path: str) -> str:
        """Return where to post to."""
        return f"http://127.0.0.1:{self._port}{path}"

    @abstractmethod
    def counts(self) -> Mapping[str, int]:
        """Return how many requests came since its start; the names are the sink's."""

    def _get(self, path: str) -> str:
        self._connection.request("GET", path)
        return self._connection.getresponse().read().decode()


class Nginx(Sink):
    """nginx with one process; its `counts` has one entry, for all requests but those that ask for it."""

    def __init__(self, folder: Path) -> None:
        """Start it; its files go to `folder`."""
        program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
        if program is None:
            raise SystemExit(
                "nginx was not found; install it (Debian: apt-get install nginx-light), it is the subscriber"
            )
        (port,) = free_ports(1)
        config = folder / "nginx.conf"
        config.write_text(NGINX.format(folder=folder, port=port))
        self._asked = 0
        super().__init__([program, "-p", str(folder), "-c", str(config), "-e", "stderr"], port)

    def counts(self) -> Mapping[str, int]:
        self._asked += 1
        # "Active connections: 1 / server accepts handled requests / 7 7 120 / ..."
        return {"": int(self._get("/status").split()[9]) - self._asked}


class Slow(Sink):
    """benchmarks/peers/sink: takes the time that is asked for, and counts by path."""

    def __init__(self, program: Path) -> None:
        """Start the compiled program."""
        (port,) = free_ports(1)
        super().__init__([str(program), str(port)], port)

    def counts(self) -> Mapping[str, int]:
        found: dict[str, int] = json.loads(self._get("/counts"))
        return found
