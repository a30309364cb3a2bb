"""Headers of a request in its records: traces go on, credentials do not."""

from __future__ import annotations

import json

import pytest

from inbound.config import IngressConfig, load
from inbound.plan.plan import ingress_problems
from tests.ingress.ingress_stage import EVENT, Stage, request, statuses

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
BATCH = {"content-type": "application/cloudevents-batch+json"}


def event(number: int) -> dict[str, str]:
    return {"specversion": "1.0", "id": str(number), "source": "/tests", "type": "t"}


def written(stage: Stage) -> list[list[tuple[str, bytes]]]:
    """Return of each record the headers that are not the event's."""
    headers = [record.headers for _, record in stage.producer.written]
    return [[(name, value) for name, value in one if name[:3] != "ce_" and name != "content-type"] for one in headers]


def test_what_names_the_trace_of_a_request_is_in_its_record() -> None:
    """In lower case, with the bytes that came. Credentials and headers of the connection are not."""
    stage = Stage()
    sent = {
        "X-Request-ID": "7", "Knative-Namespace": "shop", "X-B3-TraceId": "a", "X-B3-SpanId": "b", "b3": "a-b",
        "Traceparent": TRACE, "tracestate": "a=1 \t", "authorization": "Bearer x", "cookie": "a=1", "connection": "keep-alive",
        "user-agent": "curl",
    }  # fmt: skip

    assert statuses(stage.post(request(headers={**EVENT, **sent}))) == [202]
    assert written(stage) == [
        [
            ("x-request-id", b"7"), ("knative-namespace", b"shop"), ("x-b3-traceid", b"a"), ("x-b3-spanid", b"b"), ("b3", b"a-b"),
            ("traceparent", TRACE.encode()), ("tracestate", b"a=1"),
        ]
    ]  # fmt: skip


def test_the_extension_of_an_event_and_the_header_of_the_request_stay_apart() -> None:
    """One names where the event began, the other who sent it here."""
    stage = Stage()
    stage.post(request(headers={**EVENT, "ce-traceparent": TRACE, "traceparent": TRACE.replace("b7", "c8")}))
    stage.post(request(headers={**EVENT, "ce-traceparent": TRACE}))

    headers = [dict(record.headers) for _, record in stage.producer.written]
    assert [one["ce_traceparent"] for one in headers] == [TRACE.encode()] * 2
    assert [one.get("traceparent") for one in headers] == [TRACE.replace("b7", "c8").encode(), None]


def test_every_event_of_a_batch_and_a_structured_one_has_them() -> None:
    """Beside the content type that makes it an event."""
    stage = Stage()
    stage.post(request(headers={**BATCH, "traceparent": TRACE}, body=json.dumps([event(1), event(2)]).encode()))
    structured = {"content-type": "application/cloudevents+json", "traceparent": TRACE}
    stage.post(request(headers=structured, body=json.dumps(event(3)).encode()))

    expected = [("content-type", b"application/cloudevents+json"), ("traceparent", TRACE.encode())]
    assert [record.headers for _, record in stage.producer.written] == [expected] * 3


def test_a_header_of_several_lines_is_one() -> None:
    """Its values stand in a row, as HTTP has it; bytes that are no text go through."""
    stage = Stage()
    message = request(headers={**EVENT, "tracestate": "a=1", "TraceState": "b=2"})
    stage.post(message.replace(b"b=2", b"b=\xff"))

    assert written(stage) == [[("tracestate", b"a=1,b=\xff")]]


def test_the_list_is_the_operators() -> None:
    """Globs, without regard to case. An empty list passes nothing; no list forges an attribute."""
    stage = Stage(IngressConfig(pass_headers=("X-Tenant", "x-flag-*", "c*", "a*")))
    sent = {"x-tenant": "a", "X-Flag-A": "b", "x-flag": "c", "authorization": "d", "ce_id": "forged", "b3": "e"}
    stage.post(request(headers={**EVENT, **sent}))
    none = Stage(IngressConfig(pass_headers=()))
    none.post(request(headers={**EVENT, **sent}))

    assert (written(stage), written(none)) == ([[("x-tenant", b"a"), ("x-flag-a", b"b")]], [[]])
    assert dict(stage.producer.written[0][1].headers)["ce_id"] == b"1"


def test_a_header_that_never_goes_on_cannot_be_listed() -> None:
    """The refusal says where it stands."""
    loaded = load(
        "kafka: {bootstrap.servers: 'a:1'}\ningress:\n  pass_headers: [x-tenant, Authorization, 'ce-*']\n",
        filename="a.yaml",
    )

    assert ingress_problems(loaded) == [
        f"a.yaml:3: ingress.pass_headers: {name} is a credential, or belongs to one connection, message or sender: it "
        "never goes on; take it out"
        for name in ("Authorization", "ce-*")
    ]


def test_what_is_too_much_is_left_out_and_counted() -> None:
    """At most 4 KiB and 64 headers of one event, each as a whole; the event is taken all the same."""
    stage = Stage(IngressConfig(pass_headers=("x-*",)))
    stage.post(request(headers={**EVENT, "x-large": "x" * 4096, "x-small": "x"}))
    stage.post(request(headers={**EVENT, **{f"x-{number}": "" for number in range(70)}}))
    stage.post(request(headers={**EVENT, "x-large": "x" * 5000}))

    large, many, none = written(stage)
    assert (large, len(many), none) == ([("x-small", b"x")], 64, [])
    assert stage.receiver.record_headers.left_out == 1 + 6 + 1


def test_no_more_headers_are_looked_at_than_are_bound() -> None:
    """Unknown names cost more than their bytes: the first 256 of them are judged, and then remembered."""
    stage = Stage(IngressConfig(pass_headers=("x-late",)))
    message = request(headers={**EVENT, **{f"unknown-{number}": "" for number in range(300)}, "x-late": "1"})

    for _ in range(2):
        stage.post(message)

    assert written(stage) == [[], [("x-late", b"1")]]


def test_what_a_batch_makes_of_its_headers_is_in_flight_too() -> None:
    """A small request can be many bytes to Kafka: 429 while there is no room, 413 if there never is."""
    config = IngressConfig(max_in_flight_bytes=50_000, max_request_bytes=20_000, pass_headers=("x-*",))
    stage = Stage(config, held=True)

    def post(events: int) -> bytes:
        body = json.dumps([event(number) for number in range(events)]).encode()
        return stage.post(request(headers={**BATCH, "x-large": "x" * 993}, body=body))

    too_many, waits, no_room = post(60), post(20), post(30)
    in_flight = stage.receiver.counters.in_flight_bytes
    stage.acknowledge(2)

    assert (statuses(too_many), waits, statuses(no_room)) == ([413], b"", [429])
    assert b"its 60 events have more than ingress.max_in_flight_bytes (50000); send fewer in one" in too_many
    assert (19_000 < in_flight < 25_000, stage.receiver.counters.in_flight_bytes) == (True, 0)


def test_the_default_is_what_knatives_channels_keep_and_traces_need() -> None:
    """Those that Knative's channels keep."""
    kept = ("x-request-id", "knative-*", "x-b3-*", "b3", "traceparent", "tracestate")
    assert IngressConfig().pass_headers == kept


@pytest.mark.parametrize("pattern", ["", "x tenant", "x:y", "é"])
def test_what_cannot_be_the_name_of_a_header_is_refused(pattern: str) -> None:
    """It would never match."""
    with pytest.raises(ValueError, match="need the name of a header such as x-request-id, or knative-"):
        IngressConfig(pass_headers=(pattern,))
