"""Decodes and encodes CloudEvents in Kafka records (protocol binding 1.0.2).

Decoding is pure: the same record always gives the same event. Nothing is invented (no id, no time, no partitionkey from
the record's key), and a record that is no valid CloudEvent is delivered as `Undecodable`, never guessed.

The content type alone decides what `get_data()` returns, in both modes: `*/json` and `*+json` parsed, `text/*` as str,
anything else, and data without a content type, as bytes. (Other data may be a string in the JSON format: it stays one. There,
data without a content type is JSON.) A binary record with a null value is an event with data None.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence, Sized
from typing import Any, TypeAlias, TypeVar

from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.v1.event import CloudEvent

from inbound.processors.batch import Record, Undecodable
from inbound.processors.cloudevents_values import (
    CORE,
    STRUCTURED_CONTENT_TYPE,
    ContentType,
    DataKind,
    Refused,
    UnreadFormatError,
    attribute_texts,
    check_attribute,
    check_attributes,
    content_type,
    content_type_of_header,
    forbidden_in,
    is_name,
    read_base64,
    read_data,
    read_json,
    text_of,
    write_attribute,
    write_data,
    write_json,
)

Headers: TypeAlias = list[tuple[str, bytes | None]]
HeaderName = TypeVar("HeaderName", str, bytes)

#: Header name -> attribute; "" for a header that is none. Names come from the network: only valid and short ones are kept, and
#: only so many.
attribute_of: dict[str, str] = {}
NAMES_KEPT, LONGEST_KEPT = 4096, 64
_CONTENT_TYPE = "content-type"
_DATA = ("data", "data_base64")
NO_VALUE = f"content-type is {STRUCTURED_CONTENT_TYPE}, but the record has no value"
NO_OBJECT = "the JSON is no object, so no event"
_NO_EVENT = f"no CloudEvent: no ce_specversion header and content-type is not {STRUCTURED_CONTENT_TYPE}"


def is_kept(known: Sized, name: Sized) -> bool:
    """Say whether `name` may be remembered beside the `known` ones."""
    return len(known) < NAMES_KEPT and len(name) <= LONGEST_KEPT


def decode_records(topic: str, partition: int, records: Sequence[Record]) -> tuple[list[CloudEvent], list[Undecodable]]:
    """Return the events of `records`, in order, and the undecodable records.

    No content of a record raises. `topic` and `partition` are not part of any event. Any thread.
    """
    events: list[CloudEvent] = []
    undecodable: list[Undecodable] = []
    for record in records:
        try:
            events.append(decode_record(record))
        except Refused as refused:
            undecodable.append(Undecodable(record, str(refused)))
    return events, undecodable


def decode_record(record: Record) -> CloudEvent:
    """Decode one record. Raises Refused with the reason, a ValueError."""
    attributes, kind = read_headers(record.headers)
    if attributes is None:
        return event_of(*check_envelope(_read_members(record.value)))
    check_attributes(attributes)
    return event_of(attributes, read_data(record.value, kind))


def read_attributes(record: Record) -> dict[str, str]:
    """Return the attributes of a record's event as texts; ignore its data.

    Raises Refused if they are not those of an event.
    """
    found, _ = read_headers(record.headers)
    if found is not None:
        check_attributes(dict(found))  # of a copy: `time` becomes a datetime there
        return found
    members = _read_members(record.value)
    texts = {name: text_of(member) for name, member in members.items() if name not in _DATA and member is not None}
    check_envelope(members)
    return texts


def read_headers(
    headers: Iterable[tuple[str, bytes | None]],
) -> tuple[dict[str, Any] | None, ContentType | None]:
    """Return the attributes in a record's headers, and its data's content type.

    The attributes are None if the record is in structured mode. Otherwise they are texts, with the record's
    `datacontenttype`, and `check_attributes` has not checked them yet. Raises Refused.
    """
    attributes: dict[str, Any] = {}
    kind: ContentType | None = None
    problem = ""  # kept until all headers are seen: in structured mode the ce_ headers do not count
    for name, raw in headers:
        attribute = attribute_of.get(name)
        if attribute is None:
            attribute = learn(attribute_of, name, name, "ce_")
            if attribute is None:
                problem = problem or f"header {name[:80]!r} names no attribute: after ce_ only a-z and 0-9 are allowed"
                continue
        if not attribute or raw is None:  # a null value is an attribute that is not set
            continue
        if attribute == _CONTENT_TYPE:
            if kind:
                raise Refused("header content-type is there more than once")
            kind = content_type_of_header(raw)
            continue
        if attribute in attributes:
            problem = problem or f"header ce_{attribute} is there more than once"
        try:
            value = attributes[attribute] = raw.decode()
        except UnicodeDecodeError:
            problem = problem or f"header ce_{attribute} is not UTF-8: {raw[:80]!r}"
        else:
            if not value.isprintable():
                problem = problem or forbidden_in(f"header ce_{attribute}", value)
    if kind and kind.kind is DataKind.EVENT:
        return None, kind
    if kind and kind.kind is DataKind.FOREIGN_EVENT:
        raise UnreadFormatError("content-type", kind.text, f"{STRUCTURED_CONTENT_TYPE} is")
    if not attributes and not problem:
        raise Refused(_NO_EVENT)
    if problem:
        raise Refused(problem)
    if kind:
        if "datacontenttype" in attributes:
            raise Refused("both content-type and ce_datacontenttype are there")
        attributes["datacontenttype"] = kind.text
    elif "datacontenttype" in attributes:
        kind = content_type(attributes["datacontenttype"])
    return attributes, kind


def learn(known: dict[HeaderName, str], header: HeaderName, text: str, prefix: str) -> str | None:
    """Return and remember the attribute of a header named `text`; "": none.

    None: the rest of the name cannot be an attribute's. Names are compared without regard to case, as in the SDK.
    """
    lower = text.lower()
    if lower == _CONTENT_TYPE:
        attribute = lower
    elif not lower.startswith(prefix):
        attribute = ""
    else:
        attribute = lower.removeprefix(prefix)
        if not is_name(attribute):
            return None
    if is_kept(known, header):
        known[header] = attribute
    return attribute


def _read_members(value: bytes | None) -> dict[str, Any]:
    if value is None:
        raise Refused(NO_VALUE)
    members = read_json(value)
    if not isinstance(members, dict):
        raise Refused(NO_OBJECT)
    return members


def check_envelope(members: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return attributes and data of an event's parsed JSON, and consume it.

    `time` becomes a datetime, and `data_base64` is read by the content type. Raises Refused.
    """
    has_data = members.get("data") is not None
    data = members.pop("data", None)
    encoded = members.pop("data_base64", None)
    attributes = {name: member for name, member in members.items() if member is not None}
    for name, member in attributes.items():
        if type(member) is str and name in CORE and member.isprintable():
            continue  # nearly all, at a third of the cost
        if not is_name(name):
            raise Refused(f"member {name[:80]!r} cannot be an attribute: only a-z and 0-9 are allowed in its name")
        check_attribute(name, member)
    check_attributes(attributes)
    if encoded is not None:
        if has_data:
            raise Refused("both data and data_base64 are there")
        declared = attributes.get("datacontenttype")
        data = read_data(read_base64(encoded), content_type(declared) if declared else None)
    return attributes, data


