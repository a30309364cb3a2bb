"""The JSON event format for CloudEvents 1.0.2 and its batches, and the core's types, between records and messages."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_bridge import (
    HttpParts,
    http_to_records,
    record_to_binary,
    record_to_json,
    record_to_structured,
)
from inbound.processors.cloudevents_kafka import decode_record
from tests.processors.cloudevents_stage import ENVELOPE, KAFKA, LINES, STRUCTURED, refusal, refusals


def binary(value: bytes | None, declared: str | None = None, **extensions: str) -> PlainRecord:
    headers = [*KAFKA, *((f"ce_{name}", text.encode()) for name, text in extensions.items())]
    return PlainRecord(7, 1000, None, value, [*headers, ("content-type", declared.encode() if declared else None)])


def structured(text: str = "", **members: Any) -> PlainRecord:
    """Return a record of the envelope with `members`, and `text` after them as it stands."""
    written = json.dumps(ENVELOPE | members)
    return PlainRecord(7, 1000, None, (written[:-1] + (f", {text}" if text else "") + "}").encode(), STRUCTURED)


def members_of(one: PlainRecord) -> dict[str, Any]:
    """Return what is in the JSON of a record beyond the attributes that every event has."""
    parsed = json.loads(record_to_json(one))
    return {name: member for name, member in parsed.items() if name not in ENVELOPE}


def as_binary(one: PlainRecord) -> tuple[str | None, bytes]:
    """Return content type and body of a record's event in binary mode, which it must allow."""
    made = record_to_binary(one)
    assert made.lines[:4] == LINES
    declared = [line.removeprefix(b"content-type: ").decode() for line in made.lines[4:]]
    return (declared[0] if declared else None), made.body


@pytest.mark.parametrize(
    ("written", "line"),
    [
        ('"flag": true', b"ce-flag: true"),
        ('"off": false', b"ce-off: false"),
        ('"number": -2147483648', b"ce-number: -2147483648"),
        ('"number": 2147483647', b"ce-number: 2147483647"),
        ('"text": "Euro \\u20ac"', b"ce-text: Euro%20%E2%82%AC"),
        ('"pair": "\\ud83d\\ude00"', b"ce-pair: %F0%9F%98%80"),
        ('"time": "2018-04-05T17:31:00Z"', b"ce-time: 2018-04-05T17:31:00Z"),
        ('"time": "2018-04-05t03:56:24.1234567+00:00"', b"ce-time: 2018-04-05t03:56:24.1234567+00:00"),
    ],
)
def test_json_types_and_their_texts(written: str, line: bytes) -> None:
    """2.2: "The CloudEvents type system MUST be mapped to JSON types as follows": Boolean, Integer, String, Timestamp. And
    3.1.3.2 of the HTTP binding: "The value for each HTTP header is constructed from the respective attribute type's
    canonical string representation." Time is already a text, and stays as it was written.
    """
    assert record_to_binary(structured(written)).lines == [*LINES, line]


def test_attributes_out_of_headers_are_strings() -> None:
    """2.2: "the CloudEvents type can be determined by inference": headers have no types, and we infer none."""
    assert members_of(binary(None, flag="true", number="5", subject="größe", time="2018-04-05t17:31:00Z")) == {
        "flag": "true",
        "number": "5",
        "subject": "größe",
        "time": "2018-04-05t17:31:00Z",
    }


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ('"x": 1.5', "attribute x is a float"),
        ('"x": 2147483648', "attribute x is 2147483648; integers have 32 bits"),
        ('"x": {}', "attribute x is an object"),
        ('"x": []', "attribute x is an array"),
        ('"x": "\\udead"', "x holds U+DEAD"),
        ('"x": "\\u0007"', "x holds U+0007"),
        ('"x": "\\ufdd0"', "x holds U+FDD0"),
        ('"time": "yesterday"', "time is 'yesterday'"),
        ('"time": 5', "attribute time is a number"),
        ('"subject": ""', "attribute subject is empty"),
        ('"my_name": "x"', "member 'my_name' cannot be an attribute"),
        ('"Name": "x"', "member 'Name' cannot be an attribute"),
        ('"id": ""', "required attribute id is empty"),
        ('"id": null', "required attribute id is missing"),
        ('"specversion": "0.3"', "specversion is '0.3'"),
        ('"data": 1, "data_base64": "AA=="', "both data and data_base64 are there"),
        ('"data_base64": "?"', "data_base64 is not Base64"),
        ('"data_base64": 5', "data_base64 is a number; it must be a string"),
        ('"datacontenttype": ""', "attribute datacontenttype is empty"),
        ('"data": NaN', "bad JSON: NaN is no JSON"),
        ('"datacontenttype": "application/json", "data_base64": "AA=="', "bad JSON"),
    ],
)
def test_what_the_types_do_not_allow(written: str, reason: str) -> None:
    """2.2 with the core's 'Type System' and its attributes' constraints: refused alike by the decoder, by each encoder
    of a record and where a message comes in.
    """
    one = structured(written)
    message = [(b"content-type", b"application/cloudevents+json")], one.value or b""

    (said,) = refusals(one) | {refusal(http_to_records, *message)}
    assert said.startswith(reason)


