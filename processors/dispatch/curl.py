"""The transport over libcurl: any number of requests at a time in one thread, with connections kept alive.

libcurl does the work in `perform`, which looks at all transfers; what tells when there is something to do is an epoll
of our own, in which each connection stands once, from when it is opened, and reports edges. Telling libcurl of single
sockets (`socket_action`) costs half as much again, and `select` knows no descriptor above 1,023.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections import deque
from typing import Any, cast

import pycurl

from inbound.config.units import format_duration
from inbound.processors.dispatch.transport import (
    MOST_READ,
    MOST_READ_OF_A_REPLY,
    Answer,
    Done,
    Target,
    Transport,
)

#: No longer than this, in seconds, libcurl is left alone while requests are under way.
LONGEST_WAIT = 1.0
#: Of a longer body, in bytes, libcurl may send a part and come back, however much the socket takes.
SENT_AT_ONCE = 16 * 1024
#: Requests that were made but not begun, for one look at the sockets: more of them would keep the answers waiting.
MOST_STARTED = 256

#: From so many transfers on, answers are gathered for so long, in seconds: the shortest time that an event loop waits.
MANY, GATHER = 32, 0.001

_EDGES = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET


class CurlTransport(Transport):
    """Posts by one CurlMulti on one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, 1024)
        self._edges = select.epoll()
        self._loop.add_reader(self._edges.fileno(), self._on_edges)
        self._pools: dict[Target, _Pool] = {}
        self._waiting: deque[_Pool] = deque()  # those with requests that were not begun
        self._running: dict[pycurl.Curl, _Transfer] = {}
        self._large: dict[_Transfer, None] = {}  # under way with more than libcurl sends at a time
        self._timer: asyncio.TimerHandle | None = None
        self._planned = False
        self._closed = False

    def post(self, target: Target, lines: list[bytes], body: bytes, done: Done) -> None:
        pool = self._pools.get(target)
        if pool is None:
            pool = self._pools[target] = _Pool(target, self._open_socket)
        if not pool.waiting:
            self._waiting.append(pool)
        pool.waiting.append((lines, body, done))
        if not self._planned:
            self._planned = True
            self._loop.call_soon(self._step)

    def retire(self, target: Target) -> None:
        pool = self._pools.pop(target, None)
        if pool is not None:
            pool.retire()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._edges.fileno())
        if self._timer is not None:
            self._timer.cancel()
        for handle in self._running:
            self._multi.remove_handle(handle)
            handle.close()
        self._running.clear()
        for pool in self._pools.values():
            pool.retire()
        self._multi.close()
        self._edges.close()

    def _open_socket(self, purpose: int, address: Any) -> socket.socket:
        made = socket.socket(address.family, address.socktype, address.protocol)
        made.setblocking(False)
        self._edges.register(made.fileno(), _EDGES)
        return made

    def _on_edges(self) -> None:
        """Something has happened on a connection; with many of them, on others soon, too.

        `perform` looks at all transfers, whatever has happened: for each answer alone that would cost more than the request.
        """
        if len(self._running) < MANY:
            self._step()
        else:
            self._loop.remove_reader(self._edges.fileno())
            self._loop.call_later(GATHER, self._gathered)

    def _gathered(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._edges.fileno(), self._on_edges)
            self._step()

    def _step(self) -> None:
        """Begin what waits, let libcurl work, hand on the answers; until nothing more happens at once."""
        if self._closed:
            return
        self._planned = True  # what is posted meanwhile is begun below
        self._edges.poll(0)  # the edges are taken note of: from here on there are new ones
        ended: list[tuple[Done, Answer]] = []
        while True:
            self._begin()
            self._multi.perform()
            ended = self._ended()
            for done, answer in ended:
                done(answer)
            if not ended and not self._can_begin() and not self._sends_on():
                break
        self._planned = False
        if self._running:
            self._plan_next()

    def _plan_next(self) -> None:
        """See that there is a step in time, whatever the sockets do; one that is planned for earlier will do."""
        wait = self._multi.timeout()
        due = self._loop.time() + (LONGEST_WAIT if wait < 0 else min(wait / 1000, LONGEST_WAIT))
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._step()

    def _sends_on(self) -> bool:
        """Whether libcurl left off sending although the socket may take more: then there is no edge to wait for."""
        return bool(self._large) and any(transfer.has_sent_more() for transfer in self._large)

    def _can_begin(self) -> bool:
        return any(pool.can_begin for pool in self._waiting)

    def _begin(self) -> None:
        started = 0
        for _ in range(len(self._waiting)):
            pool = self._waiting.popleft()
            while pool.can_begin and started < MOST_STARTED:
                lines, body, done = pool.waiting.popleft()
                transfer = pool.begin(lines, body, done)
                self._running[transfer.handle] = transfer
                if len(body) > SENT_AT_ONCE:
                    self._large[transfer] = None
                self._multi.add_handle(transfer.handle)
                started += 1
            if pool.waiting:
                self._waiting.append(pool)

    def _ended(self) -> list[tuple[Done, Answer]]:
        ended = []
        while True:
            left, good, bad = self._multi.info_read(1000)
            for handle in good:
                ended.append(self._end(handle, 0, ""))
            for handle, code, text in bad:
                ended.append(self._end(handle, code, text))
            if not left:
                return ended

    def _end(self, handle: pycurl.Curl, code: int, text: str) -> tuple[Done, Answer]:
        transfer = self._running.pop(handle)
        self._large.pop(transfer, None)
        self._multi.remove_handle(handle)
        answer = transfer.answer(code, text)
        transfer.pool.end(transfer)
        return transfer.done, answer


