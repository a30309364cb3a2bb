"""Serves the pages of the admin port, and of profiles.

The loop of `HttpServer` reads a request; one of a few threads makes its page, which may take time. Probes have separate threads,
and too many waiting requests are refused at once: a crowd of slow ones neither delays `/healthz` nor keeps an operator out.
"""

from __future__ import annotations

import logging
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus

from inbound.config import AdminTlsConfig
from inbound.config.http_values import DISPATCHED
from inbound.http.server.connection import Incoming
from inbound.http.server.listener import RequestHandler, ServerLimits
from inbound.http.server.page import Page, ServerAnswer
from inbound.http.server.serving import HttpServer
from inbound.http.server.tls import Certificates, PemFiles
from inbound.runtime.driver import DaemonThreads


@dataclass(frozen=True)
class Request:
    """A request for a page; header values are unchanged."""

    method: str
    path: str  # without the query, not decoded
    query: str = ""
    accept: str | None = None
    host: str | None = None
    origin: str | None = None
    authorization: str | None = field(default=None, repr=False)
    client: str = ""  # its address
    from_browser: bool = False  # by its own headers
    body: bytes = field(default=b"", repr=False)  # of paths that take one
    certificate: str | None = None  # the subject of the client's verified certificate, if it showed one
    site: str | None = None  # the header Sec-Fetch-Site: a browser's word on the requesting page
    cached: bool = False  # the token came as a password, which a browser keeps and sends for any page
    gone: Callable[[], bool] = field(default=lambda: False, repr=False, compare=False)  # whether the client went away

    def with_password(self) -> Request:
        """Return this request with its password, if any, as the token.

        Some clients have no other way to send one.
        """
        scheme, _, given = (self.authorization or "").partition(" ")
        if scheme.lower() != "basic":
            return self
        try:
            password = b64decode(given.strip(), validate=True).decode().partition(":")[2]
        except ValueError:  # no base64, or no text in it
            return self
        return replace(self, authorization=f"Bearer {password}", cached=True)


METHODS = ("GET", "HEAD")
#: Requests of this path, and of those below it, have a body that is used.
TAKES_BODY = "/jolokia"
#: A supervisor's requests: others never delay them.
PROBES = (b"/healthz", b"/readyz")
PROBE_THREADS = 2
_DISPATCHED = DISPATCHED.encode()
#: Of the admin port and of profiles.
LIMITS = ServerLimits(
    head_bytes=16 * 1024, request_seconds=10.0, connections=48, pipelined=2, feed_bytes=2048, linger_seconds=1.0
)


@dataclass(frozen=True, kw_only=True)
class PageBounds:
    """The bounds of one server's pages; sizes are in bytes."""

    threads: int = 8  # that make pages
    #: Requests that wait for a thread. With the threads, fewer than one address has connections: a probe gets in.
    waiting: int = 8
    body: int = 1024 * 1024  # of a request, if it is used
    dropped: int = 64 * 1024  # of one that is not used: it is read, so that the client can read the answer
    unread: int = 32 * 1024 * 1024  # of answers that clients have not taken; beyond it only probes are answered
    close_seconds: float = 2.0  # for answers in flight when the server is closed


