"""One HTTP/1.1 connection: llhttp parses, everything is bounded, answers keep the order.

All runs on the event loop's thread. An ambiguous request is refused, and nothing more is read: a proxy before us may have read
it in another way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import httptools

from inbound.http.server.listener import ConnectionTable, Waits
from inbound.http.server.page import ACCEPTED, ServerAnswer
from inbound.http.server.tls import name_of

if TYPE_CHECKING:
    from inbound.http.server.serving import Handshake

#: A received header name -> its name in `SPECIAL`, or "". Bounded: they come from the network.
_special: dict[bytes, str] = {}
_NAMES_KEPT, _LONGEST_KEPT = 4096, 64
_HOP_BY_HOP = frozenset({b"connection", b"upgrade", b"http2-settings"})
#: Headers that the server itself reads. Each may be there once.
SPECIAL = frozenset(
    {"authorization", "content-encoding", "content-length", "expect", "host", "origin", "transfer-encoding"}
)


class RequestSpan(Protocol):
    """The span of one request, if the handler makes one."""

    def publish(self, topic: str, count: int) -> Any:
        """Begin to write the request's `count` events to a topic."""

    def end(self, status: int | None) -> None:
        """End it with the answer's status; None: the request is incomplete.

        Further calls do nothing.
        """


class Incoming:
    """One request; the handler answers it once, by `respond`."""

    __slots__ = (
        "answer", "body", "candidates", "coming", "complete_at", "connection", "head_size", "headers", "keep_alive", "length",
        "method", "refused", "reserved", "size", "span", "special", "target",
    )  # fmt: skip

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.method = b""
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.special: dict[str, bytes] = {}  # those of `SPECIAL`, by name in lower case
        self.body: bytes | bytearray = b""
        self.head_size = 0  # of the target and the headers
        self.length: int | None = None  # of the body, as announced
        self.size = 0  # of the body so far
        self.keep_alive = True
        self.refused = False  # answered before its body was there
        self.answer: ServerAnswer | None = None
        # The handler's own:
        self.reserved = self.coming = 0  # bytes that it holds, and how many of them while more are to come
        self.complete_at: float | None = None  # from its last byte until its answer
        self.span: RequestSpan | None = None
        self.candidates: tuple[str, ...] = ()  # its possible topics

    def respond(self, answer: ServerAnswer) -> None:
        """Answer; the answer goes out after those of earlier requests."""
        self.answer = answer
        self.connection.answered()


