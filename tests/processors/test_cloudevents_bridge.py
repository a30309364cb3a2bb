"""Records to HTTP messages and back: nothing is refused that is an event, nothing is changed, nothing else is raised."""

from __future__ import annotations

import json
import re

import pytest
from cloudevents.core.bindings import http as sdk
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_bridge import (
    HttpParts,
    RecordParts,
    http_to_records,
    is_event,
    record_to_binary,
    record_to_json,
    record_to_structured,
    record_with_extensions,
    with_extensions,
)
from inbound.processors.cloudevents_kafka import decode_record, partition_key
from inbound.processors.cloudevents_plain import data_of, elements_of, members_of, parse_json
from inbound.processors.cloudevents_values import read_json, replace_forbidden
from tests.processors.cloudevents_stage import (
    HTTP,
    KAFKA,
    STRUCTURED,
    envelope,
    envelopes,
    event_of,
    json_texts,
    json_values,
    meaning,
    message_of,
    only_event_of,
    outcome,
    record,
    records,
    refusal,
    texts,
    values,
)
from tests.processors.test_cloudevents_encode import events, same

HEADER_LINE = re.compile(rb"[a-z0-9-]+: (?:[!-~](?:[ -~]*[!-~])?)?").fullmatch
ENCODERS = [record_to_binary, record_to_structured, record_to_json]


@settings(max_examples=100)
@given(records)
def test_a_record_is_refused_if_and_only_if_the_decoder_refuses_it(record: PlainRecord) -> None:
    """For the same reason, by each of the three; and nothing but Refused is raised."""
    reason = outcome(decode_record, record)

    for encoder in ENCODERS:
        answer = outcome(encoder, record)
        assert (answer == reason) if isinstance(reason, str) else not isinstance(answer, str)


days = [
    f"{year}-{month:02}-{day}" for year in ("0000", "2019", "2020") for month in range(14) for day in (28, 29, 30, 31)
]
clocks = [
    "24:00:00Z",
    "23:60:00Z",
    "23:59:60Z",
    "12:00:00",
    "12:00:00+24:00",
    "12:00:00-23:59",
    "12:00:00.Z",
    "12:00:00,1Z",
]


@pytest.mark.parametrize(
    "written", [*(f"{day}T12:00:00Z" for day in days), *(f"2020-01-01T{clock}" for clock in clocks)]
)
def test_a_time_is_valid_here_if_the_decoder_takes_it(written: str) -> None:
    """Each month's last days, leap years and leap seconds; in headers and in JSON."""
    http = [*HTTP, (b"ce-time", written.encode())]
    reason = outcome(decode_record, record([*KAFKA, ("ce_time", written.encode())]))

    answers = [outcome(encoder, record([*KAFKA, ("ce_time", written.encode())])) for encoder in ENCODERS]
    answers += [
        outcome(record_to_binary, record(STRUCTURED, envelope(time=written))),
        outcome(http_to_records, http, b""),
    ]

    assert [one if isinstance(one, str) else None for one in answers] == [
        reason if isinstance(reason, str) else None
    ] * 5


@settings(max_examples=100)
@given(records)
def test_an_event_is_the_same_after_a_way_over_http(record: PlainRecord) -> None:
    """Record -> request -> record, in binary mode, in structured mode and as a batch of two."""
    event = outcome(decode_record, record)
    if isinstance(event, str):
        return

    json_object = record_to_json(record)
    batch = [(b"content-type", b"application/cloudevents-batch+json")], b"[" + json_object + b"," + json_object + b"]"
    returned = [only_event_of(record_to_binary(record)), only_event_of(record_to_structured(record))]
    returned += map(event_of, http_to_records(*batch))

    assert [meaning(one) for one in returned] == [meaning(event)] * 4


