"""The Kafka protocol binding and the JSON format, rule by rule."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from inbound.processors.batch import Batch, PlainRecord
from inbound.processors.cloudevents_kafka import decode_records
from tests.processors.cloudevents_stage import ENVELOPE, KAFKA, STRUCTURED, envelope, json_values, values

Headers = Sequence[tuple[str, bytes | None]]


def decode(headers: Headers, value: bytes | None = None, key: bytes | None = None) -> CloudEvent:
    """Decode one record that must be an event."""
    events, undecodable = decode_records("orders", 0, [PlainRecord(7, 1000, key, value, headers)])
    assert undecodable == []
    return events[0]


def reason(headers: Headers, value: bytes | None = None) -> str:
    """Decode one record that must be no event, and return why."""
    record = PlainRecord(7, 1000, None, value, headers)
    events, undecodable = decode_records("orders", 0, [record])
    assert events == []
    assert undecodable[0].record is record
    return undecodable[0].reason


def without(name: str) -> Headers:
    return [header for header in KAFKA if header[0] != name]


def test_a_binary_record_gives_the_sdks_event_with_the_headers_as_attributes() -> None:
    """All ce_ headers become attributes, content-type becomes datacontenttype, other headers stay out."""
    more: Headers = [
        ("ce_time", b"2018-04-05T03:56:24Z"),
        ("ce_comexampleextension1", "größe".encode()),
        ("traceparent", b"\xff"),
        ("content-type", b"application/json"),
    ]
    event = decode([*KAFKA, *more], b'{"a": [1, null]}')
    assert type(event) is CloudEvent
    assert event.get_attributes() == ENVELOPE | {
        "time": datetime(2018, 4, 5, 3, 56, 24, tzinfo=UTC),
        "comexampleextension1": "größe",
        "datacontenttype": "application/json",
    }
    assert event.get_data() == {"a": [1, None]}


def test_an_event_looks_as_if_the_sdks_constructor_had_made_it() -> None:
    """The constructor is passed by; the SDK must not have come to keep anything else in an event."""
    made = CloudEvent({**ENVELOPE, "time": datetime(2020, 1, 1, tzinfo=UTC)}, b"x")
    assert vars(decode([*KAFKA, ("ce_time", b"2020-01-01T00:00:00Z")], b"x")) == vars(made)


def test_decoding_twice_gives_equal_events() -> None:
    """Nothing is invented: no id, no time, and no partitionkey from the record's key, which may be any bytes."""
    first, second = (decode(KAFKA, b"x", key=b"\xff\xfe").get_attributes() for _ in range(2))
    assert first == second == ENVELOPE


def test_names_of_headers_are_compared_without_regard_to_case() -> None:
    """`Ce_Id` and `Content-Type` count as well."""
    event = decode([*without("ce_id"), ("Ce_Id", b"1"), ("Content-Type", b"text/plain")], b"x")
    assert event.get_attributes() == ENVELOPE | {"datacontenttype": "text/plain"}


