"""Encoding for Kafka and HTTP, and the CloudEvents SDK as the judge of both where it follows the bindings."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from urllib.parse import unquote

import pytest
from cloudevents.core.bindings import http as http_sdk
from cloudevents.core.bindings import kafka as sdk
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from inbound.processors import cloudevents_http as http
from inbound.processors.cloudevents_kafka import (
    Headers,
    decode_record,
    encode_binary,
    encode_structured,
    partition_key,
)
from tests.processors.cloudevents_stage import ENVELOPE, record

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


def event(data: Any = None, declared: str | None = None, **members: Any) -> CloudEvent:
    """Return an event with these attributes beyond those that every event has."""
    optional = {"datacontenttype": declared} if declared else {}
    return CloudEvent({**ENVELOPE, **members, **optional}, data)


def message_for_sdk(key: bytes | None, value: bytes | None, headers: Headers) -> sdk.KafkaMessage:
    return sdk.KafkaMessage({name: raw for name, raw in headers if raw is not None}, key, value or b"")


def same(one: Any, other: Any) -> None:
    assert one.get_attributes() == other.get_attributes()
    assert one.get_data() == other.get_data()


@settings(max_examples=60)
@given(events())
def test_records_pass_between_us_and_the_sdk(event: CloudEvent) -> None:
    """Binary and structured mode, each way, keep attributes, data and key."""
    for message in (sdk.to_binary_event(event), sdk.to_structured_event(event)):
        key = message.key.encode() if isinstance(message.key, str) else message.key
        same(decode_record(record(list(message.headers.items()), message.value, key)), event)
    for encode in (encode_binary, encode_structured):
        same(sdk.from_kafka_event(message_for_sdk(*encode(event))), event)
        key, value, headers = encode(event, b"\xff")
        assert key == b"\xff"
        same(decode_record(record(headers, value, key)), event)


@settings(max_examples=60)
@given(events())
def test_the_sdk_reads_our_http_messages(event: CloudEvent) -> None:
    """Binary and structured; the binary headers are the SDK's own, byte for byte."""
    for message in (http.encode_binary(event), http.encode_structured(event)):
        same(http_sdk.from_http_event(http_sdk.HTTPMessage(message.headers, message.body)), event)
    assert http.encode_binary(event).headers == http_sdk.to_binary_event(event).headers


@settings(max_examples=60)
@given(st.lists(events(), max_size=4))
def test_a_batch_is_the_json_array_of_its_events(batch: list[CloudEvent]) -> None:
    """Each event stands as in structured mode; an empty batch is an empty array."""
    message = http.encode_batch(batch)
    assert message.headers == {"content-type": "application/cloudevents-batch+json"}
    assert json.loads(message.body) == [json.loads(http.encode_structured(event).body) for event in batch]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_text_survives_its_header(text: str) -> None:
    """A header holds printable ASCII without blank or quote, and decodes to the same text."""
    written = http.percent_encoded(text)
    assert unquote(written, errors="strict") == text
    assert all("!" <= character <= "~" and character != '"' for character in written)


@given(texts)
def test_only_the_content_type_is_not_percent_encoded(text: str) -> None:
    """A content type that no header can carry is refused."""
    declared = f'text/plain; note="{text}"'
    if declared.isascii():
        assert http.encode_binary(event(b"x", declared)).headers["content-type"] == declared
    else:
        with pytest.raises(ValueError, match="cannot stand in a header: use encode_structured"):
            http.encode_binary(event(b"x", declared))


def test_binary_mode_has_one_header_per_attribute() -> None:
    """Canonical texts: booleans in lower case, bytes in Base64, time with Z; None is not written."""
    extensions = {"flag": True, "number": -5, "raw": b"\x00", "unset": None, "when": MOMENT}
    one = event("größe", "text/plain", **extensions, time=MOMENT)
    written = {
        "specversion": "1.0",
        "id": "1",
        "source": "/s",
        "type": "t",
        "flag": "true",
        "number": "-5",
        "raw": "AA==",
        "when": "2018-04-05T17:31:00Z",
        "time": "2018-04-05T17:31:00Z",
    }
    headers = [(f"ce_{name}", text.encode()) for name, text in written.items()]
    assert encode_binary(one) == (None, "größe".encode(), [*headers, ("content-type", b"text/plain")])
    assert http.encode_binary(one) == (
        {"content-type": "text/plain", **{f"ce-{name}": text for name, text in written.items()}},
        "größe".encode(),
    )


