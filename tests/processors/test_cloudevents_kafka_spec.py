"""The Kafka protocol binding for CloudEvents 1.0.2, sentence by sentence, for records read, written and passed on."""

from __future__ import annotations

import json

import pytest
from cloudevents.core.v1.event import CloudEvent

from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_bridge import (
    RecordParts,
    http_to_records,
    record_to_binary,
    record_to_json,
    record_to_structured,
    record_with_extensions,
)
from inbound.processors.cloudevents_kafka import decode_record, encode_binary, encode_structured, partition_key
from tests.processors.cloudevents_stage import (
    ENVELOPE,
    HTTP,
    KAFKA,
    LINES,
    STRUCTURED,
    envelope,
    headers_of,
    message_of,
    record,
    refusals,
)


def through_http(one: PlainRecord) -> RecordParts:
    """Send a record's event to a subscriber that publishes it again."""
    (parts,) = http_to_records(*message_of(record_to_binary(one)))
    return parts


def test_structured_mode_places_the_event_into_the_value() -> None:
    """1.3: "event metadata attributes and event data are placed into the Kafka message value section using an event
    format".
    """
    event = decode_record(record([*KAFKA, ("content-type", b"text/plain")], b"hello"))
    _, value, headers = encode_structured(event)

    assert json.loads(value) == {**ENVELOPE, "datacontenttype": "text/plain", "data": "hello"}
    assert headers == STRUCTURED
    assert vars(decode_record(record(headers, value))) == vars(event)
    assert http_to_records(headers_of([("content-type", "application/cloudevents+json")]), value) == [
        (None, value, headers)
    ]


@pytest.mark.parametrize(
    ("content_type", "identity"),
    [
        (b"application/cloudevents+json", "structured"),
        (b"application/cloudevents+json; charset=UTF-8", "structured"),
        (b"Application/CloudEvents+JSON", "structured"),
        (b"application/json", "1"),
        (b"application/x-cloudevents+json", "1"),
        (None, "1"),
    ],
)
def test_the_content_type_tells_the_mode(content_type: bytes | None, identity: str) -> None:
    """3: "If the header is present and its value is prefixed with the CloudEvents media type `application/cloudevents`,
    indicating the use of a known event format, the receiver uses _structured_ mode, otherwise it defaults to _binary_
    mode." A header with a null value is not present.
    """
    one = record([*KAFKA, ("content-type", content_type)], envelope(id="structured"))

    assert decode_record(one).get_id() == identity
    assert f"ce-id: {identity}".encode() in record_to_binary(one).lines
    assert json.loads(record_to_json(one))["id"] == identity


@pytest.mark.parametrize(
    "foreign", ["application/cloudevents+avro", "application/cloudevents-batch+json", "application/cloudevents"]
)
def test_other_event_formats_and_batches_are_refused(foreign: str) -> None:
    """3: "an event format that it cannot handle [...] it MAY still treat the event as binary and forward it": it may. 1.3
    knows two modes, and no batch.
    """
    assert refusals(record([*KAFKA, ("content-type", foreign.encode())], b"[]")) == {
        f"content-type is {foreign!r}; of the event formats only application/cloudevents+json is read"
    }


@pytest.mark.parametrize("missing", sorted(ENVELOPE))
def test_a_record_without_a_mandatory_attribute_is_no_event(missing: str) -> None:
    """3: "if it does not adhere to all of the normative language of this specification then it is not a valid
    CloudEvent". None is invented, neither id nor time; a null value is none.
    """
    headers = [header for header in KAFKA if header[0] != f"ce_{missing}"]

    for one in (record(headers), record([*headers, (f"ce_{missing}", None)])):
        assert refusals(one) == {f"required attribute {missing} is missing"}


@pytest.mark.parametrize("headers", [[], [("content-type", b"application/json"), ("x", b"1")]])
def test_a_record_without_any_of_the_headers_is_no_event(headers: list[tuple[str, bytes]]) -> None:
    """3: "it would be reasonable for a receiver to assume that if the message has all of the mandatory CloudEvents
    attributes as headers then it's probably a CloudEvent". 3.3.1: a structured one says so in its `content-type`.
    """
    assert refusals(record(headers, envelope())) == {
        "no CloudEvent: no ce_specversion header and content-type is not application/cloudevents+json"
    }


def test_the_key_that_was_given_is_the_records_key() -> None:
    """3.1: "Every implementation MUST, by default, map the user provided record key to the Kafka record key." """
    event = CloudEvent({**ENVELOPE, "partitionkey": "other"}, b"x")
    dead_letter = record([*KAFKA, ("ce_partitionkey", b"other")], b"x", b"\xff")

    assert encode_binary(event, b"mine")[0] == encode_structured(event, b"mine")[0] == b"mine"
    assert record_with_extensions(dead_letter, {"knativeerrorcode": "503"}).key == b"\xff"


