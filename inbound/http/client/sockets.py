"""Reads and writes all ready connections of one event loop at once.

A loop in C gives up the interpreter around each call of Python, twice for each answer. Each time it wakes a thread that waits
for the interpreter, and mostly takes it back before that thread is awake: at 20,000 requests a second the other threads of a
process (reader, committer, ZooKeeper) woke some 20,000 times a second in vain, a quarter of all CPU time. Here calls that cannot
wait keep the interpreter; now and then it is given up long enough for another thread to get it.

Requests are written after the received answers are processed: the receiver, woken by the first request, is still awake at the
next one.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import select
import socket
import time
from typing import Any, ClassVar, Final

#: Calls of `CDLL` would give up the interpreter.
_LIBC: Final = ctypes.PyDLL(None, use_errno=True)
_recv, _send = _LIBC.recv, _LIBC.send
#: Without `argtypes`, which cost a third of a call: its arguments have the right C types already.
_recv.restype = ctypes.c_ssize_t
_send.argtypes, _send.restype = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int], ctypes.c_ssize_t
#: A call with it never waits, and raises no signal.
_AT_ONCE: Final = int(getattr(socket, "MSG_DONTWAIT", 0)) | int(getattr(socket, "MSG_NOSIGNAL", 0))
_NOT_NOW: Final = frozenset({errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR})

#: Bytes of one read, sockets of one round, and requests that are written together.
READ, ROUND, TOGETHER = 64 * 1024, 64, 8
#: Bytes of a rest that are offered to a socket at a time: each offer copies them.
PIECE = 256 * 1024
#: Seconds between two yields of the interpreter, while there is work. A sleep, however short, lasts some 60 microseconds: a
#: thread needs that to wake up.
YIELD_EVERY, YIELD = 0.002, 1e-6

AVAILABLE: Final = hasattr(select, "epoll")


class Sockets:
    """Watches sockets, on the thread of its loop.

    It calls protocols as asyncio's transports do. All clients of a loop share one: 50 would give up the interpreter 50 times
    as often, most of the time.
    """

    _shared: ClassVar[dict[asyncio.AbstractEventLoop, Sockets]] = {}

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> Sockets:
        """Return the loop's sockets; each call needs one of `leave`."""
        sockets = cls._shared.get(loop)
        if sockets is None:
            sockets = cls._shared[loop] = cls(loop)
        sockets._users += 1
        return sockets

    def leave(self) -> None:
        """Count one user less, whose sockets are closed; the last closes all."""
        self._users -= 1
        if not self._users:
            del self._shared[self.loop]
            self.close()

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._users = 0
        self._epoll = select.epoll()
        self._transports: dict[int, SocketTransport] = {}
        self._buffer: Any = ctypes.create_string_buffer(READ)  # Any: typeshed does not know that its slices are bytes
        self._into = ctypes.c_void_p(ctypes.addressof(self._buffer)), ctypes.c_size_t(READ)
        self._to_write: list[SocketTransport] = []
        self._planned = False  # a call of `_write_all` is scheduled
        self._yielded = 0.0
        loop.add_reader(self._epoll.fileno(), self._look)

    def add(self, connected: socket.socket, protocol: asyncio.Protocol) -> None:
        """Watch and own a socket; call `protocol.connection_made` at once."""
        connected.setblocking(False)
        transport = SocketTransport(self, connected, protocol)
        self._epoll.register(transport.number, select.EPOLLIN)  # it raises if the system watches no more
        self._transports[transport.number] = transport
        protocol.connection_made(transport)

    def close(self) -> None:
        """Close all sockets, without a call of `connection_lost`."""
        for transport in list(self._transports.values()):
            transport.close_socket()
        self.loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read what came, write the resulting requests, and yield the interpreter."""
        self._planned = True
        found, buffer, (address, size_of_it) = self._transports, self._buffer, self._into
        for number, events in self._epoll.poll(0, ROUND):
            transport = found.get(number)
            if transport is None:
                continue  # closed in this round
            try:
                if events & select.EPOLLOUT:
                    transport.write_on()
                if events & ~select.EPOLLOUT:
                    size = _recv(number, address, size_of_it, _AT_ONCE)
                    if size > 0:
                        transport.protocol.data_received(buffer[:size])
                    elif size == 0:
                        transport.lose(None)
                    elif (code := ctypes.get_errno()) not in _NOT_NOW:
                        transport.lose(OSError(code, os.strerror(code)))
            except Exception as error:  # the other connections go on
                self.loop.call_exception_handler({
                    "message": "a protocol failed, and its connection is closed; this is a defect of inbound, please report it",
                    "exception": error, "protocol": transport.protocol, "transport": transport,
                })  # fmt: skip
                transport.lose(error)
        self._write_all()
        now = time.monotonic()
        if now - self._yielded >= YIELD_EVERY:
            self._yielded = now
            time.sleep(YIELD)

    def write_soon(self, transport: SocketTransport) -> None:
        self._to_write.append(transport)
        if len(self._to_write) >= TOGETHER:
            self._write_all()
        elif not self._planned:
            self._planned = True
            self.loop.call_soon(self._write_all)

    def _write_all(self) -> None:
        self._planned = False
        waiting, self._to_write = self._to_write, []
        for transport in waiting:
            transport.write_on()

    def watch(self, number: int, *, writing: bool) -> None:
        self._epoll.modify(number, select.EPOLLIN | (select.EPOLLOUT if writing else 0))

    def forget(self, number: int) -> None:
        del self._transports[number]
        self._epoll.unregister(number)


class SocketTransport(asyncio.Transport):
    """One socket, with its unsent bytes.

    Those of a broken one stay, so that nothing more is written.
    """

    def __init__(self, sockets: Sockets, connected: socket.socket, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.number = connected.fileno()
        self.protocol = protocol
        self._sockets = sockets
        self._socket = connected
        self._left: bytes = b""
        self._gone = 0  # of these bytes are sent
        self._waits = False  # until the socket takes more
        self._broken = False  # it takes nothing more; a read has the reason, and may still bring an answer
        self._closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send `data` after earlier writes, at the end of the round."""
        if self._left:
            self._left, self._gone = self._left[self._gone :] + data, 0
        else:
            self._left = bytes(data)
            self._sockets.write_soon(self)

    def write_on(self) -> None:
        """Send as many bytes as the socket takes."""
        data, gone = self._left, self._gone
        if not data or self._closed or self._broken:
            return
        piece = data[gone : gone + PIECE] if gone else data
        sent = _send(self.number, piece, len(piece), _AT_ONCE)
        if sent == len(data) and not self._waits:
            self._left = b""
            return
        if sent < 0 and ctypes.get_errno() not in _NOT_NOW:
            self._broken = True
        gone += max(sent, 0)
        self._left, self._gone = (b"", 0) if gone == len(data) else (data, gone)
        waits = bool(self._left) and not self._broken
        if waits is not self._waits:
            self._waits = waits
            self._sockets.watch(self.number, writing=waits)

    def get_write_buffer_size(self) -> int:
        """Return the number of unsent bytes."""
        return len(self._left) - self._gone

    def close(self) -> None:
        """Close it; unsent bytes are dropped."""
        self.lose(None)

    abort = close

    def lose(self, error: Exception | None) -> None:
        """Close it; call `connection_lost` soon."""
        if not self._closed:
            self.close_socket()
            self._sockets.loop.call_soon(self.protocol.connection_lost, error)

    def close_socket(self) -> None:
        """Close it, without a call of `connection_lost`."""
        self._closed = True
        self._sockets.forget(self.number)
        self._socket.close()
