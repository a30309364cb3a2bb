"""Takes connections of a socket that listens, and has clients begin with TLS where they are to.

Not left to asyncio: it tells of a client only when its handshake is over; and where no file can be opened it logs that a thousand
times a second.
"""

from __future__ import annotations

import asyncio
import logging
import socket

from inbound.http.connection import Connection
from inbound.http.handshake import Handshake
from inbound.http.listener import Listener
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
                await asyncio.sleep(0)  # while many come, all else goes on
                continue
            try:
                await listener.loop.connect_accepted_socket(lambda: Connection(listener), accepted)
            except OSError:  # it is gone already
                accepted.close()
    finally:
        listening.close()  # at once: whoever connects now goes to who takes our place, and does not wait for our end
