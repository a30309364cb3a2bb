"""Runs one HTTP/1.1 listener on a thread with an event loop.

The thread never waits: the handler gives slow work to other threads. asyncio does not accept here: it reports a client only
after its TLS handshake, and logs a thousand times a second while no file can be opened.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import uvloop

from inbound.errors import ConfigError, InboundError
from inbound.http.server.connection import ServerConnection
from inbound.http.server.listener import ConnectionTable, RequestHandler, ServerLimits, Waits
from inbound.http.server.tls import Certificates
from inbound.runtime.repeated import Repeats

_WAYS_OUT = {
    errno.EADDRINUSE: "stop what listens there, or set another port (0 takes any)",
    errno.EACCES: "use a port above 1023, or give this user the right to it",
    errno.EADDRNOTAVAIL: "use an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all",
}


def bound(key: str, host: str, ports: Sequence[int], *, shared: bool = False) -> socket.socket:
    """Return a socket that listens at `host`, on the first free port.

    `shared` lets other processes listen on the same port.

    Raises:
        ConfigError: the address cannot be used; the message begins with `key`, and says why and what to do.
    """
    try:
        found = socket.getaddrinfo(host or None, ports[0], type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"{key}: the host {host!r} is unknown ({getattr(error, 'strerror', None) or error}); "
            "give an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all"
        ) from None
    family, _, _, _, address = found[0]
    for port in ports:
        try:
            return _listening(family, (address[0], port, *address[2:]), shared)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            if taken and port != ports[-1]:
                continue
            shown = f"{ports[0]} to {ports[-1]}" if taken and len(ports) > 1 else f"{ports[0]}"
            reason = os.strerror(error.errno) if error.errno else str(error)
            way_out = _WAYS_OUT.get(error.errno or 0, "set another address")
            where = f"[{host}]" if ":" in host else host
            raise ConfigError(f"{key}: cannot listen on {where}:{shown}: {reason}; {way_out}") from None
    raise ValueError("no port to listen on")


def _listening(family: int, address: tuple[Any, ...], shared: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(address)
        # Not left to the event loop: with two on one port the second `listen` fails, not its `bind`.
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made


class Handshake:
    """A client during its TLS handshake; `ServerConnection` replaces it."""

    waits = Waits.FOR_ITS_CLIENT
    idle, served = True, False
    unread = 0

    def __init__(self, listener: ConnectionTable, accepted: socket.socket, address: str) -> None:
        self._listener = listener
        self._socket = accepted
        self._task: asyncio.Task[None] | None = None
        self.address = address
        self.since = listener.loop.time()
        self.deadline = float("inf")  # it has one of its own

    def begin(self, context: ssl.SSLContext) -> None:
        """Begin the handshake if there is room for one more client."""
        if self._listener.admit(self):
            self._task = self._listener.loop.create_task(self._encrypt(context))
        else:
            self._socket.close()

    def abort(self) -> None:
        """End at once.

        Its task then ends, too. It is not cancelled: before it has begun, that would never close the socket.
        """
        self._listener.leave(self)
        with suppress(OSError):  # the client is gone already
            self._socket.shutdown(socket.SHUT_RDWR)

    expire = abort

    async def _encrypt(self, context: ssl.SSLContext) -> None:
        listener = self._listener
        try:
            await listener.loop.connect_accepted_socket(
                lambda: ServerConnection(listener, self), self._socket, ssl=context,
                ssl_handshake_timeout=listener.limits.handshake_seconds,
            )  # fmt: skip
        except (OSError, asyncio.CancelledError):  # the client's doing, or the loop ends
            self._socket.close()
        finally:
            listener.leave(self)


#: Seconds until the next try after a system error, and between two log lines of the same error.
RETRY, TELL = 0.5, 10.0


async def accept(
    listener: ConnectionTable,
    listening: socket.socket,
    certificates: Certificates | None,
    name: str,
    log: logging.Logger,
) -> None:
    """Accept connections until cancelled, then close the socket.

    `name` is the listener's in the log.
    """
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
                await listener.loop.connect_accepted_socket(lambda: ServerConnection(listener), accepted)
            except OSError:  # it is gone already
                accepted.close()
    finally:
        listening.close()  # at once: new clients reach our successor


_BACKLOG = 1024


class HttpServer:
    """Serves the answers of `handler`, from `start` to `stop`.

    `name` is the thread's, the listener's in the log, and that of its section of the configuration.
    """

    def __init__(
        self,
        handler: RequestHandler,
        limits: ServerLimits,
        *,
        name: str,
        log: logging.Logger,
        certificates: Certificates | None = None,
        each_second: Callable[[], object] = lambda: None,
    ) -> None:
        """`each_second` is called in the loop's thread."""
        self._handler = handler
        self._limits = limits
        self._name = name
        self._log = log
        self._certificates = certificates
        self._each_second = each_second
        self._listening: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: ConnectionTable | None = None
        self._close: Callable[[], object] = lambda: None
        self._started = threading.Event()
        self._failed: BaseException | None = None
        #: Host and port that it listens on; port 0 before `start`.
        self.address: tuple[Any, ...] = ("", 0)
        self._refused = 0  # connections, as far as the log has it
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        #: Its thread's last sign of life: `time.monotonic`.
        self.ticked_at = time.monotonic()

    def start(self, host: str, ports: Sequence[int], *, shared: bool = False) -> None:
        """Listen on the first of `ports` that is free, and accept connections.

        `shared` lets other processes listen on the same port.

        Raises:
            ConfigError: the address cannot be used; the message says why and what to do.
            InboundError: the loop could not be made.
        """
        self._listening = bound(f"{self._name}.listen", host, ports, shared=shared)
        self.address = tuple(self._listening.getsockname())
        self._thread.start()
        self._started.wait()
        if self._failed is not None:
            raise InboundError(f"{self._name}: the listener did not start: {self._failed}") from self._failed

    @property
    def url(self) -> str:
        """Its URL, without a slash at the end.

        If it listens everywhere, the URL has the host's name.
        """
        host = str(self.address[0])
        if host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
            host = socket.gethostname()
        scheme = "https" if self._certificates is not None else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.address[1]}"

    @property
    def alive(self) -> bool:
        """Whether its thread runs. Any thread."""
        return self._thread.is_alive()

    @property
    def connections(self) -> int:
        """The number of connections. Any thread."""
        return len(self._listener.connections) if self._listener else 0

    @property
    def refused(self) -> int:
        """The number of connections refused over the limit. Any thread."""
        return self._listener.refused if self._listener else 0

    @property
    def unread(self) -> int:
        """The bytes of answers that clients have not taken yet.

        In the loop's thread.
        """
        return sum(client.unread for client in self._listener.connections) if self._listener else 0

    def call_soon(self, work: Callable[[], object]) -> None:
        """Call `work` in the loop's thread, unless it has ended. Any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(work)
            except RuntimeError:  # closed between the two
                self._log.debug("%s: the loop has ended", self._name)

    def stop(
        self,
        seconds: float,
        *,
        grace: float = 0.0,
        at_once: Callable[[], bool] = lambda: False,
        draining: Callable[[], object] = lambda: None,
    ) -> int:
        """Answer requests in flight, within `seconds`, and end.

        A client with an idle connection may send one more request within `grace` s. `at_once` cuts the wait short as soon as it
        is true; `draining` is called first, in the loop's thread. Returns the number of connections closed without an answer. A
        second call does nothing.
        """
        left = 0
        loop = self._loop
        if loop is not None and self._thread.is_alive():
            left = asyncio.run_coroutine_threadsafe(self._drain(seconds, grace, at_once, draining), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(5.0)
        if self._listening is not None:
            self._listening.close()
        return left

    # -- inside: the loop's thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                loop = runner.get_loop()
                runner.run(self._listen())
                self._loop = loop
                self._started.set()
                loop.run_forever()
        except BaseException as error:
            self._failed = error
            self._log.exception("%s: the listener has ended", self._name)
        finally:
            self._started.set()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        listener = self._listener = ConnectionTable(self._handler, self._limits, loop)
        self._tick(loop)
        assert self._listening is not None
        accepting = accept(listener, self._listening, self._certificates, self._name, self._log)
        self._close = loop.create_task(accepting).cancel

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_later(self._limits.tick_seconds, self._tick, loop)
        self.ticked_at = time.monotonic()
        if self._listener is not None:
            self._listener.tick(time.time())
        if self.refused > self._refused:
            self._log.warning(
                "%s: %d connections were refused: all others were being answered, of %d that there may be (half of them of "
                "one address)", self._name, self.refused - self._refused, self._limits.connections,
            )  # fmt: skip
            self._refused = self.refused
        self._each_second()

    async def _drain(
        self, seconds: float, grace: float, at_once: Callable[[], bool], draining: Callable[[], object]
    ) -> int:
        loop, listener = asyncio.get_running_loop(), self._listener
        draining()
        self._close()
        if listener is None:
            return 0
        deadline = loop.time() + seconds
        listener.drain(grace)
        while listener.connections and loop.time() < deadline and not at_once():
            await asyncio.sleep(0.02)
            listener.tick(time.time())
        left = len(listener.connections)
        for client in list(listener.connections):
            client.abort()
        await asyncio.sleep(0)
        return left