class ServerConnection(asyncio.Protocol):
    """One client: a `Client` of its listener."""

    def __init__(self, listener: ConnectionTable, handshake: Handshake | None = None) -> None:
        """The connection replaces `handshake` in the listener's table."""
        self._listener = listener
        self._handshake = handshake
        self._handler = listener.handler
        self._limits = listener.limits
        self._transport: Any = None
        self._parser = httptools.HttpRequestParser(self)
        self._reading: Incoming | None = None  # not complete yet
        self._pending: deque[Incoming] = deque()  # in their order, until their answers are written
        self._most_head = listener.limits.head_bytes
        self._queued = False  # in the listener's list of connections with answers
        self._paused = False  # not reading
        self._blocked = False  # the client does not take answers
        self._deaf = False  # received bytes are thrown away
        self._ended = False  # the last answer is written
        self._rest = b""  # received while there were requests enough
        self._overhead = 0  # bytes of the incomplete request that belong to no whole head or body
        self.served = False
        self.hung_up = False  # the client sends nothing more
        self.address = ""
        self.certificate: str | None = None  # the subject of the client's verified certificate, if it showed one
        self.since = 0.0
        self.deadline = float("inf")

    @property
    def idle(self) -> bool:
        """Whether no request is read or answered."""
        return self._reading is None and not self._pending

    @property
    def unread(self) -> int:
        """The bytes of answers that the client has not taken yet."""
        return int(self._transport.get_write_buffer_size())

    @property
    def waits(self) -> Waits:
        """Whether it waits for its client or for us."""
        if self._pending and self._pending[0] is not self._reading:  # also while the next request comes
            return Waits.FOR_US
        return Waits.FOR_ITS_CLIENT_TO_READ if self._blocked else Waits.FOR_ITS_CLIENT

    # -- asyncio -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.address = address_of(transport)
        encrypted = transport.get_extra_info("ssl_object")
        self.certificate = name_of(encrypted) if encrypted is not None else None
        self.since = self._listener.loop.time()
        self.deadline = self.since + self._limits.request_seconds
        if self._handshake is not None:
            self._listener.replace(self._handshake, self)
        elif not self._listener.admit(self):
            self._deaf = self._ended = True
            transport.write(self._listener.full)
            transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.leave(self)
        self._deaf = self._ended = self.hung_up = True
        self._give_up_reading()

    def eof_received(self) -> bool:
        """Keep the connection for pending answers: a client may half-close.

        TLS has no half-close.
        """
        self._deaf = self.hung_up = True
        self._give_up_reading()
        self._await_answers()
        return bool(self._pending) and bool(self._transport.can_write_eof())

    def data_received(self, data: bytes) -> None:
        self._rest = self._rest + data if self._rest else data
        if not self._paused:
            self._feed()

    def pause_writing(self) -> None:
        self._blocked = True
        self._pace()
        self.since = self._listener.loop.time()
        self.deadline = self._listener.loop.time() + self._limits.answer_seconds

    def resume_writing(self) -> None:
        self._blocked = False
        self._pace()
        if self._deaf:
            self._await_answers()
        else:
            self._set_deadline()

    # -- httptools ---------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._reading = Incoming(self)
        self.since = self._listener.loop.time()
        self.deadline = self.since + self._limits.request_seconds

    def on_url(self, url: bytes) -> None:
        request = self._request
        request.head_size += len(url)
        if request.head_size > self._most_head:
            raise RefusedRequestError(ServerAnswer(414, f"the target has more than {self._most_head // 1024} KiB"))
        request.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        request = self._reading or self._request
        request.head_size += len(name) + len(value) + 4
        if request.head_size > self._most_head:
            raise RefusedRequestError(self._too_large_head)
        if request.method:
            return  # a trailer: it must not change the event
        request.headers.append((name, value))
        special = _special.get(name)
        if special is None:
            special = _learn(name)
        if special:
            if special in request.special:
                raise RefusedRequestError(ServerAnswer(400, f"the header {special} is there more than once"))
            request.special[special] = value

    def on_headers_complete(self) -> None:
        request = self._request
        request.method = self._parser.get_method()
        if self._parser.should_upgrade():
            return  # for the parser the request ends here: see `_without_upgrade`
        version = self._parser.get_http_version()
        _check_head(request, version)
        request.keep_alive = self._parser.should_keep_alive() and version == "1.1"
        self._pending.append(request)
        refusal = self._handler.head(request)
        if refusal is not None:
            self._refuse(request, refusal)
        elif "expect" in request.special and len(self._pending) == 1:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        request = self._request
        request.size += len(body)
        if request.refused:
            return
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
        """Queue the connection: a request has its answer."""
        if not self._queued:
            self._queued = True
            self._listener.dirty(self)

    def flush(self) -> None:
        """Write the next answers in order."""
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
        self.since = listener.loop.time()
        if written and not self._transport.is_closing():
            self.served = True
            self._transport.write(written[0] if len(written) == 1 else b"".join(written))
        if self._ended:
            self._finish()
        elif self._deaf and not pending:
            self._close()
        else:
            self._pace()
            self._set_deadline()

    def expire(self) -> None:
        """Act on a passed deadline."""
        self.deadline = float("inf")
        if self._blocked or self._transport.is_closing():
            self._transport.abort()
        elif self._reading is not None and not self._deaf:
            self._end_with(ServerAnswer(408, "the request did not come to its end in time; send it again", last=True))
        else:
            self._close()

    def abort(self) -> None:
        """End the connection at once."""
        self._transport.abort()

    # -- inside ------------------------------------------------------------------------------------------------------

    @property
    def _request(self) -> Incoming:
        if self._reading is None:
            raise RuntimeError("the parser reported a part of a request before its begin")
        return self._reading

    @property
    def _too_large_head(self) -> ServerAnswer:
        return ServerAnswer(
            431, f"the request line and the headers have more than {self._limits.head_bytes // 1024} KiB"
        )

    def _feed(self) -> None:
        """Parse received bytes until too many requests wait for their answers."""
        while self._rest and not (self._paused or self._deaf):
            step = self._limits.feed_bytes
            piece, self._rest = self._rest[:step], self._rest[step:]
            request = self._reading
            size = request.size if request is not None else 0
            try:
                self._parser.feed_data(piece)
                self._watch_overhead(request, len(piece) - (request.size - size if request is not None else 0))
            except httptools.HttpParserUpgrade as upgrade:
                self._rest = self._without_upgrade() + piece[upgrade.args[0] :] + self._rest
            except (httptools.HttpParserCallbackError, httptools.HttpParserError, RefusedRequestError) as error:
                self._malformed(error)
        if self._deaf:
            self._rest = b""

    def _watch_overhead(self, request: Incoming | None, more: int) -> None:
        """Bound incomplete headers, and the framing of bodies: the parser buffers both."""
        if request is None or request is not self._reading:
            self._overhead = 0
            return
        self._overhead += more
        if self._overhead > self._limits.head_bytes + 8 * request.size:  # a chunk of one byte has five beside it
            raise RefusedRequestError(self._too_large_head)

    def _go_on(self) -> None:
        """Parse the received rest, then resume reading."""
        self._feed()
        if not (self._paused or self._transport.is_closing()):
            self._transport.resume_reading()

    def _without_upgrade(self) -> bytes:
        """Return the head of a request without its wish for an upgrade.

        A server may ignore it: clients that offer HTTP/2 expect that.
        """
        request = self._request
        version = self._parser.get_http_version().encode()
        self._parser = httptools.HttpRequestParser(self)
        method = b"GET" if request.method == b"CONNECT" else request.method
        target = request.target if request.method != b"CONNECT" else b"/"  # answered with 405
        closes = (
            [b"connection: close"]
            if any(n.lower() == b"connection" and b"close" in v for n, v in request.headers)
            else []
        )
        kept = [b"%b: %b" % pair for pair in request.headers if pair[0].lower() not in _HOP_BY_HOP]
        return b"\r\n".join([b"%b %b HTTP/%b" % (method, target, version), *kept, *closes, b"", b""])

    def _refuse(self, request: Incoming, answer: ServerAnswer) -> None:
        """Answer before the body has come; its rest is thrown away."""
        request.refused = True
        request.body = b""
        # A client that waited for `100 Continue` may send the body now, or the next request: the connection ends.
        request.answer = answer._replace(last=True) if "expect" in request.special else answer
        self._handler.over(request)
        self.answered()

    def _malformed(self, error: Exception) -> None:
        cause = error.__context__ if isinstance(error, httptools.HttpParserCallbackError) else None
        refused = cause if isinstance(cause, RefusedRequestError) else error
        if isinstance(refused, RefusedRequestError):
            self._end_with(refused.answer._replace(last=True))
        elif cause is not None:
            self._end_with(ServerAnswer(500, "it failed; see the log of the process", last=True))
            raise cause  # a defect of ours: the loop logs it
        elif "HTTP version" in str(error):
            self._end_with(ServerAnswer(505, f"{error}; this is HTTP/1.1", last=True))
        else:
            self._end_with(ServerAnswer(400, f"this is no HTTP/1.1 request: {error}", last=True))

    def _end_with(self, answer: ServerAnswer) -> None:
        """Answer the incomplete request, and read nothing more."""
        self._deaf = True
        request = self._reading or Incoming(self)
        if not request.refused:
            if request not in self._pending:
                self._pending.append(request)
            self._handler.count(answer)
            self._refuse(request, answer)
            self._await_answers()
        elif request in self._pending and request.answer is not None:
            request.answer = request.answer._replace(last=True)
            self._await_answers()
        else:
            self._ended = True
            self._finish()

    def _finish(self) -> None:
        """End the connection; a client that still sends can read the answer."""
        if self._transport.is_closing():
            return
        still_sending = self._reading is not None
        self._deaf = True
        self._give_up_reading()
        if not still_sending:
            self._close()
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        self.deadline = self._listener.loop.time() + self._limits.linger_seconds

    def _close(self) -> None:
        """Close when the client has taken its answers, within `answer_seconds`."""
        self.deadline = self._listener.loop.time() + self._limits.answer_seconds
        self._transport.close()

    def _give_up_reading(self) -> None:
        request, self._reading = self._reading, None
        if request is not None:
            self._handler.over(request)
            if request in self._pending and not request.refused:
                self._pending.remove(request)

    def _await_answers(self) -> None:
        """Let requests that were read be answered, without the next request's deadline."""
        if self._pending and not (self._blocked or self._ended):
            self.deadline = float("inf")

    def _set_deadline(self) -> None:
        if self._reading is None and not (self._blocked or self._deaf or self._transport.is_closing()):
            self.deadline = float("inf") if self._pending else self._listener.loop.time() + self._limits.idle_seconds

    def _pace(self) -> None:
        """Read while the client takes answers and few requests are pending."""
        stop = self._blocked or len(self._pending) >= self._limits.pipelined
        if stop == self._paused or self._deaf or self._transport.is_closing():
            return
        self._paused = stop
        if stop:
            self._transport.pause_reading()
            self.deadline = float("inf")
        else:
            self.deadline = self._listener.loop.time() + self._limits.request_seconds
            self._listener.loop.call_soon(self._go_on)


