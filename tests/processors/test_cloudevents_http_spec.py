"""The HTTP protocol binding for CloudEvents 1.0.2, sentence by sentence, out of Kafka records and into them."""

from __future__ import annotations

import pytest

from inbound.processors.cloudevents_bridge import (
    http_to_records,
    is_event,
    record_to_binary,
    record_to_json,
    record_to_structured,
)
from inbound.processors.cloudevents_kafka import decode_record
from inbound.processors.dispatch.options import DispatchOptions
from tests.processors.cloudevents_stage import (
    ENVELOPE,
    HTTP,
    KAFKA,
    LINES,
    envelope,
    event_of,
    headers_of,
    only_event_of,
    record,
    refusals,
)
from tests.processors.cloudevents_stage import STRUCTURED as STRUCTURED_RECORD
from tests.processors.cloudevents_stage import refusal as refusal_of

STRUCTURED = [(b"Content-Type", b"application/cloudevents+json")]
BATCHED = [(b"Content-Type", b"application/cloudevents-batch+json; charset=UTF-8")]


def sent(text: str) -> bytes:
    """Return the header's value that carries `text` as the subject."""
    lines = record_to_binary(record([*KAFKA, ("ce_subject", text.encode())])).lines
    (value,) = [line.removeprefix(b"ce-subject: ") for line in lines if line.startswith(b"ce-subject: ")]
    return value


def received(value: bytes) -> str:
    """Return the subject of the event whose header has that value."""
    (parts,) = http_to_records([*HTTP, (b"ce-subject", value)], b"")
    subject: str = event_of(parts).get_attributes()["subject"]
    return subject


def refusal(headers: list[tuple[bytes, bytes]], body: bytes = b"") -> str:
    """Return why a message is refused."""
    return refusal_of(http_to_records, headers, body)


@pytest.mark.parametrize("body", [b"\x00\xff", b"", b'{"a":  1.10}\n'])
def test_binary_mode_places_data_into_the_body_as_it_is(body: bytes) -> None:
    """1.3: "the value of the event `data` is placed into the HTTP request, or response, body as-is"."""
    headers = [*KAFKA, ("content-type", b"application/octet-stream")]

    assert record_to_binary(record(headers, body)).body == body
    assert http_to_records([*HTTP, (b"content-type", b"application/octet-stream")], body)[0].value == body


def test_data_is_what_its_content_type_says() -> None:
    """2.2: "if the declared `datacontenttype` is `application/json;charset=utf-8`, the expectation is that the `data` value
    is made available as UTF-8 encoded JSON text". No subscriber could read anything else, so it is not taken in.
    """
    declared = headers_of([("content-type", "application/json;charset=utf-8")])

    assert refusal([*HTTP, *declared], b"{'a': 1}").startswith("bad JSON: Expecting property name")
    assert refusal([*HTTP, *declared], '"ö"'.encode("utf-16")).startswith("JSON that is not UTF-8")
    assert refusal([*HTTP, (b"content-type", b"text/plain")], b"\xff").startswith(
        "data is 'text/plain' but not in utf-8"
    )


def test_batches_are_sent_only_to_who_asks_for_them_and_says_how_large() -> None:
    """3: "The _batched_ mode MUST NOT be used unless solicited, and the gesture SHOULD allow the receiver to choose the
    maximum size of a batch."
    """
    silent = DispatchOptions.model_validate({"subscriberUri": "http://sink/"})
    asking = DispatchOptions.model_validate(
        {"subscriberUri": "http://sink/", "batch": {"max_events": 7, "max_bytes": 1000}}
    )

    assert (silent.mode, silent.batch) == ("binary", None)
    assert asking.batch is not None
    assert (asking.batch.max_events, asking.batch.max_bytes) == (7, 1000)


