"""Spans of what is dispatched: one trace from the record to the subscriber, its reply and the dead letter sink."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from inbound.processors.batch import Batch, PlainRecord
from inbound.processors.cloudevents_bridge import HttpParts, RecordParts
from inbound.processors.dispatch.jobs import Job, PartitionClaim, Traces
from inbound.processors.dispatch.transport import Answer
from inbound.processors.dispatch.window import OpenEvent, SendWindow
from inbound.processors.spans import ConsumerName
from inbound.topic_partition import TopicPartition
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
from tests.processors.dispatch.dispatch_stage import DEAD, OK, REPLIES, SUBSCRIBER, Request, Stage, event_headers

__all__ = ["traced"]  # the fixture


def staged(traced: Traced, **options: Any) -> Stage:
    stage = Stage(**options)
    stage.world.tracing = traced
    return stage


@pytest.fixture
def stage(traced: Traced) -> Stage:
    """A dispatcher without options."""
    return staged(traced)


def dispatch(stage: Stage) -> None:
    """Start the dispatcher, and let it finish what was published."""
    stage.start()
    stage.run(2)


def works(traced: Traced) -> list[ReadableSpan]:
    """Return the spans of the work on each record or batch."""
    return [span for span in traced.ended if span.name == "process orders"]


def posts(traced: Traced) -> list[ReadableSpan]:
    """Return the spans of the requests."""
    return [span for span in traced.ended if span.name == "POST"]


def publish(stage: Stage, one: str, *headers: tuple[str, bytes | None]) -> None:
    stage.world.kafka.publish("orders", 0, [b"data"], headers=[*event_headers(one), *headers])


def test_an_event_goes_on_in_the_trace_of_its_record(traced: Traced, stage: Stage) -> None:
    """The record's context is above the work on it, that above the request, and the request says so."""
    publish(stage, "1", ("traceparent", PARENT.encode()), ("tracestate", b"vendor=1"))
    dispatch(stage)

    work, post = traced.one("process orders"), traced.one("POST")
    assert (work.kind, parent(work)) == (SpanKind.CONSUMER, (TRACE, SPAN))
    assert (post.kind, parent(post)) == (SpanKind.CLIENT, ids(work))
    (request,) = stage.requests
    assert request.headers["traceparent"].startswith(header(post))
    assert request.headers["traceparent"].endswith("1")
    assert request.headers["tracestate"] == "vendor=1"
    assert facts(work) == {
        "messaging.system": "kafka", "messaging.operation.name": "process", "messaging.operation.type": "process",
        "messaging.destination.name": "orders", "messaging.destination.partition.id": "0",
        "messaging.consumer.group.name": "group", "messaging.client.id": "a", "messaging.kafka.offset": 0,
        "cloudevents.event_id": "1", "cloudevents.event_source": "/tests", "cloudevents.event_spec_version": "1.0",
        "cloudevents.event_type": "order",
    }  # fmt: skip
    assert facts(post) == {
        "http.request.method": "POST", "server.address": "subscriber", "server.port": 80, "url.full": SUBSCRIBER,
        "inbound.receiver": "subscriber", "http.response.status_code": 202,
    }  # fmt: skip


def test_the_extension_names_where_the_event_began_and_stays(traced: Traced, stage: Stage) -> None:
    """Of a record without a hop's header it is followed; `ce-traceparent` goes out as it came in either case."""
    began = f"00-{'1' * 32}-{'2' * 16}-01"
    publish(stage, "1", ("ce_traceparent", began.encode()))
    publish(stage, "2", ("ce_traceparent", began.encode()), ("traceparent", PARENT.encode()))
    dispatch(stage)

    assert [parent(work) for work in works(traced)] == [("1" * 32, "2" * 16), (TRACE, SPAN)]
    assert [request.headers["ce-traceparent"] for request in stage.requests] == [began, began]
    assert all(request.headers["traceparent"] != began for request in stage.requests)


def test_a_structured_event_is_followed_by_its_extension_too(traced: Traced, stage: Stage) -> None:
    """It stands in the JSON."""
    event = b'{"specversion":"1.0","id":"1","source":"/t","type":"t","traceparent":"%s"}' % PARENT.encode()
    stage.world.kafka.publish("orders", 0, [event], headers=[("content-type", b"application/cloudevents+json")])
    dispatch(stage)

    assert parent(traced.one("process orders")) == (TRACE, SPAN)
    (request,) = stage.requests
    assert request.headers["traceparent"].startswith(header(traced.one("POST")))