@pytest.mark.parametrize(
    ("data", "declared", "value", "content_type"),
    [
        (None, None, None, None),
        (None, "application/json", None, "application/json"),
        (b"x", None, b"x", None),
        (b"{}", "application/json", b"{}", "application/json"),
        (b"no JSON", "application/json", b"no JSON", "application/json"),
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
    """No data is a null value or an empty body; JSON that is not declared gets its content type."""
    _, written, headers = encode_binary(event(data, declared))
    message = http.encode_binary(event(data, declared))
    assert (written, message.body) == (value, value or b"")
    assert dict(headers).get("content-type") == (content_type.encode() if content_type else None)
    assert message.headers.get("content-type") == content_type


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
    _, value, headers = encode_structured(event(data, declared, time=MOMENT))
    assert headers == [("content-type", b"application/cloudevents+json")]
    assert json.loads(value) == ENVELOPE | optional | {"time": "2018-04-05T17:31:00Z"} | member


@pytest.mark.parametrize("encode", [encode_binary, http.encode_binary], ids=["kafka", "http"])
@pytest.mark.parametrize(
    ("members", "data", "problem"),
    [
        ({"datacontenttype": "text/plain"}, {"a": 1}, "data is a dict"),
        ({}, {"a": float("nan")}, "Out of range"),
        ({}, {"a": object()}, "a object has no JSON form"),
        ({"x": 1.5}, None, "attribute x is a float"),
        ({"x": datetime(2018, 4, 5)}, None, "has no time zone"),
        ({"x": "a\r\nx-evil: 1"}, None, "U\\+000D"),
        ({"x": "\ud800"}, None, "U\\+D800"),
        ({"datacontenttype": "text/plain; charset=klingon"}, "x", "unknown encoding: klingon; give bytes"),
        # A reader would take the inner event for the outer one.
        ({"datacontenttype": "application/cloudevents+json"}, b"{}", "use encode_structured"),
        ({"datacontenttype": "application/cloudevents-batch+json"}, b"[]", "use encode_structured"),
    ],
)
def test_what_cannot_be_written_is_refused(encode: Any, members: dict[str, Any], data: Any, problem: str) -> None:
    """A ValueError names the problem; nothing is written as its str()."""
    with pytest.raises(ValueError, match=problem):
        encode(event(data, **members))


def test_nothing_becomes_another_header() -> None:
    """Neither by a line end in the content type, nor by a name that the SDK would refuse."""
    with pytest.raises(ValueError, match="cannot stand in a header"):
        http.encode_binary(event(b"", "text/plain\r\nx: 1"))
    one = event()
    one._attributes["x\r\ny"] = "1"
    with pytest.raises(ValueError, match="cannot be a header"):
        http.encode_binary(one)


def test_an_event_inside_an_event_needs_structured_mode() -> None:
    """There the content type of the inner event does no harm."""
    one = event(b"{}", "application/cloudevents+json")
    key, value, headers = encode_structured(one)
    same(decode_record(record(headers, value, key)), one)


def test_a_time_with_seconds_in_its_offset_is_written_in_utc() -> None:
    """RFC 3339 has no room for them."""
    time = datetime(1890, 1, 1, 0, 53, 28, tzinfo=timezone(timedelta(minutes=53, seconds=28)))
    assert ("ce_time", b"1890-01-01T00:00:00Z") in encode_binary(event(time=time))[2]


def test_the_partition_key_is_a_choice_of_the_caller() -> None:
    """The key mapper is opt-in; the attribute stays in the event."""
    one = event(partitionkey="N14228")
    key, _, headers = encode_binary(one, partition_key(one))
    assert (key, encode_binary(one)[0], partition_key(event())) == (b"N14228", None, None)
    assert ("ce_partitionkey", b"N14228") in headers
