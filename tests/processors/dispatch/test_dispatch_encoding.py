"""What a request to a subscriber carries beside the event: headers of the record, and attributes of the configuration."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from inbound.processors.batch import PlainRecord
from inbound.processors.dispatch.counters import DispatchCounters
from inbound.processors.dispatch.encoding import Encoding
from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.http_headers import MOST_BYTES, MOST_HEADERS

Headers = Sequence[tuple[str, bytes | None]]
EVENT: Headers = [("ce_specversion", b"1.0"), ("ce_id", b"7"), ("ce_source", b"/tests"), ("ce_type", b"order")]
OWN = [b"ce-specversion: 1.0", b"ce-id: 7", b"ce-source: /tests", b"ce-type: order"]
ENVELOPE = b'{"specversion":"1.0","id":"7","source":"/tests","type":"order"}'
CONTENT_TYPE: Headers = [("content-type", b"application/cloudevents+json")]
TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Sent:
    """One record, as the subscriber gets it."""

    def __init__(self, headers: Headers, value: bytes = b"", lines: Sequence[bytes] = (), **options: Any) -> None:
        self.counters = DispatchCounters()
        made = DispatchOptions.model_validate({"subscriberUri": "http://a", **options})
        self.encoding = Encoding(made, lines, self.counters)
        self.record = PlainRecord(0, value=value, headers=headers)
        self.lines, self.body = self.encoding.for_subscriber(self.record)

    @property
    def added(self) -> list[bytes]:
        """The lines that are none of the event's own."""
        return [line for line in self.lines if line not in OWN and not line.startswith(b"content-type:")]


@pytest.mark.parametrize("mode", ["binary", "structured"])
@pytest.mark.parametrize(
    ("event", "value"), [(EVENT, b"x"), (CONTENT_TYPE, ENVELOPE)], ids=["binary record", "structured record"]
)
def test_headers_of_a_record_reach_the_subscriber(event: Headers, value: bytes, mode: str) -> None:
    """In both modes; those of the connection and credentials do not."""
    others = [("X-Request-Id", b"r-1"), ("x-b3-traceid", b" 4bf92f35 "), ("authorization", b"Bearer x"), ("te", b"x"),
              ("retry-count", b"2"), ("x-b3-traceid", b""), ("null", None)]  # fmt: skip
    sent = Sent([*others[:3], *event, *others[3:]], value, mode=mode)

    assert sent.added == [b"X-Request-Id: r-1", b"x-b3-traceid: 4bf92f35", b"retry-count: 2", b"x-b3-traceid: "]
    assert sent.counters.headers_left_out == 0


def test_only_what_is_listed_goes_on() -> None:
    """Without a list nothing does."""
    others = [*EVENT, ("x-shop", b"1"), ("x-request-id", b"2")]
    assert Sent(others, pass_headers=["x-s*"]).added == [b"x-shop: 1"]
    assert Sent(others, pass_headers=[]).added == []


def test_headers_that_each_request_has_are_not_sent_twice() -> None:
    """The options' win."""
    sent = Sent([*EVENT, ("X-Tenant", b"b"), ("user-agent", b"c"), ("x-other", b"d")],
                lines=[b"x-tenant: a", b"user-agent: inbound"])  # fmt: skip
    assert sent.added == [b"x-other: d"]


@pytest.mark.parametrize(
    "value", [b"a\r\nx-injected: 1", b"a\nb", b"a\rb", b"a\x00b", b"a\tb", "größe".encode(), b"\xff", b"\x7f"]
)
def test_a_value_that_no_header_can_hold_is_left_out_and_counted(value: bytes) -> None:
    """None ends a line and begins another one."""
    sent = Sent([*EVENT, ("x-bad", value), ("x-good", b"1")])
    assert (sent.added, sent.counters.headers_left_out) == ([b"x-good: 1"], 1)


@pytest.mark.parametrize("name", ["x-a\r\nx-injected", "x a", "x:a", "größe", ""])
def test_a_name_that_is_none_in_http_is_left_out(name: str) -> None:
    """It breaks no request."""
    assert Sent([*EVENT, (name, b"1"), ("x-good", b"1")]).added == [b"x-good: 1"]


def test_a_record_with_too_many_headers_is_sent_with_some_of_them() -> None:
    """Receivers answer 431 to more, and all subscribers would."""
    many = Sent([*EVENT, *((f"x-{n}", b"v") for n in range(10_000))])
    large = Sent([*EVENT, ("x-large", b"v" * MOST_BYTES), ("x-small", b"v")])

    assert many.added == [f"x-{n}: v".encode() for n in range(MOST_HEADERS)]
    assert (large.added, large.counters.headers_left_out) == ([b"x-small: v"], 1)
    assert many.counters.headers_left_out == 10_000 - MOST_HEADERS


def test_the_events_own_trace_is_not_mixed_with_the_records() -> None:
    """The extension names where the event began; a header of that name counts where there is none."""
    of_record = [("traceparent", b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01"), ("tracestate", b"a=b")]
    with_own = Sent([*EVENT, *of_record, ("ce_traceparent", TRACE)])
    assert with_own.lines == [*OWN, b"ce-traceparent: " + TRACE, b"traceparent: " + TRACE]
    assert Sent([*EVENT, *of_record]).added == [f"{name}: {raw.decode()}".encode() for name, raw in of_record]


# -- attributes -------------------------------------------------------------------------------------------------------


OVERRIDES = {"extensions": {"tenant": "größe 1", "region": "eu"}}


@pytest.mark.parametrize(
    ("event", "value"), [(EVENT, b"x"), (CONTENT_TYPE, ENVELOPE)], ids=["binary record", "structured record"]
)
def test_attributes_of_the_options_are_added_to_each_event(event: Headers, value: bytes) -> None:
    """In each mode; the record's own have to give way."""
    record = [*event, ("ce_tenant", b"own")] if event is EVENT else event
    binary, structured = (Sent(record, value, mode=mode, ceOverrides=OVERRIDES) for mode in ("binary", "structured"))

    assert sorted(binary.added) == [b"ce-region: eu", b"ce-tenant: gr%C3%B6%C3%9Fe%201"]
    for body in (structured.body, binary.encoding.in_batch(binary.record)):
        event_sent = json.loads(body)
        assert (event_sent["id"], event_sent["tenant"], event_sent["region"]) == ("7", "größe 1", "eu")


def test_a_dead_letter_has_the_event_as_it_is() -> None:
    """What the subscriber was sent beside it is no part of the event."""
    sent = Sent([*EVENT, ("x-shop", b"1")], ceOverrides=OVERRIDES)
    assert sent.encoding.as_it_is(sent.record).lines == [*OWN, b"x-shop: 1"]
