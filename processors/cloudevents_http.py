"""Encodes CloudEvents as HTTP messages (protocol binding 1.0.2). Pure."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote

from cloudevents.core.base import BaseCloudEvent

from inbound.processors.batch import Record
from inbound.processors.cloudevents_kafka import NO_OBJECT, NO_VALUE, check_envelope, json_object, read_headers
from inbound.processors.cloudevents_plain import (
    HTTP_SAFE,
    JSON_SAFE,
    Written,
    check_data,
    data_of,
    is_header_text,
    is_plain_envelope,
    is_sendable,
    parse_json,
    plain_event,
)
from inbound.processors.cloudevents_values import (
    STRUCTURED_CONTENT_TYPE,
    ContentType,
    DataKind,
    Refused,
    attribute_texts,
    check_attributes,
    content_type,
    is_name,
    read_base64,
    read_data,
    write_data,
    write_json,
    write_text,
)

BATCH_CONTENT_TYPE: Final = "application/cloudevents-batch+json"

#: Characters that a header has unchanged: U+0021 to U+007E except the quote and the percent sign.
_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


class HttpMessage(NamedTuple):
    """Headers and body of a message; names in lower case, values ASCII."""

    headers: dict[str, str]
    body: bytes


class HttpAnswer(NamedTuple):
    """The receiver's answer to a message; a long body is cut."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def encode_binary(event: BaseCloudEvent) -> HttpMessage:
    """Return `event` in binary mode: attributes in `ce-` headers, data as body.

    Bytes are sent unchanged. Other data is written as its content type says; without one it is JSON, and declared as such. An
    event without data has an empty body. Raises ValueError for data or attributes that cannot be written.
    """
    attributes = event.get_attributes()
    body, declared = write_data(event.get_data(), attributes.get("datacontenttype"))
    headers: dict[str, str] = {}
    if declared:
        headers["content-type"] = _checked_content_type(declared)
    for name, text in attribute_texts(attributes).items():
        if not is_name(name):
            raise ValueError(f"attribute {name[:80]!r} cannot be a header: only a-z and 0-9 are allowed in its name")
        headers[f"ce-{name}"] = percent_encoded(text)
    return HttpMessage(headers, body or b"")


def encode_structured(event: BaseCloudEvent) -> HttpMessage:
    """Return `event` in structured mode, as JSON. Raises ValueError as `encode_binary`."""
    return HttpMessage({"content-type": STRUCTURED_CONTENT_TYPE}, write_json(json_object(event)))


def encode_batch(events: Iterable[BaseCloudEvent]) -> HttpMessage:
    """Return `events` in their order, as one JSON array, perhaps empty.

    Only for receivers that asked for batches. Raises ValueError as `encode_binary`.
    """
    return HttpMessage({"content-type": BATCH_CONTENT_TYPE}, write_json([json_object(event) for event in events]))


def percent_encoded(value: str) -> str:
    """Return an attribute's text for a header, with all but `_SAFE` encoded.

    Raises ValueError for a lone surrogate, which has no UTF-8.
    """
    return quote(value, safe=_SAFE)


def _checked_content_type(declared: str) -> str:
    # A header must be able to carry it, and no reader may take the data for a whole event.
    if content_type(declared).kind in (DataKind.EVENT, DataKind.FOREIGN_EVENT):
        raise ValueError(f"datacontenttype {declared!r} would pass for structured mode: use encode_structured")
    if not (declared.isascii() and declared.isprintable()) or declared != declared.strip():
        raise ValueError(f"datacontenttype {declared!r} cannot stand in a header: use encode_structured")
    return declared


STRUCTURED_LINE: Final = f"content-type: {STRUCTURED_CONTENT_TYPE}".encode()
#: Extensions that are also headers of HTTP, so that the event's trace goes on.
TRACE: Final[tuple[str, ...]] = ("traceparent", "tracestate")


