"""A subscriber that fails as the test asks, and remembers every request."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote

CERTIFICATES = Path(__file__).parent.parent.parent / "tests" / "certificates"
_PIECE = b"x" * 65536


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the sink does about one request: nothing said, 202 at once."""

    status: int = 202
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    after: float = 0.0  # seconds before the first byte
    byte_every: float = 0.0  # seconds between the bytes of the body
    cut_after: int | None = None  # bytes of the body after which the connection is closed
    filler: int = 0  # bytes of a body that is made as it is sent
    then_closes: bool = False  # the connection, without having said so
    hangs: bool = False  # no answer, until the client goes away
    held: str = ""  # no answer before `let_go` is called with this name


OK, HANG = Answer(), Answer(hangs=True)


def status(code: int, body: bytes = b"", **headers: str) -> Answer:
    """Answer with this status; `retry_after="3"` is the header Retry-After."""
    return Answer(status=code, body=body, headers={name.replace("_", "-"): text for name, text in headers.items()})


def reply(id: str, data: bytes = b"{}", **attributes: str) -> Answer:
    """Answer 200 with a CloudEvent."""
    named = {"specversion": "1.0", "id": id, "source": "/sink", "type": "answer", **attributes}
    headers = {f"ce-{name}": text for name, text in named.items()}
    return Answer(status=200, headers={"content-type": "application/json", **headers}, body=data)


@dataclass(eq=False)
class Request:
    """One request, as it came and as it was answered. Times are of `time.monotonic`."""

    connection: int
    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes
    began: float
    events: list[dict[str, Any]]  # attributes by name; `data` is bytes, or what JSON says
    ended: float | None = None  # None: still under way
    accepted: bool = False  # answered with 2xx, to the last byte

    @property
    def ids(self) -> list[str]:
        """The events' ids, in the request's order."""
        return [event["id"] for event in self.events]


@dataclass(eq=False)
class _Rule:
    answers: tuple[Answer, ...]
    path: str | None
    event: str | None
    where: Callable[[Request], bool] | None
    each: bool
    used: Counter[str] = field(default_factory=Counter)

    def answer(self, request: Request) -> Answer | None:
        if self.path not in (None, request.path) or (self.event is not None and self.event not in request.ids):
            return None
        if self.where is not None and not self.where(request):
            return None
        counted = ",".join(request.ids) if self.each else ""
        self.used[counted] += 1
        return self.answers[min(self.used[counted], len(self.answers)) - 1]