def event_of(attributes: dict[str, Any], data: Any) -> CloudEvent:
    """Return an event of these, unchanged.

    The constructor would set a missing time to the present, so that each reading gave another event; and would check
    everything again, which costs more than reading it.
    """
    event = CloudEvent.__new__(CloudEvent)
    event._attributes = attributes
    event._data = data
    return event


def partition_key(event: BaseCloudEvent) -> bytes | None:
    """Return the `partitionkey` extension as a record's key (the binding's key mapper)."""
    value = event.get_extension("partitionkey")
    return None if value is None else str(value).encode()


def encode_binary(event: BaseCloudEvent, key: bytes | None = None) -> tuple[bytes | None, bytes | None, Headers]:
    """Return key, value and headers of `event`'s record in binary mode.

    Bytes are written unchanged. Other data is written as its content type says; without one it is JSON, and declared as such.
    Raises ValueError for data or attributes that cannot be written.
    """
    attributes = event.get_attributes()
    value, declared = write_data(event.get_data(), attributes.get("datacontenttype"))
    if declared and content_type(declared).kind in (DataKind.EVENT, DataKind.FOREIGN_EVENT):
        raise ValueError(f"datacontenttype {declared!r} would pass for structured mode: use encode_structured")
    headers: Headers = [(f"ce_{name}", text.encode()) for name, text in attribute_texts(attributes).items()]
    if declared:
        headers.append((_CONTENT_TYPE, declared.encode()))
    return key, value, headers


def encode_structured(event: BaseCloudEvent, key: bytes | None = None) -> tuple[bytes | None, bytes, Headers]:
    """Do as `encode_binary`, in structured mode, as JSON."""
    return key, write_json(json_object(event)), [(_CONTENT_TYPE, STRUCTURED_CONTENT_TYPE.encode())]


def json_object(event: BaseCloudEvent) -> dict[str, Any]:
    """Return `event` as an object of the JSON format. Raises ValueError."""
    attributes = event.get_attributes()
    members: dict[str, Any] = {
        name: write_attribute(name, value) for name, value in attributes.items() if value is not None
    }
    data = event.get_data()
    if isinstance(data, (bytes, bytearray)):
        members["data_base64"] = base64.b64encode(data).decode("ascii")
    elif data is not None:
        kind = content_type(attributes.get("datacontenttype") or "application/json").kind
        if kind is not DataKind.JSON and not isinstance(data, str):
            raise ValueError(f"data is a {type(data).__name__}, but its content type is no JSON: give str or bytes")
        members["data"] = data
    return members
