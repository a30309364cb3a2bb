"""Which trace goes on: W3C's and B3's headers in requests and records."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from opentelemetry.trace import SpanContext, TraceFlags, TraceState

from inbound.observe.tracing.propagation import Propagation, in_lines, in_record, in_request, outgoing
from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_kafka import decode_record
from inbound.processors.spans import headers_with_hop
from tests.observe.tracing.tracing_stage import PARENT, SPAN, TRACE, UNSAMPLED, Traced
from tests.processors.dispatch.dispatch_stage import event_headers

ON, OFF = Propagation(ALWAYS_ON), Propagation(ALWAYS_OFF)
OTHER = f"00-{'1' * 32}-{'2' * 16}-01"
SHORT = "a3ce929d0e0e4736"


def found(headers: dict[str, str], propagation: Propagation = ON) -> tuple[str, str, bool] | None:
    """Return trace, span and whether it is recorded, of the headers of a request."""
    context = propagation.parent(in_request([(name.encode(), text.encode()) for name, text in headers.items()]))
    return None if context is None else named(context)


def named(context: SpanContext) -> tuple[str, str, bool]:
    return f"{context.trace_id:032x}", f"{context.span_id:016x}", bool(context.trace_flags.sampled)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"traceparent": PARENT}, (TRACE, SPAN, True)),
        ({"TraceParent": PARENT}, (TRACE, SPAN, True)),
        ({"traceparent": UNSAMPLED}, (TRACE, SPAN, False)),
        ({"b3": f"{TRACE}-{SPAN}-1"}, (TRACE, SPAN, True)),
        ({"b3": f"{TRACE}-{SPAN}-d"}, (TRACE, SPAN, True)),
        ({"b3": f"{TRACE}-{SPAN}-0"}, (TRACE, SPAN, False)),
        ({"b3": f"{TRACE}-{SPAN}-1-05e3ac9a4f6e3b90"}, (TRACE, SPAN, True)),
        ({"b3": f"{SHORT}-{SPAN}-1"}, (f"{SHORT:0>32}", SPAN, True)),
        ({"X-B3-TraceId": TRACE, "X-B3-SpanId": SPAN, "X-B3-Sampled": "1"}, (TRACE, SPAN, True)),
        ({"X-B3-TraceId": TRACE, "X-B3-SpanId": SPAN, "X-B3-Flags": "1"}, (TRACE, SPAN, True)),
        ({"x-b3-traceid": TRACE, "x-b3-spanid": SPAN, "x-b3-sampled": "0"}, (TRACE, SPAN, False)),
        ({"traceparent": PARENT, "b3": f"{'1' * 32}-{'2' * 16}-1"}, (TRACE, SPAN, True)),
        ({"ce-traceparent": PARENT}, (TRACE, SPAN, True)),
        ({"ce-traceparent": OTHER, "traceparent": PARENT}, (TRACE, SPAN, True)),
        ({"ce-traceparent": OTHER, "b3": f"{TRACE}-{SPAN}-1"}, (TRACE, SPAN, True)),
        ({}, None),
        ({"traceparent": ""}, None),
        ({"traceparent": "00-nonsense"}, None),
        ({"traceparent": f"00-{'0' * 32}-{SPAN}-01"}, None),
        ({"traceparent": f"ff-{TRACE}-{SPAN}-01"}, None),
        ({"traceparent": PARENT + "x" * 2000}, None),
        ({"b3": "1"}, None),
        ({"b3": f"{TRACE}-{SPAN}-1-05e3ac9a4f6e3b90-more-and-more"}, None),
        ({"X-B3-TraceId": TRACE}, None),
    ],
)
def test_headers_that_name_a_span(headers: dict[str, str], expected: tuple[str, str, bool] | None) -> None:
    """W3C's before B3's, and both before the event's extension; what cannot be read says nothing. In records the same."""
    in_kafka = [(name.replace("ce-", "ce_"), text.encode()) for name, text in headers.items()]
    of_record = ON.parent(in_record(in_kafka))

    assert found(headers) == expected
    assert (None if of_record is None else named(of_record)) == expected


@pytest.mark.parametrize("headers", [{"b3": f"{TRACE}-{SPAN}"}, {"X-B3-TraceId": TRACE, "X-B3-SpanId": SPAN}])
def test_b3_may_leave_it_to_us_whether_a_trace_is_recorded(headers: dict[str, str]) -> None:
    """Then the rate decides."""
    assert (found(headers, ON), found(headers, OFF)) == ((TRACE, SPAN, True), (TRACE, SPAN, False))


@pytest.mark.parametrize("headers", [{"b3": "0"}, {"X-B3-Sampled": "0"}])
def test_b3_may_say_that_nothing_is_to_be_recorded_and_no_more(headers: dict[str, str]) -> None:
    """Then a trace begins here that is not."""
    said = found(headers)

    assert said is not None
    assert said[2] is False


def test_tracestate_comes_along_in_several_lines() -> None:
    """They are one list."""
    headers = [(b"traceparent", PARENT.encode()), (b"tracestate", b"a=1"), (b"Tracestate", b"b=2")]
    context = ON.parent(in_request(headers))

    assert context is not None
    assert context.trace_state.to_header() == "a=1,b=2"


def test_what_goes_out_is_read_back() -> None:
    """By ourselves, and the state only where there is one."""
    state = TraceState([("a", "1")])
    context = SpanContext(int(TRACE, 16), int(SPAN, 16), is_remote=False, trace_flags=TraceFlags(1), trace_state=state)

    assert outgoing(context) == (("traceparent", PARENT), ("tracestate", "a=1"))
    assert in_lines([b"ce-id: 1", b"traceparent: " + PARENT.encode()]) == {"ce_traceparent": PARENT}


def test_a_hops_header_is_no_attribute_of_the_event() -> None:
    """Neither does it become one, nor does it touch the extension of the same name."""
    traced = Traced()
    hop = traced.made.publish("orders")
    before: list[tuple[str, bytes]] = [(n, v or b"") for n, v in event_headers("1")] + [
        ("ce_traceparent", OTHER.encode())
    ]

    headers = headers_with_hop([*before, ("TraceParent", PARENT.encode())], hop)

    assert headers == [*before, ("traceparent", dict(hop.headers)["traceparent"].encode())]
    event = decode_record(PlainRecord(0, value=b"x", headers=headers))
    assert event.get_extension("traceparent") == OTHER
    plain = decode_record(PlainRecord(0, value=b"x", headers=headers_with_hop(headers[:5], hop)))
    assert plain.get_extension("traceparent") is None
