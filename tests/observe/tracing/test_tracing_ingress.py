"""Spans of what comes in, and the headers that its records carry."""

from __future__ import annotations

import json

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from inbound.ingress.producer import Failure, FailureCause
from tests.ingress.ingress_stage import EVENT, Stage, request, statuses
from tests.observe.tracing.tracing_stage import (
    PARENT,
    SPAN,
    TRACE,
    UNSAMPLED,
    Traced,
    facts,
    header,
    ids,
    parent,
    traced,
)

__all__ = ["traced"]  # the fixture


@pytest.fixture
def stage(traced: Traced) -> Stage:
    """An ingress that makes spans."""
    stage = Stage()
    stage.receiver._tracing = traced
    return stage


def test_a_request_goes_on_in_the_record(traced: Traced, stage: Stage) -> None:
    """The sender's span is above ours, that above the one of the record, whose header names it."""
    answer = stage.post(request("/topics/orders?key=secret", {**EVENT, "traceparent": PARENT, "tracestate": "a=1"}))

    assert statuses(answer) == [202]
    server, send = traced.one("POST"), traced.one("send orders")
    assert (server.kind, parent(server)) == (SpanKind.SERVER, (TRACE, SPAN))
    assert (send.kind, parent(send)) == (SpanKind.PRODUCER, ids(server))
    ((topic, record),) = stage.producer.written
    written = dict(record.headers)
    assert (topic, written["tracestate"]) == ("orders", b"a=1")
    assert written["traceparent"].decode().startswith(header(send))
    assert "ce_traceparent" not in written
    assert facts(server) == {
        "http.request.method": "POST", "url.path": "/topics/orders", "url.scheme": "http", "server.address": "ingress",
        "cloudevents.event_id": "1", "cloudevents.event_source": "/tests", "cloudevents.event_spec_version": "1.0",
        "cloudevents.event_type": "t", "http.response.status_code": 202,
    }  # fmt: skip
    assert facts(send) == {
        "messaging.system": "kafka", "messaging.operation.name": "send", "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
    }  # fmt: skip


def test_b3_is_taken_and_w3c_is_written(traced: Traced, stage: Stage) -> None:
    """As Knative's older components send it."""
    b3 = {"X-B3-TraceId": TRACE, "X-B3-SpanId": SPAN, "X-B3-Sampled": "1"}
    stage.post(request(headers={**EVENT, **b3}))

    assert parent(traced.one("POST")) == (TRACE, SPAN)
    names = [name for name, _ in stage.producer.written[0][1].headers]
    assert (names.count("traceparent"), [name for name in names if "b3" in name.lower()]) == (1, [])


def test_the_extension_of_an_event_is_written_as_it_came(traced: Traced, stage: Stage) -> None:
    """It names the trace that the event began in."""
    stage.post(request(headers={**EVENT, "ce-traceparent": UNSAMPLED, "traceparent": PARENT}))

    written = dict(stage.producer.written[0][1].headers)
    assert written["ce_traceparent"] == UNSAMPLED.encode()
    assert written["traceparent"].decode().startswith(f"00-{TRACE}-")


def test_a_batch_is_written_in_one_span(traced: Traced, stage: Stage) -> None:
    """Each record names it."""
    events = [{"specversion": "1.0", "id": str(n), "source": "/t", "type": "t"} for n in range(3)]
    headers = {"content-type": "application/cloudevents-batch+json"}
    stage.post(request(headers=headers, body=json.dumps(events).encode()))

    send = traced.one("send orders")
    assert facts(send)["messaging.batch.message_count"] == 3
    named = [dict(record.headers)["traceparent"].decode() for _, record in stage.producer.written]
    assert [one.startswith(header(send)) for one in named] == [True] * 3


@pytest.mark.parametrize(
    ("failure", "status", "is_error"),
    [(Failure(FailureCause.AWAY, "timed out"), 503, True), (Failure(FailureCause.TOO_LARGE, "1 MB"), 413, False)],
)
def test_what_was_not_written_says_so(
    failure: Failure, status: int, is_error: bool, traced: Traced, stage: Stage
) -> None:
    """The server's span is in error where the server is to blame."""
    stage.producer.fails = [failure]
    stage.post(request())

    server, send = traced.one("POST"), traced.one("send orders")
    assert facts(server)["http.response.status_code"] == status
    assert (server.status.status_code is StatusCode.ERROR) is is_error
    assert send.status.description == f"{failure.cause.value} ({failure.text})"


def test_a_request_that_is_no_event_ends_its_span(traced: Traced, stage: Stage) -> None:
    """Nothing is sent."""
    stage.post(request(headers={}))

    assert traced.names() == ["POST"]
    assert facts(traced.one("POST"))["http.response.status_code"] == 400


def test_a_stranger_makes_no_spans(traced: Traced, stage: Stage) -> None:
    """Who does not know the token, or asks for what is not there, has no part in traces."""
    stage.receiver.token = "swordfish"
    answers = stage.post(request() + request("/nowhere", {**EVENT, "authorization": "Bearer swordfish"}))

    assert (statuses(answers), traced.ended) == ([401, 404], [])


def test_a_request_that_breaks_off_ends_its_span(traced: Traced, stage: Stage) -> None:
    """It never came to its end."""
    connection, _ = stage.connect(request()[:-2])
    connection.connection_lost(None)

    assert facts(traced.one("POST"))["error.type"] == "incomplete"


def test_what_is_not_recorded_is_handed_on_so(traced: Traced, stage: Stage) -> None:
    """Two headers, and no span."""
    stage.post(request(headers={**EVENT, "traceparent": UNSAMPLED}))

    (written,) = [dict(record.headers)["traceparent"] for _, record in stage.producer.written]
    assert written.startswith(f"00-{TRACE}-".encode())
    assert written[-2:] in (b"00", b"02")
    assert traced.ended == []


def test_off_the_headers_of_the_request_go_on_as_they_came() -> None:
    """Nothing is made; others' traces are not cut."""
    stage = Stage()
    stage.post(request(headers={**EVENT, "traceparent": PARENT, "b3": "0"}))

    named = [
        (name, value) for name, value in stage.producer.written[0][1].headers if not name.startswith(("ce_", "content"))
    ]
    assert named == [("traceparent", PARENT.encode()), ("b3", b"0")]
