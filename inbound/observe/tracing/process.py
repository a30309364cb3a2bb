"""Switches the traces of a process on and off.

OpenTelemetry is imported when traces are first on.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from typing import TYPE_CHECKING

from urllib3.util import parse_url

import inbound
from inbound.clock import Clock, SystemClock
from inbound.config import TracingConfig
from inbound.observe.status.status import ThreadStatus, TracingStatus
from inbound.observe.tracing.settings import TracingSettings, settings_of
from inbound.processors.http_headers import tls_context
from inbound.processors.sinks.http_client import HttpClient
from inbound.processors.spans import Spans
from inbound.runtime.driver import Driver, Wakeup

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor


log = logging.getLogger(__name__)

#: Seconds for a connection to the collector.
CONNECT = 5.0
#: Seconds for the queued spans when the process ends, or the settings change.
LAST = 2.0


class ProcessTracing:
    """Makes the spans of a process: see `inbound.processors.spans.Tracing`.

    `configure` and `close` run on one thread at a time, everything else on any.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._collecting: _Collecting | None = None
        self.spans: Spans | None = None

    def configure(self, config: TracingConfig) -> None:
        """Make spans as configured; begun ones go to the former collector.

        Raises:
            ConfigError: the settings cannot be used; the former ones stay.
        """
        settings, former = settings_of(config), self._collecting
        if settings == (former.settings if former is not None else None):
            return
        self._collecting = _Collecting(settings, self._clock) if settings is not None else None
        self.spans = self._collecting.spans if self._collecting is not None else None
        if former is not None:
            former.end()
            if settings is None:
                log.info("tracing: nothing is traced any more")

    def close(self) -> None:
        """Send the queued spans, within `LAST` seconds, and trace no more."""
        former, self._collecting, self.spans = self._collecting, None, None
        if former is not None:
            former.end()

    def status(self) -> TracingStatus | None:
        """Return a snapshot; None: nothing is traced."""
        collecting = self._collecting
        return collecting.status() if collecting is not None else None

    def threads(self) -> list[ThreadStatus]:
        """Return the state of its thread, if it has one."""
        collecting = self._collecting
        return [ThreadStatus.of(collecting.driver, self._clock.now())] if collecting is not None else []


class _Collecting:
    """The spans of some settings, and their delivery to the collector."""

    def __init__(self, settings: TracingSettings, clock: Clock) -> None:
        from inbound.observe.tracing.exporter import CollectorExporter, encoder

        # Its own messages repeat ours, or quote untrusted senders.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self.settings = settings
        wakeup, encode = Wakeup(), encoder(settings.backend, settings.service_name)
        self._client = client_of(settings, settings.timeout)
        self._exporter = CollectorExporter(encode, self._client.post, self._client.shown, clock, wakeup.set)
        self.spans = make_spans(settings, self._exporter)
        self.driver = Driver("tracing", self._exporter, wakeup, clock)
        self.driver.start()
        log.info(
            "tracing: %g of the traces that begin here are recorded, and sent to %s as %s", settings.sample_rate,
            self._client.shown, settings.backend,
        )  # fmt: skip

    def status(self) -> TracingStatus:
        exporter, settings = self._exporter, self.settings
        return TracingStatus(
            backend=settings.backend,
            endpoint=self._client.shown,
            sample_rate=settings.sample_rate,
            sent_total=exporter.sent_total,
            dropped_total=exporter.dropped_total,
            waiting=exporter.waiting,
            problem=exporter.problem,
        )

    def end(self) -> None:
        """Send the queued spans if the collector takes them, within `LAST` seconds."""
        exporter, until = self._exporter, time.monotonic() + LAST
        exporter.end()
        self.driver.stop()
        self.driver.thread.join(LAST)
        while exporter.waiting and exporter.problem is None and not self.driver.thread.is_alive():
            left = until - time.monotonic()
            if left < 0.1:
                break
            last = client_of(self.settings, left)
            exporter.send(last.post)
            last.close()
        self._client.close()
        given_up = exporter.give_up()
        if given_up:
            log.warning("tracing: %d spans were not sent: %s", given_up, exporter.problem or "the time was over")


def make_spans(settings: TracingSettings, to: SpanProcessor) -> Spans:
    """Return spans that go to `to` when they end; imports OpenTelemetry."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

    from inbound.observe.tracing.propagation import FollowingSampler, Propagation
    from inbound.observe.tracing.spans import OpenTelemetrySpans

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


def client_of(settings: TracingSettings, timeout: float) -> HttpClient:
    """Return a client of the collector; `timeout` is a request's, in seconds."""
    url = parse_url(settings.endpoint)
    tls = tls_context("tracing", settings.ca_file, None, None) if url.scheme == "https" else None
    return HttpClient(url, headers=settings.headers, connect_timeout=min(CONNECT, timeout), timeout=timeout, tls=tls)
