"""A receiver of HTTP requests on a port of this machine, with scripted answers."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

#: Made with `openssl`: an authority, and what it signed for a server and a client at 127.0.0.1, until the year 2126.
CERTIFICATES = Path(__file__).parent / "certificates"


class Request(NamedTuple):
    """One request as it came."""

    method: str
    target: str
    headers: dict[str, str]  # names in lower case
    body: bytes
    port: int  # of the client: one for each connection


class Receiver:
    """Keeps what it was sent. `status` is asked for the answer to each request, with its number from 0."""

    def __init__(self, *, tls: bool = False, client_certificate: bool = False) -> None:
        self.requests: list[Request] = []
        self.status: Callable[[int], int] = lambda number: 204
        self.answer_headers: dict[str, str] = {}
        self.answer_body = b""
        self._one_at_a_time = threading.Lock()  # so that each request has a number of its own
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.do_POST()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                with receiver._one_at_a_time:
                    number = len(receiver.requests)
                    receiver.requests.append(Request(self.command, self.path, headers, body, self.client_address[1]))
                self.send_response(receiver.status(number))
                for name, value in {
                    "content-length": str(len(receiver.answer_body)),
                    **receiver.answer_headers,
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(receiver.answer_body)

            def log_message(self, *args: Any) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            request_queue_size = 128  # with the usual 5 the system drops connections that come together, for a second

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that went away is none of ours."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATES / "server.pem")
            if client_certificate:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(CERTIFICATES / "ca.pem")
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=lambda: self._server.serve_forever(poll_interval=0.01))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that answers 204."""
    made = Receiver()
    yield made
    made.close()


class Dripping:
    """Takes one request, then sends `first`, and a byte every 20 ms until it is closed."""

    def __init__(self, first: bytes, drip: bytes) -> None:
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, args=(first, drip))
        self._thread.start()

    def _run(self, first: bytes, drip: bytes) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.recv(65536)
            try:
                connection.sendall(first)
                while not self._over.wait(0.02):
                    connection.sendall(drip)
            except OSError:
                pass  # the client has had enough: what the test is about

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._listener.close()
