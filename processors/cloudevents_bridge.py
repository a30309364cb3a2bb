"""Converts CloudEvents between Kafka records and HTTP messages, in both directions.

The rules are in docs/cloudevents.md. Everything here is pure; any thread may call it. The only exception, for any input, is
Refused, a ValueError with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from inbound.processors.batch import Record, readable_headers
from inbound.processors.cloudevents_http import (
    BATCH_CONTENT_TYPE,
    HttpParts,
    percent_encoded,
    record_to_binary,
    record_to_json,
    record_to_structured,
)
from inbound.processors.cloudevents_kafka import (
    NO_OBJECT,
    check_envelope,
    decode_record,
    learn,
    read_headers,
)
from inbound.processors.cloudevents_plain import (
    HTTP_SAFE,
    Written,
    check_data,
    elements_of,
    is_plain,
    is_plain_envelope,
    members_of,
    parse_json,
)
from inbound.processors.cloudevents_values import (
    REQUIRED,
    STRUCTURED_CONTENT_TYPE,
    ContentType,
    DataKind,
    Refused,
    UnreadFormatError,
    check_attributes,
    check_text,
    content_type,
    content_type_of_header,
    is_name,
    replace_forbidden,
    write_json,
)

__all__ = [
    "HttpParts",
    "RecordParts",
    "Refused",
    "UnreadFormatError",
    "http_to_records",
    "is_event",
    "json_with_extensions",
    "record_to_binary",
    "record_to_json",
    "record_to_structured",
    "record_with_extensions",
    "record_with_headers",
    "with_extensions",
]
HttpHeaders = Iterable[tuple[bytes, bytes]]
_REQUIRED = frozenset(f"ce-{name}".encode() for name in REQUIRED)
#: The attribute that is the record's key by default, as in the Kafka binding.
PARTITION_KEY = ("partitionkey",)
_NO_EVENT = (
    f"no CloudEvent: no ce-specversion header, and Content-Type is neither {STRUCTURED_CONTENT_TYPE} nor a batch"
)
#: Header name -> attribute; "" for a header that is none. Names come from the network: `is_kept` bounds them.
_attribute_of: dict[bytes, str] = {}
_header_of = Written(lambda name: f"ce_{name}")
#: A quoted part with its end, if it has one; else up to the end of the value, so no character is looked at twice.
_QUOTED = re.compile(rb'"((?:[^"\\]++|\\.)*+)("?)', re.DOTALL)
_BAD_PERCENT = re.compile(rb"%(?![0-9A-Fa-f]{2})").search
_PERCENT = re.compile(rb"%(..)", re.DOTALL)
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)


class RecordParts(NamedTuple):
    """Key, value and headers of a record to publish."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


def is_event(headers: HttpHeaders) -> bool:
    """Tell whether a message claims to be an event or a batch.

    It does if its Content-Type says so, or if it has the header of a required attribute.
    """
    for name, value in headers:
        lower = name.lower()
        if lower in _REQUIRED:
            return True
        if lower == b"content-type" and value.strip().lower().startswith(b"application/cloudevents"):
            return True
    return False


def http_to_records(headers: HttpHeaders, body: bytes, key: Sequence[str] = PARTITION_KEY) -> list[RecordParts]:
    """Return a record for each event of an HTTP message; perhaps none.

    A binary message becomes a binary record, a structured one a structured record with the unchanged body, a batch a
    structured record for each event with its unchanged text. The record's key is the first non-empty one of the attributes
    `key`. An empty body without content type is no data: a null value. Names of headers are compared without regard to case.
    Raises Refused if it is no CloudEvent; in a batch, with the position of the first bad event.
    """
    attributes, declared, problem = _read_headers(headers)
    if declared and declared.kind is DataKind.EVENT:
        return [_structured(body, parse_json(body), declared.text.encode(), key)]
    if declared and declared.kind is DataKind.FOREIGN_EVENT:
        if declared.text.partition(";")[0].strip().lower() == BATCH_CONTENT_TYPE:
            return _batched(body, key)
        raise UnreadFormatError(
            "Content-Type", declared.text, f"{STRUCTURED_CONTENT_TYPE} and {BATCH_CONTENT_TYPE} are"
        )
    if problem:
        raise Refused(problem)
    return [_binary(attributes, declared, body, key)]


