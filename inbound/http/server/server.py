"""A server of pages: the admin port, and profiles.

A request is read by the loop of `HttpServer`; its page is made in a thread of a few, for that may take time. Probes have threads
of their own, and where too many requests wait for theirs they are refused at once, so that a crowd of slow ones keeps neither
`/healthz` from answering nor an operator out.
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
    """A request for a page; header values are as they were sent."""

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
    cached: bool = False  # the token came as a password, which a browser keeps and sends for any page
    gone: Callable[[], bool] = field(default=lambda: False, repr=False, compare=False)  # whether the client went away

    def with_password(self) -> Request:
        """Return this request with its password as the token: some clients have no other way to send one."""
        scheme, _, given = (self.authorization or "").partition(" ")
        if scheme.lower() != "basic":
            return self
        try:
            password = b64decode(given.strip(), validate=True).decode().partition(":")[2]
        except ValueError:  # no base64, or no text in it
            return self
        return replace(self, authorization=f"Bearer {password}", cached=True)


#: What may be asked for.
METHODS = ("GET", "HEAD")
#: Requests of this path, and of those below it, have a body that is used.
TAKES_BODY = "/jolokia"
#: What tells a supervisor how the process is: never kept waiting by others.
PROBES = (b"/healthz", b"/readyz")
PROBE_THREADS = 2
_DISPATCHED = DISPATCHED.encode()
#: Of the admin port and of profiles.
LIMITS = ServerLimits(
    head_bytes=16 * 1024, request_seconds=10.0, connections=48, pipelined=2, feed_bytes=2048, linger_seconds=1.0
)


@dataclass(frozen=True, kw_only=True)
class PageBounds:
    """What the pages of one server may take.

    Sizes in bytes.
    """

    threads: int = 8  # that make pages
    waiting: int = (
        8  # requests that wait for one; with the threads, fewer than one address has connections: a probe gets in
    )
    body: int = 1024 * 1024  # of a request, where it is used
    dropped: int = 64 * 1024  # of one that is not used: it is read, so that the client gets to read the answer
    unread: int = 32 * 1024 * 1024  # of answers that clients have not taken; beyond it only probes are answered
    close_seconds: float = 2.0  # for answers under way when the server is closed


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
        """`name` is that of the configuration's section, of the threads, and of the listener in the log.

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
        """Listen on the first of `ports` that is free. Raises ConfigError: the address cannot be used."""
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
        """Where others reach it, without a slash at the end. Listening everywhere, the host's name stands for it."""
        return self._server.url

    def close(self) -> None:
        """Stop listening, let answers under way end, and end every thread. Bounded; may be called twice."""
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
        """Make the page. In a thread of a few."""
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
    """A few threads with bounded work.

    Any thread.
    """

    def __init__(self, name: str, most: int, waiting: int) -> None:
        self._pool = DaemonThreads(most, name)
        self._lock = threading.Lock()
        self._room = most + waiting
        self._under_way: set[Future[object]] = set()

    def take(self, work: Callable[[], object]) -> bool:
        """Do it in one of the threads. Returns False where there is no room for it."""
        with self._lock:
            if len(self._under_way) >= self._room:
                return False
            try:
                future = self._pool.submit(work)
            except RuntimeError:  # the system has no more threads
                return False
            self._under_way.add(future)
        future.add_done_callback(self._over)
        return True

    def close(self, deadline: float) -> bool:
        """Take nothing more. Returns whether everything under way has ended by `deadline`."""
        with self._lock:
            self._room, under_way = 0, set(self._under_way)
        self._pool.shutdown()
        return not wait(under_way, max(0.0, deadline - time.monotonic())).not_done

    def _over(self, future: Future[object]) -> None:
        with self._lock:
            self._under_way.discard(future)


def _busy(why: str) -> ServerAnswer:
    return ServerAnswer(HTTPStatus.SERVICE_UNAVAILABLE, f"{why}; try again soon", retry_after=1)