class PageServer(RequestHandler):
    """Serves `make` from `start` to `close`."""

    def __init__(
        self,
        make: Callable[[Request], Page],
        *,
        log: logging.Logger,
        limits: ServerLimits = LIMITS,
        bounds: PageBounds = PageBounds(),
        tls: AdminTlsConfig | None = None,
        name: str = "admin",
    ) -> None:
        """`name` is the configuration section's, the threads' and the log's.

        Raises:
            ConfigError: a file that `tls` names cannot be used.
        """
        self._make = make
        self._log = log
        self._bounds = bounds
        self._name = name
        self._pages = _Threads(f"{name}-page", bounds.threads, bounds.waiting)
        self._probes = _Threads(f"{name}-probe", PROBE_THREADS, 2 * limits.connections)
        certificates = Certificates(PemFiles.of_admin(tls, name), log) if tls is not None else None
        self._server = HttpServer(self, limits, name=name, log=log, certificates=certificates)

    def start(self, host: str, ports: Sequence[int]) -> None:
        """Listen on the first free port; raises ConfigError: unusable address."""
        self._server.start(host, ports)

    @property
    def host(self) -> str:
        """The address that it listens on."""
        return str(self._server.address[0])

    @property
    def port(self) -> int:
        """The port that it listens on; 0 before `start`."""
        return int(self._server.address[1])

    @property
    def url(self) -> str:
        """Its URL: see `HttpServer.url`."""
        return self._server.url

    def close(self) -> None:
        """Stop listening, let answers in flight end, and end every thread.

        Within `close_seconds`; a second call does nothing.
        """
        deadline = time.monotonic() + self._bounds.close_seconds
        left = self._server.stop(self._bounds.close_seconds)
        left += sum(not threads.close(deadline) for threads in (self._pages, self._probes))
        if left:
            self._log.warning(
                "%s: an answer is still being made at the end; its thread is left to the system", self._name
            )

    # -- listener.Handler, in the loop's thread ------------------------------------------------------------------------

    def head(self, request: Incoming) -> ServerAnswer | None:
        if any(name.lower() == _DISPATCHED for name, _ in request.headers):
            reason = (
                "this port takes nothing from a subscription: correct its subscriberUri, replyUri or deadLetterSink"
            )
            return ServerAnswer(HTTPStatus.FORBIDDEN, reason, last=True)
        return self._too_long(request, request.length) if request.length is not None else None

    def grows(self, request: Incoming, count: int) -> ServerAnswer | None:
        return self._too_long(request, request.size)

    def complete(self, request: Incoming) -> None:
        is_probe = request.target.partition(b"?")[0] in PROBES
        threads = self._probes if is_probe else self._pages
        if not is_probe and self._server.unread > self._bounds.unread:
            request.respond(_busy("answers wait for clients that do not read them"))
        elif not threads.take(partial(self._answer, request, self._seen(request))):
            request.respond(_busy(f"{self._bounds.threads + self._bounds.waiting} requests are being answered"))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _too_long(self, request: Incoming, size: int) -> ServerAnswer | None:
        wanted = f"{request.target.partition(b'?')[0].decode('latin-1')}/".startswith(f"{TAKES_BODY}/")
        most = self._bounds.body if wanted else self._bounds.dropped
        if size <= most:
            return None
        return ServerAnswer(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {most // 1024} KiB", last=True
        )

    def _seen(self, request: Incoming) -> Request:
        path, _, query = request.target.decode("latin-1").partition("?")
        of: dict[str, str] = {}
        for name, value in request.headers:
            of.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
        connection = request.connection
        # Headers that no page can take away: an `<img>` that points here has no Origin.
        from_browser = "sec-fetch-site" in of or "referer" in of or of.get("user-agent", "").startswith("Mozilla/")
        return Request(
            request.method.decode("latin-1"), path, query, of.get("accept"), of.get("host"), of.get("origin"),
            of.get("authorization"), client=connection.address, from_browser=from_browser, body=bytes(request.body),
            certificate=connection.certificate, site=of.get("sec-fetch-site"), gone=lambda: connection.hung_up,
        )  # fmt: skip

    def _answer(self, request: Incoming, seen: Request) -> None:
        try:
            page = self._make(seen)
        except Exception:
            self._log.exception("%s: %s could not be answered", self._name, seen.path)
            answer = ServerAnswer(HTTPStatus.INTERNAL_SERVER_ERROR, "it failed; see the log of the process")
        else:
            headers = ("Cache-Control: no-store", *(f"{name}: {value}" for name, value in page.headers))
            answer = ServerAnswer(page.code, headers=headers, body=page.body, content_type=page.content_type)
        self._server.call_soon(partial(request.respond, answer))


class _Threads:
    """A few threads with a bounded queue. Any thread."""

    def __init__(self, name: str, most: int, waiting: int) -> None:
        self._pool = DaemonThreads(most, name)
        self._lock = threading.Lock()
        self._room = most + waiting
        self._running: set[Future[object]] = set()

    def take(self, work: Callable[[], object]) -> bool:
        """Run `work` in a thread; return False: there is no room."""
        with self._lock:
            if len(self._running) >= self._room:
                return False
            try:
                future = self._pool.submit(work)
            except RuntimeError:  # the system has no more threads
                return False
            self._running.add(future)
        future.add_done_callback(self._over)
        return True

    def close(self, deadline: float) -> bool:
        """Take nothing more; return whether all work has ended by `deadline`."""
        with self._lock:
            self._room, running = 0, set(self._running)
        self._pool.shutdown()
        return not wait(running, max(0.0, deadline - time.monotonic())).not_done

    def _over(self, future: Future[object]) -> None:
        with self._lock:
            self._running.discard(future)


def _busy(why: str) -> ServerAnswer:
    return ServerAnswer(HTTPStatus.SERVICE_UNAVAILABLE, f"{why}; try again soon", retry_after=1)