def _read_headers(headers: HttpHeaders) -> tuple[dict[str, bytes], ContentType | None, str]:
    """Return the still encoded attributes, the content type, and a problem.

    The problem is one of attribute names. It is not raised: in structured mode they do not count.
    """
    attributes: dict[str, bytes] = {}
    declared: ContentType | None = None
    problem = ""
    for name, raw in headers:
        attribute = _attribute_of.get(name)
        if attribute is None:
            attribute = learn(_attribute_of, name, name.decode("latin-1"), "ce-")
            if attribute is None:
                problem = problem or f"header {name[:80]!r} names no attribute: after ce- only a-z and 0-9 are allowed"
        if not attribute:
            continue
        if attribute == "content-type":
            if declared:
                raise Refused("header Content-Type is there more than once")
            declared = content_type_of_header(raw.strip(b" \t"))
            if not declared.text:
                raise Refused("header Content-Type is empty; leave it out where there is no data")
            continue
        if attribute in attributes:
            problem = problem or f"header ce-{attribute} is there more than once"
        attributes[attribute] = raw
    return attributes, declared, problem


def _binary(
    attributes: dict[str, bytes], declared: ContentType | None, body: bytes, keys: Sequence[str]
) -> RecordParts:
    if not (all(attributes.values()) and is_plain(attributes, HTTP_SAFE)):
        if not attributes:
            raise Refused(_NO_EVENT)
        if "datacontenttype" in attributes:
            raise Refused("header ce-datacontenttype is not allowed; the header Content-Type is that attribute")
        attributes = {name: _decoded(name, raw) for name, raw in attributes.items()}
        check_attributes({name: raw.decode() for name, raw in attributes.items()})
    check_data(body, declared)
    headers = [(_header_of[name], raw) for name, raw in attributes.items()]
    if declared:
        headers.append(("content-type", declared.text.encode()))
    key = None
    for name in keys:
        key = attributes.get(name) or None
        if key is not None:
            break
    return RecordParts(key, body if body or declared else None, headers)


def _decoded(attribute: str, raw: bytes) -> bytes:
    """Undo the quoting and the percent-encoding of a header's value. Raises Refused."""
    raw = raw.strip(b" \t")
    if b'"' in raw:
        if not all(end for _, end in _QUOTED.findall(raw)):
            raise Refused(f"header ce-{attribute} has a quote that does not end: {raw[:80]!r}")
        raw = _QUOTED.sub(lambda quoted: _ESCAPED.sub(rb"\1", quoted[1]), raw)
    if b"%" in raw:
        if _BAD_PERCENT(raw):
            raise Refused(f"header ce-{attribute} has a % without two hexadecimal digits: {raw[:80]!r}; write %25")
        raw = _PERCENT.sub(lambda digits: bytes.fromhex(digits[1].decode("ascii")), raw)
    try:
        check_text(f"header ce-{attribute}", raw.decode())
    except UnicodeDecodeError:
        raise Refused(f"header ce-{attribute} is not UTF-8: {raw[:80]!r}") from None
    return raw


def _structured(json: bytes, members: Any, declared: bytes, keys: Sequence[str]) -> RecordParts:
    if not isinstance(members, dict):
        raise Refused(NO_OBJECT)
    if not is_plain_envelope(members):
        check_envelope(members)
    key = None
    for name in keys:
        found = members.get(name)
        if found is not None and found != "":
            key = (found if isinstance(found, str) else str(found).lower()).encode()
            break
    return RecordParts(key, json, [("content-type", declared)])


def _batched(body: bytes, keys: Sequence[str]) -> list[RecordParts]:
    parsed = parse_json(body)
    if not isinstance(parsed, list):
        raise Refused("the JSON is no array, so no batch of events")
    count = len(parsed)
    for number, members in enumerate(parsed, 1):
        if not isinstance(members, dict):
            raise Refused(f"event {number} of {count}: {NO_OBJECT}")
    texts = elements_of(body, parsed)
    declared = STRUCTURED_CONTENT_TYPE.encode()
    records = []
    for number, (text, members) in enumerate(zip(texts, parsed, strict=True), 1):
        try:
            records.append(_structured(text, members, declared, keys))
        except Refused as refused:
            raise Refused(f"event {number} of {count}: {refused}") from None
    return records