class HttpParts(NamedTuple):
    """Headers and body of a request.

    A line is `b"ce-id: 42"`, or `b"ce-comment: "` for an empty value: ASCII, without a line end.
    """

    lines: list[bytes]
    body: bytes


#: Adds the passed-on headers of a record to the event's request. It is not called without other headers.
Beside: TypeAlias = Callable[[HttpParts, Sequence[tuple[str, bytes | None]]], HttpParts]

#: Text before an attribute's value.
_line = Written(lambda name: f"ce-{name}: ".encode())
_member = Written(lambda name: f'"{name}":"'.encode())


def record_to_binary(record: Record, beside: Beside | None = None) -> HttpParts:
    """Return the request with a record's event, in binary mode if possible.

    It is in structured mode, which a receiver sees by the content type, if no header can carry the event's content type (or
    it would be taken for an event's), or if its JSON has data that does not fit its content type. Raises Refused for a record
    that is no CloudEvent.
    """
    headers = record.headers
    plain = plain_event(headers, HTTP_SAFE)
    if plain is None:
        parts = _to_binary(record)
        return parts if beside is None or len(headers) == 1 else beside(parts, headers)
    attributes, declared = plain
    value = record.value
    check_data(value, declared)
    lines = [_line[name] + raw for name, raw in attributes.items()]
    if declared:
        lines.append(b"content-type: " + declared.text.encode())
    for name in TRACE:
        if name in attributes:
            lines.append(name.encode() + b": " + attributes[name])
    parts = HttpParts(lines, value or b"")
    if beside is None or len(headers) == len(attributes) + (declared is not None):  # so there are no others
        return parts
    return beside(parts, headers)


def record_to_structured(record: Record, beside: Beside | None = None) -> HttpParts:
    """Return the request with a record's event in structured mode, as JSON.

    Raises Refused for a record that is no CloudEvent.
    """
    headers = record.headers
    plain = plain_event(headers, JSON_SAFE)
    own = 1  # the content type, if it alone describes the event
    if plain:
        attributes, declared = plain
        trace = {name: raw.decode() for name, raw in attributes.items() if name in TRACE}
        parts = HttpParts([STRUCTURED_LINE, *_trace_lines(trace)], _plain_json(attributes, declared, record.value))
        own = len(attributes) + (declared is not None)
    else:
        read, declared = read_headers(headers)
        if read is None:
            parts = _as_it_is(declared, read_envelope(record.value))
        else:
            parts = HttpParts([STRUCTURED_LINE, *_trace_lines(read)], _json(read, declared, record.value))
    return parts if beside is None or len(headers) == own else beside(parts, headers)


def record_to_json(record: Record) -> bytes:
    """Return a record's event as one JSON object, unchanged if structured.

    Raises Refused for a record that is no CloudEvent.
    """
    plain = plain_event(record.headers, JSON_SAFE)
    if plain:
        return _plain_json(*plain, record.value)
    attributes, declared = read_headers(record.headers)
    if attributes is None:
        return read_envelope(record.value).json
    return _json(attributes, declared, record.value)


class Envelope(NamedTuple):
    """A valid event in the JSON format."""

    json: bytes
    attributes: dict[str, Any]  # as in the JSON; none is None
    has_data: bool  # whether there is a member `data`, even null
    data: Any
    base64: str | None


def read_envelope(value: bytes | None) -> Envelope:
    """Read an event in the JSON format. Raises Refused as `decode_record`."""
    if value is None:
        raise Refused(NO_VALUE)
    members = parse_json(value)
    if not isinstance(members, dict):
        raise Refused(NO_OBJECT)
    has_data, encoded = "data" in members, members.get("data_base64")
    if is_plain_envelope(members):
        return Envelope(value, members, has_data, members.pop("data", None), None)
    _, data = check_envelope(members)  # takes the data out of the members
    attributes = {name: member for name, member in members.items() if member is not None}
    return Envelope(value, attributes, has_data, data, encoded)