def test_null_is_unset() -> None:
    """2.2: "When decoding attributes and a `null` value is encountered, it MUST be treated as the equivalent of unset or
    omitted."
    """
    assert record_to_binary(structured(subject=None, time=None, unset=None)) == (LINES, b"")


def test_the_event_is_an_object_with_its_attributes_as_members() -> None:
    """3: "All REQUIRED and all not omitted OPTIONAL attributes in the given event MUST become members of the JSON object",
    and it "MUST use the media type `application/cloudevents+json`".
    """
    made = record_to_structured(binary(None, "text/plain", subject="x", ext1="y"))

    assert made.lines == [b"content-type: application/cloudevents+json"]
    assert json.loads(made.body) == {**ENVELOPE, "subject": "x", "ext1": "y", "datacontenttype": "text/plain"}


@pytest.mark.parametrize("declared", [None, "application/octet-stream", "image/png", "application/xml"])
def test_binary_data_is_base64(declared: str | None) -> None:
    """3.1.1: if the type of data is Binary, "the value MUST be represented as a JSON string expression containing the
    Base64 encoded binary value, and use the member name `data_base64`". `datacontenttype` stays.
    """
    expected = {"data_base64": base64.b64encode(b"<\x00\xff/>").decode()}

    assert members_of(binary(b"<\x00\xff/>", declared)) == (
        expected | {"datacontenttype": declared} if declared else expected
    )


@pytest.mark.parametrize("declared", ["application/json", "Text/JSON; charset=utf-8", "application/vnd.acme+json"])
@pytest.mark.parametrize("data", [b'{"a": [1.10, 1e999]}', b'"text"', b" null\n", b"5", '"größe"'.encode()])
def test_json_data_is_a_json_value(declared: str, data: bytes) -> None:
    """3.1.1: JSON-formatted content has "the form `*/json` or `*/*+json`" and "MUST be stored directly as a JSON value,
    rather than as an encoded JSON document represented as a string": its very bytes.
    """
    written = record_to_json(binary(data, declared))

    assert written.endswith(b',"datacontenttype":' + json.dumps(declared).encode() + b',"data":' + data + b"}")


def test_data_that_should_be_json_and_is_not_is_refused() -> None:
    """3.1.1: "An implementation MAY fail to serialize the event if it is unable to translate the runtime value to a JSON
    value." What is inserted as it is must be looked at before: it could be other members.
    """
    said = refusal(record_to_binary, binary(b'1,"id":"evil"', "application/json"))
    assert said.startswith("bad JSON: Extra data")


@pytest.mark.parametrize(
    ("declared", "data", "text"),
    [
        ("text/plain", "größe 😀".encode(), "größe 😀"),
        ("text/plain; charset=iso-8859-1", b"gr\xf6\xdfe", "größe"),
        ("text/csv", b'a,"b"\n', 'a,"b"\n'),
        ("text/plain", b"", ""),
        ("application/xml", "<ö/>".encode(), "<ö/>"),
        ("application/xml; charset=ISO-8859-1", b"<\xf6/>", "<ö/>"),
    ],
)
def test_other_text_is_a_string(declared: str, data: bytes, text: str) -> None:
    """3.1.1: otherwise a serializer "MUST store a string representation of the data value, properly encoded according to
    the `datacontenttype`"; and back. 3.1.2: XML in a `data` member "SHOULD be treated as an encoded content string": in
    the character set that is named.
    """
    if declared.startswith("text/"):
        assert members_of(binary(data, declared)) == {"datacontenttype": declared, "data": text}
    assert as_binary(structured(datacontenttype=declared, data=text)) == (declared, data)


@pytest.mark.parametrize(
    ("declared", "data"),
    [
        ("text/plain", {"a": 1}),
        ("text/plain", 5),
        ("text/plain; charset=iso-8859-1", "€"),
        ("text/x; charset=x", "a"),
        ("text/plain; charset=idna", "Ä"),
    ],
)
def test_data_that_cannot_be_encoded_stays_in_the_envelope(declared: str, data: Any) -> None:
    """3.1.2: an implementation "MAY fail [...] if the `data` member is not a string". We need not: the event goes on in
    structured mode, as it is.
    """
    one = structured(datacontenttype=declared, data=data)

    assert record_to_binary(one) == HttpParts([b"content-type: application/cloudevents+json"], one.value or b"")