@pytest.mark.parametrize(
    ("content_type", "value", "data"),
    [
        (b"application/json", b"[1, 2]", [1, 2]),
        (b"Application/JSON; charset=utf-8", b'"a"', "a"),
        (b"application/vnd.acme+json", b"null", None),
        (b"model/gltf+json", b"1.5", 1.5),
        (b"application/json", None, None),
        (b"application/json", b"", None),
        (b"text/plain", "größe".encode(), "größe"),
        (b"text/plain", b"", ""),
        (b'text/plain; charset="ISO-8859-1"', b"gr\xf6\xdfe", "größe"),
        (b"text/plain; charset=cp932", b"\x87\x40", "\u2460"),
        (b"text/plain; charset=uhc", b"\x81\x41", "\uac02"),
        (b"text/plain; charset=Big5-HKSCS", b"\x88\x62", "\xca\u0304"),
        (b"text/plain; charset=TIS-620", b"\xa1", "\u0e01"),
        (b"text/plain; charset=klingon", b"x", b"x"),
        (b"text/plain; charset=base64", b"x", b"x"),
        (b"text/xml", b"<a/>", b"<a/>"),
        (b"application/octet-stream", b"plain", b"plain"),
        (b"application/octet-stream", b"", b""),
        (b"application/octet-stream", None, None),
        (None, b'{"a": 1}', b'{"a": 1}'),
        (None, None, None),
    ],
)
def test_the_content_type_alone_says_what_data_is(content_type: bytes | None, value: bytes | None, data: Any) -> None:
    """The same content type always gives the same Python type, for any bytes."""
    got = decode([*KAFKA, ("content-type", content_type)], value).get_data()
    assert got == data
    assert type(got) is type(data)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2018-04-05T17:31:00Z", "2018-04-05T17:31:00+00:00"),
        ("2018-04-05t17:31:00z", "2018-04-05T17:31:00+00:00"),
        ("2018-04-05T17:31:00.123456789Z", "2018-04-05T17:31:00.123456+00:00"),
        ("2018-04-05T17:31:00.5+05:30", "2018-04-05T17:31:00.500000+05:30"),
        ("2018-04-05T17:31:00-00:00", "2018-04-05T17:31:00+00:00"),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00+00:00"),
    ],
)
def test_time_is_read_as_rfc_3339(text: str, moment: str) -> None:
    """Into a datetime that keeps its offset; a leap second becomes the second after it."""
    time = decode([*KAFKA, ("ce_time", text.encode())]).get_time()
    assert time is not None
    assert time.isoformat() == moment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "1.5e9",
        "2018-04-05",
        "2018-04-05T17:31:00",
        "2018-04-05 17:31:00Z",
        "2018-W14-4T17:31:00Z",
        "2018-04-05T17:31:00,5Z",
        "2018-02-30T00:00:00Z",
        "2018-04-05T17:31:61Z",
        "2018-04-05T24:00:60Z",
        "2018-04-05T17:31:00+25:00",
        "9999-12-31T23:59:60Z",
    ],
)
def test_a_time_that_is_no_rfc_3339_is_refused(text: str) -> None:
    """Other ISO 8601 forms are not allowed, nor are days that no calendar has."""
    assert reason([*KAFKA, ("ce_time", text.encode())]) == f"time is {text!r}, which is no RFC 3339 timestamp"


@pytest.mark.parametrize(
    ("headers", "value", "expected"),
    [
        ([*without("ce_source"), ("ce_source", b"")], b"", "required attribute source is empty"),
        ([*without("ce_specversion"), ("ce_specversion", b"0.3")], b"", "specversion is '0.3'; only '1.0' is known"),
        ([*KAFKA, ("ce_id", b"1")], b"", "header ce_id is there more than once"),
        ([*KAFKA, ("ce_x", b"a\nb")], b"", "header ce_x holds U+000A, which is not allowed"),
        ([*KAFKA, ("ce_x", "\ufffe".encode())], b"", "header ce_x holds U+FFFE, which is not allowed"),
        ([*KAFKA, ("ce_subject", b"")], b"", "attribute subject is empty"),
        ([*KAFKA, ("ce_dataschema", b"")], b"", "attribute dataschema is empty"),
        ([*KAFKA, ("content-type", b"")], b"", "attribute datacontenttype is empty"),
        ([*KAFKA, ("content-type", b"\xff")], b"", r"header content-type is not UTF-8: b'\xff'"),
        ([*KAFKA, ("content-type", b"a/b\x00")], b"", "content-type holds U+0000"),
        ([*KAFKA, *STRUCTURED, *STRUCTURED], b"", "header content-type is there more than once"),
        ([*KAFKA, ("content-type", b"a/b"), ("ce_datacontenttype", b"a/b")], b"", "both content-type and ce_data"),
        ([*KAFKA, ("content-type", b"application/json")], b"{'a': 1}", "bad JSON: Expecting property name"),
        ([*KAFKA, ("content-type", b"application/json")], b"NaN", "bad JSON: NaN is no JSON"),
        ([*KAFKA, ("content-type", b"application/json")], b"1 2", "bad JSON: Extra data"),
        ([*KAFKA, ("content-type", b"application/json")], b'"\xff"', "JSON that is not UTF-8: byte 0xff at 1"),
        ([*KAFKA, ("content-type", b"application/json")], '"ä"'.encode("utf-16"), "JSON that is not UTF-8"),
        ([*KAFKA, ("content-type", b"application/json")], b"[" * 99999, "bad JSON: nested too deeply"),
        ([*KAFKA, ("content-type", b"application/json")], b"9" * 9999, "bad JSON: Exceeds the limit"),
        ([*KAFKA, ("content-type", b"text/plain")], b"\xff", "data is 'text/plain' but not in utf-8"),
    ],
)
def test_a_binary_record_that_breaks_a_rule_is_undecodable_with_the_reason(
    headers: Headers, value: bytes, expected: str
) -> None:
    """The reason names the header or the attribute. (Those that the binding states: test_cloudevents_kafka_spec.)"""
    assert reason(headers, value).startswith(expected)


