"""Posts over HTTP/1.1 with a pool of kept connections per target.

A request goes `Client.post` -> `_Pool` (waits for a connection if all are taken) -> `ClientConnection` (writes it, reads the
answer) -> `done`. A connection has one request at a time: a receiver that hangs would hang the requests behind it, too.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from base64 import b64encode
from collections import deque
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

import httptools
from aiohappyeyeballs import start_connection
from urllib3.util import parse_url

from inbound.config.units import format_duration
from inbound.http.client.exchange import Answer, Done, Target
from inbound.http.client.sockets import AVAILABLE, Sockets
from inbound.runtime.driver import DaemonThreads

#: Bytes of an answer's head, and further ones for each byte of its body: a chunk of one byte has five of framing.
MOST_HEAD, BESIDE_A_BYTE = 64 * 1024, 8

#: The beginning of a TLS alert.
ALERT = b"\x15\x03"
#: Nearly all answers.
ACCEPTED = Answer(202)
#: Bytes of an answer that are kept to recognize the next one.
LONGEST_USUAL = 1024
#: Seconds after which an idle connection is not used any more, and until the next address of a host is tried, too.
LONGEST_IDLE, NEXT_ADDRESS = 118.0, 0.25
#: Lookups of hosts at a time, one for each target at most: the system's call may hang for long, and must not delay others.
LOOKUPS = 64


class Client:
    """Posts requests, many at a time, on its event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pools: dict[Target, _Pool] = {}
        self._retired: set[_Pool] = set()  # until their requests in flight have ended
        self._sockets = Sockets.of(loop) if AVAILABLE else None
        self._names = DaemonThreads(LOOKUPS)

    def post(self, target: Target, lines: list[bytes], body: bytes, done: Done) -> None:
        """Send a request with these header lines; `done` gets the answer later.

        It is sent a second time if a kept connection was closed before any answer came: a receiver may close it at any time.
        """
        pool = self._pools.get(target)
        if pool is None:
            pool = self._pools[target] = _Pool(target, self._loop, self._names, self._sockets)
        pool.post(_Request(pool.head, lines, body, done))

    def retire(self, target: Target) -> None:
        """Close the connections to `target` after its requests in flight."""
        pool = self._pools.pop(target, None)
        if pool is not None:
            self._retired = {one for one in self._retired if not one.over}
            self._retired.add(pool)
            pool.retire()

    def close(self) -> None:
        """Close all connections; drop requests in flight, without calling `done`."""
        for pool in (*self._pools.values(), *self._retired):
            pool.close()
        self._pools.clear()
        self._retired.clear()
        if self._sockets is not None:
            self._sockets.leave()
            self._sockets = None
        self._names.shutdown()


class _Request:
    __slots__ = ("began", "done", "sent_again", "text")

    def __init__(self, head: bytes, lines: list[bytes], body: bytes, done: Done) -> None:
        self.text = b"\r\n".join((head, *lines, b"content-length: %d\r\n\r\n" % len(body))) + body
        self.done = done
        self.began = 0.0  # by the loop's clock
        self.sent_again = False