@pytest.mark.parametrize(
    ("content_type", "body", "records"),
    [
        (b"application/cloudevents+json", envelope(id="structured"), ["structured"]),
        (b"Application/CloudEvents+JSON ; charset=UTF-8", envelope(id="structured"), ["structured"]),
        (b"application/cloudevents-batch+json", b"[" + envelope(id="batched") + b"]", ["batched"]),
        (b"application/json", envelope(id="structured"), ["1"]),
        (b"application/x-cloudevents+json", envelope(id="structured"), ["1"]),
        (None, envelope(id="structured"), ["1"]),
    ],
)
def test_the_content_type_tells_the_mode(content_type: bytes | None, body: bytes, records: list[str]) -> None:
    """3: "The receiver of the event can distinguish between the three modes by inspecting the `Content-Type` header
    value. [...] Otherwise it defaults to _binary_ mode."
    """
    declared = [(b"content-type", content_type)] if content_type else []

    assert [event_of(parts).get_id() for parts in http_to_records([*HTTP, *declared], body)] == records


@pytest.mark.parametrize("foreign", ["application/cloudevents+avro", "application/cloudevents-batch+avro"])
def test_an_event_format_that_is_not_read_is_refused(foreign: str) -> None:
    """3: "if a receiver detects the CloudEvents media type, but with an event format that it cannot handle [...] it MAY
    still treat the event as binary": it may, and we say which formats we read.
    """
    assert refusal([*HTTP, *headers_of([("content-type", foreign)])]) == (
        f"Content-Type is {foreign!r}; of the event formats only application/cloudevents+json and "
        "application/cloudevents-batch+json are read"
    )


@pytest.mark.parametrize("missing", sorted(ENVELOPE))
def test_a_message_without_a_mandatory_attribute_is_no_event(missing: str) -> None:
    """3: "if it does not adhere to all of the normative language of this specification then it is not a valid
    CloudEvent". Such a message still means to be one, and is refused with the reason; an answer without any is none.
    """
    headers = [header for header in HTTP if header[0] != f"ce-{missing}".encode()]

    assert is_event(headers)
    assert refusal(headers) == f"required attribute {missing} is missing"


def test_a_message_that_does_not_mean_to_be_an_event_is_none() -> None:
    """3: "knowing when the message ought to be parsed as a CloudEvent can be a challenge". One of the headers that every
    event has, or the media type.
    """
    plain = headers_of([("content-type", "application/json"), ("date", "x"), ("ce-server", "x"), ("cexid", "x")])

    assert not is_event(plain)
    assert refusal(plain[:2], b"{}").startswith("no CloudEvent: no ce-specversion header, and Content-Type is neither")
    assert is_event(STRUCTURED)
    assert is_event(BATCHED)
    assert is_event([(b"CE-Id", b"1")])


def test_the_content_type_is_the_attribute_datacontenttype() -> None:
    """3.1.1: "the HTTP `Content-Type` header value corresponds to (MUST be populated from or written to) the CloudEvents
    `datacontenttype` attribute" and "a `ce-datacontenttype` HTTP header MUST NOT also be present in the message", which
    Kafka's binding does not say. It alone is not percent-encoded. Nothing is populated from nothing: only JSON implies one.
    """
    declared = b'text/plain; charset=utf-8; note="a b"'
    (parts,) = http_to_records([*HTTP, (b"CONTENT-TYPE", declared)], b"x")

    assert event_of(parts).get_datacontenttype() == declared.decode()
    for name in ("content-type", "ce_datacontenttype"):
        assert record_to_binary(record([*KAFKA, (name, declared)])).lines == [*LINES, b"content-type: " + declared]
    assert "ce-datacontenttype is not allowed" in refusal([*HTTP, (b"ce-datacontenttype", b"text/plain")])
    assert record_to_binary(record(KAFKA, b"x")).lines == LINES
    assert http_to_records(HTTP, b"x")[0].headers == KAFKA


