"""From a record to the request that carries its event, and to what goes to a dead letter sink in its place. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Literal

from cloudevents.core.v1.event import CloudEvent

from inbound.processors.batch import PlainRecord, Record
from inbound.processors.cloudevents_bridge import (
    HttpParts,
    RecordParts,
    record_to_binary,
    record_to_json,
    record_to_structured,
)
from inbound.processors.cloudevents_http import BATCH_CONTENT_TYPE, encode_binary
from inbound.processors.dispatch.transport import Answer

BATCH_LINES = [b"content-type: " + BATCH_CONTENT_TYPE.encode()]
#: Of an answer's body so many bytes go into `knativeerrordata`: its base64 has 1,024 characters, Knative's limit.
MOST_ERROR_DATA = 768

#: `knativeerrorcode` where there was no whole answer, as Knative has it.
NO_ANSWER = 500

ENCODERS = {"binary": record_to_binary, "structured": record_to_structured}
Mode = Literal["binary", "structured"]


def as_record(parts: RecordParts) -> PlainRecord:
    """Return what would be published as a record that was read."""
    headers: Sequence[tuple[str, bytes | None]] = parts.headers
    return PlainRecord(0, key=parts.key, value=parts.value, headers=headers)


def batch_of(objects: Sequence[bytes]) -> HttpParts:
    """Return the request that carries these JSON objects, each of one event."""
    return HttpParts(BATCH_LINES, b"[" + b",".join(objects) + b"]")


def error_extensions(destination: str, answer: Answer) -> Mapping[str, str]:
    """Return the attributes that a dead-lettered event gets, under Knative's names."""
    code, data = (answer.status, answer.body) if answer.problem is None else (NO_ANSWER, answer.problem.encode())
    extra = {"knativeerrordest": destination, "knativeerrorcode": str(code)}
    if data:
        extra["knativeerrordata"] = base64.b64encode(data[:MOST_ERROR_DATA]).decode()
    return extra


def wrapped(topic: str, partition: int, record: Record, mode: Mode) -> HttpParts:
    """Return the event that carries a record which is none: its value as the data, and an id that says where it stands."""
    event = CloudEvent.__new__(CloudEvent)  # the constructor would give it the present time
    event._attributes = {
        "specversion": "1.0",
        "id": f"{topic}/{partition}/{record.offset}",
        "source": f"kafka:{topic}",
        "type": "dev.inbound.undecodable",
        "datacontenttype": "application/octet-stream",
    }
    event._data = record.value or b""
    message = encode_binary(event)
    return HttpParts([f"{name}: {value}".encode() for name, value in message.headers.items()], message.body)


__all__ = [
    "ENCODERS",
    "HttpParts",
    "Mode",
    "as_record",
    "batch_of",
    "error_extensions",
    "record_to_json",
    "wrapped",
]
