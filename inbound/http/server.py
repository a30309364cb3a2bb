"""A server of pages that bad clients cannot hurt: the admin port, and profiles.

A request is read by the loop of `HttpServer`; its page is made in a thread of a few, for that may take time. Probes have threads
of their own, and where too many requests wait for theirs they are refused at once, so that a crowd of slow ones keeps neither
`/healthz` from answering nor an operator out.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any

from inbound.http.answers import Answer
from inbound.http.connection import Incoming
from inbound.http.listener import Limits
from inbound.http.pages import Page
from inbound.http.serving import HttpServer, listening_at
from inbound.http.tls import Certificates
from inbound.processors.http_values import DISPATCHED


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
    cached: bool = False  # the token came as a password, which a browser keeps and sends whoever wrote the page
    gone: Callable[[], bool] = field(default=lambda: False, repr=False, compare=False)  # whether the client went away


MakePage = Callable[[Request], Page]
#: What may be asked for.
METHODS = ("GET", "HEAD")
#: The path whose requests, and those below it, have a body that somebody wants.
TAKES_BODY = "/jolokia"
#: What tells a supervisor how the process is: never kept waiting by others.
PROBES = (b"/healthz", b"/readyz")
PROBE_THREADS = 2
_DISPATCHED = DISPATCHED.encode()
#: Of the admin port and of profiles.
LIMITS = Limits(
    head_bytes=16 * 1024, request_seconds=10.0, connections=48, pipelined=2, feed_bytes=2048, linger_seconds=1.0
)


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What the pages of one server may take. Sizes in bytes."""

    threads: int = 8  # that make pages
    waiting: int = (
        8  # requests that wait for one; with the threads, fewer than one address has connections: a probe gets in
    )
    body: int = 1024 * 1024  # of a request, where somebody wants it
    dropped: int = 64 * 1024  # of one that nobody wants: it is read, so that the client gets to read the answer
    unread: int = 32 * 1024 * 1024  # of answers that clients have not taken; beyond it only probes are answered
    close_seconds: float = 2.0  # for answers under way when the server is closed


