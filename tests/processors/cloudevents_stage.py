"""Records, messages and JSON texts as hypothesis makes them up, and the meaning of equality of two events."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from cloudevents.core.v1.event import CloudEvent
from hypothesis import strategies as st

from inbound.processors.batch import PlainRecord
from inbound.processors.cloudevents_bridge import (
    HttpParts,
    RecordParts,
    http_to_records,
    record_to_binary,
    record_to_json,
    record_to_structured,
)
from inbound.processors.cloudevents_kafka import decode_record
from inbound.processors.cloudevents_values import DataKind, Refused, content_type, write_text

HttpHeaders = list[tuple[bytes, bytes]]

#: The attributes that every event has: in JSON, as headers of a record and of a request, and as a request's lines.
ENVELOPE: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
KAFKA: list[tuple[str, bytes]] = [(f"ce_{name}", text.encode()) for name, text in ENVELOPE.items()]
HTTP: HttpHeaders = [(f"ce-{name}".encode(), text.encode()) for name, text in ENVELOPE.items()]
LINES = [name + b": " + value for name, value in HTTP]
STRUCTURED = [("content-type", b"application/cloudevents+json")]

#: Content types of every kind, some of which no HTTP header can carry.
CONTENT_TYPES = [
    "application/json",
    "application/vnd.acme+json; charset=utf-8",
    "text/plain",
    "text/plain; charset=iso-8859-1",
    "text/plain; charset=utf-16",
    "text/plain; charset=klingon",
    "text/plain; note=größe",
    " text/plain",
    "application/xml",
    "application/xml; charset=iso-8859-1",
    "application/octet-stream",
    "application/cloudevents+avro",
    "application/cloudevents+json",
    "application/cloudevents-batch+json",
]
#: Characters that some rule names, and a few that none does; and those that no attribute may hold.
FINE = 'aZ09~ %"\\,;={[é߀😀\ufeff\u2028'
ODD = FINE + "\x00\n\x7f\x85\ufdd0\ufffe\U0001ffff\ud800"
#: What attributes hold: nearly always a plain text, now and then anything.
texts = (
    st.sampled_from(["1", "/bench/orders", "com.example.order", "Euro € 😀", 'a "b" 100%', "\\", "~", "0.9"])
    | st.text(FINE, max_size=8)
    | st.text(ODD, max_size=4)
)
times = st.sampled_from(
    ["2018-04-05T17:31:00Z", "2018-04-05t17:31:00.123456789+05:30", "2016-12-31T23:59:60Z", "2019-02-29T00:00:00Z"]
) | st.builds("{:04}-{:02}-{:02}T{:02}:00:00Z".format, *[st.integers(0, n) for n in (9999, 13, 32, 24)])
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(ODD, max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(ODD, max_size=3) | st.just("id"), inner, max_size=3)
    ),
    max_leaves=6,
)
json_texts = st.builds(
    lambda value, indent, ascii: json.dumps(value, indent=indent, ensure_ascii=ascii).encode(errors="surrogatepass"),
    json_values,
    st.none() | st.sampled_from(["", " ", "\t"]),
    st.booleans(),
) | st.sampled_from(
    [b"1.10", b"1e999", b"NaN", b"01", b"[1,]", b'"\\ud800"', b'{"a":1,"a":2}', b"[" * 300 + b"]" * 300]
)
values = (
    st.none()
    | st.just(b"")
    | json_texts
    | st.text(ODD, max_size=8).map(lambda text: text.encode(errors="replace"))
    | st.binary(max_size=8)
)


@st.composite
def binary_records(draw: st.DrawFn) -> PlainRecord:
    """Records with the headers of an event, often valid, seldom with something broken among them."""
    attributes = {"specversion": "1.0", "id": draw(texts), "source": "/s", "type": "t"}
    attributes |= draw(
        st.dictionaries(st.sampled_from(["subject", "ext1", "partitionkey", "traceparent"]), texts, max_size=2)
    )
    if draw(st.booleans()):
        attributes["time"] = draw(times)
    headers: list[tuple[str, bytes | None]] = [
        (f"ce_{name}", text.encode(errors="surrogatepass")) for name, text in attributes.items()
    ]
    declared = draw(st.none() | st.sampled_from(CONTENT_TYPES[:11]) | st.sampled_from(CONTENT_TYPES))
    if declared is not None:
        headers.append(
            (
                draw(st.sampled_from(["content-type", "content-type", "Content-Type", "ce_datacontenttype"])),
                declared.encode(),
            )
        )
    if draw(st.integers(0, 3)) == 0:
        position = draw(st.integers(0, len(headers)))
        headers.insert(position, draw(odd_headers))
    return PlainRecord(7, 1000, draw(st.none() | st.binary(max_size=4)), draw(values), headers)


odd_headers = st.tuples(
    st.sampled_from(["ce_id", "CE_ID", "ce_", "ce_my_name", "ce_data", "ce_x", "traceparent", "content-type", "é"]),
    st.none() | st.sampled_from([b"", b"1", b"\xff", b"a\nb", b"application/json"]),
)


@st.composite
def envelopes(draw: st.DrawFn) -> bytes:
    """The JSON of an event, often valid; in many ways of writing."""
    members: dict[str, Any] = {"specversion": "1.0", "id": draw(texts), "source": "/s", "type": "t"}
    members |= draw(
        st.dictionaries(
            st.sampled_from(["subject", "ext1", "flag", "partitionkey", "tracestate", "traceparent"]),
            st.none() | st.booleans() | st.integers(-(2**32), 2**32) | texts,
            max_size=2,
        )
    )
    if draw(st.booleans()):
        members["time"] = draw(times)
    declared = draw(st.none() | st.sampled_from(CONTENT_TYPES))
    if declared is not None:
        members["datacontenttype"] = declared
    if draw(st.integers(0, 9)) == 0:
        members |= draw(st.dictionaries(st.sampled_from(["my_name", "Name", "", "time", "x"]), json_values, max_size=1))
    written = [(json.dumps(name), json.dumps(member)) for name, member in members.items()]
    if draw(st.booleans()):
        written.append(('"data"', draw(json_texts).decode(errors="replace")))
    elif draw(st.booleans()):
        written.append(
            ('"data_base64"', draw(st.sampled_from(['"AP8="', '"eA=="', '"WzFd"', '""', "null", '"?"', "5"])))
        )
    if draw(st.integers(0, 4)) == 0:
        written.append(draw(st.sampled_from([('"id"', '"again"'), ('"data"', "null"), ('"i\\u0064"', '"escaped"')])))
    written = draw(st.permutations(written))
    blank = draw(st.sampled_from(["", " ", "\n\t "]))
    pairs = (f"{name}{blank}:{blank}{member}" for name, member in written)
    return (blank + "{" + blank + f"{blank},{blank}".join(pairs) + blank + "}" + blank).encode(errors="replace")


structured_records = st.builds(
    lambda declared, value, key: PlainRecord(7, 1000, key, value, [("content-type", declared), ("ce_id", b"\xff")]),
    st.sampled_from([b"application/cloudevents+json", b"Application/CloudEvents+JSON; charset=UTF-8"]),
    st.integers(0, 7).flatmap(lambda n: values if n == 0 else envelopes()),
    st.none() | st.binary(max_size=4),
)
records = binary_records() | structured_records


def message_of(parts: HttpParts) -> tuple[HttpHeaders, bytes]:
    """Read the lines of a request as a server does."""
    headers = []
    for line in parts.lines:
        name, _, value = line.partition(b":")
        headers.append((name, value.strip(b" \t")))
    return headers, parts.body


def event_of(parts: RecordParts) -> CloudEvent:
    """Decode a record that was made from a message."""
    return decode_record(PlainRecord(0, -1, parts.key, parts.value, list(parts.headers)))


def only_event_of(parts: HttpParts) -> CloudEvent:
    """Send a request to an ingress, and read the one record that comes of it."""
    (record,) = http_to_records(*message_of(parts))
    return event_of(record)


def outcome(function: Any, *arguments: Any) -> Any:
    """Return what a function returns, or the reason why it refuses; anything else is raised."""
    try:
        return function(*arguments)
    except Refused as refused:
        return str(refused)


def record(headers: Any = KAFKA, value: bytes | None = None, key: bytes | None = None) -> PlainRecord:
    return PlainRecord(7, 1000, key, value, headers)


def envelope(**members: Any) -> bytes:
    """Return the JSON of an event with these members beyond those that every event has."""
    return json.dumps(ENVELOPE | members).encode()


def refusal(function: Any, *arguments: Any) -> str:
    """Return why a function refuses; it must."""
    with pytest.raises(Refused) as raised:
        function(*arguments)
    return str(raised.value)


def refusals(one: PlainRecord) -> set[str]:
    """Return why a record is refused by the decoder, and by each encoder that passes it on."""
    return {refusal(one_of, one) for one_of in (decode_record, record_to_binary, record_to_structured, record_to_json)}


def meaning(event: CloudEvent) -> tuple[dict[str, Any], Any]:
    """Return what an event says, whichever mode it came in.

    Headers have no types, so booleans and integers are texts in them. A message tells no data from data of no bytes.
    JSON data without content type is declared in binary mode, and text of a type that is no `text/*` is bytes there.
    """
    attributes = {
        name: str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int) else value
        for name, value in event.get_attributes().items()
    }
    data = event.get_data()
    declared = attributes.get("datacontenttype")
    if data is None or data in (b"", ""):
        data = None
        if declared == "application/json":
            del attributes["datacontenttype"]
    elif declared is None and not isinstance(data, bytes):
        attributes["datacontenttype"] = "application/json"
    elif declared and isinstance(data, str) and content_type(declared).kind not in (DataKind.JSON, DataKind.TEXT):
        try:
            data = write_text(data, declared)
        except ValueError:
            pass  # it was sent as it was
    return attributes, data


def headers_of(pairs: Iterable[tuple[str, str]]) -> HttpHeaders:
    return [(name.encode(), value.encode()) for name, value in pairs]
