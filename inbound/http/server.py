"""A small HTTP/1.1 server that bad clients cannot hurt: everything is bounded, and each thread and socket has an owner.

Threads: one accepts, one serves each connection. A connection is either *waiting* (for a request, or for the rest of
one) or *answering*. When there are too many the one that has waited longest is closed, so a crowd of silent clients
cannot keep a probe out; those that answer are never closed.
"""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import inbound
from inbound.http.pages import Page, text


@dataclass(frozen=True)
class Request:
    """What is asked for, as far as anybody wants to know; header values as they were sent."""

    method: str
    path: str  # without the query, not decoded
    query: str = ""
    accept: str | None = None
    host: str | None = None
    origin: str | None = None
    authorization: str | None = field(default=None, repr=False)


Answer = Callable[[Request], Page]
#: What may be asked for.
METHODS = ("GET", "HEAD")
#: How long a client may go on sending after its last answer. Seconds.
LINGER_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one server bears. Times in seconds, sizes in bytes."""

    connections: int = 32
    head_bytes: int = 16 * 1024  # request line and headers of one request
    body_bytes: int = 64 * 1024  # read and thrown away, so that the client gets to read the answer
    request_seconds: float = 10.0  # from the first byte of a request to its last; also until the first one comes
    idle_seconds: float = 75.0  # between two requests; longer than Prometheus' usual interval
    answer_seconds: float = 30.0  # until the client has taken the whole answer
    close_seconds: float = 2.0  # for answers under way when the server is closed


@dataclass(eq=False)
class Connection:
    """One client; `waiting` and `since` are written by its own thread only."""

    socket: socket.socket
    thread: threading.Thread
    waiting: bool = True
    since: float = field(default_factory=time.monotonic)

    def waits(self, waiting: bool) -> None:
        self.since = time.monotonic()
        self.waiting = waiting

    def end(self) -> None:
        """Wake its thread, which finds the connection closed."""
        with contextlib.suppress(OSError):  # the client, or the thread itself, was faster
            self.socket.shutdown(socket.SHUT_RDWR)


class Server(HTTPServer):
    """Serves `answer` at `address`; bound and listening once made, served once `start`ed.

    Raises:
        OSError: the address cannot be used.
    """

    request_queue_size = 128

    def __init__(
        self, family: int, address: tuple[Any, ...], answer: Answer, *, log: logging.Logger, limits: Limits
    ) -> None:
        self.address_family = family
        self.answer = answer
        self.log = log
        self.limits = limits
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, Connection] = {}
        self._thread = threading.Thread(target=self.serve_forever, name="admin", daemon=True)
        super().__init__(address, Handler)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop listening, let answers under way end, and end every thread. Bounded; may be called twice."""
        if self._thread.is_alive():
            with contextlib.suppress(OSError):  # where a listening socket cannot be shut down, the loop looks by itself
                self.socket.shutdown(socket.SHUT_RDWR)
            self.shutdown()
            self._thread.join()
        self.server_close()
        with self._lock:
            open_now = list(self._connections.values())
        for connection in open_now:
            if connection.waiting:
                connection.end()
        deadline = time.monotonic() + self.limits.close_seconds
        for connection in open_now:
            connection.thread.join(max(0.0, deadline - time.monotonic()))
        for connection in open_now:
            connection.end()
        for connection in open_now:
            connection.thread.join(0.1)
            if connection.thread.is_alive():
                self.log.warning("admin: an answer is still being made at the end; its thread is left to the system")

    # -- socketserver ------------------------------------------------------------------------------------------------

    def server_bind(self) -> None:
        # HTTPServer would look its own name up in the DNS, which can take long and is used for nothing.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[0], self.server_address[1]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a new connection in a thread of its own."""
        with self._lock:
            if len(self._connections) >= self.limits.connections and not self._make_room():
                self.log.warning(
                    "admin: %d connections are being answered, the most allowed: another one was refused",
                    len(self._connections),
                )
                self._refuse(request)
                return
            thread = threading.Thread(target=self._serve, args=(request, client_address), name="admin-c", daemon=True)
            self._connections[request] = Connection(request, thread)
        try:
            thread.start()
        except RuntimeError:  # the system has no more threads; the caller logs it and closes the connection
            with self._lock:
                self._connections.pop(request, None)
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:
        self.log.exception("admin: a connection from %s failed", client_address[0])

    def connection_of(self, request: socket.socket) -> Connection | None:
        """Return what is known of a connection; None if it was given up to make room."""
        with self._lock:
            return self._connections.get(request)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _serve(self, request: socket.socket, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except (ConnectionError, TimeoutError) as error:
            self.log.debug("admin: the client %s went away: %s", client_address[0], error)
        except Exception:
            self.handle_error(request, client_address)
        finally:
            self.shutdown_request(request)
            with self._lock:
                self._connections.pop(request, None)

    def _make_room(self) -> bool:
        waiting = [connection for connection in self._connections.values() if connection.waiting]
        if not waiting:
            return False
        longest = min(waiting, key=lambda connection: connection.since)
        del self._connections[longest.socket]
        longest.end()
        return True

    def _refuse(self, request: socket.socket) -> None:
        with contextlib.suppress(OSError):  # best effort: the client learns it from the closed connection otherwise
            request.setblocking(False)
            request.send(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        self.shutdown_request(request)


class _BoundedReader(io.BufferedReader):
    """Reads requests, each within a time and a size; more raises TimeoutError or LineTooLong."""

    def __init__(self, connection: socket.socket) -> None:
        self._raw = _TimedSocket(connection, "r")
        self._left = 0
        super().__init__(self._raw)

    def begin(self, seconds: float, size: int) -> None:
        """Allow so much from now on."""
        self._raw.deadline = time.monotonic() + seconds
        self._left = size

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(self._left + 1)
        self._left -= len(line)
        if self._left < 0:
            raise LineTooLong("request")
        return line


class _TimedSocket(socket.SocketIO):
    """Reads until a deadline: a client that sends a byte now and then does not get longer than one that sends none."""

    def __init__(self, connection: socket.socket, mode: Any) -> None:
        super().__init__(connection, mode)
        self._connection = connection
        self.deadline = 0.0

    def readinto(self, buffer: Any) -> int | None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left)
        return super().readinto(buffer)


class Handler(BaseHTTPRequestHandler):
    """Serves one connection, in its thread."""

    protocol_version = "HTTP/1.1"
    server_version = f"inbound/{inbound.__version__}"
    sys_version = ""
    disable_nagle_algorithm = True  # head and body are sent one after the other, and must not wait for each other
    server: Server
    rfile: _BoundedReader

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = _BoundedReader(self.connection)
        self._connection = self.server.connection_of(self.connection)
        self._served = 0

    def handle_one_request(self) -> None:
        """Read one request and answer it; sets `close_connection` when it was the last."""
        limits = self.server.limits
        self.close_connection = True
        if self._connection is None:
            return
        self._connection.waits(True)
        self.rfile.begin(limits.idle_seconds if self._served else limits.request_seconds, limits.head_bytes)
        if not self.rfile.peek(1):
            return
        self.rfile.begin(limits.request_seconds, limits.head_bytes)
        try:
            self.raw_requestline = self.rfile.readline()
            if not self.raw_requestline.strip() or not self.parse_request():
                return
        except LineTooLong:
            self.requestline, self.request_version, self.command = "", self.protocol_version, ""
            self._send(text(HTTPStatus.REQUEST_URI_TOO_LONG, "the request is too long"), close=True)
            return
        self._connection.waits(False)
        self._served += 1
        readable = self._drop_body()
        self._send(self.server.answer(self._request()), not readable)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that could not be understood; the connection is closed, nobody knows where the next starts."""
        self.request_version = self.protocol_version  # else it counts as HTTP/0.9, which has no head
        self._send(text(code, message or HTTPStatus(code).phrase), close=True)

    def handle_expect_100(self) -> bool:
        """Nobody needs the body: the answer comes without it."""
        return True

    def log_message(self, format: str, *args: Any) -> None:
        self.server.log.debug("admin: %s: " + format, self.client_address[0], *args)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _request(self) -> Request:
        path, _, query = self.path.partition("?")
        of = self.headers
        return Request(self.command, path, query, of["Accept"], of["Host"], of["Origin"], of["Authorization"])

    def _drop_body(self) -> bool:
        """Read and forget the request's body. Returns whether another request can follow on this connection."""
        length = self.headers.get("Content-Length")
        if length is None:
            return "Transfer-Encoding" not in self.headers
        if not (length.isascii() and length.isdigit()) or int(length) > self.server.limits.body_bytes:
            return False
        if "Expect" in self.headers:
            return False
        return len(self.rfile.read(int(length))) == int(length)

    def _send(self, page: Page, close: bool) -> None:
        self.connection.settimeout(self.server.limits.answer_seconds)
        self.send_response(page.code)
        self.send_header("Content-Type", page.content_type)
        self.send_header("Content-Length", str(len(page.body)))
        self.send_header("Cache-Control", "no-store")
        for name, value in page.headers:
            self.send_header(name, value)
        if close:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)
        if close:
            self._linger()

    def _linger(self) -> None:
        """Read what the client still sends, within bounds: closing before that could take our answer from it."""
        self.connection.shutdown(socket.SHUT_WR)
        self.rfile.begin(LINGER_SECONDS, 0)
        left = self.server.limits.body_bytes
        while left > 0 and (data := self.rfile.read1(left)):
            left -= len(data)