def test_a_record_that_says_nothing_begins_a_trace(traced: Traced, stage: Stage) -> None:
    """As many as are to be recorded: here all."""
    stage.publish("1", "2")
    dispatch(stage)

    assert [parent(work) for work in works(traced)] == [None, None]
    assert len({ids(work)[0] for work in works(traced)}) == 2


def test_each_attempt_has_a_span_of_its_own(traced: Traced, stage: Stage) -> None:
    """With the number of the attempt, what was answered, and the same work above."""
    answers = [Answer(503), Answer(0, problem="no connection"), OK]
    stage.behaviour = lambda request: answers.pop(0)
    stage.publish("1")
    stage.start()
    stage.run(5)

    work = traced.one("process orders")
    assert [parent(post) for post in posts(traced)] == [ids(work)] * 3
    assert [facts(post).get("http.request.resend_count") for post in posts(traced)] == [None, 1, 2]
    assert [facts(post).get("error.type") for post in posts(traced)] == ["503", "no_answer", None]
    assert posts(traced)[1].status.description == "no connection"
    assert work.status.status_code is StatusCode.UNSET
    sent = [request.headers["traceparent"][:53] for request in stage.requests]
    assert sent == [header(post) for post in posts(traced)]


def test_the_reply_is_of_the_same_trace(traced: Traced) -> None:
    """It is posted below the same work."""
    stage = staged(traced, replyUri=REPLIES)
    reply = [(b"ce-specversion", b"1.0"), (b"ce-id", b"r"), (b"ce-source", b"/s"), (b"ce-type", b"t")]

    def behaviour(request: Request) -> Answer:
        return Answer(200, reply, b"") if request.url == SUBSCRIBER else OK

    stage.behaviour = behaviour
    publish(stage, "1", ("traceparent", PARENT.encode()))
    dispatch(stage)

    work = traced.one("process orders")
    assert [facts(post)["inbound.receiver"] for post in posts(traced)] == ["subscriber", "reply"]
    assert [parent(post) for post in posts(traced)] == [ids(work)] * 2
    assert parent(work) == (TRACE, SPAN)
    (got,) = [request for request in stage.requests if request.url == REPLIES]
    assert got.headers["traceparent"].startswith(header(posts(traced)[1]))


def test_a_dead_letter_is_of_the_same_trace(traced: Traced) -> None:
    """And the work says what became of its event."""
    stage = staged(traced, delivery={"retry": 0, "deadLetterSink": DEAD})
    stage.behaviour = lambda request: Answer(500) if request.url == SUBSCRIBER else OK
    publish(stage, "1", ("traceparent", PARENT.encode()))
    dispatch(stage)

    work = traced.one("process orders")
    assert facts(work)["error.type"] == "dead_lettered"
    assert (work.status.status_code, work.status.description) == (StatusCode.ERROR, "answered 500")
    dead = [span for span in traced.ended if facts(span).get("inbound.receiver") == "dead-letter"]
    assert [parent(span) for span in dead] == [ids(work)]
    (got,) = [request for request in stage.requests if request.url == DEAD]
    assert got.headers["traceparent"].startswith(header(dead[0]))


class Nowhere:
    """The step of a job of which nothing is sent."""

    kind = "subscriber"

    def send(self, job: Job) -> None:
        pass

    def answered(self, job: Job, answer: Answer) -> None:
        pass


def test_a_dead_letter_to_a_topic_is_sent_in_the_same_trace(traced: Traced) -> None:
    """Its header names the producer's span, which is of no HTTP request."""
    claim = PartitionClaim(TopicPartition("orders", 0), SendWindow(8, "none"), Batch("orders", 0, 0, 1, []))
    entry = OpenEvent(PlainRecord(0, headers=[("traceparent", PARENT.encode())]))
    job = Job(claim, [entry], Nowhere())
    traces = Traces(traced, ConsumerName("group", "a"))
    traces.begin(job, HttpParts([], b""))
    record = traces.publish(job, "dead", RecordParts(b"k", b"v", [("ce_id", b"1"), ("traceparent", PARENT.encode())]))
    traces.came_back(job, Answer(202))
    traces.end(job)

    work, send = traced.one("process orders"), traced.one("send dead")
    assert (parent(work), parent(send), send.kind) == ((TRACE, SPAN), ids(work), SpanKind.PRODUCER)
    assert facts(send)["messaging.destination.name"] == "dead"
    assert "http.response.status_code" not in facts(send)
    assert (record.key, record.value, record.headers[0]) == (b"k", b"v", ("ce_id", b"1"))
    assert [value.decode()[:53] for name, value in record.headers[1:]] == [header(send)]