@pytest.mark.parametrize(
    "declared", ["text/plain; note=größe", " text/plain", "application/cloudevents+json", "application/cloudevents"]
)
def test_a_content_type_that_no_header_can_carry_makes_the_event_structured(declared: str) -> None:
    """3.1.1 cannot be followed then, and the mode "is chosen by the sender of the event" (3)."""
    binary = record([*KAFKA, ("ce_datacontenttype", declared.encode())], b"1")
    structured = record(STRUCTURED_RECORD, envelope(datacontenttype=declared, data="1"))

    for one in (binary, structured):
        made = record_to_binary(one)
        assert made.lines == [b"content-type: application/cloudevents+json"]
        assert only_event_of(made).get_attributes() == decode_record(one).get_attributes()


def test_each_attribute_has_a_header_of_its_own() -> None:
    """3.1.3: "All other CloudEvents attributes, including extensions, MUST be individually mapped to and from distinct
    HTTP message header."
    """
    extensions = [("ce_time", b"2018-04-05T03:56:24Z"), ("ce_subject", b"x"), ("ce_comexampleextension1", b"y")]
    headers = [(name.replace("_", "-").encode(), raw) for name, raw in extensions]

    made = record_to_binary(record([*KAFKA, *extensions, ("traceparent", b"not the event's")]))

    assert made.lines == [*LINES, *(name + b": " + raw for name, raw in headers)]
    assert http_to_records([*HTTP, *headers, (b"X-Other", b"z")], b"")[0].headers == [*KAFKA, *extensions]
    assert refusal([*HTTP, (b"CE-ID", b"2")]) == "header ce-id is there more than once"


def test_an_extension_with_a_header_of_its_own_still_has_the_prefixed_one() -> None:
    """3.1.3: extensions "MAY define a secondary mapping to HTTP headers for those attributes [...] these attributes MUST
    also still appear in the HTTP message as HTTP headers with the `ce-` prefix". The trace is such a one; where no header
    can carry it, it stays an extension only, for an encoded trace would be a wrong one.
    """
    trace = [("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b9c7c989f97918e1-01"), ("tracestate", b"a=1, b=2")]
    binary = record([*KAFKA, *((f"ce_{name}", raw) for name, raw in trace)])
    structured = record(STRUCTURED_RECORD, envelope(**{name: raw.decode() for name, raw in trace}))
    plain = [f"{name}: {raw.decode()}".encode() for name, raw in trace]

    for one in (binary, structured):
        assert record_to_binary(one).lines == [
            *LINES, b"ce-" + plain[0], b"ce-tracestate: a=1,%20b=2", *plain
        ]  # fmt: skip
        assert record_to_structured(one).lines == [b"content-type: application/cloudevents+json", *plain]
    lines = record_to_binary(record([*KAFKA, ("ce_traceparent", "größe".encode())])).lines
    assert lines == [*LINES, b"ce-traceparent: gr%C3%B6%C3%9Fe"]


def test_the_names_of_headers() -> None:
    """3.1.3.1: attributes "MUST be mapped to HTTP headers with the same name as the attribute name but prefixed with
    `ce-`" and "header names are case-insensitive".
    """
    shouted = [(name.upper(), value) for name, value in HTTP]

    assert http_to_records(shouted, b"")[0].headers == KAFKA
    assert [line.partition(b":")[0] for line in record_to_binary(record()).lines] == [name for name, _ in HTTP]