@pytest.mark.parametrize("key", ["customer-1", "größe", " a "])
def test_the_key_mapper_takes_the_partition_key(key: str) -> None:
    """3.1: "Every implementation SHOULD provide an opt-in "Key Mapper" implementation that maps the Partitioning
    `partitionkey` attribute value to the 'key' of the Kafka message as-is, if present." What comes over HTTP has no other
    key. "A mapping function MUST NOT modify the CloudEvent", and a key from elsewhere "MUST NOT add an attribute".
    """
    keyed = [*KAFKA, ("ce_partitionkey", key.encode())]
    structured = http_to_records([(b"content-type", STRUCTURED[0][1])], envelope(partitionkey=key))[0]

    assert through_http(record(keyed)) == RecordParts(key.encode(), None, keyed)
    assert structured.key == partition_key(decode_record(record(keyed))) == key.encode()
    assert record_to_binary(record(KAFKA, b"x", b"from elsewhere")).lines == LINES
    assert decode_record(record(KAFKA, b"x", b"from elsewhere")).get_attributes() == ENVELOPE


@pytest.mark.parametrize("headers", [KAFKA, [*KAFKA, ("ce_partitionkey", b"")]])
def test_an_event_without_partition_key_has_no_key(headers: list[tuple[str, bytes]]) -> None:
    """3.1 and the Partitioning extension: "MUST be a non-empty string". An empty key would put all such events into one
    partition.
    """
    assert through_http(record(headers)).key is None
    assert http_to_records([(b"content-type", STRUCTURED[0][1])], envelope(partitionkey=""))[0].key is None


def test_the_content_type_is_the_attribute_datacontenttype() -> None:
    """3.2.1: "the header `content-type` property MUST be mapped directly to the CloudEvents `datacontenttype` attribute",
    also with errors in it: only the mode changes on the way if HTTP has no way to say it.
    """
    for declared in ("text/plain; charset=utf-8", "text/plain; note=größe"):
        one = record([*KAFKA, ("content-type", declared.encode())], b"x")
        parts = through_http(one)

        for each in (one, record(parts.headers, parts.value)):
            assert decode_record(each).get_datacontenttype() == declared


@pytest.mark.parametrize("value", [b"\x00\xff", b"text", "größe".encode("latin-1")])
def test_the_value_is_the_data(value: bytes) -> None:
    """3.2.2: "The `data` byte-sequence MUST be used as the value of the Kafka message." 1.3: "as-is, with the
    `content-type` header value declaring its media type".
    """
    assert record_to_binary(record(KAFKA, value)).body == value
    assert through_http(record(KAFKA, value)).value == value
    assert json.loads(record_to_json(record(KAFKA, value))).keys() == {*ENVELOPE, "data_base64"}

    (parts,) = http_to_records([*HTTP, (b"Content-Type", b"application/avro")], value)
    assert parts == RecordParts(None, value, [*KAFKA, ("content-type", b"application/avro")])
    assert encode_binary(decode_record(record(parts.headers, parts.value))) == parts


def test_an_event_without_data_is_a_tombstone() -> None:
    """3.2.2 as the version after 1.0.2 has it: "the Kafka representation of a CloudEvent with no `data` is a Kafka message
    with no value". HTTP says no data by an empty body without content type: a tombstone deletes, so it is not made up. A
    structured event "still has a data section (containing the attributes)" (3.3.2), so without value it is no event.
    """
    tombstone, empty = record(KAFKA, None, b"k"), [*KAFKA, ("content-type", b"text/plain")]

    assert decode_record(tombstone).get_data() is None
    assert record_to_binary(tombstone) == (LINES, b"")
    assert json.loads(record_to_structured(tombstone).body) == ENVELOPE
    assert through_http(tombstone).value is None
    assert encode_binary(CloudEvent(dict(ENVELOPE)))[1] is None

    assert http_to_records([*HTTP, (b"content-type", b"text/plain")], b"")[0] == RecordParts(None, b"", empty)
    assert json.loads(record_to_json(record(empty, b"")))["data"] == ""
    assert "data" not in json.loads(record_to_json(record(empty, None)))

    assert http_to_records([(b"content-type", STRUCTURED[0][1])], envelope())[0].value == envelope()
    assert refusals(record(STRUCTURED, None)) == {
        "content-type is application/cloudevents+json, but the record has no value"
    }


def test_each_attribute_has_a_header_of_its_own_in_utf_8() -> None:
    """3.2.3: attributes and extensions "MUST be individually mapped to and from the Header fields in the Kafka message.
    Both header keys and header values MUST be encoded as UTF-8 strings."
    """
    headers = [*KAFKA, ("ce_subject", "Euro € 😀".encode()), ("ce_time", b"2018-04-05T03:56:24Z")]
    other = [("traceparent", b"not the event's"), ("é", b"\xff")]

    assert through_http(record([*headers, *other])) == RecordParts(None, None, headers)
    assert encode_binary(decode_record(record(headers)))[2] == headers
    assert refusals(record([*KAFKA, ("ce_x", b"\xff")])) == {r"header ce_x is not UTF-8: b'\xff'"}
    assert refusals(record([*KAFKA, ("CE_ID", b"2")])) == {"header ce_id is there more than once"}