def _learn(name: bytes) -> str:
    lower = name.decode("latin-1").lower()
    special = lower if lower in SPECIAL else ""
    if len(_special) < _NAMES_KEPT and len(name) <= _LONGEST_KEPT:
        _special[name] = special
    return special


def _check_head(request: Incoming, version: str) -> None:
    """Refuse heads that pass the parser, but that others may read differently."""
    special = request.special
    if version not in ("1.0", "1.1"):
        raise RefusedRequestError(ServerAnswer(505, f"HTTP/{version} is not spoken here; this is HTTP/1.1"))
    if version == "1.1" and "host" not in special:
        raise RefusedRequestError(ServerAnswer(400, "HTTP/1.1 asks for a header Host"))
    if not request.target.startswith(b"/") and (request.method, request.target) != (b"OPTIONS", b"*"):
        scheme, _, rest = request.target.partition(b"://")  # as to a proxy
        if (
            scheme.lower() not in (b"http", b"https")
            or rest.partition(b"/")[0].lower() != special.get("host", b"").lower()
        ):
            raise RefusedRequestError(
                ServerAnswer(
                    400, f"the target {request.target[:80]!r} is neither a path nor on the host that Host names"
                )
            )
    length = special.get("content-length")
    if length is not None:
        digits = length.strip().lstrip(b"0") or b"0"  # Python reads no number of thousands of digits, zeros or not
        request.length = int(digits)  # the parser lets digits pass alone, and not too many
    coding = special.get("transfer-encoding")
    if coding is not None and (version == "1.0" or coding.strip().lower() != b"chunked"):
        raise RefusedRequestError(
            ServerAnswer(501, "of transfer codings only `chunked` is known, in HTTP/1.1; send the body as it is")
        )


class RefusedRequestError(Exception):
    """A request is refused, and not read on."""

    def __init__(self, answer: ServerAnswer) -> None:
        super().__init__(answer.reason)
        self.answer = answer


def address_of(transport: Any) -> str:
    """Return the client's address."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""
