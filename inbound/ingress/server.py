"""The ingress of one process: its listener, producer and graceful end."""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from inbound.config import IngressConfig
from inbound.errors import InboundError
from inbound.http.server.listener import ServerLimits
from inbound.http.server.rights import is_loopback
from inbound.http.server.serving import HttpServer
from inbound.http.server.tls import Certificates, PemFiles
from inbound.ingress.producer import IngressProducer, make_producer
from inbound.ingress.receiver import Receiver
from inbound.ingress.topics import TopicWatch
from inbound.observe.status.status import IngressStatus, ThreadStatus
from inbound.processors.spans import NO_TRACING, Tracing

log = logging.getLogger(__name__)

#: Seconds between two polls of the producer while events are in flight.
POLL_EVERY = 0.001
#: Seconds in which clients may send one more request on a kept connection when the ingress stops.
GRACE = 1.0


class Ingress:
    """Takes events from `start` to `stop`.

    `token` reads the token of each request; it is called again and again and may raise InboundError. `shared` lets other
    processes listen on the same port. `producer` is made from `properties` if not given.
    """

    def __init__(
        self,
        config: IngressConfig,
        properties: Mapping[str, Any],
        *,
        token: Callable[[], str] | None = None,
        shared: bool = False,
        producer: IngressProducer | None = None,
        tracing: Tracing = NO_TRACING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises InboundError: a file cannot be used; no producer runs then."""
        self._config = config
        self._token = token
        first = token() if token is not None else None
        self._shared = shared
        certificates = Certificates(PemFiles.of_ingress(config.tls), log) if config.tls is not None else None
        self._producer = producer or make_producer(config, properties)
        self._watch = TopicWatch(self._producer, self._topics_changed, config.create_partitions, clock)
        self.receiver = Receiver(
            config, self._producer, self._watch, self._begin_polling, self._aside, clock=clock, tracing=tracing
        )
        self.receiver.token = first
        self._parser = ThreadPoolExecutor(1, "ingress-parser")
        limits = ServerLimits(request_seconds=config.request_timeout, connections=self._clients())
        self._server = HttpServer(
            self.receiver, limits, name="ingress", log=log, certificates=certificates, each_second=self._each_second
        )

    def start(self) -> None:
        """Bind the port and take events; Kafka need not be there yet.

        Raises:
            ConfigError: the address cannot be used.
        """
        self._server.start(self._config.host, [self._config.port], shared=self._shared)
        self._watch.start()
        log.info("ingress: %s, writing with %s", self.url, self.client)
        if (clients := self._clients()) < self._config.max_connections:
            asked = "max_connections" in self._config.model_fields_set
            log.log(
                logging.WARNING if asked else logging.INFO,
                "ingress: %d clients at a time, not max_connections (%d): half of the files that this process may open; to take "
                "more, raise that (ulimit -n, LimitNOFILE)", clients, self._config.max_connections,
            )  # fmt: skip
        if self._token is None and self._config.tls is None and not is_loopback(str(self._server.address[0])):
            log.warning(
                "ingress: any client that reaches %s may post; set ingress.token_file or ingress.tls to restrict that",
                self.url,
            )

    @property
    def client(self) -> str:
        """The name of the Kafka client that it writes with."""
        return self._producer.name

    def ask_kafka(self) -> None:
        """Ask Kafka for its topics, within some seconds.

        Raises InboundError: no answer, or a refusal.
        """
        self._producer.topics()

    def get_ready(self) -> None:
        """Read the topics before `start`, to accept events at once; may wait."""
        self._watch.look()

    @property
    def url(self) -> str:
        """Its URL: see `HttpServer.url`."""
        return self._server.url

    def stop(self, seconds: float, *, at_once: Callable[[], bool] = lambda: False) -> bool:
        """Refuse new connections, answer requests in flight, and end within `seconds`.

        `at_once` cuts the wait short as soon as it is true. Returns whether everything was answered.
        """
        left = self._server.stop(seconds, grace=GRACE, at_once=at_once, draining=self.receiver.drain)
        if left:
            log.warning("ingress: %d connections were closed before what they sent was answered", left)
        self._parser.shutdown(wait=False, cancel_futures=True)
        self._watch.close()
        self._producer.close(0.0 if at_once() else 2.0)
        return not left

    def status(self) -> IngressStatus:
        """Return a snapshot. Any thread."""
        counters = self.receiver.counters
        return IngressStatus(
            url=self.url,
            client=self.client,
            away=self._watch.away,
            doubted=self._watch.doubts(),
            topics=len(self._watch.existing),
            connections=self._server.connections,
            connections_refused_total=self._server.refused,
            answers={str(status): count for status, count in sorted(dict(counters.answers).items())},
            accepted_events_total=counters.accepted_events,
            written_events_total=counters.written_events,
            failed_events_total=counters.failed_events,
            received_bytes_total=counters.received_bytes,
            in_flight_bytes=counters.in_flight_bytes,
            in_flight_events=counters.in_flight_events,
            draining=self.receiver.draining,
            in_flight_requests=counters.in_flight_requests,
            request_seconds=counters.request_seconds.status(),
            headers_left_out_total=self.receiver.record_headers.left_out,
            produced={f"{topic}/{partition}": count for (topic, partition), count in dict(counters.produced).items()},
            brokers=list(self._producer.figures()),
        )

    def threads(self) -> list[ThreadStatus]:
        """Return the state of its threads. Any thread."""
        now = time.monotonic()
        found = {"ingress": (self._server.alive, self._server.ticked_at)}
        found["ingress-topics"] = (self._watch.alive, self._watch.alive_at)
        found |= self._producer.threads()
        return [
            ThreadStatus(name=name, alive=alive, last_step_age=max(0.0, now - at), failures=0)
            for name, (alive, at) in found.items()
        ]

    # -- inside: the loop's thread -----------------------------------------------------------------------------------

    def _clients(self) -> int:
        """Return the limit of clients; others need half of the open files."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = self._config.max_connections
        return most if files == resource.RLIM_INFINITY else max(1, min(most, files // 2))

    def _aside(self, work: Callable[[], Any], done: Callable[[Callable[[], Any]], object]) -> None:
        future = asyncio.get_running_loop().run_in_executor(self._parser, work)
        future.add_done_callback(lambda ended: None if ended.cancelled() else done(ended.result))

    def _each_second(self) -> None:
        self._renew_token()
        self._producer.poll()  # also while no event waits: the client's statistics would pile up in it

    def _renew_token(self) -> None:
        if self._token is not None:
            try:
                self.receiver.token = self._token()
            except InboundError as error:
                log.error("ingress: the token stays as it was: %s", error)

    def _begin_polling(self) -> None:
        asyncio.get_running_loop().call_later(POLL_EVERY, self._poll)

    def _poll(self) -> None:
        try:
            self._producer.poll()
        finally:  # a request must not wait without end for its answer
            if self.receiver.counters.in_flight_events:
                self._begin_polling()

    def _topics_changed(self) -> None:
        self._server.call_soon(self.receiver.topics_changed)
