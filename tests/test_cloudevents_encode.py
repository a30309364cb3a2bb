"""Encoding, and the CloudEvents SDK as the judge of both directions where it follows the binding."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from cloudevents.core.bindings import kafka as sdk
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_kafka import (
    Headers,
    decode_record,
    encode_binary,
    encode_structured,
    partition_key,
)

ENVELOPE: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
MOMENT = datetime(2018, 4, 5, 17, 31, tzinfo=UTC)

texts = st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn"]), min_size=1, max_size=20)
moments = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]))
attributes = st.fixed_dictionaries(
    {"specversion": st.just("1.0"), "id": texts, "source": texts, "type": texts, "time": moments},
    optional={"subject": texts, "dataschema": texts, "partitionkey": texts, "ext1": texts},
)
json_data = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=4,
    ),
    max_size=3,
)
payloads = (
    st.tuples(st.sampled_from(["application/json", "application/vnd.acme+json"]), json_data)
    | st.tuples(st.just("text/plain"), texts)
    | st.tuples(st.just("image/png"), st.binary(min_size=1).map(lambda tail: b"\xff" + tail))  # the SDK tries UTF-8
)


@st.composite
def events(draw: st.DrawFn) -> CloudEvent:
    """Events on whose meaning the SDK and the binding agree."""
    declared, data = draw(payloads)
    return CloudEvent(draw(attributes) | {"datacontenttype": declared}, data)


def record(key: bytes | None, value: bytes | None, headers: Headers) -> PlainRecord:
    return PlainRecord(7, 1000, key, value, headers)


def record_of_sdk(message: sdk.KafkaMessage) -> PlainRecord:
    key = message.key.encode() if isinstance(message.key, str) else message.key
    return record(key, message.value, list(message.headers.items()))


def message_for_sdk(key: bytes | None, value: bytes | None, headers: Headers) -> sdk.KafkaMessage:
    return sdk.KafkaMessage({name: raw for name, raw in headers if raw is not None}, key, value or b"")


def same(one: Any, other: Any) -> None:
    assert one.get_attributes() == other.get_attributes()
    assert one.get_data() == other.get_data()


@settings(max_examples=60)
@given(events())
def test_we_read_what_the_sdk_writes(event: CloudEvent) -> None:
    """Binary and structured, attributes and data."""
    same(decode_record(record_of_sdk(sdk.to_binary_event(event))), event)
    same(decode_record(record_of_sdk(sdk.to_structured_event(event))), event)


@settings(max_examples=60)
@given(events())
def test_the_sdk_reads_what_we_write(event: CloudEvent) -> None:
    """Binary and structured, attributes and data."""
    same(sdk.from_kafka_event(message_for_sdk(*encode_binary(event))), event)
    same(sdk.from_kafka_event(message_for_sdk(*encode_structured(event))), event)


@settings(max_examples=60)
@given(events())
def test_we_read_what_we_write(event: CloudEvent) -> None:
    """And the key goes along untouched."""
    for encoded in (encode_binary(event, b"\xff"), encode_structured(event, b"\xff")):
        assert encoded[0] == b"\xff"
        same(decode_record(record(*encoded)), event)


def test_a_binary_record_has_one_header_per_attribute() -> None:
    """Canonical texts: booleans in lower case, bytes in Base64, time with Z; None is not written."""
    extensions = {"flag": True, "number": -5, "raw": b"\x00", "unset": None, "when": MOMENT}
    event = CloudEvent({**ENVELOPE, **extensions, "time": MOMENT, "datacontenttype": "text/plain"}, "größe")
    assert encode_binary(event) == (
        None,
        "größe".encode(),
        [
            ("ce_specversion", b"1.0"),
            ("ce_id", b"1"),
            ("ce_source", b"/s"),
            ("ce_type", b"t"),
            ("ce_flag", b"true"),
            ("ce_number", b"-5"),
            ("ce_raw", b"AA=="),
            ("ce_when", b"2018-04-05T17:31:00Z"),
            ("ce_time", b"2018-04-05T17:31:00Z"),
            ("content-type", b"text/plain"),
        ],
    )


@pytest.mark.parametrize(
    ("data", "declared", "value", "content_type"),
    [
        (None, None, None, None),
        (None, "application/json", None, "application/json"),
        (b"x", None, b"x", None),
        (b"{}", "application/json", b"{}", "application/json"),
        ({"at": MOMENT}, None, b'{"at":"2018-04-05T17:31:00Z"}', "application/json"),
        ([1, 2, {"x": None}], "application/json", b'[1,2,{"x":null}]', "application/json"),
        ("a string", None, b'"a string"', "application/json"),
        ("größe", "text/plain; charset=iso-8859-1", b"gr\xf6\xdfe", "text/plain; charset=iso-8859-1"),
        ("<a/>", "application/xml", b"<a/>", "application/xml"),
    ],
)
def test_binary_data_is_written_as_its_content_type_says(
    data: Any, declared: str | None, value: bytes | None, content_type: str | None
) -> None:
    """No data is a null value; data that is JSON without saying so is declared as JSON."""
    optional = {"datacontenttype": declared} if declared else {}
    _, written, headers = encode_binary(CloudEvent({**ENVELOPE, **optional}, data))
    assert written == value
    assert dict(headers).get("content-type") == (content_type.encode() if content_type else None)


@pytest.mark.parametrize(
    ("data", "declared", "member"),
    [
        (None, None, {}),
        ({"a": 1}, None, {"data": {"a": 1}}),
        ("<a/>", "application/xml", {"data": "<a/>"}),
        (b"\x00", "image/png", {"data_base64": "AA=="}),
    ],
)
def test_structured_data_is_written_as_the_json_format_says(data: Any, declared: str | None, member: Any) -> None:
    """Bytes as Base64, everything else as it is."""
    optional = {"datacontenttype": declared} if declared else {}
    _, value, headers = encode_structured(CloudEvent({**ENVELOPE, **optional, "time": MOMENT}, data))
    assert headers == [("content-type", b"application/cloudevents+json")]
    assert json.loads(value) == ENVELOPE | optional | {"time": "2018-04-05T17:31:00Z"} | member


@pytest.mark.parametrize(
    ("members", "data", "problem"),
    [
        ({"datacontenttype": "text/plain"}, {"a": 1}, "data is a dict"),
        ({}, {"a": float("nan")}, "Out of range"),
        ({}, {"a": object()}, "a object has no JSON form"),
        ({"x": 1.5}, None, "attribute x is a float"),
        ({"x": datetime(2018, 4, 5)}, None, "has no time zone"),
        ({"x": "a\nb"}, None, "U\\+000A"),
        ({"datacontenttype": "text/plain; charset=klingon"}, "x", "unknown encoding: klingon; give bytes"),
    ],
)
def test_what_cannot_be_written_is_refused(members: dict[str, Any], data: Any, problem: str) -> None:
    """A ValueError that names the thing, rather than str() of it on the wire."""
    with pytest.raises(ValueError, match=problem):
        encode_binary(CloudEvent({**ENVELOPE, **members}, data))


def test_an_event_inside_an_event_needs_structured_mode() -> None:
    """In binary mode its content type would make the reader take the inner event for the outer one."""
    event = CloudEvent({**ENVELOPE, "datacontenttype": "application/cloudevents+json"}, b"{}")
    with pytest.raises(ValueError, match="use encode_structured"):
        encode_binary(event)
    same(decode_record(record(*encode_structured(event))), event)


def test_a_time_with_seconds_in_its_offset_is_written_in_utc() -> None:
    """RFC 3339 has no room for them."""
    time = datetime(1890, 1, 1, 0, 53, 28, tzinfo=timezone(timedelta(minutes=53, seconds=28)))
    assert ("ce_time", b"1890-01-01T00:00:00Z") in encode_binary(CloudEvent({**ENVELOPE, "time": time}))[2]


def test_the_partition_key_is_a_choice_of_the_caller() -> None:
    """The key mapper is there for who wants it; the attribute stays in the event."""
    event = CloudEvent({**ENVELOPE, "partitionkey": "N14228"})
    key, _, headers = encode_binary(event, partition_key(event))
    assert key == b"N14228"
    assert ("ce_partitionkey", b"N14228") in headers
    assert encode_binary(event)[0] is None
    assert partition_key(CloudEvent(dict(ENVELOPE))) is None
