"""Spans of the `http` sink's requests: whose trace they are part of, and the headers that the receiver gets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from cloudevents.core.v1.event import CloudEvent
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from inbound.processors.simple import SimpleProcessor
from inbound.processors.sinks.http import HttpSink
from inbound.processors.spans import Spans, Tracing
from inbound.testing.world import World
from tests.http_receiver import Receiver
from tests.observe.tracing.tracing_stage import (
    PARENT,
    SPAN,
    TRACE,
    UNSAMPLED,
    Traced,
    facts,
    header,
    ids,
    links,
    parent,
    traced,
)
from tests.processors.dispatch.dispatch_stage import event_headers

__all__ = ["traced"]  # the fixture

OTHER = f"00-{'3' * 32}-{'4' * 16}-01"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with closing(Receiver()) as made:
        yield made


def consumed(receiver: Receiver, tracing: Tracing, *traces: str | None, batch: bool = False, **options: Any) -> World:
    """Have one batch sent to the receiver: an event for each `traceparent`; None is an event without one."""
    world = World()
    world.tracing = tracing
    world.kafka.create_topic("orders", 1)
    for number, trace in enumerate(traces):
        headers = [*event_headers(str(number)), *([("traceparent", trace.encode())] if trace else [])]
        world.kafka.publish("orders", 0, [b"x"], headers=headers)
    sink = {"type": options.pop("type", "http"), "url": f"{receiver.url}/in?token=x"}
    return run(world, {**sink, **({"batch": True} if batch else {})}, **options)


def run(world: World, sink: dict[str, Any], **options: Any) -> World:
    """Let `simple` take what is there. Returns the world afterwards."""
    processor = SimpleProcessor()
    world.join("a", processor, options={"sinks": [sink], **options})
    world.run(5)
    processor.close()
    return world


def posts(traced: Traced) -> list[ReadableSpan]:
    return [span for span in traced.ended if span.name == "POST"]


def told(receiver: Receiver) -> list[str]:
    """Return the `traceparent` of each request, without the flags."""
    return [request.headers["traceparent"][:-2] for request in receiver.requests]


def test_an_event_goes_on_in_the_trace_of_its_record(receiver: Receiver, traced: Traced) -> None:
    """Linked to the batch that it was sent in; the receiver gets the request's span."""
    consumed(receiver, traced, PARENT)

    post, batch = traced.one("POST"), traced.one("process orders")
    assert (post.kind, parent(post), links(post)) == (SpanKind.CLIENT, (TRACE, SPAN), [ids(batch)])
    assert told(receiver) == [header(post)]
    port = int(receiver.url.rpartition(":")[2])
    assert facts(post) == {
        "http.request.method": "POST", "server.address": "127.0.0.1", "server.port": port,
        "url.full": f"{receiver.url}/in", "inbound.receiver": "sink", "http.response.status_code": 204,
        "cloudevents.event_id": "0", "cloudevents.event_source": "/tests", "cloudevents.event_spec_version": "1.0",
        "cloudevents.event_type": "order",
    }  # fmt: skip


def test_an_event_of_no_trace_is_part_of_its_batch(receiver: Receiver, traced: Traced) -> None:
    """Each request is a span of its own below the batch's."""
    consumed(receiver, traced, None, None)

    batch = traced.one("process orders")
    assert [(parent(post), links(post)) for post in posts(traced)] == [(ids(batch), [])] * 2
    assert told(receiver) == [header(post) for post in posts(traced)]


class Renamed(HttpSink):
    """A subclass of the sink that knows nothing of records."""

    def send(self, event: CloudEvent) -> None:
        super().send(CloudEvent({**event.get_attributes(), "type": "renamed"}, event.get_data()))


def test_a_class_made_from_the_sink_has_its_own_send_called(receiver: Receiver, traced: Traced) -> None:
    """With traces as without; its requests have no spans."""
    consumed(receiver, traced, PARENT, type=f"{__name__}:Renamed")

    assert [request.headers["ce-type"] for request in receiver.requests] == ["renamed"]
    assert posts(traced) == []


