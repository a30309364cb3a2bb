"""ZooKeeper's wire protocol by hand: requests go out when the test says so, on the connection that it says."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from types import TracebackType

_CREATE, _GET, _SET, _CHECK, _MULTI = 1, 4, 5, 13, 14


def _text(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def _set(path: bytes, data: bytes) -> bytes:
    return _text(path) + _text(data) + struct.pack(">i", -1)


@dataclass(frozen=True, slots=True)
class Session:
    """What a client needs to take its session to another server."""

    id: int
    password: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one request."""

    zxid: int
    error: int
    body: bytes


class Connection:
    """One connection of a session; requests are answered in order. Raises OSError when the server closes it."""

    def __init__(self, port: int, session: Session | None = None, *, wait: bool = True) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 10)
        self.session = session or Session(0, bytes(16))
        timeout_ms = 30_000
        self._send(struct.pack(">iqiq", 0, 0, timeout_ms, self.session.id) + _text(self.session.password) + b"\0")
        self._xid = 0
        if wait:
            self.finish()

    def finish(self) -> None:
        """Wait for the server to accept the session, where the constructor did not."""
        answer = self._receive()
        _, granted, number, length = struct.unpack_from(">iiqi", answer)
        if granted <= 0:
            raise ConnectionError("the session has expired")
        self.session = Session(number, answer[20 : 20 + length])

    def create(self, path: bytes) -> None:
        """Create an empty persistent node; it is an error if it exists."""
        everybody = struct.pack(">ii", 1, 31) + _text(b"world") + _text(b"anyone")
        self.send(_CREATE, _text(path) + _text(b"") + everybody + struct.pack(">i", 0))
        assert self.reply().error == 0

    def send_set(self, path: bytes, data: bytes) -> None:
        """Send a write and don't wait."""
        self.send(_SET, _set(path, data))

    def send_transaction(self, path: bytes, data: bytes, *, epoch: bytes = b"", move_epoch: bool = False) -> None:
        """Send the same write as a transaction with a check, as a commit is sent, and don't wait.

        The check is that the node `epoch` was never written; without one, that `path` exists. `move_epoch` writes it.
        """
        check = _text(epoch or path) + struct.pack(">i", 0 if epoch else -1)
        operations = [(_CHECK, check), *([(_SET, _set(epoch, b""))] if move_epoch else []), (_SET, _set(path, data))]
        body = b"".join(struct.pack(">i?i", kind, False, -1) + operation for kind, operation in operations)
        self.send(_MULTI, body + struct.pack(">i?i", -1, True, -1))

    def get(self, path: bytes) -> tuple[bytes, int]:
        """Return a node's data and version."""
        self.send(_GET, _text(path) + b"\0")
        reply = self.reply()
        assert reply.error == 0, reply
        (length,) = struct.unpack_from(">i", reply.body)
        (version,) = struct.unpack_from(">i", reply.body, 4 + length + 32)
        return reply.body[4 : 4 + length], version

    def send(self, kind: int, body: bytes) -> None:
        """Send a request."""
        self._xid += 1
        self._send(struct.pack(">ii", self._xid, kind) + body)

    def reply(self) -> Reply:
        """Wait for the next answer."""
        answer = self._receive()
        _, zxid, error = struct.unpack_from(">iqi", answer)
        return Reply(zxid, error, answer[16:])

    def close(self) -> None:
        """Close the connection, not the session."""
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _send(self, message: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(message)) + message)

    def _receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the server closed the connection")
            data += more
        return data