@pytest.mark.parametrize(
    ("members", "data"),
    [
        ({}, None),
        ({"data": None}, None),
        ({"data": {"a": 1}}, {"a": 1}),
        ({"data": "I'm just a string"}, "I'm just a string"),
        ({"data": "{}", "datacontenttype": "application/json"}, "{}"),
        ({"data": '<much wow="xml"/>', "datacontenttype": "application/xml"}, '<much wow="xml"/>'),
        ({"data_base64": base64.b64encode(b"\x00\xff").decode()}, b"\x00\xff"),
        ({"data_base64": "AP8=", "data": None, "datacontenttype": "image/png"}, b"\x00\xff"),
        ({"data_base64": "WzFd", "datacontenttype": "application/json"}, [1]),
        ({"data_base64": "eA==", "datacontenttype": "text/plain"}, "x"),
    ],
)
def test_structured_data_follows_the_json_format(members: dict[str, Any], data: Any) -> None:
    """`data` is taken as it stands, `data_base64` as the content type says."""
    assert decode(STRUCTURED, envelope(**members)).get_data() == data


def test_structured_attributes_keep_their_json_types_and_null_is_unset() -> None:
    """Booleans and integers exist as extensions only."""
    time = {"time": "2018-04-05T17:31:00Z"}
    event = decode(STRUCTURED, envelope(subject=None, unset=None, flag=True, number=-5, text="", **time))
    expected = {"flag": True, "number": -5, "text": "", "time": datetime(2018, 4, 5, 17, 31, tzinfo=UTC)}
    assert event.get_attributes() == ENVELOPE | expected


def test_a_batch_keeps_events_and_undecodable_records_apart() -> None:
    """Each event has its offset, each other record its reason."""
    records = [PlainRecord(4, headers=KAFKA), PlainRecord(5, value=b"x"), PlainRecord(9, headers=KAFKA)]
    batch = Batch("orders", 0, 4, 10, records)
    assert len(batch.events) == 2
    assert batch.event_offsets == [4, 9]
    assert [undecodable.record.offset for undecodable in batch.undecodable] == [5]


names = st.sampled_from(["ce_specversion", "ce_id", "ce_source", "ce_type", "ce_time", "content-type"]) | st.text(
    "cCe_x?é", max_size=5
)
header_values = (
    st.none() | st.binary() | st.sampled_from([b"1.0", b"application/json", b"application/cloudevents+json"])
)
objects = st.dictionaries(st.sampled_from([*ENVELOPE, "time", "x", "data", "data_base64"]), json_values)


@settings(max_examples=100)
@given(
    st.tuples(st.lists(st.tuples(names, header_values), max_size=8), values)
    | st.tuples(st.just(STRUCTURED), objects.map(lambda members: json.dumps(members).encode()))
)
def test_no_record_breaks_the_decoder(made: tuple[Headers, bytes | None]) -> None:
    """Any record and any JSON is an event or undecodable: never an exception."""
    headers, value = made
    events, undecodable = decode_records("orders", 0, [PlainRecord(7, 0, None, value, headers)])
    assert len(events) + len(undecodable) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        "1,2:3\n" * 1_200_000,
        "\\" * 400_000 + '"' + ",:[" * 1_500_000 + "\\",
        [1] * 4_000_000,
        [[12.345678, 98.765432]] * 380_000,
        [{"id": str(n), "t": 1, "v": 2.5} for n in range(200_000)],
        dict.fromkeys(map(str, range(400_000)), 1),
    ],
    ids=["CSV", "escapes", "numbers", "places", "measurements", "a number for each user"],
)
def test_large_json_of_what_people_send_is_read(data: object) -> None:
    """What is counted so that parsing has a bound is what parsing costs: texts are free, names that come again cheap."""
    event = decode(STRUCTURED, json.dumps({**ENVELOPE, "data": data}, separators=(",", ":")).encode())
    assert event.get_data() == data


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        dict.fromkeys(map(str, range(700_000)), 1),
        [{str(n): 1} for n in range(600_000)],
        [[]] * 1_200_000,
        [1] * 4_500_000,
    ],
    ids=["names", "objects of names", "lists", "numbers"],
)
def test_json_of_too_many_values_is_refused_before_it_is_parsed(data: object) -> None:
    """All of it is parsed in one piece, in which no other thread goes on."""
    value = json.dumps({**ENVELOPE, "data": data}, separators=(",", ":")).encode()
    assert reason(STRUCTURED, value) == (
        f"JSON of {len(value)} bytes with more values and names than can be taken apart at once; send less in one"
    )
