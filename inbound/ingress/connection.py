"""One HTTP/1.1 connection of the ingress: llhttp reads, everything is bounded, answers go out in the order of requests.

All in the event loop's thread. Why not a ready-made server: docs/decisions/0021-ingress-server.md.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

import httptools

from inbound.ingress.answers import ACCEPTED, Answer, http_date
from inbound.processors.spans import Served

#: Name of a header as it came -> as `SPECIAL` has it, or "". Bounded: they come from the network.
_special: dict[bytes, str] = {}
_NAMES_KEPT = 4096
_HOP_BY_HOP = frozenset({b"connection", b"upgrade", b"http2-settings"})
#: Headers that the ingress itself looks at. Each may be there once.
SPECIAL = frozenset({"authorization", "content-encoding", "content-length", "expect", "host", "origin"})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one connection may do. Times in seconds, sizes in bytes."""

    head_bytes: int = 64 * 1024
    request_seconds: float = 30.0  # from the first byte of a request to its last
    idle_seconds: float = 75.0  # between two requests
    answer_seconds: float = 30.0  # until the client has taken an answer
    linger_seconds: float = 2.0  # how long a client that gets no further may go on sending, so that it reads the answer
    connections: int = 2000
    pipelined: int = 128  # requests of one connection that are not answered


class Request:
    """One request; the handler answers it once, by `respond`."""

    __slots__ = (
        "answer", "body", "candidates", "connection", "head_size", "headers", "keep_alive", "method", "refused", "reserved",
        "served", "size", "special", "target",
    )  # fmt: skip

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.method = b""
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []  # all, as they came
        self.special: dict[str, bytes] = {}  # those of `SPECIAL`, by name in lower case
        self.body: bytes | bytearray = b""
        self.head_size = 0  # of the target and the headers
        self.size = 0  # of the body so far
        self.keep_alive = True
        self.refused = False  # answered before its body was there
        self.answer: Answer | None = None
        # The handler's own: bytes that it holds, the topics that it may be for, and the span that is made of it, if one is.
        self.reserved = 0
        self.served: Served | None = None
        self.candidates: tuple[str, ...] = ()

    def respond(self, answer: Answer) -> None:
        """Answer; what is answered first still goes out after the requests before it."""
        self.answer = answer
        self.connection.answered()


class Handler(Protocol):
    """What is done with requests."""

    def head(self, request: Request) -> Answer | None:
        """Say whether to read the body (None), or what to answer without it."""

    def grows(self, request: Request, count: int) -> Answer | None:
        """So many more bytes of the body came: go on (None), or answer."""

    def complete(self, request: Request) -> None:
        """The body is there: answer now or later."""

    def count(self, answer: Answer) -> None:
        """The connection itself has answered: what came was no whole request."""

    def over(self, request: Request) -> None:
        """The request is answered, or will never be complete. May be called again."""