class Sink:
    """Takes requests on a loopback port, on a thread of its own, until it is closed."""

    def __init__(self, *, tls: bool = False, client_certificate: bool = False) -> None:
        self.requests: list[Request] = []
        self._rules: list[_Rule] = []
        self._context = _server_context(client_certificate) if tls else None
        self._connections: dict[int, asyncio.StreamWriter] = {}
        self._connected = 0
        self._gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sink")
        self._thread.start()
        self._port = 0
        self._kept: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self.up()
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._port}"

    # -- instructions ------------------------------------------------------------------------------------------------

    def tell(
        self,
        *answers: Answer,
        path: str | None = None,
        event: str | None = None,
        where: Callable[[Request], bool] | None = None,
        each: bool = False,
    ) -> None:
        """Answer so, one after the other, the last one without end; the latest rule that fits wins.

        `event` is an id that the request holds. With `each`, the answers are counted for each event (or batch) alone.
        """
        self._rules.append(_Rule(answers, path, event, where, each))

    def forget(self) -> None:
        """Answer 202 to everything again."""
        self._rules.clear()

    def let_go(self, name: str) -> None:
        """Give the answers that are held by this name, and hold none by it any more."""
        self._loop.call_soon_threadsafe(lambda: self._gates[name].set())

    def down(self) -> None:
        """Refuse connections, and break those that are there."""
        self._do(self._down())

    def up(self) -> None:
        """Listen, on the same port as before."""
        self._do(self._up())

    def close(self) -> None:
        """End the thread and every connection."""
        if self._kept is None:
            self.down()
        assert self._kept is not None
        self._kept.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- requests ----------------------------------------------------------------------------------------------------

    def sent(self, path: str | None = None) -> list[Request]:
        """Return the requests to a path, or all, in the order of their arrival."""
        return [request for request in self.requests if path in (None, request.path)]

    def attempts(self, path: str | None = None) -> Counter[str]:
        """Return how often each event's id came."""
        return Counter(id for request in self.sent(path) for id in request.ids)

    def taken(self, path: str | None = None) -> list[str]:
        """Return the ids that were answered with 2xx, in the order of their arrival."""
        return [id for request in self.sent(path) if request.accepted for id in request.ids]

    def most_at_once(self, group: Callable[[Request], Hashable], path: str | None = None) -> dict[Hashable, int]:
        """Return, for each group of requests, how many of it were under way at the same time at most."""
        moments: list[tuple[float, int, Hashable]] = []
        for request in self.sent(path):
            moments.append((request.began, 1, group(request)))
            moments.append((request.ended or float("inf"), -1, group(request)))
        now: Counter[Hashable] = Counter()
        most: Counter[Hashable] = Counter()
        for _, change, name in sorted(moments, key=lambda moment: moment[:2]):
            now[name] += change
            most[name] = max(most[name], now[name])
        return dict(most)

    # -- on the loop -------------------------------------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=60)

    async def _up(self) -> None:
        if self._kept is not None:
            self._kept.close()
        self._kept = None
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self._port, ssl=self._context, limit=2**20, backlog=1024
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def _down(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._connections.values()):
            writer.transport.abort()
        # Bound, not listening: connections are refused, and none that goes out gets this port as its own.
        self._kept = socket.socket()
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._kept.bind(("127.0.0.1", self._port))
        while self._connections:
            await asyncio.sleep(0.005)
        # Those that are in the middle of TLS's greeting, or of its farewell, are known to the loop alone.
        transports: Mapping[int, asyncio.WriteTransport] = getattr(self._loop, "_transports")  # noqa: B009
        for transport in list(transports.values()):
            transport.abort()
        await asyncio.sleep(0.01)  # each gets it at the loop's next turn

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connected += 1
        number = self._connected
        self._connections[number] = writer
        try:
            while await self._one(number, reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, ssl.SSLError):
            pass  # the client went away
        finally:
            self._connections.pop(number)
            with suppress(OSError):
                writer.close()

    async def _one(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Take one request and answer it; returns whether the connection is still of use."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        began = time.monotonic()
        method, path, _ = head.split(" ", 2)
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head.split("\r\n")[1:-2])
        }
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Request(number, method, path, headers, body, began, events_of(headers, body))
        self.requests.append(request)
        answer = next(filter(None, (rule.answer(request) for rule in reversed(self._rules))), OK)
        try:
            return await self._answer(request, answer, reader, writer)
        finally:
            request.ended = request.ended or time.monotonic()

    async def _answer(
        self, request: Request, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if answer.hangs:
            await reader.read(1)
            return False
        if answer.held and not await self._is_let_go(answer.held, reader):
            return False
        if answer.after:
            await asyncio.sleep(answer.after)
        headers = {"content-length": str(answer.filler or len(answer.body)), **answer.headers}
        lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}", *map(": ".join, headers.items())]
        head = "\r\n".join(lines).encode() + b"\r\n\r\n"
        if answer.cut_after is not None:
            writer.write(head + answer.body[: answer.cut_after])
            await writer.drain()
            return False
        last = answer.body
        if answer.byte_every or answer.filler:
            writer.write(head)
            *pieces, last = _pieces(answer)
            for piece in pieces:
                await asyncio.sleep(answer.byte_every)
                writer.write(piece)
                await writer.drain()
            head = b""
            await asyncio.sleep(answer.byte_every)
        request.ended = time.monotonic()  # before the client can know it
        request.accepted = 200 <= answer.status < 300
        writer.write(head + last)
        await writer.drain()
        return not answer.then_closes

    async def _is_let_go(self, name: str, reader: asyncio.StreamReader) -> bool:
        """Wait for `let_go`. Returns False if the client went away before it."""
        gate, gone = asyncio.ensure_future(self._gates[name].wait()), asyncio.ensure_future(reader.read(1))
        await asyncio.wait((gate, gone), return_when=asyncio.FIRST_COMPLETED)
        let_go = gate.done()
        gate.cancel()
        gone.cancel()
        await asyncio.gather(gate, gone, return_exceptions=True)  # else the next request would find a reader in use
        return let_go


def _pieces(answer: Answer) -> list[bytes]:
    """Return what the body is sent as; a filler is one object, many times."""
    if answer.filler:
        return [_PIECE] * -(-answer.filler // len(_PIECE))
    return [answer.body[n : n + 1] for n in range(len(answer.body))]


def _server_context(client_certificate: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem")
    if client_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(CERTIFICATES / "ca.pem")
    return context


def events_of(headers: dict[str, str], body: bytes) -> list[dict[str, Any]]:
    """Return the events of a request, in each of the three modes; none if it holds no CloudEvent."""
    kind = headers.get("content-type", "")
    if kind.startswith("application/cloudevents-batch"):
        return [_from_json(event) for event in json.loads(body)]
    if kind.startswith("application/cloudevents"):
        return [_from_json(json.loads(body))]
    if "ce-id" not in headers:
        return []
    attributes = {name[3:]: unquote(value.strip('"')) for name, value in headers.items() if name.startswith("ce-")}
    return [{**attributes, **({"datacontenttype": kind} if kind else {}), "data": body}]


def _from_json(event: dict[str, Any]) -> dict[str, Any]:
    if "data_base64" in event:
        event["data"] = base64.b64decode(event.pop("data_base64"))
    return event