@pytest.mark.parametrize("name", [b"ce-", b"ce-my-name", b"ce-my_name", b"ce-data", b"ce-gr\xf6\xdfe"])
def test_a_header_that_names_no_attribute_is_refused(name: bytes) -> None:
    """3.1.3.1 with 'Attribute Naming Convention': "lower-case letters ('a' to 'z') or digits ('0' to '9')"."""
    assert refusal([*HTTP, (name, b"x")]).startswith(f"header {name!r} names no attribute")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Euro € 😀", b"Euro%20%E2%82%AC%20%F0%9F%98%80"),
        (" ", b"%20"),
        ('"', b"%22"),
        ("%", b"%25"),
        ("\u00a0", b"%C2%A0"),
        ("\U0001f600", b"%F0%9F%98%80"),
        ("!#$&'()*+,-./:;<=>?@[\\]^_`{|}~", b"!#$&'()*+,-./:;<=>?@[\\]^_`{|}~"),
        ("%20", b"%2520"),
    ],
)
def test_what_must_be_percent_encoded_is_and_nothing_else(text: str, value: bytes) -> None:
    """3.1.3.2: "The following characters MUST be percent-encoded: Space (U+0020), Double-quote (U+0022), Percent (U+0025),
    Any characters outside the printable ASCII range of U+0021-U+007E inclusive". "Any character represented in memory as a
    Unicode surrogate pair MUST be treated as a single Unicode character", "Percent-encoding SHOULD be performed using
    upper-case for values A-F", and the section's own example.
    """
    assert sent(text) == value
    assert received(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"Euro%20%e2%82%ac%20%f0%9f%98%80", "Euro € 😀"),
        (b"%41%7e%2F", "A~/"),
        (b"%2541", "%41"),
        (b"a b", "a b"),
        (b"  a\t", "a"),
        ("größe".encode(), "größe"),
        (b'"a \\"b\\" \\\\ c"', 'a "b" \\ c'),
        (b'"  a  " b', "  a   b"),
        (b'"%22"', '"'),
        (b"non-escaping\\backslash", "non-escaping\\backslash"),
    ],
)
def test_how_values_are_decoded(value: bytes, text: str) -> None:
    """3.1.3.2: values "MUST first be unescaped with respect to double-quoted strings", then "A single round of
    percent-decoding MUST then be performed", "decoding MUST accept lower-case values", "values that have been unncessarily
    percent-encoded MUST be accepted".
    """
    assert received(value) == text


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"%C0%A0", r"header ce-subject is not UTF-8: b'\xc0\xa0'"),
        (b"%ED%A0%80%ED%B0%80", "header ce-subject is not UTF-8"),
        (b"%E2%82", "header ce-subject is not UTF-8"),
        (b"%82", "header ce-subject is not UTF-8"),
        (b"\xe2\x82", "header ce-subject is not UTF-8"),
        (b"100%", "header ce-subject has a % without two hexadecimal digits: b'100%'; write %25"),
        (b"%G0", "header ce-subject has a % without two hexadecimal digits"),
        (b'"a', "header ce-subject has a quote that does not end"),
        (b'"a\\"', "header ce-subject has a quote that does not end"),
        (b"%0D%0Ax-evil: 1", "header ce-subject holds U+000D, which is not allowed"),
        (b"%EF%BF%BE", "header ce-subject holds U+FFFE, which is not allowed"),
        (b"", "attribute subject is empty"),
    ],
)
def test_values_that_are_refused(value: bytes, reason: str) -> None:
    """3.1.3.2: "encoded byte sequences which are invalid in UTF-8 MUST be rejected. (For example, "%C0%A0" is an overlong
    encoding of U+0020, and MUST be rejected.)"
    """
    assert refusal([*HTTP, (b"ce-subject", value)]).startswith(reason)


def test_the_example_of_binary_mode() -> None:
    """3.1.4, from the client to Kafka and on to a subscriber."""
    headers = headers_of(
        [
            ("Host", "webhook.example.com"),
            ("ce-specversion", "1.0"),
            ("ce-type", "com.example.someevent"),
            ("ce-time", "2018-04-05T03:56:24Z"),
            ("ce-id", "1234-1234-1234"),
            ("ce-source", "/mycontext/subcontext"),
            ("Content-Type", "application/json; charset=utf-8"),
            ("Content-Length", "nnnn"),
        ]
    )

    (parts,) = http_to_records(headers, b'{"a": 1}')
    made = record_to_binary(record(parts.headers, parts.value))

    assert made.lines == [name.lower() + b": " + value for name, value in headers[1:-1]]
    assert made.body == b'{"a": 1}'


@pytest.mark.parametrize("written", [envelope(data={"a": 1}), b' {\n"id" : "1", "type":"t","source":"/s" ,"specversion":"1.0",'
                                     b'"data":[1.10, 1e999] }\n'])  # fmt: skip
