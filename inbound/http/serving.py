"""One listener of HTTP/1.1 on a thread of its own, from `start` to `stop`: the admin port, profiles, the ingress.

The thread runs an event loop, and does nothing that waits: what takes time is the handler's to give to other threads.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import uvloop

from inbound.errors import InboundError
from inbound.http.accepting import accept
from inbound.http.listener import Handler, Limits, Listener
from inbound.http.tls import Certificates

_BACKLOG = 1024


class HttpServer:
    """Serves what `handler` answers. `start` and `stop` are called by the owner; `name` is that of the thread."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits,
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
        self._listener: Listener | None = None
        self._close: Callable[[], object] = lambda: None
        self._started = threading.Event()
        self._failed: BaseException | None = None
        self._refused = 0  # connections, as far as the log has it
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        #: When its thread was last seen at work: `time.monotonic`.
        self.ticked_at = time.monotonic()

    def start(self, listening: socket.socket) -> None:
        """Take connections of a socket that listens, which is closed by `stop`.

        Raises:
            InboundError: the loop could not be made.
        """
        self._listening = listening
        self._thread.start()
        self._started.wait()
        if self._failed is not None:
            raise InboundError(f"{self._name}: the listener did not start: {self._failed}") from self._failed

    @property
    def alive(self) -> bool:
        """Whether its thread runs. Any thread."""
        return self._thread.is_alive()

    @property
    def connections(self) -> int:
        """How many there are. Any thread."""
        return len(self._listener.connections) if self._listener else 0

    @property
    def refused(self) -> int:
        """How many connections were closed because there were too many. Any thread."""
        return self._listener.refused if self._listener else 0

    @property
    def unread(self) -> int:
        """How many bytes of answers clients have not taken yet. In the loop's thread."""
        return sum(client.unread for client in self._listener.connections) if self._listener else 0

    def call_soon(self, work: Callable[[], object]) -> None:
        """Have something done by the loop's thread; nothing once it has ended. Any thread."""
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
        """Take no new connections, answer what is under way, and end, in at most so many seconds. May be called twice.

        Who keeps a connection may ask once more within `grace` s. `at_once` is asked again and again, and cuts it short;
        `draining` is called first, in the loop's thread. Returns how many connections were closed without an answer.
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
        listener = self._listener = Listener(self._handler, self._limits, loop)
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


def listening_at(family: int, address: tuple[Any, ...], *, shared: bool = False) -> socket.socket:
    """Return a socket that listens; `shared` lets other processes listen on the same port.

    Raises:
        OSError: the address cannot be used.
    """
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
        # Not left to the event loop: with two on one port the second `listen` fails, not its `bind`.
        bound.listen(_BACKLOG)
    except OSError:
        bound.close()
        raise
    return bound