def test_a_request_with_several_events_is_part_of_their_batch(receiver: Receiver, traced: Traced) -> None:
    """Which is linked to the records, so the request need not be."""
    consumed(receiver, traced, PARENT, OTHER, batch=True)

    post, batch = traced.one("POST"), traced.one("process orders")
    assert (parent(post), links(post)) == (ids(batch), [])
    assert links(batch) == [(TRACE, SPAN), ("3" * 32, "4" * 16)]
    assert told(receiver) == [header(post)]


@pytest.mark.parametrize(
    ("traces", "batch", "above", "linked"),
    [([PARENT], False, (TRACE, SPAN), []), ([PARENT, OTHER], True, None, [(TRACE, SPAN), ("3" * 32, "4" * 16)])],
    ids=["an event", "a batch"],
)
def test_what_is_sent_after_its_commit_goes_by_the_records(
    receiver: Receiver, traced: Traced, traces: list[str], batch: bool, above: Any, linked: list[Any]
) -> None:
    """The batch's span has ended by then (`no_duplication`), so it can be neither parent nor link."""
    consumed(receiver, traced, *traces, batch=batch, no_duplication=True)

    post = traced.one("POST")
    assert (parent(post), links(post)) == (above, linked)


def test_an_event_is_followed_by_its_extension_also_out_of_json(receiver: Receiver, traced: Traced) -> None:
    """Where the record says nothing; in structured mode nothing of it stands in a header, in or out."""
    world = World()
    world.tracing = traced
    world.kafka.create_topic("orders", 1)
    event = b'{"specversion":"1.0","id":"1","source":"/t","type":"t","traceparent":"%s"}' % PARENT.encode()
    world.kafka.publish("orders", 0, [event], headers=[("content-type", b"application/cloudevents+json")])
    run(world, {"type": "http", "url": receiver.url, "mode": "structured"})

    assert parent(traced.one("POST")) == (TRACE, SPAN)
    assert PARENT.encode() in receiver.requests[0].body


def test_a_trace_that_is_not_recorded_goes_on_as_such(receiver: Receiver, traced: Traced) -> None:
    """The origin of the trace has decided; a rate of 1 changes nothing."""
    consumed(receiver, traced, UNSAMPLED)

    (request,) = receiver.requests
    assert traced.ended == []
    assert (request.headers["traceparent"][3:35], request.headers["traceparent"][-2:]) == (TRACE, "00")


def test_an_answer_that_is_a_refusal_is_in_the_span(receiver: Receiver, traced: Traced) -> None:
    """With its status; the next attempt has a span of its own."""
    receiver.status = lambda number: 503 if number == 0 else 204
    world = consumed(receiver, traced, PARENT)

    refused, taken = posts(traced)
    assert (facts(refused)["http.response.status_code"], facts(refused)["error.type"]) == (503, "503")
    assert refused.status.status_code is StatusCode.ERROR
    assert (facts(taken)["http.response.status_code"], "error.type" in facts(taken)) == (204, False)
    assert world.commits() == {0: 1}


def test_a_receiver_that_is_away_is_in_the_span(traced: Traced) -> None:
    """As the error says it, which does not tell the URL's query."""
    gone = Receiver()
    gone.close()
    consumed(gone, traced, PARENT)

    first = posts(traced)[0]
    assert facts(first)["error.type"] == "no_answer"
    assert "http.response.status_code" not in facts(first)
    assert (first.status.description or "").startswith(f"POST {gone.url}/in: no connection: ")


class Asked:
    """Makes no spans, and counts how often it is asked for any."""

    def __init__(self) -> None:
        self.times = 0

    @property
    def spans(self) -> Spans | None:
        self.times += 1
        return None


def test_off_a_batch_and_a_request_cost_one_question_each(receiver: Receiver) -> None:
    """No span is made, and the receiver gets no header of a trace."""
    asked = Asked()
    world = consumed(receiver, asked, PARENT, None, PARENT)

    assert (world.commits(), len(receiver.requests), asked.times) == ({0: 3}, 3, 1 + 3)
    assert [name for request in receiver.requests for name in request.headers if name.startswith("trace")] == []