def _to_binary(record: Record) -> HttpParts:
    attributes, declared = read_headers(record.headers)
    value = record.value
    if attributes is None:
        return _envelope_to_binary(declared, read_envelope(value))
    if declared and not is_sendable(declared):
        return HttpParts([STRUCTURED_LINE, *_trace_lines(attributes)], _json(attributes, declared, value))
    check_attributes(dict(attributes))
    check_data(value, declared)
    return HttpParts(_binary_lines(attributes), value or b"")


def _envelope_to_binary(format: ContentType | None, envelope: Envelope) -> HttpParts:
    data = _data_of(envelope)
    if data is None:
        return _as_it_is(format, envelope)
    body, declared = data
    if declared is None:
        return HttpParts(_binary_lines(envelope.attributes), body)
    if not is_sendable(content_type(declared)):
        return _as_it_is(format, envelope)
    envelope.attributes["datacontenttype"] = declared
    return HttpParts(_binary_lines(envelope.attributes), body)


def _data_of(envelope: Envelope) -> tuple[bytes, str | None] | None:
    """Return data as bytes with its content type; None: no fit."""
    declared = envelope.attributes.get("datacontenttype")
    if envelope.base64 is not None:
        return read_base64(envelope.base64), declared
    if not envelope.has_data:
        return b"", declared
    implied = declared or "application/json"
    if content_type(implied).kind is DataKind.JSON:
        return data_of(envelope.json.decode()).encode(), implied
    if envelope.data is None:
        return b"", declared
    if not isinstance(envelope.data, str):
        return None
    try:
        return write_text(envelope.data, implied), declared
    except ValueError:
        return None


def _as_it_is(format: ContentType | None, envelope: Envelope) -> HttpParts:
    line = STRUCTURED_LINE
    if format and is_header_text(format.text):  # it may have parameters
        line = f"content-type: {format.text}".encode()
    return HttpParts([line, *_trace_lines(envelope.attributes)], envelope.json)


def _binary_lines(attributes: Mapping[str, Any]) -> list[bytes]:
    lines = []
    for name, value in attributes.items():
        text = value if isinstance(value, str) else str(value).lower()
        raw = text.encode()
        if name == "datacontenttype":
            lines.append(b"content-type: " + raw)
        else:
            lines.append(_line[name] + (percent_encoded(text).encode() if raw.translate(None, HTTP_SAFE) else raw))
    return lines + _trace_lines(attributes)


def _trace_lines(attributes: Mapping[str, Any]) -> list[bytes]:
    return [
        f"{name}: {value}".encode()
        for name in TRACE
        if isinstance(value := attributes.get(name), str) and is_header_text(value)
    ]


def _plain_json(attributes: dict[str, bytes], declared: ContentType | None, value: bytes | None) -> bytes:
    members = [_member[name] + raw + b'"' for name, raw in attributes.items()]
    if declared:
        members.append(b'"datacontenttype":' + encode_basestring_ascii(declared.text).encode())
    if value is not None:
        members += data_members(value, declared)
    return b"{" + b",".join(members) + b"}"


def _json(attributes: dict[str, Any], declared: ContentType | None, value: bytes | None) -> bytes:
    check_attributes(dict(attributes))
    members = [write_json(attributes)[1:-1]]
    if value is not None:
        members += data_members(value, declared)
    return b"{" + b",".join(members) + b"}"


def data_members(value: bytes, declared: ContentType | None) -> list[bytes]:
    """Return no member or one. Raises Refused for data of another type."""
    if declared and declared.kind is DataKind.JSON:
        check_data(value, declared)
        return [b'"data":' + value] if value else []
    if declared and declared.kind is DataKind.TEXT:
        return [b'"data":' + encode_basestring_ascii(read_data(value, declared)).encode()]
    return [b'"data_base64":"' + b2a_base64(value, newline=False) + b'"']