@settings(max_examples=100)
@given(records)
def test_the_lines_of_a_request_are_headers_for_any_record(record: PlainRecord) -> None:
    """Printable ASCII, so no line can end early; each name once."""
    for encoder in (record_to_binary, record_to_structured):
        parts = outcome(encoder, record)
        if not isinstance(parts, str):
            names = [line.partition(b":")[0] for line in parts.lines]
            assert all(map(HEADER_LINE, parts.lines))
            assert len(set(names)) == len(names)


names = st.sampled_from(
    [b"ce-specversion", b"Ce-Id", b"CE-SOURCE", b"ce-type", b"ce-time", b"Content-Type", b"ce-", b"ce-\xff", b"ce-data"]
) | st.binary(max_size=6)
header_values = (
    st.sampled_from(
        [b"1.0", b"application/json", b"application/cloudevents+json", b"application/cloudevents-batch+json"]
    )
    | st.sampled_from([b"%", b"%C0%A0", b"%0a", b'"', b'"\\', b'"a\\"b"', b"%e2%82%ac", b""])
    | st.binary(max_size=6)
)
bodies = (
    values.map(lambda value: value or b"")
    | envelopes()
    | st.lists(envelopes()).map(lambda some: b"[" + b",".join(some) + b"]")
)


@settings(max_examples=100)
@given(st.lists(st.tuples(names, header_values), max_size=8), bodies)
def test_no_message_breaks_the_codec(headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    """Any message is refused, or becomes records that the decoder takes."""
    assert is_event(HTTP + headers)
    for message in (headers, HTTP + headers):
        made = outcome(http_to_records, message, body)
        if not isinstance(made, str):
            for parts in made:
                event_of(parts)


@settings(max_examples=60)
@given(events())
def test_we_take_what_the_sdk_sends(event: CloudEvent) -> None:
    """Binary and structured, attributes and data; the key is the partition key."""
    for message in (sdk.to_binary_event(event), sdk.to_structured_event(event)):
        headers = [(name.encode(), value.encode()) for name, value in message.headers.items()]
        (parts,) = http_to_records(headers, message.body)
        same(event_of(parts), event)
        assert parts.key == partition_key(event)


@settings(max_examples=100)
@given(texts.filter(lambda text: text and text == replace_forbidden(text)), st.binary(max_size=8))
def test_the_sdk_reads_what_we_send(text: str, value: bytes) -> None:
    """Every attribute and the body's bytes; the id is one that needs encoding now and then."""
    headers = [*KAFKA, ("ce_subject", text.encode()), ("content-type", b"application/octet-stream")]
    lines, body = message_of(record_to_binary(record(headers, b"\xff" + value)))  # the SDK tries UTF-8

    event = sdk.from_http_event(sdk.HTTPMessage({name.decode(): raw.decode() for name, raw in lines}, body))

    attributes = {name: attribute for name, attribute in event.get_attributes().items() if name != "time"}
    assert attributes == decode_record(record(headers)).get_attributes()
    assert event.get_data() == b"\xff" + value


@settings(max_examples=100)
@given(json_texts | envelopes() | values.map(lambda value: value or b"") | st.binary())
def test_the_faster_parser_takes_what_the_other_takes(raw: bytes) -> None:
    """For the same value (`repr` tells 1 from 1.0 and True); what is bad is bad for the same reason."""
    assert repr(outcome(parse_json, raw)) == repr(outcome(read_json, raw))


@settings(max_examples=60)
@given(envelopes())
def test_each_members_text_is_found(raw: bytes) -> None:
    """With any blanks, escapes and repeated names."""
    parsed = outcome(read_json, raw)
    if isinstance(parsed, dict):
        assert {name: read_json(text.encode()) for name, text in members_of(raw.decode()).items()} == parsed
        assert "data" not in parsed or data_of(raw.decode()) == members_of(raw.decode())["data"]


@settings(max_examples=60)
@given(
    st.lists(
        envelopes() | st.dictionaries(st.sampled_from(["id", "a"]), json_values).map(lambda o: json.dumps(o).encode()),
        max_size=5,
    )
)
def test_each_elements_text_is_found(objects: list[bytes]) -> None:
    """As it was sent, but for the blanks around it; also where data looks like the border between two elements."""
    body = b" [" + b",".join(objects) + b"] "
    parsed = outcome(read_json, body)
    if isinstance(parsed, list):
        assert elements_of(body, parsed) == [raw.strip(b" \t\n") for raw in objects]


@pytest.mark.parametrize(
    "second",
    [
        b'{"id":2,"data":[{"id":3},{"id":4}]}',
        b'{"id":2,"data":"},{\\"id\\":"}',
        b'{"i\\u0064":2,"data":[{"id":3},{"id":4}]}',
        b'{"\\u0069d":2,"data":[{"id":3} , {"id":4}]}',
        b"{}",
    ],
)
def test_data_that_looks_like_the_border_between_two_events_is_not_cut(second: bytes) -> None:
    """Lists of objects, strings, names with escapes, no names at all."""
    objects = [b'{"id":1}', second, b'{"id":5}']
    body = b"[" + b",".join(objects) + b"]"

    assert elements_of(body, read_json(body)) == objects


@settings(max_examples=100)
@given(records, st.dictionaries(st.sampled_from(["knativeerrordest", "knativeerrordata", "ext1"]), texts, max_size=2))
def test_extensions_are_added_and_all_else_stays(record: PlainRecord, extra: dict[str, str]) -> None:
    """To a request in either mode, and to a record."""
    event = outcome(decode_record, record)
    if isinstance(event, str):
        return
    attributes, data = meaning(event)
    expected = attributes | {name: replace_forbidden(text) for name, text in extra.items()}, data

    added = record_with_extensions(record, extra)
    requests = [with_extensions(encode(record), extra) for encode in (record_to_binary, record_to_structured)]

    assert added.key == record.key
    assert [meaning(one) for one in (event_of(added), *map(only_event_of, requests))] == [expected] * 3


def test_extensions_replace_those_of_a_dead_letter_that_failed_before() -> None:
    """Otherwise the names were there twice, which makes an event invalid. A bad record gets plain headers."""
    extra = {"knativeerrorcode": "503"}
    binary = record([*KAFKA, ("CE_KnativeErrorCode", b"404"), ("ce_subject", None), ("x", None)], b"x", b"key")
    broken = record([("knativeerrorcode", b"404"), ("ce_id", b"\xff"), ("x", None)], b"x", b"key")
    structured = record(
        STRUCTURED, b'{"specversion":"1.0", "id":"1","source":"/s","type":"t","knativeerrorcode":"4","data":1.10}'
    )

    assert [record_with_extensions(one, extra) for one in (binary, broken, structured)] == [
        RecordParts(b"key", b"x", [*KAFKA, ("x", b""), ("ce_knativeerrorcode", b"503")]),
        RecordParts(b"key", b"x", [("ce_id", b"\xff"), ("x", b""), ("knativeerrorcode", b"503")]),
        RecordParts(
            None,
            b'{"specversion":"1.0","id":"1","source":"/s","type":"t","knativeerrorcode":"503","data":1.10}',
            STRUCTURED,
        ),
    ]
    assert with_extensions(record_to_binary(binary), extra).lines[-1] == b"ce-knativeerrorcode: 503"
    assert len(with_extensions(record_to_binary(binary), extra).lines) == 5


@pytest.mark.parametrize("name", ["", "Knative", "my_name", "data", "a\r\nb"])
def test_an_extension_whose_name_is_none_is_refused(name: str) -> None:
    """It would be another header, or break the event."""
    assert "cannot be an extension" in refusal(with_extensions, record_to_binary(record()), {name: "x"})
    assert "cannot be an extension" in refusal(record_with_extensions, record(), {name: "x"})


def test_extensions_cannot_be_added_to_a_batch() -> None:
    """An event that is given up stands alone."""
    batch = HttpParts([b"content-type: application/cloudevents-batch+json"], b"[]")
    assert "no object" in refusal(with_extensions, batch, {"x": "1"})
