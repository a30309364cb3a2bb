"""Whether a process makes spans, and where they go. OpenTelemetry is imported when that is first asked for."""

from __future__ import annotations

import logging
import os
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from urllib3.util import parse_url

import inbound
from inbound.clock import Clock, SystemClock
from inbound.config import TracingConfig
from inbound.driver import Driver, Wakeup
from inbound.processors.http_values import tls_context
from inbound.processors.sinks.http_client import HttpClient
from inbound.processors.spans import Spans
from inbound.status import ThreadStatus, TracingStatus
from inbound.tracing.settings import Settings, settings_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

    from inbound.tracing.exporting import Exporting

log = logging.getLogger(__name__)

#: How long getting a connection to the collector may take, in seconds.
CONNECT = 5.0
#: How long what waits may take to be sent when the process ends, or other settings come, in seconds.
LAST = 2.0


@dataclass(frozen=True)
class _Running:
    settings: Settings
    spans: Spans
    exporting: Exporting
    client: HttpClient
    driver: Driver


class ProcessTracing:
    """What a process asks for spans: see `inbound.processors.spans.Tracing`.

    `configure` and `close` by one thread at a time; everything else by any.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._running: _Running | None = None
        self.spans: Spans | None = None

    def configure(self, config: TracingConfig) -> None:
        """Make spans as configured from now on, or none; begun ones go where those before went.

        Raises:
            ConfigError: that cannot be; it stays as it was.
        """
        settings = settings_of(config)
        former = self._running
        if settings == (former.settings if former is not None else None):
            return
        self._running = _started(settings, self._clock) if settings is not None else None
        self.spans = self._running.spans if self._running is not None else None
        if settings is not None:
            log.info(
                "tracing: %g of the traces that begin here are recorded, and sent to %s as %s", settings.sample_rate,
                settings.shown, settings.backend,
            )  # fmt: skip
        if former is not None:
            _end(former)
            if settings is None:
                log.info("tracing: nothing is traced any more")

    def close(self) -> None:
        """Send what waits, for a moment, and end. Nothing is traced afterwards."""
        running, self._running, self.spans = self._running, None, None
        if running is not None:
            _end(running)

    def status(self) -> TracingStatus | None:
        """Return a snapshot; None: nothing is traced."""
        running = self._running
        if running is None:
            return None
        exporting, settings = running.exporting, running.settings
        return TracingStatus(
            backend=settings.backend,
            endpoint=settings.shown,
            sample_rate=settings.sample_rate,
            sent_total=exporting.sent_total,
            dropped_total=exporting.dropped_total,
            waiting=exporting.waiting,
            problem=exporting.problem,
        )

    def threads(self) -> list[ThreadStatus]:
        """Return how its thread is, if it has one."""
        running = self._running
        if running is None:
            return []
        return [ThreadStatus.of(running.driver, self._clock.now())]


def make_spans(settings: Settings, to: SpanProcessor) -> Spans:
    """Return what makes spans that end with `to`. Imports OpenTelemetry."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

    from inbound.tracing.propagation import Propagation
    from inbound.tracing.sampling import FollowingSampler
    from inbound.tracing.spans import OpenTelemetrySpans

    resource = Resource.create(
        {
            "service.name": settings.service_name,
            "service.version": inbound.__version__,
            "service.instance.id": f"{socket.gethostname()}-{os.getpid()}",
        }
    )
    provider = TracerProvider(FollowingSampler(settings.sample_rate), resource, shutdown_on_exit=False)
    provider.add_span_processor(to)
    propagation = Propagation(TraceIdRatioBased(settings.sample_rate))
    return OpenTelemetrySpans(provider.get_tracer("inbound", inbound.__version__), propagation)


def _started(settings: Settings, clock: Clock) -> _Running:
    from inbound.tracing.encoding import encoder
    from inbound.tracing.exporting import Exporting

    # Everything that they say is said by us, once, or belongs to what a stranger has sent.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    client = _client(settings, settings.timeout)
    wakeup = Wakeup()
    encode = encoder(settings.backend, settings.service_name)
    exporting = Exporting(encode, client, settings.shown, clock, wakeup.set)
    driver = Driver("tracing", exporting, wakeup, clock)
    running = _Running(settings, make_spans(settings, exporting), exporting, client, driver)
    driver.start()
    return running


def _client(settings: Settings, timeout: float) -> HttpClient:
    url = parse_url(settings.endpoint)
    tls = tls_context("tracing", settings.ca_file, None, None) if url.scheme == "https" else None
    return HttpClient(url, headers=settings.headers, connect_timeout=min(CONNECT, timeout), timeout=timeout, tls=tls)


def _end(running: _Running) -> None:
    """Send what waits if the collector takes it, within `LAST` seconds."""
    exporting, driver = running.exporting, running.driver
    until = time.monotonic() + LAST
    exporting.end()
    driver.stop()
    driver.thread.join(LAST)
    while exporting.waiting and exporting.problem is None and not driver.thread.is_alive():
        left = until - time.monotonic()
        if left < 0.1:
            break
        last = _client(running.settings, left)
        exporting.send(last)
        last.close()
    running.client.close()
    given_up = exporting.give_up()
    if given_up:
        log.warning("tracing: %d spans were not sent: %s", given_up, exporting.problem or "the time was over")