def test_a_header_with_a_null_value_is_an_attribute_that_is_not_set() -> None:
    """3.2.3 does not say so, but null is no string, and the JSON format takes it for unset."""
    unset = record([*KAFKA, ("ce_subject", None), ("ce_time", None), ("content-type", None)], b"x")

    assert decode_record(unset).get_attributes() == ENVELOPE
    assert record_to_binary(unset) == (LINES, b"x")
    assert json.loads(record_to_json(unset)) == {**ENVELOPE, "data_base64": "eA=="}
    assert record_with_extensions(unset, {}) == RecordParts(None, b"x", KAFKA)


def test_the_names_of_headers() -> None:
    """3.2.3.1: "CloudEvent attributes are prefixed with `ce_`": `time` maps to `ce_time`."""
    assert decode_record(record([*KAFKA, ("id", b"2"), ("ce-id", b"3")])).get_attributes() == ENVELOPE
    assert record_to_binary(record([*KAFKA, ("id", b"2"), ("ce-id", b"3")])).lines == LINES
    assert [name for name, _ in through_http(record()).headers] == [name for name, _ in KAFKA]


@pytest.mark.parametrize("name", ["ce_", "ce_my_name", "ce_data", "ce_größe"])
def test_a_header_that_names_no_attribute_is_refused(name: str) -> None:
    """3.2.3.1 with 'Attribute Naming Convention': "lower-case letters ('a' to 'z') or digits ('0' to '9')"."""
    assert refusals(record([*KAFKA, (name, b"x")])) == {
        f"header {name!r} names no attribute: after ce_ only a-z and 0-9 are allowed"
    }


def test_the_example_of_binary_mode() -> None:
    """3.2.5, and what a subscriber gets of it: the key is no part of the event."""
    headers = [
        ("ce_specversion", b"1.0"),
        ("ce_type", b"com.example.someevent"),
        ("ce_source", b"/mycontext/subcontext"),
        ("ce_id", b"1234-1234-1234"),
        ("ce_time", b"2018-04-05T03:56:24Z"),
        ("content-type", b"application/avro"),
    ]

    made = record_to_binary(record(headers, b"\x02avro", b"mykey"))

    assert made.lines == [
        b"ce-specversion: 1.0",
        b"ce-type: com.example.someevent",
        b"ce-source: /mycontext/subcontext",
        b"ce-id: 1234-1234-1234",
        b"ce-time: 2018-04-05T03:56:24Z",
        b"content-type: application/avro",
    ]
    assert made.body == b"\x02avro"


def test_headers_of_a_structured_record_do_not_count() -> None:
    """3.3.3: "Implementations MAY include the same Kafka headers as defined for the binary mode." """
    one = record([("ce_id", b"other"), ("ce_id", b"\xff"), ("ce_?", b"x"), *STRUCTURED], envelope())

    assert decode_record(one).get_attributes() == ENVELOPE
    assert record_to_binary(one) == (LINES, b"")
    assert record_to_structured(one) == ([b"content-type: application/cloudevents+json"], envelope())


def test_the_example_of_structured_mode() -> None:
    """3.3.4, in every mode that a subscriber may want."""
    value = b"""{
    "specversion" : "1.0",
    "type" : "com.example.someevent",
    "source" : "/mycontext/subcontext",
    "id" : "1234-1234-1234",
    "time" : "2018-04-05T03:56:24Z",
    "datacontenttype" : "application/xml",
    "data" : "<much wow=\\"xml\\"/>"
}"""
    one = record([("content-type", b"application/cloudevents+json; charset=UTF-8")], value, b"mykey")

    assert record_to_binary(one) == (
        [
            b"ce-specversion: 1.0",
            b"ce-type: com.example.someevent",
            b"ce-source: /mycontext/subcontext",
            b"ce-id: 1234-1234-1234",
            b"ce-time: 2018-04-05T03:56:24Z",
            b"content-type: application/xml",
        ],
        b'<much wow="xml"/>',
    )
    assert record_to_structured(one) == ([b"content-type: application/cloudevents+json; charset=UTF-8"], value)
    assert record_to_json(one) == value


def test_data_that_does_not_fit_its_content_type_stays_in_the_envelope() -> None:
    """3.3.4's own `data` is an object that is XML: such an event has no bytes that binary mode could carry."""
    value = envelope(datacontenttype="application/xml", data={"a": 1})

    assert decode_record(record(STRUCTURED, value)).get_data() == {"a": 1}
    assert record_to_binary(record(STRUCTURED, value)) == ([b"content-type: application/cloudevents+json"], value)