def test_a_record_that_is_no_event_has_a_span_that_says_so(traced: Traced) -> None:
    """Its dead letter is of the record's trace."""
    stage = staged(traced, delivery={"deadLetterSink": DEAD})
    stage.world.kafka.publish("orders", 0, [b"x"], headers=[("traceparent", PARENT.encode())])
    dispatch(stage)

    work = traced.one("process orders")
    assert (parent(work), facts(work)["error.type"]) == ((TRACE, SPAN), "undecodable")
    assert parent(traced.one("POST")) == ids(work)


def test_a_batch_is_linked_to_its_events() -> None:
    """To those whose traces are recorded; a batch has a trace of its own, and goes by its first event."""
    traced = Traced(rate=0.0)
    stage = staged(traced, batch={"max_events": 4})
    other = f"00-{'3' * 32}-{'4' * 16}-01"
    publish(stage, "1", ("traceparent", PARENT.encode()))
    publish(stage, "2", ("traceparent", f"00-{'5' * 32}-{'6' * 16}-00".encode()))
    publish(stage, "3")
    publish(stage, "4", ("traceparent", other.encode()))
    dispatch(stage)

    work = traced.one("process orders")
    assert (parent(work), links(work)) == (None, [(TRACE, SPAN), ("3" * 32, "4" * 16)])
    assert facts(work)["messaging.batch.message_count"] == 4
    (request,) = stage.requests
    assert request.headers["traceparent"].startswith(header(traced.one("POST")))
    assert request.ids == ("1", "2", "3", "4")


def test_a_batch_that_is_taken_apart_goes_on_in_spans_of_its_parts(traced: Traced) -> None:
    """Each event is then of its own trace again."""
    stage = staged(traced, batch={"max_events": 2}, delivery={"retry": 0, "deadLetterSink": DEAD})
    stage.behaviour = lambda request: Answer(400) if "1" in request.ids and request.url == SUBSCRIBER else OK
    publish(stage, "1", ("traceparent", PARENT.encode()))
    publish(stage, "2", ("traceparent", f"00-{'3' * 32}-{'4' * 16}-01".encode()))
    dispatch(stage)

    assert [parent(work) for work in works(traced) if not links(work)] == [(TRACE, SPAN), ("3" * 32, "4" * 16)]
    assert len(works(traced)) == 3


def test_the_origin_of_a_trace_decides_whether_it_is_recorded(traced: Traced) -> None:
    """What is not to be recorded makes nothing, and is handed on so."""
    stage = staged(traced)
    publish(stage, "1", ("traceparent", UNSAMPLED.encode()))
    dispatch(stage)

    assert traced.ended == []
    (request,) = stage.requests
    assert request.headers["traceparent"].startswith(f"00-{TRACE}-")
    assert request.headers["traceparent"][-2:] in ("00", "02")


def test_what_a_partition_leaves_behind_has_ended_spans(traced: Traced, stage: Stage) -> None:
    """When it goes to another member, while its event waits to be sent again."""
    stage.behaviour = lambda request: Answer(503)
    stage.publish("1")
    dispatch(stage)
    stage.world.leave("a")

    work = traced.one("process orders")
    assert facts(work)["error.type"] == "given_up"
    assert all(span.end_time is not None for span in traced.ended)


def test_it_begins_and_ends_while_a_process_runs(traced: Traced) -> None:
    """Off, nothing is made and the extension goes out as ever; what was begun before the switch ends."""
    spans, traced.spans = traced.spans, None
    stage = staged(traced)
    publish(stage, "1", ("traceparent", PARENT.encode()), ("ce_traceparent", UNSAMPLED.encode()))
    dispatch(stage)
    traced.spans = spans
    stage.seconds = lambda request: 1.0
    stage.publish("2")
    stage.run(0.5)
    traced.spans = None
    stage.run(2)
    stage.publish("3")
    stage.run(2)

    assert stage.got() == ["1", "2", "3"]
    assert traced.names() == ["process orders", "POST"]
    first, second, third = stage.requests
    assert first.headers["traceparent"] == UNSAMPLED
    assert "traceparent" in second.headers
    assert "traceparent" not in third.headers
