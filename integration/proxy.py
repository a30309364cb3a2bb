"""A TCP proxy on loopback that can delay, hold and let go what passes through it."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType

#: How long a server may take to listen, in seconds. A refused client would try again; one that was let in and thrown out
#: takes it for a failure: ZooKeeper's followers would begin another election.
_CONNECT = 3.0


class Proxy:
    """Forwards connections to a port. Held bytes arrive after `release`, also when the client has gone meanwhile."""

    def __init__(self, target: int) -> None:
        self.delay = 0.0  # seconds for each piece of the server's answers
        self._target = target
        self._open = threading.Event()
        self._open.set()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    @property
    def address(self) -> str:
        """Where clients connect: host:port."""
        return f"127.0.0.1:{self.port}"

    def hold(self) -> None:
        """Keep what clients send from now on."""
        self._open.clear()

    def release(self) -> None:
        """Send the server what was held, in order, and hold nothing any more."""
        self._open.set()

    def close(self) -> None:
        """Close everything."""
        self._open.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # else who waits in accept() takes one more
        self._listener.close()
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._connect, args=(client,), name="proxy", daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        deadline = time.monotonic() + _CONNECT
        while True:
            try:
                server = socket.create_connection(("127.0.0.1", self._target), 5)
                break
            except OSError:
                if time.monotonic() > deadline:
                    client.close()
                    return
                time.sleep(0.05)
        server.settimeout(None)
        self._sockets += [client, server]
        for pump, source, sink in ((self._requests, client, server), (self._answers, server, client)):
            threading.Thread(target=pump, args=(source, sink), name="proxy", daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        data = b"?"
        while data:
            try:
                data = client.recv(65536)
            except OSError:
                data = b""
            self._open.wait()  # the end of the stream waits too: the server must not see it before the bytes
            try:
                server.sendall(data) if data else server.shutdown(socket.SHUT_WR)
            except OSError:
                break
        # Not closed here: a server that still answers must find a reader, or it would get a reset.

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        while True:
            try:
                data = server.recv(65536)
            except OSError:
                data = b""
            if not data:
                break
            if self.delay:
                time.sleep(self.delay)
            with suppress(OSError):  # the client has gone; the server's answers are read all the same
                client.sendall(data)
        for one in (server, client):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
