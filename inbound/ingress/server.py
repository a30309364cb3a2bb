"""The ingress of one process: an event loop on a thread of its own, the listener, the producer, and a graceful end."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from inbound.config import IngressConfig, TlsConfig
from inbound.errors import ConfigError, InboundError
from inbound.ingress.connection import Connection, Limits, Listener
from inbound.ingress.producers import Producer, make_producer
from inbound.ingress.receiver import Receiver
from inbound.ingress.topics import TopicWatch
from inbound.processors.spans import NO_TRACING, Tracing
from inbound.status import IngressStatus, ThreadStatus

log = logging.getLogger(__name__)

#: How often the producer is asked for acknowledgements while there are any to come. Seconds.
POLL_EVERY = 0.001
#: How long clients that keep a connection may ask once more when the ingress stops. Seconds.
GRACE = 1.0
_BACKLOG = 1024


class Ingress:
    """Takes events from `start` to `stop`, both called by the owner.

    `token`, if given, reads what each request must know; it is called again and again and may raise InboundError.
    `shared` lets other processes listen on the same port. `producer` is made from `properties` if not given.
    """

    def __init__(
        self,
        config: IngressConfig,
        properties: Mapping[str, Any],
        *,
        token: Callable[[], str] | None = None,
        shared: bool = False,
        producer: Producer | None = None,
        tracing: Tracing = NO_TRACING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._token = token
        self._shared = shared
        self._tls = _context(config.tls) if config.tls is not None else None
        self._producer = producer or make_producer(config, properties)
        self._watch = TopicWatch(self._producer, self._topics_changed, config.create_partitions, clock)
        self.receiver = Receiver(config, self._producer, self._watch, self._begin_polling, clock=clock, tracing=tracing)
        self.receiver.token = token() if token is not None else None
        self._socket: socket.socket | None = None
        self._address: tuple[Any, ...] = ("", 0)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: Listener | None = None
        self._server: asyncio.AbstractServer | None = None
        self._started = threading.Event()
        self._ticked_at = time.monotonic()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ingress", daemon=True)

    def start(self) -> None:
        """Bind the port and take events; Kafka need not be there yet.

        Raises:
            ConfigError: the address cannot be used.
        """
        self._socket = _bound(self._config, self._shared)
        self._address = tuple(self._socket.getsockname())
        self._watch.start()
        self._thread.start()
        self._started.wait()
        if self._failed is not None:
            raise InboundError(f"ingress: the listener did not start: {self._failed}") from self._failed
        log.info("ingress: %s, writing with %s", self.url, self.client)
        if self._token is None and self._tls is None and not _is_loopback(self._address[0]):
            log.warning(
                "ingress: whoever reaches %s may post; set ingress.token_file or ingress.tls to ask for more", self.url
            )

    @property
    def client(self) -> str:
        """The name of the Kafka client that it writes with."""
        return self._producer.name

    def ask_kafka(self) -> None:
        """Ask Kafka for its topics; waits for a few seconds. Raises InboundError: it does not answer, or refuses us."""
        self._producer.topics()

    def get_ready(self) -> None:
        """Read the topics before `start`: it takes events at once then, if Kafka answers. Waits for a few seconds."""
        self._watch.look()

    @property
    def url(self) -> str:
        """Where others reach it, without a slash at the end. Listening everywhere, the host's name stands for it."""
        host, port = self._address[:2]
        if host in {"0.0.0.0", "::"}:
            host = socket.gethostname()
        return f"{'https' if self._tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    def stop(self, seconds: float, *, at_once: Callable[[], bool] = lambda: False) -> bool:
        """Take no new connections, answer what is under way, and end, in at most so many seconds.

        `at_once` is asked again and again, and cuts it short. Returns whether everything was answered.
        """
        answered = True
        loop = self._loop
        if loop is not None and self._thread.is_alive():
            draining = asyncio.run_coroutine_threadsafe(self._drain(seconds, at_once), loop)
            answered = draining.result()
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(5.0)
        self._watch.close()
        self._producer.close(0.0 if at_once() else 2.0)
        if self._socket is not None:
            self._socket.close()
        return answered

    def status(self) -> IngressStatus:
        """Return a snapshot. Any thread."""
        counters, listener = self.receiver.counters, self._listener
        return IngressStatus(
            url=self.url,
            client=self.client,
            away=self._watch.away,
            doubted=self._watch.doubts(),
            topics=len(self._watch.existing),
            connections=len(listener.connections) if listener else 0,
            connections_refused_total=listener.refused if listener else 0,
            answers={str(status): count for status, count in sorted(dict(counters.answers).items())},
            accepted_events_total=counters.accepted_events,
            written_events_total=counters.written_events,
            failed_events_total=counters.failed_events,
            received_bytes_total=counters.received_bytes,
            in_flight_bytes=counters.in_flight_bytes,
            in_flight_events=counters.in_flight_events,
            draining=self.receiver.draining,
        )

    def threads(self) -> list[ThreadStatus]:
        """Return how its threads are. Any thread."""
        now = time.monotonic()
        found = {"ingress": (self._thread.is_alive(), self._ticked_at)}
        found["ingress-topics"] = (self._watch.alive, self._watch.alive_at)
        found |= self._producer.threads()
        return [
            ThreadStatus(name=name, alive=alive, last_step_age=max(0.0, now - at), failures=0)
            for name, (alive, at) in found.items()
        ]

    # -- inside: the loop's thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_new_loop) as runner:
                loop = runner.get_loop()
                runner.run(self._listen())
                self._loop = loop
                self._started.set()
                loop.run_forever()
        except BaseException as error:
            self._failed = error
            log.exception("ingress: the listener has ended")
        finally:
            self._started.set()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        config = self._config
        limits = Limits(request_seconds=config.request_timeout, connections=config.max_connections)
        listener = self._listener = Listener(self.receiver, limits, loop)
        self._tick(loop)
        arguments: dict[str, Any] = {"sock": self._socket, "backlog": _BACKLOG}
        if self._tls is not None:
            arguments |= {"ssl": self._tls, "ssl_handshake_timeout": 10.0}
        self._server = await loop.create_server(lambda: Connection(listener), **arguments)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.call_later(1.0, self._tick, loop)
        self._ticked_at = time.monotonic()
        if self._listener is not None:
            self._listener.tick(time.time())
        if self._token is not None:
            try:
                self.receiver.token = self._token()
            except InboundError as error:
                log.error("ingress: the token stays what it was: %s", error)

    def _begin_polling(self) -> None:
        asyncio.get_running_loop().call_later(POLL_EVERY, self._poll)

    def _poll(self) -> None:
        try:
            self._producer.poll()
        finally:  # whoever waits for an answer must not wait for ever
            if self.receiver.counters.in_flight_events:
                self._begin_polling()

    def _topics_changed(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.receiver.topics_changed)

    async def _drain(self, seconds: float, at_once: Callable[[], bool]) -> bool:
        loop, listener = asyncio.get_running_loop(), self._listener
        self.receiver.draining = True
        if self._server is not None:
            self._server.close()
        if listener is None:
            return True
        deadline = loop.time() + seconds
        listener.drain(GRACE)
        while listener.connections and loop.time() < deadline and not at_once():
            await asyncio.sleep(0.02)
            listener.tick(time.time())
        left = len(listener.connections)
        for connection in list(listener.connections):
            connection.abort()
        await asyncio.sleep(0)
        if left:
            log.warning("ingress: %d connections were closed before what they sent was answered", left)
        return not left


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _context(tls: TlsConfig) -> ssl.SSLContext:
    """Return what connections are encrypted with. Raises ConfigError: a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(tls.cert, tls.key, password=_no_passphrase)
    except (OSError, ValueError) as error:
        raise ConfigError(f"ingress.tls: {tls.cert} and its key cannot be used: {error}; give PEM files") from None
    if tls.client_ca is not None:
        try:
            context.load_verify_locations(tls.client_ca)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"ingress.tls.client_ca: {tls.client_ca} cannot be used: {error}; give a PEM file"
            ) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")


def _bound(config: IngressConfig, shared: bool) -> socket.socket:
    try:
        found = socket.getaddrinfo(config.host or None, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
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
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        way_out = {
            errno.EADDRINUSE: "stop what listens there, or set another port",
            errno.EACCES: "use a port above 1023, or give this user the right to it",
        }.get(error.errno or 0, "use an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all")
        raise ConfigError(f"ingress.listen: cannot listen on {config.listen}: {reason}; {way_out}") from None
    return bound


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
