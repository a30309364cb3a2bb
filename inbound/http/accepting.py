"""Takes connections of a socket that listens, and has clients begin with TLS where they are to.

Not left to asyncio: it tells of a client only when its handshake is over; and where no file can be opened it logs that a thousand
times a second.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl

from inbound.http.connection import Connection
from inbound.http.listener import Listener, Waits
from inbound.http.tls import Certificates
from inbound.repeats import Repeats

#: After an error of the system's, in seconds; and how often the log is told of them.
RETRY, TELL = 0.5, 10.0


async def accept(
    listener: Listener, listening: socket.socket, certificates: Certificates | None, name: str, log: logging.Logger
) -> None:
    """Take connections until it is cancelled, and then close the socket. `name` is that of the listener in the log."""
    told = Repeats[str](TELL)
    listening.setblocking(False)
    try:
        while True:
            try:
                accepted, address = await listener.loop.sock_accept(listening)
            except OSError as error:  # such as too many open files
                if told.seen(error.errno, listener.loop.time(), str(error)) is not None:
                    log.error("%s: no connection can be taken: %s; trying again every %s s", name, error, RETRY)
                await asyncio.sleep(RETRY)
                continue
            if certificates is not None:
                Handshake(listener, accepted, str(address[0])).begin(certificates.context)
                continue
            try:
                await listener.loop.connect_accepted_socket(lambda: Connection(listener), accepted)
            except OSError:  # it is gone already
                accepted.close()
    finally:
        listening.close()


class Handshake:
    """A client that is to begin with TLS: a `Client` of its listener; `Connection` takes its place then."""

    waits = Waits.FOR_ITS_CLIENT
    idle = served = False
    unread = 0

    def __init__(self, listener: Listener, accepted: socket.socket, address: str) -> None:
        self._listener = listener
        self._socket = accepted
        self._task: asyncio.Task[None] | None = None
        self.address = address
        self.since = listener.loop.time()
        self.deadline = float("inf")  # it has one of its own

    def begin(self, context: ssl.SSLContext) -> None:
        """Shake hands, if there is room for one more."""
        if self._listener.admit(self):
            self._task = self._listener.loop.create_task(self._encrypt(context))
        else:
            self._socket.close()

    def expire(self) -> None:
        """The deadline has passed."""
        self.abort()

    def abort(self) -> None:
        """End at once."""
        if self._task is not None:
            self._task.cancel()

    async def _encrypt(self, context: ssl.SSLContext) -> None:
        listener = self._listener
        try:
            await listener.loop.connect_accepted_socket(
                lambda: Connection(listener, self), self._socket, ssl=context,
                ssl_handshake_timeout=listener.limits.handshake_seconds,
            )  # fmt: skip
        except (OSError, ssl.SSLError):  # whatever it is, the client did it
            self._socket.close()
        except asyncio.CancelledError:  # another one needs the place
            self._socket.close()
        finally:
            listener.leave(self)
