"""The connections of one listener, with their handler, limits and deadlines.

If there are too many connections, one that waits for its client is closed: of the address with the most connections the one
that has waited longest. So neither a crowd of silent clients nor one machine keeps a probe out. Connections whose answer is
being made are never closed for another one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from inbound.http.server.page import ACCEPTED, ServerAnswer, http_date

if TYPE_CHECKING:
    from inbound.http.server.connection import Incoming, ServerConnection
    from inbound.http.server.serving import Handshake

    #: A connection, or one in its handshake.
    Client: TypeAlias = ServerConnection | Handshake


FULL = ServerAnswer(503, "too many connections; try again soon", retry_after=1)


@dataclass(frozen=True, kw_only=True)
class ServerLimits:
    """The limits of one listener; times in seconds, sizes in bytes."""

    head_bytes: int = 64 * 1024  # request line and headers of one request
    request_seconds: float = 30.0  # from the first byte of a request to its last; also until the first one comes
    idle_seconds: float = 75.0  # between two requests; longer than Prometheus' usual interval
    answer_seconds: float = 30.0  # until the client has taken an answer
    linger_seconds: float = 2.0  # that a refused client may go on sending, so that it reads the answer
    handshake_seconds: float = 10.0  # of TLS
    connections: int = 2000  # those in their handshake included
    pipelined: int = 128  # requests of one connection that are not answered
    tick_seconds: float = 1.0  # between two checks of deadlines
    feed_bytes: int = 256 * 1024  # parsed of a connection between two checks of `pipelined`


class RequestHandler:
    """Handles a listener's requests, in the loop's thread."""

    def head(self, request: Incoming) -> ServerAnswer | None:
        """Return an answer to refuse a request's body; None: read it."""

    def grows(self, request: Incoming, count: int) -> ServerAnswer | None:
        """Return an answer after `count` more bytes; None: read on."""

    def complete(self, request: Incoming) -> None:
        """Answer a whole request, now or later."""

    def count(self, answer: ServerAnswer) -> None:
        """Count the connection's own answer to an incomplete request."""

    def over(self, request: Incoming) -> None:
        """Forget a request that is answered, or will never be complete.

        May be called again.
        """


class Waits(IntEnum):
    """The reason of a connection's wait; the lowest gives way first."""

    FOR_ITS_CLIENT = 0  # to send a request, or its rest
    FOR_ITS_CLIENT_TO_READ = 1
    FOR_US = 2


class ConnectionTable:
    """The open connections, in the loop's thread; any thread reads the numbers."""

    def __init__(self, handler: RequestHandler, limits: ServerLimits, loop: asyncio.AbstractEventLoop) -> None:
        self.handler = handler
        self.limits = limits
        self.loop = loop
        self.connections: dict[Client, None] = {}
        self.refused = 0  # connections closed because there were too many
        self.draining = False
        self._of_address: Counter[str] = Counter()
        self._dirty: list[ServerConnection] = []
        self.tick(0.0)

    # -- connections ---------------------------------------------------------------------------------------------------

    def admit(self, client: Client) -> bool:
        """Return whether a new connection is accepted; another may give way."""
        own = self._of_address[client.address] >= max(1, self.limits.connections // 2)  # for one address
        if (own or len(self.connections) >= self.limits.connections) and not self._make_room(
            client.address if own else None
        ):
            self.refused += 1
            return False
        self.connections[client] = None
        self._of_address[client.address] += 1
        return True

    def leave(self, client: Client) -> None:
        """Forget a connection that has ended; may be called again."""
        if client in self.connections:
            del self.connections[client]
            self._of_address[client.address] -= 1
            if not self._of_address[client.address]:
                del self._of_address[client.address]

    def replace(self, before: Client, client: Client) -> None:
        """Replace a handshake by its connection."""
        self.leave(before)
        self.connections[client] = None
        self._of_address[client.address] += 1

    def _make_room(self, address: str | None) -> bool:
        """Close a connection that waits for its client; return False: none does.

        `address` limits the choice to its connections.
        """
        found = [c for c in self.connections if c.waits is not Waits.FOR_US and address in (None, c.address)]
        if not found:
            return False
        longest = min(found, key=lambda c: (c.waits, -self._of_address[c.address], c.since))
        self.leave(longest)
        longest.abort()
        return True

    # -- time ----------------------------------------------------------------------------------------------------------

    def tick(self, wall: float) -> None:
        """Renew the date, and expire deadlines; `wall` is the Unix time."""
        self.date = http_date(wall)
        self.accepted = ACCEPTED.encode(self.date, close=False)
        self.full = FULL.encode(self.date, close=True)
        now = self.loop.time()
        for client in [c for c in self.connections if c.deadline <= now]:
            client.expire()

    def dirty(self, connection: ServerConnection) -> None:
        """Flush `connection` after the current round of the loop."""
        if not self._dirty:
            self.loop.call_soon(self._flush)
        self._dirty.append(connection)

    def drain(self, grace: float) -> None:
        """End each connection with its next answer.

        Requests in flight are answered with `Connection: close`; idle clients may send one more within `grace` s.
        """
        self.draining = True
        limit = self.loop.time() + grace
        for client in list(self.connections):
            if client.idle:
                client.deadline = min(client.deadline, limit)
                if not client.served:
                    client.expire()

    def _flush(self) -> None:
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.flush()
