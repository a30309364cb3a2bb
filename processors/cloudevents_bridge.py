"""CloudEvents between Kafka records and HTTP messages, in both directions: what a dispatcher and an ingress need.

The rules are in docs/cloudevents.md. Everything here is pure; any thread may call it. Whatever the input, the one
exception is Refused, a ValueError with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping

from inbound.processors.batch import Record, readable_headers
from inbound.processors.cloudevents_from_http import RecordParts, http_to_records, is_event
from inbound.processors.cloudevents_http import percent_encoded
from inbound.processors.cloudevents_json import members_of, parse_json
from inbound.processors.cloudevents_kafka import NO_OBJECT, decode_record, read_headers
from inbound.processors.cloudevents_to_http import (
    HttpParts,
    record_to_binary,
    record_to_json,
    record_to_structured,
)
from inbound.processors.cloudevents_values import (
    Kind,
    Refused,
    UnreadFormatError,
    content_type,
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


def with_extensions(parts: HttpParts, extra: Mapping[str, str]) -> HttpParts:
    """Return a request of one event with the extensions `extra` added, or in place of those of the same name.

    The mode is the request's own. Values may be any text; characters that no attribute may hold become U+FFFD. Raises
    Refused for a name that is no attribute's, and for a batch.
    """
    texts = _texts(extra)
    if _is_structured(parts.lines):
        return HttpParts(parts.lines, _with_members(parts.body, texts))
    replaced = tuple(f"ce-{name}:".encode() for name in texts)
    lines = [line for line in parts.lines if not line.startswith(replaced)]
    lines += [f"ce-{name}: {percent_encoded(text)}".encode() for name, text in texts.items()]
    return HttpParts(lines, parts.body)


def json_with_extensions(event: bytes, extra: Mapping[str, str]) -> bytes:
    """Return an event of the JSON format with the extensions `extra`, as in `with_extensions`. Raises Refused."""
    return _with_members(event, _texts(extra))


def record_with_extensions(record: Record, extra: Mapping[str, str]) -> RecordParts:
    """Return a record to publish: the same event, in the same mode, with the extensions `extra` as in `with_extensions`.

    A record that is no CloudEvent stays as it is, and gets plain headers of those names: `knativeerrordest`, without
    `ce_`. Not every producer can write a header with a null value: those that stand for an attribute are left out, as
    they mean the same; others become empty. Raises Refused for a name that is no attribute's.
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
    """Return a record to publish: the same event, byte for byte, with the plain headers `added`.

    They replace all headers whose names begin with `prefix`. Headers with a null value as in `record_with_extensions`.
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
            return content_type(value.decode("latin-1").strip()).kind in (Kind.EVENT, Kind.FOREIGN_EVENT)
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