class Server:
    """Serves `make` at `address`; listening once made, served once `start`ed.

    Raises:
        OSError: the address cannot be used.
    """

    def __init__(
        self,
        family: int,
        address: tuple[Any, ...],
        make: MakePage,
        *,
        log: logging.Logger,
        limits: Limits = LIMITS,
        bounds: Bounds = Bounds(),
        certificates: Certificates | None = None,
        name: str = "admin",
    ) -> None:
        """`name` is that of the threads, and of the listener in the log."""
        self._make = make
        self._log = log
        self._bounds = bounds
        self._name = name
        self._pages = _Threads(f"{name}-page", bounds.threads, bounds.waiting, log)
        self._probes = _Threads(f"{name}-probe", PROBE_THREADS, 2 * limits.connections, log)
        self._socket = listening_at(family, address)
        self.server_address = tuple(self._socket.getsockname())
        self._server = HttpServer(self, limits, name=name, log=log, certificates=certificates)

    def start(self) -> None:
        self._server.start(self._socket)

    def close(self) -> None:
        """Stop listening, let answers under way end, and end every thread. Bounded; may be called twice."""
        deadline = time.monotonic() + self._bounds.close_seconds
        left = self._server.stop(self._bounds.close_seconds)
        self._socket.close()
        for threads in (self._pages, self._probes):
            if not threads.close(deadline):
                left += 1
        if left:
            self._log.warning(
                "%s: an answer is still being made at the end; its thread is left to the system", self._name
            )

    # -- listener.Handler, in the loop's thread ------------------------------------------------------------------------

    def head(self, request: Incoming) -> Answer | None:
        if any(name.lower() == _DISPATCHED for name, _ in request.headers):
            reason = (
                "this port takes nothing from a subscription: correct its subscriberUri, replyUri or deadLetterSink"
            )
            return Answer(HTTPStatus.FORBIDDEN, reason, last=True)
        return self._too_long(request, request.length) if request.length is not None else None

    def grows(self, request: Incoming, count: int) -> Answer | None:
        return self._too_long(request, request.size)

    def complete(self, request: Incoming) -> None:
        is_probe = request.target.partition(b"?")[0] in PROBES
        threads = self._probes if is_probe else self._pages
        if not is_probe and self._server.unread > self._bounds.unread:
            request.respond(_busy("answers wait for clients that do not read them"))
        elif not threads.take(partial(self._answer, request, self._seen(request))):
            request.respond(_busy(f"{self._bounds.threads + self._bounds.waiting} requests are being answered"))

    def count(self, answer: Answer) -> None:
        """Nobody counts them."""

    def over(self, request: Incoming) -> None:
        """Nothing is kept of a request."""

    # -- inside --------------------------------------------------------------------------------------------------------

    def _too_long(self, request: Incoming, size: int) -> Answer | None:
        wanted = f"{request.target.partition(b'?')[0].decode('latin-1')}/".startswith(f"{TAKES_BODY}/")
        most = self._bounds.body if wanted else self._bounds.dropped
        if size <= most:
            return None
        return Answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {most // 1024} KiB", last=True)

    def _seen(self, request: Incoming) -> Request:
        path, _, query = request.target.decode("latin-1").partition("?")
        of: dict[str, str] = {}
        for name, value in request.headers:
            of.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
        connection = request.connection
        return Request(
            request.method.decode("latin-1"), path, query, of.get("accept"), of.get("host"), of.get("origin"),
            of.get("authorization"), client=connection.address, from_browser=_from_browser(of), body=bytes(request.body),
            certificate=connection.certificate, site=of.get("sec-fetch-site"), gone=lambda: connection.hung_up,
        )  # fmt: skip

    def _answer(self, request: Incoming, seen: Request) -> None:
        """Make the page. In a thread of a few."""
        try:
            page = self._make(seen)
        except Exception:
            self._log.exception("%s: %s could not be answered", self._name, seen.path)
            answer = Answer(HTTPStatus.INTERNAL_SERVER_ERROR, "it failed; see the log of the process")
        else:
            headers = ("Cache-Control: no-store", *(f"{name}: {value}" for name, value in page.headers))
            answer = Answer(page.code, headers=headers, body=page.body, content_type=page.content_type)
        self._server.call_soon(partial(request.respond, answer))


class _Threads:
    """So many threads, begun when they are needed, that do what they are given. Any thread."""

    def __init__(self, name: str, most: int, waiting: int, log: logging.Logger) -> None:
        self._name = name
        self._most = most
        self._log = log
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._room = most + waiting
        self._busy = 0  # what was taken and is not done
        self._threads: list[threading.Thread] = []

    def take(self, work: Callable[[], object]) -> bool:
        """Have it done, if there is room for it. Returns whether there is."""
        with self._lock:
            if self._busy >= self._room:
                return False
            self._busy += 1
            if len(self._threads) < min(self._most, self._busy):
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the system has no more threads
                    if not self._threads:
                        self._busy -= 1
                        return False
                else:
                    self._threads.append(thread)
        self._work.put(work)
        return True

    def close(self, deadline: float) -> bool:
        """End them when they have done what they do, at most until then. Returns whether all have ended."""
        with self._lock:
            threads, self._room = self._threads, 0
        for _ in threads:
            self._work.put(None)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            finally:
                with self._lock:
                    self._busy -= 1


def _busy(why: str) -> Answer:
    return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{why}; try again soon", retry_after=1)


def _from_browser(headers: dict[str, str]) -> bool:
    """Whether headers that no page can take away say so: an `<img>` that points here has no Origin."""
    return "sec-fetch-site" in headers or "referer" in headers or headers.get("user-agent", "").startswith("Mozilla/")
