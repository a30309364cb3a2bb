"""A small HTTP/1.1 server that bad clients cannot hurt: everything is bounded, and each thread and socket has an owner.

Threads: one accepts, one serves each connection. A connection is either *waiting* (for a request, or for the rest of
one) or *answering*. When there are too many the one that has waited longest is closed, so a crowd of silent clients
cannot keep a probe out; those that answer are never closed.
"""

from __future__ import annotations

import contextlib
import io
import logging
import select
import socket
import socketserver
import ssl
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.errors import FirstHeaderLineIsContinuationDefect, MissingHeaderBodySeparatorDefect
from email.message import Message
from http import HTTPStatus
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import inbound
from inbound.http.pages import Page, text
from inbound.http.tls import Certificates, name_of


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
    client: str = ""  # the address that the request came from
    from_browser: bool = False  # it says itself that it is a browser's
    body: bytes = field(default=b"", repr=False)  # of paths that take one
    certificate: str | None = None  # whom the client's certificate names, if it showed one; it is verified
    site: str | None = None  # where a browser says that the page stands which asks: the header Sec-Fetch-Site
    gone: Callable[[], bool] = field(default=lambda: False, repr=False, compare=False)  # whether the client went away


Answer = Callable[[Request], Page]
#: What may be asked for.
METHODS = ("GET", "HEAD")
#: The path whose requests, and those below it, have a body that somebody wants.
TAKES_BODY = "/jolokia"
#: How long a client may go on sending after its last answer. Seconds.
LINGER_SECONDS = 1.0
#: What the parser of headers notes where it took a line for the begin of the body.
_MISREAD = (MissingHeaderBodySeparatorDefect, FirstHeaderLineIsContinuationDefect)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one server bears. Times in seconds, sizes in bytes."""

    connections: int = 32
    head_bytes: int = 16 * 1024  # request line and headers of one request
    dropped_bytes: int = 64 * 1024  # a body that nobody wants is read, so that the client gets to read the answer
    body_bytes: int = 1024 * 1024  # a body that somebody wants
    linger_bytes: int = 4 * 1024 * 1024  # of one that is refused: read for `LINGER_SECONDS`, for the same reason
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
    certificate: str | None = None  # whom the client's certificate names

    def waits(self, waiting: bool) -> None:
        self.since = time.monotonic()
        self.waiting = waiting

    def end(self) -> None:
        """Wake its thread, which finds the connection closed."""
        with contextlib.suppress(OSError):  # the client, or the thread itself, was faster
            # The socket's own: that of TLS would let what is under way go on without it.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class Server(HTTPServer):
    """Serves `answer` at `address`; bound and listening once made, served once `start`ed.

    Raises:
        OSError: the address cannot be used.
    """

    request_queue_size = 128

    def __init__(
        self,
        family: int,
        address: tuple[Any, ...],
        answer: Answer,
        *,
        log: logging.Logger,
        limits: Limits,
        certificates: Certificates | None = None,
        name: str = "admin",
    ) -> None:
        """`name` is that of the threads, and of the listener in the log."""
        self.address_family = family
        self.name = name
        self.answer = answer
        self.log = log
        self.limits = limits
        self.certificates = certificates
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, Connection] = {}
        self._thread = threading.Thread(target=self.serve_forever, name=name, daemon=True)
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
                self.log.warning(
                    "%s: an answer is still being made at the end; its thread is left to the system", self.name
                )

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
                    "%s: %d connections are being answered, the most allowed: another one was refused",
                    self.name,
                    len(self._connections),
                )
                self._refuse(request)
                return
            context = self.certificates.context if self.certificates is not None else None
            thread = threading.Thread(
                target=self._serve, args=(request, client_address, context), name=f"{self.name}-c", daemon=True
            )
            self._connections[request] = Connection(request, thread)
        try:
            thread.start()
        except RuntimeError:  # the system has no more threads; the caller logs it and closes the connection
            with self._lock:
                self._connections.pop(request, None)
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:
        self.log.exception("%s: a connection from %s failed", self.name, client_address[0])

    def connection_of(self, request: socket.socket) -> Connection | None:
        """Return what is known of a connection; None if it was given up to make room."""
        with self._lock:
            return self._connections.get(request)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _serve(self, request: socket.socket, client_address: Any, context: ssl.SSLContext | None) -> None:
        try:
            if context is not None:
                request = self._encrypted(request, context)
            self.finish_request(request, client_address)
        except (ConnectionError, TimeoutError, ssl.SSLError) as error:
            self.log.debug("%s: the client %s went away: %s", self.name, client_address[0], error)
        except Exception:
            self.handle_error(request, client_address)
        finally:
            self.shutdown_request(request)
            with self._lock:
                self._connections.pop(request, None)

    def _encrypted(self, request: socket.socket, context: ssl.SSLContext) -> socket.socket:
        """Return what takes the place of `request`; who does not speak TLS, or shows a bad certificate, is refused later."""
        with self._lock:
            connection = self._connections.pop(request, None)
            encrypted = context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
            if connection is not None:
                connection.socket = encrypted
                self._connections[encrypted] = connection
        try:
            encrypted.settimeout(self.limits.request_seconds)
            encrypted.do_handshake()
            if connection is not None:
                connection.certificate = name_of(encrypted)
        except BaseException as error:
            with self._lock:
                self._connections.pop(encrypted, None)
            encrypted.close()
            if isinstance(error, OSError):  # whatever it is, the client did it
                raise ConnectionError(str(error)) from None
            raise
        return encrypted

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
        self._served += 1
        self._respond(self._connection)

    def _respond(self, connection: Connection) -> None:
        """Read the body of a request whose head is there, and answer."""
        refusal, body, readable = None, b"", True
        if any(isinstance(defect, _MISREAD) for defect in self.headers.defects):
            # What stands behind such a line was not taken for headers, and a proxy before us may have read it otherwise.
            refusal = text(HTTPStatus.BAD_REQUEST, "a line among the headers is none")
        elif not self._takes_body:
            readable = self._drop_body()
        elif isinstance(found := self._body(), Page):
            refusal = found
        else:
            body = found
        connection.waits(False)
        self._send(refusal or self.server.answer(self._request(body)), close=not readable or refusal is not None)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that could not be understood; the connection is closed, nobody knows where the next starts."""
        self.request_version = self.protocol_version  # else it counts as HTTP/0.9, which has no head
        self._send(text(code, message or HTTPStatus(code).phrase), close=True)

    def handle_expect_100(self) -> bool:
        """Nobody needs the body but who waits for it in `_body`: the answer comes without it."""
        return True

    def log_message(self, format: str, *args: Any) -> None:
        self.server.log.debug("%s: %s: " + format, self.server.name, self.client_address[0], *args)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _request(self, body: bytes) -> Request:
        path, _, query = self.path.partition("?")
        of = self.headers
        return Request(
            self.command, path, query, of["Accept"], of["Host"], of["Origin"], of["Authorization"],
            client=str(self.client_address[0]), from_browser=_from_browser(of), body=body,
            certificate=self._connection.certificate if self._connection is not None else None,
            site=of["Sec-Fetch-Site"], gone=self._gone,
        )  # fmt: skip

    @property
    def _takes_body(self) -> bool:
        return f"{self.path.partition('?')[0]}/".startswith(f"{TAKES_BODY}/")

    def _length(self) -> int | None:
        """Return how long the body is that follows; None: that is not clear, or not said in the one way we read."""
        lengths = set(self.headers.get_all("Content-Length", ["0"]))
        length = lengths.pop()
        if lengths or "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit()):
            return None
        return int(length) if len(length) < 19 else sys.maxsize

    def _body(self) -> bytes | Page:
        """Return the request's body, or what to answer instead, and nothing more on this connection."""
        length, most = self._length(), self.server.limits.body_bytes
        if length is None:
            if "Transfer-Encoding" in self.headers and "Content-Length" not in self.headers:
                return text(HTTPStatus.LENGTH_REQUIRED, "send the body with Content-Length, not in chunks")
            return text(HTTPStatus.BAD_REQUEST, "how long the body is must be said once, by Content-Length")
        if length > most:
            return text(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {most // 1024} KiB")
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(HTTPStatus.CONTINUE)
            self.end_headers()
        body = self.rfile.read(length)
        return body if len(body) == length else text(HTTPStatus.BAD_REQUEST, "the body ended too early")

    def _drop_body(self) -> bool:
        """Read and forget the request's body. Returns whether another request can follow on this connection."""
        length = self._length()
        if length is None or length > self.server.limits.dropped_bytes or (length and "Expect" in self.headers):
            return False
        return len(self.rfile.read(length)) == length

    def _gone(self) -> bool:
        """Whether the client has hung up. What it may have sent before that is not read."""
        poll = select.poll()
        # Where the system does not tell of the end of what the client sends, it tells when both directions are over.
        poll.register(self.connection, getattr(select, "POLLRDHUP", 0))
        return any(event & ~select.POLLIN for _, event in poll.poll(0))

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
        if isinstance(self.connection, ssl.SSLSocket):
            self.connection.settimeout(LINGER_SECONDS)
            with contextlib.suppress(OSError, ValueError):  # the client is gone, or has more to send
                self.connection.unwrap()
        try:
            self.connection.shutdown(socket.SHUT_WR)
        except OSError:  # the client is gone
            return
        self.rfile.begin(LINGER_SECONDS, 0)
        left = self.server.limits.linger_bytes
        while left > 0 and (data := self.rfile.read1(left)):
            left -= len(data)


def _from_browser(headers: Message) -> bool:
    """Whether headers that no page can take away say so: an `<img>` that points here has no Origin."""
    return "Sec-Fetch-Site" in headers or "Referer" in headers or headers.get("User-Agent", "").startswith("Mozilla/")
