"""What makes a process's spans: begun, changed and ended while it runs, with a real collector's side on this machine."""

from __future__ import annotations

import http.server
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from inbound.config import TracingConfig
from inbound.errors import ConfigError
from inbound.observe.status.status import TracingStatus
from inbound.observe.tracing.process import ProcessTracing
from inbound.observe.tracing.spans import TracedProducer
from inbound.publishing.publisher import Publisher
from tests.http_receiver import Receiver
from tests.observe.tracing.tracing_stage import Traced, facts, header, traced
from tests.publishing.test_publish_sending import FakeProducer, StepClock
from tests.waiting import until

__all__ = ["traced"]  # the fixture


@pytest.fixture
def collector() -> Iterator[Receiver]:
    one = Receiver()
    one.status = lambda number: 200
    yield one
    one.close()


@pytest.fixture
def tracing() -> Iterator[ProcessTracing]:
    one = ProcessTracing()
    yield one
    one.close()


def config(**values: Any) -> TracingConfig:
    return TracingConfig.model_validate({"sample_rate": 1.0, **values})


def publish(tracing: ProcessTracing, topic: str) -> None:
    assert tracing.spans is not None
    tracing.spans.publish(topic).end()


def test_spans_go_to_an_otlp_collector(collector: Receiver, tracing: ProcessTracing) -> None:
    """As protobuf, with the headers that are asked for; the status says how many."""
    tracing.configure(config(backend="otlp", endpoint=collector.url, headers={"x-key": "swordfish"}))
    publish(tracing, "orders")
    until(lambda: len(collector.requests) == 1, 30, "no spans came to the collector")
    status = tracing.status()

    (request,) = collector.requests
    assert (request.target, request.headers["x-key"]) == ("/v1/traces", "swordfish")
    sent = ExportTraceServiceRequest.FromString(request.body)
    assert [span.name for span in sent.resource_spans[0].scope_spans[0].spans] == ["send orders"]
    assert isinstance(status, TracingStatus)
    assert (status.backend, status.endpoint) == ("otlp", f"{collector.url}/v1/traces")
    assert [thread.name for thread in tracing.threads()] == ["tracing"]


def test_other_settings_count_from_then_on(collector: Receiver, tracing: ProcessTracing) -> None:
    """What has ended goes where it was to go; equal settings change nothing; off is off."""
    tracing.configure(config(backend="otlp", endpoint=collector.url))
    first = tracing.spans
    tracing.configure(config(backend="otlp", endpoint=collector.url))
    same = tracing.spans is first
    publish(tracing, "one")
    tracing.configure(config(backend="zipkin", endpoint=collector.url))
    publish(tracing, "two")
    tracing.configure(config(backend="none"))

    assert same
    otlp, zipkin = collector.requests
    assert (otlp.target, zipkin.target) == ("/v1/traces", "/api/v2/spans")
    assert [span["name"] for span in json.loads(zipkin.body)] == ["send two"]
    assert (tracing.spans, tracing.status(), tracing.threads()) == (None, None, [])


def test_what_cannot_be_leaves_it_as_it_was(collector: Receiver, tracing: ProcessTracing, tmp_path: Any) -> None:
    """A header's file that is gone, for example."""
    tracing.configure(config(backend="otlp", endpoint=collector.url))
    before = tracing.spans
    with pytest.raises(ConfigError, match="tracing: header key: cannot read"):
        tracing.configure(config(backend="otlp", headers={"key": {"file": str(tmp_path / "gone")}}))

    assert tracing.spans is before


def test_an_end_sends_what_waits(collector: Receiver, tracing: ProcessTracing) -> None:
    """Without waiting for its turn."""
    tracing.configure(config(backend="zipkin", endpoint=collector.url))
    for _ in range(3):
        publish(tracing, "orders")
    tracing.close()

    assert sum(len(json.loads(request.body)) for request in collector.requests) == 3


def test_a_collector_that_is_away_holds_up_no_end(tracing: ProcessTracing, caplog: pytest.LogCaptureFixture) -> None:
    """The log has the number of spans that were not sent."""
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        port = server.server_address[1]
    tracing.configure(config(backend="otlp", endpoint=f"http://127.0.0.1:{port}"))
    publish(tracing, "orders")
    until(lambda: (status := tracing.status()) is not None and status.problem, 30, "no problem in the status")
    with caplog.at_level(logging.WARNING, "inbound.observe.tracing"):
        tracing.close()

    assert [line for line in caplog.messages if line.startswith("tracing: 1 spans were not sent: ")] != []


def test_a_published_record_begins_a_trace(traced: Traced) -> None:
    """Its header names the span, which ends when the record has arrived."""
    clock = StepClock()
    producer = FakeProducer(clock)
    published = Publisher(TracedProducer(producer, traced.made), "orders", clock).publish([(b"k", b"v", [("a", b"1")])])

    assert published.count == 1
    ((topic, key, value, headers),) = producer.records
    assert (topic, value, key, headers[0]) == ("orders", b"v", b"k", ("a", b"1"))
    assert dict(headers)["traceparent"].decode().startswith(header(traced.one("send orders")))


def test_a_record_that_does_not_arrive_says_why(traced: Traced) -> None:
    """In its span."""
    producer = FakeProducer(StepClock())
    producer.fail_delivery[1] = LookupError("no topic")
    TracedProducer(producer, traced.made).send("orders", b"v", None, [])

    span = traced.one("send orders")
    assert (facts(span)["error.type"], span.status.description) == ("no_answer", "LookupError: no topic")