class _Pool:
    """The connections to one target."""

    def __init__(
        self, target: Target, loop: asyncio.AbstractEventLoop, names: DaemonThreads, sockets: Sockets | None
    ) -> None:
        """`names` looks up hosts; `sockets` serves plain connections (None: the loop)."""
        self.target = target
        self.loop = loop
        self._names = names
        self._sockets = sockets
        self._lookup: asyncio.Future[list[Any]] | None = None  # of the host's addresses, while it runs
        url = parse_url(target.url)
        self.head = _head(url, target)
        self._secure = url.scheme == "https"
        self._host = (url.host or "").strip("[]")
        self._port = url.port or (443 if self._secure else 80)
        self._waiting: deque[_Request] = deque()
        self._free: deque[ClientConnection] = deque()  # the longest idle one first
        self._open: dict[ClientConnection, None] = {}  # connected, or connecting
        self._connecting: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._context: ssl.SSLContext | None = None
        self._retired = False
        #: The last whole answer in one piece, as bytes and parsed: a receiver answers nearly all with the same bytes.
        self.usual: tuple[bytes, Answer] = (b"", ACCEPTED)

    @property
    def over(self) -> bool:
        """Whether nothing is left of a pool that was retired."""
        return not (self._open or self._waiting)

    def post(self, request: _Request) -> None:
        free = self._free
        while free and free[0].idle_since + LONGEST_IDLE < self.loop.time():
            free.popleft().close()  # a firewall between may have forgotten it, and would stay silent
        if free:
            self._begin(free.pop(), request)
        elif len(self._open) < self.target.connections:
            self._connect(request)
        else:
            self._waiting.append(request)

    def retire(self) -> None:
        self._retired = True
        while self._free:
            self._free.pop().close()

    def close(self) -> None:
        self._retired = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._connecting:
            task.cancel()
        if self._lookup is not None:
            self._lookup.cancel()
        for connection in list(self._open):
            connection.abandon()

    # -- requests ----------------------------------------------------------------------------------------------------

    def _begin(self, connection: ClientConnection, request: _Request) -> None:
        self._watch(request)
        connection.send(request)

    def _watch(self, request: _Request) -> None:
        """Start the timeout of the whole request."""
        if not request.began:
            request.began = self.loop.time()
        if self._timer is None:
            self._timer = self.loop.call_at(request.began + self.target.timeout, self._expire)

    def _expire(self) -> None:
        """Fail overdue requests; all share one timer: most end long before."""
        self._timer = None
        timeout = self.target.timeout
        late = self.loop.time() - timeout
        for connection in list(self._open):
            if connection.request is not None and connection.request.began <= late:
                connection.fail(f"no whole answer within timeout ({format_duration(timeout)})")
        in_flight = [c.request.began for c in self._open if c.request is not None]
        if in_flight and self._timer is None:
            self._timer = self.loop.call_at(min(in_flight) + timeout, self._expire)

    def ended(self, connection: ClientConnection, request: _Request, answer: Answer, *, kept: bool) -> None:
        """Take a request's answer; `kept`: its connection takes another request."""
        if kept and self._waiting:  # a retired pool, too, sends what was posted before
            self._begin(connection, self._waiting.popleft())
        elif kept and not self._retired:
            self._free.append(connection)
        elif kept:
            connection.close()
        try:
            request.done(answer)
        except Exception as error:  # other requests go on
            self.loop.call_exception_handler({
                "message": "a callback of an answer has failed; this is a defect of inbound, please report it",
                "exception": error,
            })  # fmt: skip

    def lost(self, connection: ClientConnection, again: _Request | None = None) -> None:
        """Replace a closed connection; `again`, still unanswered, is sent again."""
        self._open.pop(connection, None)
        self.unfit(connection)
        if again is not None:
            again.sent_again = True
            self._waiting.appendleft(again)
        while self._waiting and len(self._open) < self.target.connections:
            self._connect(self._waiting.popleft())

    def unfit(self, connection: ClientConnection) -> None:
        """Give a connection no further request."""
        if connection in self._free:
            self._free.remove(connection)

    # -- connections -------------------------------------------------------------------------------------------------

    def _connect(self, request: _Request) -> None:
        connection = ClientConnection(self, request)
        self._open[connection] = None
        self._watch(request)
        task = self.loop.create_task(self._connected(connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connected(self, connection: ClientConnection) -> None:
        within = self.target.connect_timeout
        try:
            async with asyncio.timeout(within):
                await self._reach(connection)
        except TimeoutError:
            connection.fail(f"no connection within connect_timeout ({format_duration(within)})")
        except socket.gaierror:
            connection.fail("the host's name has no address")
        except ssl.SSLError as error:
            connection.fail(_tls_problem(error))
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error) or "closed in the midst of it"
            connection.fail(f"no connection: {why}")
        except Exception as error:  # a name that cannot be encoded, and the like
            connection.fail(f"no connection ({type(error).__name__}: {error})")

    async def _reach(self, connection: ClientConnection) -> None:
        """Connect to the host's address that answers first (RFC 8305)."""
        context = self._tls()
        addresses = await self._addresses()
        reached = await start_connection(addresses, happy_eyeballs_delay=NEXT_ADDRESS, loop=self.loop)
        try:
            reached.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is None and self._sockets is not None:
                self._sockets.add(reached, connection)
                return
            await self.loop.create_connection(
                lambda: connection, sock=reached, ssl=context, server_hostname=self._host if context else None
            )
        except BaseException:
            reached.close()
            raise

    async def _addresses(self) -> list[Any]:
        """Return the host's addresses; concurrent callers share one lookup."""
        if self._lookup is None:
            ask = partial(socket.getaddrinfo, self._host, self._port, type=socket.SOCK_STREAM)
            try:
                return ask(flags=socket.AI_NUMERICHOST)  # no name: no lookup
            except socket.gaierror:
                self._lookup = self.loop.run_in_executor(self._names, ask)
                self._lookup.add_done_callback(self._looked_up)
        return await asyncio.shield(self._lookup)

    def _looked_up(self, lookup: asyncio.Future[list[Any]]) -> None:
        self._lookup = None
        if not lookup.cancelled():
            lookup.exception()  # marked as seen: its waiters get it, too

    def _tls(self) -> ssl.SSLContext | None:
        """Return the TLS context; a pool reads the files once."""
        if self._secure and self._context is None:
            target = self.target
            try:
                context = ssl.create_default_context(cafile=target.ca_file)
                if target.ca_text is not None:
                    context.load_verify_locations(cadata=target.ca_text)
                context.set_alpn_protocols(["http/1.1"])
                if target.client_cert is not None:
                    context.load_cert_chain(target.client_cert, target.client_key, password="")
            except OSError as error:
                raise ssl.SSLError(str(error)) from None
            self._context = context
        return self._context


class ClientConnection(asyncio.Protocol):
    """One connection of a pool: writes a request, reads its answer."""

    def __init__(self, pool: _Pool, first: _Request) -> None:
        self._pool = pool
        self._wants_reply = pool.target.wants_reply
        self._most = pool.target.most_read
        self._transport: Any = None
        self._parser = httptools.HttpResponseParser(self)
        self.request: _Request | None = first
        self.idle_since = 0.0  # by the loop's clock
        self._used = False  # a request was answered on it
        self._over = False
        self._clear()

    def _clear(self) -> None:
        self._status = 0  # of the answer, once its head is whole
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: bytes | bytearray = b""
        self._received = self._taken = 0  # bytes since the request was sent; of these, the body's
        self._to_the_end = True  # neither a length nor chunks were announced
        self._complete = self._keeps = False

    # -- the pool's verbs --------------------------------------------------------------------------------------------

    def send(self, request: _Request) -> None:
        self.request = request
        self._transport.write(request.text)

    def fail(self, problem: str) -> None:
        """Fail the request in flight, and close the connection."""
        self._end(Answer(self._status, problem=problem), kept=False)

    def close(self) -> None:
        """Close it; no request is in flight."""
        self._over = True
        self._transport.close()

    def abandon(self) -> None:
        """Close it at once, without a call of `done`."""
        self.request = None
        self._drop()

    # -- asyncio -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        if self._over or self.request is None:
            transport.abort()  # it timed out while it connected
        else:
            transport.write(self.request.text)

    def data_received(self, data: bytes) -> None:
        if self.request is None or self._over:
            # No request is in flight: the bytes could pass for the next request's answer. That request may not use this
            # connection, either: it ends a turn of the loop later, and the request would have no answer.
            self._pool.unfit(self)
            self._drop()
            return
        left = self._transport.get_write_buffer_size()
        if left and left >= len(self.request.text) and self._used and not self._received:
            # Nothing of the request has gone yet: the bytes answer the one before once more.
            request, self.request = self.request, None
            self._drop()
            self._pool.lost(self, request)
            return
        usual, answer = self._pool.usual
        if data == usual and not self._received:  # the parser is before an answer, as it would be afterwards
            self._end(answer, kept=not left)
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._complete = True  # 101, without an Upgrade of ours
        except httptools.HttpParserError as error:
            self._keeps = False
            if not self._complete:  # else the bytes come after a whole answer
                hint = "; it is TLS: should the URL begin with https?" if data.startswith(ALERT) else ""
                self.fail(f"the answer is no HTTP/1.1 ({error.__context__ or error}){hint}")
                return
        if self._complete:
            # A receiver may refuse before it has read everything: the rest would pass for the next request.
            answer = self._answer()
            if self._keeps and self._received == len(data) <= LONGEST_USUAL and answer.retry_after is None:
                self._pool.usual = data, answer
            self._end(answer, kept=self._keeps and not left)
        elif len(self._body) > self._most:
            self._end(self._answer(), kept=False)
        elif self._received > MOST_HEAD + self._taken * (1 + BESIDE_A_BYTE):
            self.fail(f"the head of the answer, or what goes round its body, has more than {MOST_HEAD // 1024} KiB")

    def connection_lost(self, error: Exception | None) -> None:
        request, over = self.request, self._over
        self._over = True
        again = None
        if request is not None and not over:
            if self._status and self._to_the_end and error is None:
                self._end(self._answer(), kept=False)  # the end of the connection is that of the body
            elif self._used and not self._received and not request.sent_again:
                self.request, again = None, request  # the receiver may close a kept connection at any time
            elif isinstance(error, ssl.SSLError):
                self.fail(_tls_problem(error))
            else:
                self.fail(f"the connection broke ({error or 'closed before the answer was whole'})")
        self._pool.lost(self, again)

    # -- httptools ---------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            raise ValueError("more came than was asked for")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._status:
            return  # a trailer: it does not change the answer
        name = name.lower()
        if name in (b"content-length", b"transfer-encoding"):
            self._to_the_end = False
        self._headers.append((name, value.strip()))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 or status == 101:
            self._status = status
            if status in (204, 304):
                self._to_the_end = False

    def on_body(self, body: bytes) -> None:
        self._taken += len(body)
        if isinstance(self._body, bytearray):
            self._body += body  # a list of pieces of a byte each would take a hundred times its size
        else:
            self._body = bytearray(self._body + body) if self._body else body

    def on_message_complete(self) -> None:
        if self._status:
            self._complete, self._keeps = True, self._parser.should_keep_alive()
        else:  # an interim answer
            self._headers.clear()
            self._to_the_end = True

    # -- ends --------------------------------------------------------------------------------------------------------

    def _answer(self) -> Answer:
        status, body = self._status, self._body
        if status == 202 and not body and not self._wants_reply:
            return ACCEPTED
        cut = len(body) > self._most
        asked = retry_after(self._headers) if status >= 300 else None
        headers = self._headers if self._wants_reply else ()
        return Answer(status, headers, bytes(body[: self._most]), asked, None, cut)

    def _end(self, answer: Answer, *, kept: bool) -> None:
        request, self.request = self.request, None
        if kept:
            self._used, self.idle_since = True, self._pool.loop.time()
            if self._received:
                self._clear()
        else:
            self._drop()
        if request is not None:
            self._pool.ended(self, request, answer, kept=kept)
        if self._transport is None:  # it was never made: no other call reports its end
            self._pool.lost(self)

    def _drop(self) -> None:
        self._over = True
        if self._transport is not None:
            self._transport.abort()


def _head(url: Any, target: Target) -> bytes:
    """Return the first lines of all requests to a target."""
    path = url.path or "/"
    if url.query is not None:
        path = f"{path}?{url.query}"
    host = url.host if url.port is None else f"{url.host}:{url.port}"
    lines = [f"POST {path} HTTP/1.1".encode(), f"host: {host}".encode(), *target.headers]
    if url.auth and not any(line.lower().startswith(b"authorization:") for line in target.headers):
        lines.append(b"authorization: Basic " + b64encode(unquote_to_bytes(url.auth)))
    return b"\r\n".join(lines)


def _tls_problem(error: ssl.SSLError) -> str:
    if getattr(error, "reason", None) in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        return "TLS: the receiver does not speak it; should the URL begin with http, or name another port?"
    return f"TLS: {error}; correct `ca_file` or `client_cert`, or the receiver's certificate"


def retry_after(headers: list[tuple[bytes, bytes]]) -> float | None:
    """Return the seconds of Retry-After; None: missing, or unreadable.

    A date counts from the answer's own Date: the receiver's clock is not ours.
    """
    found = dict(headers)
    asked = found.get(b"retry-after", b"")
    if asked.isdigit():
        return float(asked)
    try:
        until, now = (parsedate_to_datetime(text.decode("latin-1")) for text in (asked, found.get(b"date", b"")))
        return max(0.0, (until - now).total_seconds())
    except (TypeError, ValueError, OverflowError):
        return None