class _Pool:
    """The handles for one target: each has one connection at a time."""

    def __init__(self, target: Target, open_socket: Any) -> None:
        self.target = target
        self.waiting: deque[tuple[list[bytes], bytes, Done]] = deque()
        self._open_socket = open_socket
        self._free: list[_Transfer] = []
        self._made = 0
        self._retired = False

    @property
    def can_begin(self) -> bool:
        return bool(self.waiting) and (bool(self._free) or self._made < self.target.connections)

    def begin(self, lines: list[bytes], body: bytes, done: Done) -> _Transfer:
        if self._free:
            transfer = self._free.pop()
        else:
            self._made += 1
            transfer = _Transfer(self, self._open_socket)
        transfer.begin(lines, body, done)
        return transfer

    def end(self, transfer: _Transfer) -> None:
        if self._retired:
            self._made -= 1
            transfer.handle.close()
        else:
            self._free.append(transfer)

    def retire(self) -> None:
        self._retired = True
        self._made -= len(self._free)
        for transfer in self._free:
            transfer.handle.close()
        self._free.clear()


class _Transfer:
    """One handle, and the request that is under way on it."""

    def __init__(self, pool: _Pool, open_socket: Any) -> None:
        self.pool = pool
        self.done: Done = lambda answer: None
        self._body = bytearray()  # not a list of pieces: one of a byte each takes a hundred times its size
        self._cut = False
        self._headers: list[tuple[bytes, bytes]] = []
        target = pool.target
        self._most = MOST_READ_OF_A_REPLY if target.wants_reply else MOST_READ
        self._own = [b"Expect:", *target.headers]
        self.handle = handle = pycurl.Curl()
        handle.setopt(pycurl.URL, target.url)
        handle.setopt(pycurl.POST, 1)
        handle.setopt(pycurl.NOSIGNAL, 1)
        handle.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        handle.setopt(pycurl.FOLLOWLOCATION, 0)
        handle.setopt(pycurl.PROXY, "")  # what the environment names is not for these
        handle.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        handle.setopt(pycurl.CONNECTTIMEOUT_MS, max(1, round(target.connect_timeout * 1000)))
        handle.setopt(pycurl.TIMEOUT_MS, max(1, round(target.timeout * 1000)))
        handle.setopt(pycurl.TCP_NODELAY, 1)
        handle.setopt(pycurl.OPENSOCKETFUNCTION, open_socket)
        handle.setopt(pycurl.WRITEFUNCTION, self._write)
        if target.wants_reply:
            handle.setopt(pycurl.HEADERFUNCTION, self._header)
        if target.url.lower().startswith("https:"):
            self._set_tls(target)

    def _set_tls(self, target: Target) -> None:
        handle = self.handle
        paths = ssl.get_default_verify_paths()
        if target.ca_file is not None:
            handle.setopt(pycurl.CAINFO, str(target.ca_file))
        elif paths.cafile:
            handle.setopt(pycurl.CAINFO, paths.cafile)
        elif paths.capath:
            handle.setopt(pycurl.CAPATH, paths.capath)
        if target.client_cert is not None:
            handle.setopt(pycurl.SSLCERT, str(target.client_cert))
            handle.setopt(pycurl.SSLKEY, str(target.client_key or target.client_cert))

    def begin(self, lines: list[bytes], body: bytes, done: Done) -> None:
        self.done = done
        if self._body or self._cut:
            self._body = bytearray()
            self._cut = False
        self._headers.clear()
        joined = b"\n".join([b"", *lines, b""])
        if b"\ncontent-type:" not in joined:
            lines = [b"Content-Type:", *lines]  # else libcurl would invent one
        if b": \n" in joined or b":\n" in joined:
            lines = [
                line if line.rstrip(b" ")[-1:] != b":" or line == b"Content-Type:" else _empty(line) for line in lines
            ]
        handle = self.handle
        handle.setopt(pycurl.HTTPHEADER, self._own + lines)
        handle.setopt(pycurl.POSTFIELDS, body)
        self.sent, self.to_send = 0, len(body)

    def has_sent_more(self) -> bool:
        """Whether more of the body has gone out since the last look, and some is left."""
        sent, self.sent = self.sent, cast(int, self.handle.getinfo(pycurl.SIZE_UPLOAD_T))
        return sent < self.sent < self.to_send

    def answer(self, code: int, text: str) -> Answer:
        """Return what came of the request that has ended with libcurl's `code` (0: well)."""
        handle = self.handle
        status = cast(int, handle.getinfo(pycurl.RESPONSE_CODE))
        if status == 202 and not code and not self._body and not self._headers:
            return ACCEPTED
        retry_after = cast(int, handle.getinfo(pycurl.RETRY_AFTER)) if status >= 300 else 0
        problem = None if not code or self._cut else self._problem(code, text)
        return Answer(status, list(self._headers), bytes(self._body), float(retry_after) or None, problem, self._cut)

    def _problem(self, code: int, text: str) -> str:
        target = self.pool.target
        if code == pycurl.E_OPERATION_TIMEDOUT:
            if not self.handle.getinfo(pycurl.PRETRANSFER_TIME):
                return f"no connection within connect_timeout ({format_duration(target.connect_timeout)})"
            return f"no whole answer within timeout ({format_duration(target.timeout)})"
        if code == pycurl.E_COULDNT_RESOLVE_HOST:
            return "the host's name has no address"
        if code == pycurl.E_COULDNT_CONNECT:
            return "no connection"
        if code in (pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_CONNECT_ERROR, pycurl.E_SSL_CERTPROBLEM):
            return f"TLS: {text}; correct `ca_file` or `client_cert`, or the receiver's certificate"
        return f"the connection broke ({text})" if text else f"the connection broke (libcurl's error {code})"

    def _write(self, chunk: bytes) -> int:
        room = self._most - len(self._body)
        if len(chunk) <= room:
            self._body += chunk
            return len(chunk)
        self._body += chunk[:room]
        self._cut = True
        return 0  # ends the transfer, and the connection with it

    def _header(self, line: bytes) -> None:
        name, colon, value = line.partition(b":")
        if colon:
            self._headers.append((name.strip().lower(), value.strip()))
        elif line.startswith(b"HTTP/"):
            self._headers.clear()  # of an interim answer


def _empty(line: bytes) -> bytes:
    """Return the line of a header without a value as libcurl wants it: with a colon it would leave it out."""
    return line.rstrip(b" ")[:-1] + b";"


#: What nearly all answers are.
ACCEPTED = Answer(202)
