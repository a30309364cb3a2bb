"""Spans on their way to the collector: kept while it is unavailable, within bounds; no caller waits."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan

from inbound.errors import SinkError
from inbound.observe.tracing.exporter import MOST_AT_ONCE, MOST_WAITING, CollectorExporter, encoder
from inbound.observe.tracing.process import make_spans
from inbound.processors.batch import Batch, PlainRecord
from inbound.processors.cloudevents_http import HttpAnswer, HttpMessage
from inbound.processors.spans import ConsumerName, Spans
from inbound.testing.clock import ManualClock
from inbound.testing.world import Recording
from tests.observe.tracing.tracing_stage import PARENT, SETTINGS, SPAN, TRACE, Traced


class Collector:
    """Answers as told, and remembers how many spans each request had."""

    def __init__(self) -> None:
        self.got: list[int] = []
        self.answer: Callable[[], HttpAnswer] = lambda: HttpAnswer(200, {}, b"")

    def post(self, message: HttpMessage) -> HttpAnswer:
        answer = self.answer()
        if answer.status == 200:
            self.got.append(int(message.body))
        return answer


class Stage:
    """CollectorExporter, its collector, and what makes spans."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.collector = Collector()
        self.woken = 0
        self.exporting = CollectorExporter(
            self._encode, self.collector.post, "http://collector/", self.clock, self._wake
        )
        self.spans: Spans = make_spans(SETTINGS, self.exporting)

    def _encode(self, spans: Sequence[ReadableSpan]) -> HttpMessage:
        return HttpMessage({}, str(len(spans)).encode())

    def _wake(self) -> None:
        self.woken += 1

    def end(self, count: int) -> None:
        """Begin and end so many spans."""
        for _ in range(count):
            self.spans.publish("orders").end()

    def run(self, seconds: float) -> None:
        """Let time pass, with a step whenever one is due."""
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            due = self.exporting.run_once()
            assert due is not None
            self.clock.advance(max(0.01, min(due, until) - self.clock.now()))

    def away(self) -> None:
        self.collector.answer = self._refused

    def _refused(self) -> HttpAnswer:
        raise SinkError("POST http://collector/: no connection: refused")

    def counts(self) -> tuple[int, int, int]:
        """Return how many were sent, dropped, and wait."""
        return self.exporting.sent_total, self.exporting.dropped_total, self.exporting.waiting


def test_spans_go_together() -> None:
    """Once a second; sooner where many have ended."""
    stage = Stage()
    stage.end(3)
    stage.run(1.5)
    stage.end(MOST_AT_ONCE + 2)
    stage.run(1.5)

    assert (stage.collector.got, stage.woken) == ([3, MOST_AT_ONCE, 2], 1)
    assert stage.counts() == (MOST_AT_ONCE + 5, 0, 0)


def test_an_unavailable_collector_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Spans are kept up to a bound; further ones are counted, and reported when the collector is back."""
    stage = Stage()
    stage.away()
    with caplog.at_level(logging.INFO, "inbound.observe.tracing"):
        stage.end(10)
        stage.run(60)
        stage.end(MOST_WAITING)
        stage.run(60)
        assert stage.counts() == (0, 10, MOST_WAITING)
        problem = stage.exporting.problem
        stage.collector.answer = lambda: HttpAnswer(200, {}, b"")
        stage.run(30)

    assert stage.counts() == (MOST_WAITING, 10, 0)
    assert problem == "POST http://collector/: no connection: refused"
    assert not stage.exporting.problem
    first, second = caplog.messages
    assert first.startswith("tracing: spans do not go to the collector: POST http://collector/: no connection: refused")
    assert second == "tracing: the collector http://collector/ takes spans again; 10 were dropped"


@pytest.mark.parametrize(("status", "dropped"), [(503, 0), (429, 0), (400, 3), (404, 3), (302, 3)])
def test_what_the_collector_refuses_for_good_is_dropped(status: int, dropped: int) -> None:
    """Anything else is sent again."""
    stage = Stage()
    stage.collector.answer = lambda: HttpAnswer(status, {}, b"no room\nand more")
    stage.end(3)
    stage.run(1.5)

    assert stage.counts() == (0, dropped, 3 - dropped)
    assert stage.exporting.problem == f"http://collector/ answered {status}: no room"


def test_it_is_asked_more_and_more_rarely() -> None:
    """A collector that is away is not stormed."""
    stage = Stage()
    asked: list[float] = []

    def refuse() -> HttpAnswer:
        asked.append(stage.clock.now())
        raise SinkError("no")

    stage.collector.answer = refuse
    stage.end(1)
    stage.run(60)

    pauses = [round(later - earlier) for earlier, later in pairwise(asked)]
    assert pauses == [1, 2, 4, 8, 15, 15]


def test_what_cannot_be_written_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """A defect of a format takes nothing else with it."""
    stage = Stage()
    stage.exporting._encode = lambda spans: 1 // 0  # type: ignore[assignment,return-value]
    stage.end(2)
    stage.run(1.5)

    assert stage.counts() == (0, 2, 0)
    assert "spans cannot be written for it: ZeroDivisionError" in caplog.messages[0]


def test_what_ends_after_the_end_is_counted() -> None:
    """After the end no span is queued."""
    stage = Stage()
    stage.end(2)
    stage.exporting.end()
    stage.end(1)

    assert (stage.exporting.give_up(), stage.counts()) == (2, (0, 3, 0))


def made() -> list[ReadableSpan]:
    """Return the spans of a batch that fails, linked to a trace, and of a record that is sent."""
    traced = Traced()
    batch = Batch("orders", 3, 7, 8, [PlainRecord(7, headers=[("traceparent", PARENT.encode())])])
    traced.made.call(ConsumerName("shop", "shop-1"), batch, Recording(lambda batch: "nonsense").on_next_batch)
    traced.made.publish("orders").end(problem="no")
    return traced.ended


def test_otlp_is_protobuf() -> None:
    """With the service, the links and the status."""
    message = encoder("otlp", "shop")(made())

    assert message.headers == {"content-type": "application/x-protobuf"}
    request = ExportTraceServiceRequest.FromString(message.body)
    (resource,) = request.resource_spans
    named = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert named["service.name"] == "shop"
    batch, send = resource.scope_spans[0].spans
    assert (batch.name, send.name) == ("process orders", "send orders")
    assert [(link.trace_id.hex(), link.span_id.hex()) for link in batch.links] == [(TRACE, SPAN)]
    assert (batch.kind, send.kind) == (5, 4)  # CONSUMER, PRODUCER
    assert (send.status.code, send.status.message) == (2, "no")


def test_zipkins_json_names_the_traces_that_it_cannot_link() -> None:
    """In a tag; and no span says that it is for debugging."""
    message = encoder("zipkin", "shop")(made())

    assert message.headers == {"content-type": "application/json"}
    batch, send = json.loads(message.body)
    assert (batch["name"], batch["kind"], batch["localEndpoint"]) == (
        "process orders",
        "CONSUMER",
        {"serviceName": "shop"},
    )
    assert batch["tags"]["inbound.linked_traces"] == TRACE
    assert (send["kind"], send["tags"]["error"]) == ("PRODUCER", "no")
    assert not batch.get("debug")
