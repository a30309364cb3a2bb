"""Spans of what `inbound publish --to` posts: one for each attempt, and the header that an ingress goes on with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.trace import SpanKind

from inbound.errors import SinkError
from inbound.observe.tracing.spans import TracedPost
from inbound.processors.cloudevents_http import HttpAnswer, HttpMessage
from inbound.publishing import Posting
from tests.cli.test_publish_command import run
from tests.http_receiver import Receiver
from tests.observe.tracing.tracing_stage import Traced, facts, header, ids, links, parent
from tests.publishing.test_publish_posting import event, reply
from tests.publishing.test_publish_sending import StepClock


class Ingress(NamedTuple):
    """Whom it is posted to."""

    shown: str = "http://ingress:8080/topics/orders"


@pytest.fixture
def receivers() -> Iterator[tuple[Receiver, Receiver]]:
    """An ingress that takes everything, and a collector."""
    with closing(Receiver()) as ingress, closing(Receiver()) as collector:
        ingress.status, collector.status = lambda number: 202, lambda number: 200
        yield ingress, collector


def test_each_attempt_is_a_span_linked_to_the_one_before() -> None:
    """An answer that asks to come again, a connection that breaks, and 202; each request names its span."""
    traced = Traced()
    sent: list[HttpMessage] = []

    def post(message: HttpMessage, attempt: int) -> HttpAnswer:
        sent.append(message)
        if attempt == 1:
            raise SinkError("the connection broke")
        return reply(503 if attempt == 0 else 202)

    Posting(TracedPost(post, traced.made, Ingress()), "http://ingress", clock=StepClock()).publish([event(1)])

    first, second, _ = traced.ended
    assert [(span.name, span.kind, parent(span)) for span in traced.ended] == [("POST", SpanKind.CLIENT, None)] * 3
    assert [links(span) for span in traced.ended] == [[], [ids(first)], [ids(second)]]
    assert [message.headers["traceparent"][:-2] for message in sent] == [header(span) for span in traced.ended]
    whereto = {
        "http.request.method": "POST", "server.address": "ingress", "server.port": 8080, "url.full": Ingress().shown,
        "inbound.receiver": "ingress",
    }  # fmt: skip
    assert [facts(span) for span in traced.ended] == [
        {**whereto, "http.response.status_code": 503, "error.type": "503"},
        {**whereto, "http.request.resend_count": 1, "error.type": "no_answer"},
        {**whereto, "http.request.resend_count": 2, "http.response.status_code": 202},
    ]


def test_requests_one_after_the_other_are_traces_of_their_own() -> None:
    """As many as are to be recorded; a retry goes by its first attempt."""
    traced = Traced(0.0)
    sent: list[HttpMessage] = []

    def post(message: HttpMessage, attempt: int) -> HttpAnswer:
        sent.append(message)
        return reply(503 if len(sent) == 1 else 202)

    posting = Posting(TracedPost(post, traced.made, Ingress()), "http://ingress", 1, clock=StepClock())
    posting.publish([event(1), event(2)])

    carried = [message.headers["traceparent"] for message in sent]
    assert traced.ended == []
    assert (len({one[3:35] for one in carried}), {int(one[-2:], 16) & 1 for one in carried}) == (3, {0})


def test_a_configuration_says_where_spans_go(receivers: tuple[Receiver, Receiver], tmp_path: Path) -> None:
    """The whole command: a request for each batch, whose span the collector has when it ends."""
    ingress, collector = receivers
    config = tmp_path / "inbound.yaml"
    config.write_text(
        f"tracing: {{backend: otlp, endpoint: '{collector.url}', sample_rate: 1}}\n"
        "channels: {orders: {topics: [orders], group: g, processor: {type: simple, options: {sinks: [log]}}}}\n"
    )
    code = run("orders", "--generate", "150", "--to", ingress.url, "-c", str(config))

    (export,) = [ExportTraceServiceRequest.FromString(request.body) for request in collector.requests]
    spans = export.resource_spans[0].scope_spans[0].spans
    assert (code, [span.name for span in spans]) == (0, ["POST", "POST"])
    assert [request.headers["traceparent"][3:52] for request in ingress.requests] == [
        f"{span.trace_id.hex()}-{span.span_id.hex()}" for span in spans
    ]


def test_without_a_configuration_no_span_is_made(receivers: tuple[Receiver, Receiver]) -> None:
    """And the ingress gets no headers of traces."""
    ingress, _ = receivers
    code = run("orders", "--generate", "3", "--to", ingress.url)

    (request,) = ingress.requests
    assert (code, "traceparent" in request.headers) == (0, False)