def test_a_structured_event_is_forwarded_as_it_was_rendered(written: bytes) -> None:
    """3.2.1: "The HTTP `Content-Type` header MUST be set to the media type of an event format." A record's parameters
    stay. 3.2.2: "the resulting data becomes the HTTP message body": bytes that are not written again on the way.
    """
    declared = b"application/cloudevents+json; charset=UTF-8"
    (parts,) = http_to_records([(b"Content-Type", declared)], written)
    kept = record(parts.headers, parts.value)

    assert parts == (None, written, [("content-type", declared)])
    assert record_to_structured(kept) == ([b"content-type: " + declared], written)
    assert record_to_json(kept) == written
    assert record_to_structured(record()).lines == [b"content-type: application/cloudevents+json"]


def test_headers_of_a_structured_message_do_not_count() -> None:
    """3.2.3: "Implementations MAY include the same HTTP headers as defined for the binary mode", but "All CloudEvents
    metadata attributes MUST be mapped into the payload".
    """
    broken = [(b"ce-id", b"other"), (b"ce-id", b"%FF"), (b"ce-my-name", b"x"), (b"ce-datacontenttype", b"text/plain")]

    (parts,) = http_to_records([*broken, *STRUCTURED], envelope())

    assert event_of(parts).get_attributes() == ENVELOPE
    assert refusal([*HTTP, *STRUCTURED], b'{"specversion":"1.0"}') == "required attribute id is missing"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "bad JSON: Expecting value"),
        (b"[]", "the JSON is no object, so no event"),
        ('{"id":"größe"}'.encode("latin-1"), "JSON that is not UTF-8"),
        (envelope(id=5), "attribute id is a number; it must be a string"),
        (envelope(Name="x"), "member 'Name' cannot be an attribute"),
    ],
)
def test_a_broken_structured_message_is_refused(body: bytes, reason: str) -> None:
    """3.2.2, the format's own rules; Kafka's binding has the same."""
    assert refusal(STRUCTURED, body).startswith(reason)
    assert refusals(record(STRUCTURED_RECORD, body)) == {refusal(STRUCTURED, body)}


def test_a_batch_becomes_one_record_for_each_event() -> None:
    """3.3: "several events are batched into a single HTTP request or response body", 3.3.2: "Other attributes MAY differ,
    including the `datacontenttype` attribute" and "The batch MAY be empty." Kafka has no batches.
    """
    events = [
        envelope(id="a", data=1, partitionkey="k"),
        b'{ "specversion":"1.0","id":"b", "source":"/s","type":"t","datacontenttype":"text/plain","data":"1.10"}',
        envelope(id="größe", data_base64="AP8="),
    ]

    made = http_to_records(BATCHED, b"[\n" + b" , ".join(events) + b"\n]")

    keys = [b"k", None, None]
    assert made == [(key, event, STRUCTURED_RECORD) for key, event in zip(keys, events, strict=True)]
    assert http_to_records(BATCHED, b" [ ] ") == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"[" + envelope() + b"," + envelope(specversion="0.3") + b"]", "event 2 of 2: specversion is '0.3'"),
        (b"[" + envelope() + b", 5]", "event 2 of 2: the JSON is no object, so no event"),
        (b"[{}," + envelope() + b"]", "event 1 of 2: required attribute specversion is missing"),
        (envelope(), "the JSON is no array, so no batch of events"),
        (b"[" + envelope() + b",]", "bad JSON"),
        (b"", "bad JSON"),
    ],
)
def test_a_batch_with_anything_else_in_it_is_refused_whole(body: bytes, reason: str) -> None:
    """3.3.2: "All batched CloudEvents MUST have the same `specversion` attribute." The position is named."""
    assert refusal(BATCHED, body).startswith(reason)


def test_intermediaries_forward_events_of_64_kib() -> None:
    """Size Limits: "Intermediaries MUST forward events of a size of 64 KByte or less." The codec has no limit of its own."""
    headers = [*KAFKA, ("ce_ext1", b"x" * 2**16), ("content-type", b"text/plain")]

    assert only_event_of(record_to_binary(record(headers, b"y" * 2**16))).get_data() == "y" * 2**16
