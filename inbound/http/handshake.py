"""Clients that are to begin with TLS: they count as connections from the first byte on."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress

from inbound.http.connection import Connection
from inbound.http.listener import Listener, Waits


class Handshake:
    """A client that is to begin with TLS: a `Client` of its listener; `Connection` takes its place then."""

    waits = Waits.FOR_ITS_CLIENT
    idle, served = True, False
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
        """End at once. Its task ends by itself then: cancelled before it has begun, it would never close the socket."""
        self._listener.leave(self)
        with suppress(OSError):  # the client is gone already
            self._socket.shutdown(socket.SHUT_RDWR)

    async def _encrypt(self, context: ssl.SSLContext) -> None:
        listener = self._listener
        try:
            await listener.loop.connect_accepted_socket(
                lambda: Connection(listener, self), self._socket, ssl=context,
                ssl_handshake_timeout=listener.limits.handshake_seconds,
            )  # fmt: skip
        except (OSError, asyncio.CancelledError):  # whatever it is, the client did it; or the loop ends
            self._socket.close()
        finally:
            listener.leave(self)
