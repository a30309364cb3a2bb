"""A receiver that sends back scripted bytes, whether they are HTTP or not."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from enum import Enum

#: Time for one read, in seconds: a test's client ends before.
PATIENCE = 10.0


class Then(Enum):
    """What happens to the connection behind an answer."""

    STAYS = "stays"
    CLOSES = "closes"
    HALF_CLOSES = "half closes"  # and waits for the client to end its side
    RESETS = "resets"


class RawReceiver:
    """Answers each request of each connection with the next of `answers`; the last one again and again."""

    def __init__(self, *answers: tuple[bytes, Then], host: str = "127.0.0.1") -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self._answers = list(answers)
        self._lock = threading.Lock()
        self._over = threading.Event()
        is_v6 = ":" in host
        family = socket.AF_INET6 if is_v6 else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=64)
        self._open: list[socket.socket] = []
        self.url = f"http://{f'[{host}]' if is_v6 else host}:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """End all connections."""
        self._over.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def say(self, what: bytes) -> None:
        """Send this on the newest connection, although nobody asks."""
        self._open[-1].sendall(what)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(PATIENCE)
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # the client has gone: what some tests are about
            while (request := _request(connection)) is not None:
                with self._lock:
                    self.requests.append(request)
                    answer, then = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                connection.sendall(answer)
                if then is Then.CLOSES:
                    return
                if then is Then.RESETS:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                if then is Then.HALF_CLOSES:
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):
                        pass
                    return


def _request(connection: socket.socket) -> bytes | None:
    """Read one whole request; None at the end of the connection."""
    read = b""
    while b"\r\n\r\n" not in read:
        if read.startswith(b"\x16"):
            return read  # TLS, which has no lines
        if not (more := connection.recv(65536)):
            return None
        read += more
    head, _, body = read.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
    while len(body) < length:
        if not (more := connection.recv(65536)):
            return None
        body += more
    return head + b"\r\n\r\n" + body