# -- added extensions and headers ----------------------------------------------------------------------------------


def with_extensions(parts: HttpParts, extra: Mapping[str, str]) -> HttpParts:
    """Return a request of one event with the extensions `extra` set.

    The mode stays. Values may be any text; characters that no attribute may hold become U+FFFD. Raises Refused for a name
    that is no attribute's, and for a batch.
    """
    texts = _texts(extra)
    if _is_structured(parts.lines):
        return HttpParts(parts.lines, _with_members(parts.body, texts))
    replaced = tuple(f"ce-{name}:".encode() for name in texts)
    lines = [line for line in parts.lines if not line.startswith(replaced)]
    lines += [f"ce-{name}: {percent_encoded(text)}".encode() for name, text in texts.items()]
    return HttpParts(lines, parts.body)


def json_with_extensions(event: bytes, extra: Mapping[str, str]) -> bytes:
    """Do as `with_extensions`, for an event in the JSON format."""
    return _with_members(event, _texts(extra))


def record_with_extensions(record: Record, extra: Mapping[str, str]) -> RecordParts:
    """Do as `with_extensions`, for the event of a record to publish.

    A record that is no CloudEvent gets plain headers of those names: `knativeerrordest`, without `ce_`. Not every producer
    can write a header with a null value: one for an attribute is left out, which means the same; another becomes empty.
    Raises Refused for a name that is no attribute's.
    """
    texts = _texts(extra)
    try:
        decode_record(record)
    except Refused:
        return RecordParts(record.key, record.value, _with_headers(record, "", texts))
    if read_headers(record.headers)[0] is None:
        headers = [(name, raw) for name, raw in record.headers if raw is not None]
        return RecordParts(record.key, _with_members(record.value or b"", texts), headers)
    return RecordParts(record.key, record.value, _with_headers(record, "ce_", texts))


def record_with_headers(record: Record, prefix: str, added: Mapping[str, str]) -> RecordParts:
    """Return the unchanged event with the plain headers `added`, to publish.

    They replace all headers whose names begin with `prefix`. Null values are treated as in `record_with_extensions`.
    """
    kept = [(name, raw) for name, raw in record.headers if not name.startswith(prefix)]
    headers = [(name, raw or b"") for name, raw in kept if raw is not None or not _is_bindings(name.lower())]
    return RecordParts(record.key, record.value, headers + [(name, text.encode()) for name, text in added.items()])


def _texts(extra: Mapping[str, str]) -> dict[str, str]:
    for name in extra:
        if not is_name(name):
            raise Refused(f"{name[:80]!r} cannot be an extension: only a-z and 0-9 are allowed in its name")
    return {name: replace_forbidden(text) for name, text in extra.items()}


def _is_structured(lines: list[bytes]) -> bool:
    for line in lines:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-type":
            return content_type(value.decode("latin-1").strip()).kind in (DataKind.EVENT, DataKind.FOREIGN_EVENT)
    return False


def _with_members(body: bytes, texts: Mapping[str, str]) -> bytes:
    if not isinstance(parse_json(body), dict):
        raise Refused(NO_OBJECT)
    members = members_of(body.decode())
    members |= {name: write_json(text).decode() for name, text in texts.items()}
    return ("{" + ",".join(f"{write_json(name).decode()}:{text}" for name, text in members.items()) + "}").encode()


def _with_headers(record: Record, prefix: str, texts: Mapping[str, str]) -> list[tuple[str, bytes]]:
    added = [(prefix + name, text.encode()) for name, text in texts.items()]
    replaced = {name for name, _ in added}
    kept = [(name, raw) for name, raw in readable_headers(record) if name.lower() not in replaced]
    if prefix:
        kept = [(name, raw) for name, raw in kept if raw is not None or not _is_bindings(name.lower())]
    return [(name, raw or b"") for name, raw in kept] + added


def _is_bindings(name: str) -> bool:
    return name == "content-type" or name.startswith("ce_")