def test_null_is_a_payload_as_distinct_from_none() -> None:
    """3.1.1: "the `data` member MAY have a value of `null`, representing an explicit `null` payload as distinct from the
    absence of the `data` member". Under a type that is no JSON there is no way to say it.
    """
    assert as_binary(structured(data=None)) == ("application/json", b"null")
    assert as_binary(structured(datacontenttype="text/plain", data=None)) == ("text/plain", b"")
    assert as_binary(structured(datacontenttype="application/json")) == ("application/json", b"")
    assert as_binary(structured()) == (None, b"")
    assert members_of(binary(b"null", "application/json"))["data"] is None
    assert "data" not in members_of(binary(None, "application/json"))


def test_base64_becomes_its_bytes() -> None:
    """3.1.2: "the presence of the `data_base64` member clearly indicates that the value is a Base64 encoded binary data,
    which the deserializer MUST decode". A content type is not implied by it.
    """
    assert as_binary(structured(data_base64="AP8=")) == (None, b"\x00\xff")
    assert as_binary(structured(data_base64="WzFd", datacontenttype="application/json")) == ("application/json", b"[1]")
    assert as_binary(structured(data_base64="", datacontenttype="image/png")) == ("image/png", b"")


@pytest.mark.parametrize("data", ['"{\\"a\\": 1}"', '"I\'m just a string"', "[1.10,  {}]", "1e999", '"\\ud800"'])
def test_a_json_value_is_taken_as_it_is_written(data: str) -> None:
    """3.1.2: "if the `data` member is a string, [...] it MUST NOT further deserialize the string as a JSON document". No
    number is read and written again on the way. JSON without content type is declared when the format changes: "the
    `datacontenttype` in the re-serialized event SHOULD be set explicitly to the implied `application/json`".
    """
    one = structured(f'"data": {data}')

    assert as_binary(structured(f'"data": {data}', datacontenttype="application/json")) == as_binary(one)
    assert as_binary(one) == ("application/json", data.encode())
    assert record_to_structured(one).body == one.value


def test_the_last_of_two_members_of_one_name_counts() -> None:
    """3 with RFC 8259, which leaves it open: for attributes and for the text of the data alike."""
    one = structured('"data": 1, "id": "2", "data": 1.10, "d\\u0061ta": 2.20, "subject": "x"')

    assert repr(decode_record(one).get_data()) == "2.2"
    assert record_to_binary(one).body == b"2.20"
    assert record_to_binary(one).lines[1] == b"ce-id: 2"


EXAMPLE = {
    "specversion": "1.0",
    "type": "com.example.someevent",
    "source": "/mycontext",
    "id": "1234-1234-1234",
    "time": "2018-04-05T17:31:00Z",
    "comexampleextension1": "value",
    "comexampleothervalue": 5,
}


@pytest.mark.parametrize(
    ("members", "declared", "body"),
    [
        (
            {"datacontenttype": "application/vnd.apache.thrift.binary", "data_base64": "AAEC/w=="},
            b"application/vnd.apache.thrift.binary",
            b"\x00\x01\x02\xff",
        ),
        (
            {"unsetextension": None, "datacontenttype": "application/xml", "data": '<much wow="xml"/>'},
            b"application/xml",
            b'<much wow="xml"/>',
        ),
        (
            {"subject": None, "datacontenttype": "application/json", "data": {"appinfoA": "abc", "appinfoB": 123}},
            b"application/json",
            b'{"appinfoA": "abc", "appinfoB": 123}',
        ),
        ({"subject": None, "data": "I'm just a string"}, b"application/json", b'"I\'m just a string"'),
    ],
)
def test_the_examples_of_the_format_re_encoded_for_http(members: dict[str, Any], declared: bytes, body: bytes) -> None:
    """3.2: "The above example re-encoded using HTTP Binary Content Mode", four times."""
    one = PlainRecord(7, 1000, None, json.dumps(EXAMPLE | members).encode(), STRUCTURED)

    assert record_to_binary(one) == (
        [
            b"ce-specversion: 1.0",
            b"ce-type: com.example.someevent",
            b"ce-source: /mycontext",
            b"ce-id: 1234-1234-1234",
            b"ce-time: 2018-04-05T17:31:00Z",
            b"ce-comexampleextension1: value",
            b"ce-comexampleothervalue: 5",
            b"content-type: " + declared,
        ],
        body,
    )


def test_the_example_of_a_batch() -> None:
    """4.3: "The first with `Binary`-valued data, the second with JSON data." """
    first = EXAMPLE | {"id": "B234-1234-1234", "source": "/mycontext/4", "data_base64": "AAEC/w=="}
    second = EXAMPLE | {"id": "C234-1234-1234", "data": {"appinfoA": "abc", "appinfoB": 123, "appinfoC": True}}
    body = json.dumps([first, second], indent=4).encode()

    made = http_to_records([(b"content-type", b"application/cloudevents-batch+json")], body)

    events = [decode_record(PlainRecord(0, -1, parts.key, parts.value, parts.headers)) for parts in made]
    assert [event.get_id() for event in events] == ["B234-1234-1234", "C234-1234-1234"]
    assert [event.get_data() for event in events] == [b"\x00\x01\x02\xff", second["data"]]