class Listener:
    """What the connections of one listener share: the handler, the limits, the time, and who is there."""

    def __init__(self, handler: Handler, limits: Limits, loop: asyncio.AbstractEventLoop) -> None:
        self.handler = handler
        self.limits = limits
        self.loop = loop
        self.connections: set[Connection] = set()
        self.refused = 0  # connections closed because there were too many
        self.draining = False
        self._dirty: list[Connection] = []
        self.tick(0.0)

    def tick(self, wall: float) -> None:
        """Once a second: renew the date, close what is overdue. `wall` is the Unix time."""
        self.date = http_date(wall)
        self.accepted = ACCEPTED.encode(self.date, close=False)
        now = self.loop.time()
        for connection in [c for c in self.connections if c.deadline <= now]:
            connection.expire()

    def dirty(self, connection: Connection) -> None:
        """Have `connection` write its answers when all that is ready now has been answered."""
        if not self._dirty:
            self.loop.call_soon(self._flush)
        self._dirty.append(connection)

    def drain(self, grace: float) -> None:
        """Answer what is under way, saying that the connection ends; who is idle may still ask once within `grace` s."""
        self.draining = True
        limit = self.loop.time() + grace
        for connection in list(self.connections):
            if connection.idle:
                connection.deadline = min(connection.deadline, limit)
                if not connection.served:
                    connection.expire()

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.flush()


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._handler = listener.handler
        self._limits = listener.limits
        self._transport: Any = None
        self._parser = httptools.HttpRequestParser(self)
        self._reading: Request | None = None  # not complete yet
        self._pending: deque[Request] = deque()  # in their order, until their answers are written
        self._most_head = listener.limits.head_bytes
        self._queued = False  # in the listener's list of those that have answers
        self._paused = False  # not reading
        self._blocked = False  # the client does not take answers
        self._deaf = False  # what comes is thrown away
        self._ended = False  # the last answer is written
        self.served = False
        self.deadline = float("inf")

    @property
    def idle(self) -> bool:
        """Whether nothing is read or answered."""
        return self._reading is None and not self._pending

    # -- asyncio -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        listener = self._listener
        if len(listener.connections) >= self._limits.connections:
            listener.refused += 1
            transport.abort()
            return
        listener.connections.add(self)
        self.deadline = listener.loop.time() + self._limits.request_seconds

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.connections.discard(self)
        self._deaf = self._ended = True
        self._give_up_reading()

    def eof_received(self) -> bool:
        """A client may end its side and still wait for answers (but not with TLS, which knows no half of an end)."""
        self._deaf = True
        self._give_up_reading()
        return bool(self._pending) and bool(self._transport.can_write_eof())

    def data_received(self, data: bytes) -> None:
        while not self._deaf:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = self._without_upgrade() + data[upgrade.args[0] :]
                continue
            except (httptools.HttpParserCallbackError, httptools.HttpParserError) as error:
                self._malformed(error)
            return

    def pause_writing(self) -> None:
        self._blocked = True
        self._pace()
        self.deadline = self._listener.loop.time() + self._limits.answer_seconds

    def resume_writing(self) -> None:
        self._blocked = False
        self._pace()
        self._set_deadline()

    # -- httptools ---------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._reading = Request(self)
        self.deadline = self._listener.loop.time() + self._limits.request_seconds

    def on_url(self, url: bytes) -> None:
        request = self._request
        request.head_size += len(url)
        if request.head_size > self._most_head:
            raise TooLargeError
        request.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        request = self._reading or self._request
        request.head_size += len(name) + len(value) + 4
        if request.head_size > self._most_head:
            raise TooLargeError
        if request.method:
            return  # a trailer: behind the body nothing may change what the event is
        request.headers.append((name, value))
        special = _special.get(name)
        if special is None:
            special = _learn(name)
        if special:
            if special in request.special:
                raise RepeatedError(special)
            request.special[special] = value

    def on_headers_complete(self) -> None:
        request = self._request
        request.method = self._parser.get_method()
        if self._parser.should_upgrade():
            return  # the parser takes the request to end here: see `_without_upgrade`
        request.keep_alive = self._parser.should_keep_alive() and self._parser.get_http_version() == "1.1"
        self._pending.append(request)
        refusal = self._handler.head(request)
        if refusal is not None:
            self._refuse(request, refusal)
        elif "expect" in request.special and len(self._pending) == 1:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        request = self._request
        if request.refused:
            return
        request.size += len(body)
        refusal = self._handler.grows(request, len(body))
        if refusal is not None:
            self._refuse(request, refusal)
        elif isinstance(request.body, bytearray):
            request.body += body
        else:
            request.body = bytearray(request.body + body) if request.body else body

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            return
        request = self._request
        self._reading = None
        if not request.refused:
            self._handler.complete(request)
        self._pace()
        self._set_deadline()

    # -- answers -----------------------------------------------------------------------------------------------------

    def answered(self) -> None:
        """A request has its answer."""
        if not self._queued:
            self._queued = True
            self._listener.dirty(self)

    def flush(self) -> None:
        """Write the answers that are the next in order."""
        self._queued = False
        pending, listener = self._pending, self._listener
        written: list[bytes] = []
        while pending and (answer := pending[0].answer) is not None:
            request = pending.popleft()
            self._handler.over(request)
            if self._ended:
                continue
            self._ended = answer.last or not request.keep_alive or (listener.draining and not pending)
            if answer is ACCEPTED and not self._ended:
                written.append(listener.accepted)
            else:
                without_body = request.method == b"HEAD"
                written.append(answer.encode(listener.date, close=self._ended, without_body=without_body))
        if written and not self._transport.is_closing():
            self.served = True
            self._transport.write(written[0] if len(written) == 1 else b"".join(written))
        if self._ended:
            self._finish()
        elif self._deaf and not pending:
            self._transport.close()
        else:
            self._pace()
            self._set_deadline()

    def expire(self) -> None:
        """The deadline has passed."""
        self.deadline = float("inf")
        if self._blocked:
            self._transport.abort()
        elif self._reading is not None and not self._deaf:
            self._end_with(Answer(408, "the request did not come to its end in time; send it again", last=True))
        else:
            self._transport.close()

    def abort(self) -> None:
        """End the connection at once."""
        self._transport.abort()

    # -- inside ------------------------------------------------------------------------------------------------------

    @property
    def _request(self) -> Request:
        if self._reading is None:
            raise RuntimeError("the parser reported a part of a request before its begin")
        return self._reading

    def _without_upgrade(self) -> bytes:
        """Return the head of the request that asks for another protocol, to be read as one that does not.

        To go on in HTTP/1.1 is every server's right, and what clients that offer HTTP/2 expect.
        """
        request = self._request
        self._parser = httptools.HttpRequestParser(self)
        method = b"GET" if request.method == b"CONNECT" else request.method
        target = request.target if request.method != b"CONNECT" else b"/"  # answered with 405
        closes = (
            [b"connection: close"]
            if any(n.lower() == b"connection" and b"close" in v for n, v in request.headers)
            else []
        )
        kept = [b"%b: %b" % pair for pair in request.headers if pair[0].lower() not in _HOP_BY_HOP]
        return b"\r\n".join([b"%b %b HTTP/1.1" % (method, target), *kept, *closes, b"", b""])

    def _refuse(self, request: Request, answer: Answer) -> None:
        """Answer before the body has come: it is read, and thrown away, unless the connection ends."""
        request.refused = True
        request.body = b""
        # Who waited for `100 Continue` may, or may not, send the body now: nobody can tell what the next bytes are.
        request.answer = answer._replace(last=True) if "expect" in request.special else answer
        self._handler.over(request)
        self.answered()

    def _malformed(self, error: Exception) -> None:
        cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else None
        if isinstance(cause, TooLargeError):
            most = self._limits.head_bytes // 1024
            self._end_with(Answer(431, f"the request line and the headers have more than {most} KiB", last=True))
        elif isinstance(cause, RepeatedError):
            self._end_with(Answer(400, f"the header {cause} is there more than once", last=True))
        elif cause is not None:
            self._end_with(Answer(500, "it failed; see the log of the ingress", last=True))
            raise cause  # a defect of ours: the loop logs it
        else:
            self._end_with(Answer(400, f"this is no HTTP/1.1 request: {error}", last=True))

    def _end_with(self, answer: Answer) -> None:
        """Answer what was being read, and read nothing more."""
        self._deaf = True
        request = self._reading or Request(self)
        if not request.refused:
            if request not in self._pending:
                self._pending.append(request)
            self._handler.count(answer)
            self._refuse(request, answer)
        elif request in self._pending and request.answer is not None:
            request.answer = request.answer._replace(last=True)
        else:
            self._ended = True
            self._finish()

    def _finish(self) -> None:
        """End the connection, in a way that lets a client that is still sending read the answer."""
        if self._transport.is_closing():
            return
        still_sending = self._reading is not None
        self._deaf = True
        self._give_up_reading()
        if not still_sending:
            self._transport.close()
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        self.deadline = self._listener.loop.time() + self._limits.linger_seconds

    def _give_up_reading(self) -> None:
        """What has not come to its end never will."""
        request, self._reading = self._reading, None
        if request is not None:
            self._handler.over(request)
            if request in self._pending and not request.refused:
                self._pending.remove(request)

    def _set_deadline(self) -> None:
        if self._reading is None and not self._blocked and not self._deaf:
            self.deadline = float("inf") if self._pending else self._listener.loop.time() + self._limits.idle_seconds

    def _pace(self) -> None:
        """Read only as long as the client takes answers, and few requests wait for theirs."""
        stop = self._blocked or len(self._pending) >= self._limits.pipelined
        if stop == self._paused or self._deaf or self._transport.is_closing():
            return
        self._paused = stop
        if stop:
            self._transport.pause_reading()
            self.deadline = float("inf")
        else:
            self._transport.resume_reading()
            self.deadline = self._listener.loop.time() + self._limits.request_seconds


def _learn(name: bytes) -> str:
    lower = name.decode("latin-1").lower()
    special = lower if lower in SPECIAL else ""
    if len(_special) < _NAMES_KEPT:
        _special[name] = special
    return special


class TooLargeError(Exception):
    """The head of a request."""


class RepeatedError(Exception):
    """A header that may be there once."""
