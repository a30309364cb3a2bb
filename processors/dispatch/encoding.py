"""From a record to the request that carries its event, and to what goes to a dead letter sink in its place."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Literal

from cloudevents.core.v1.event import CloudEvent

from inbound.processors.batch import PlainRecord, Record
from inbound.processors.cloudevents_bridge import (
    HttpParts,
    RecordParts,
    json_with_extensions,
    record_to_binary,
    record_to_structured,
    record_with_extensions,
    with_extensions,
)
from inbound.processors.cloudevents_http import BATCH_CONTENT_TYPE, encode_binary
from inbound.processors.dead_letters import KIND, REPLY, origin_headers
from inbound.processors.dispatch.counters import Counters
from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.dispatch.record_headers import RecordHeaders
from inbound.processors.dispatch.shapes import Shapes
from inbound.processors.dispatch.transport import Answer
from inbound.processors.forwarded_headers import Forwarding

BATCH_LINES = [b"content-type: " + BATCH_CONTENT_TYPE.encode()]
#: Of an answer's body so many bytes go into `knativeerrordata`: its base64 has 1,024 characters, Knative's limit.
MOST_ERROR_DATA = 768

#: `knativeerrorcode` where there was no whole answer, as Knative has it.
NO_ANSWER = 500

ENCODERS = {"binary": record_to_binary, "structured": record_to_structured}
Mode = Literal["binary", "structured"]


class Encoding:
    """How the events of one subscription are written. Used by one thread."""

    def __init__(self, options: DispatchOptions, lines: Iterable[bytes], counters: Counters) -> None:
        """`lines` are those that each request to the subscriber has; no header of a record takes their place."""
        names = [line.partition(b":")[0].decode() for line in lines]
        forwarding = Forwarding(options.pass_headers, names)
        passed = RecordHeaders(forwarding, counters) if options.pass_headers else None
        self._extensions = options.ceOverrides.extensions
        #: Returns the request that carries a record's event, with the headers that go on, or raises Refused.
        self.as_it_is: Callable[[Record], HttpParts] = partial(ENCODERS[options.mode], beside=passed)
        shapes = Shapes(forwarding.passes, self.as_it_is)
        self._json = shapes.json
        if options.mode == "binary":
            self.as_it_is = shapes.binary
        #: The same as the subscriber gets it.
        self.for_subscriber = self._changed if self._extensions else self.as_it_is

    def _changed(self, record: Record) -> HttpParts:
        return with_extensions(self.as_it_is(record), self._extensions)

    def in_batch(self, record: Record) -> bytes:
        """Return a record's event as the subscriber gets it among others, or raise Refused."""
        event = self._json(record)
        return json_with_extensions(event, self._extensions) if self._extensions else event


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


def dead_letter(
    record: Record, extra: Mapping[str, str], group: str, origin: tuple[str, int, int], *, reply: bool
) -> RecordParts:
    """Return what goes to a dead letter topic: the event with the attributes `extra`, and where it came from.

    `origin` is topic, partition and offset. With `reply` the record is the subscriber's reply to the one at that place.
    """
    parts = record_with_extensions(record, extra)
    kind = [(KIND, REPLY.encode())] if reply else []
    return parts._replace(headers=[*parts.headers, *origin_headers(group, *origin), *kind])


def wrapped(topic: str, partition: int, offset: int, record: Record, mode: Mode) -> HttpParts:
    """Return the event that carries a record which is none: its value as the data, and an id that says where it stands."""
    event = CloudEvent.__new__(CloudEvent)  # the constructor would give it the present time
    event._attributes = {
        "specversion": "1.0",
        "id": f"{topic}/{partition}/{offset}",
        "source": f"kafka:{topic}",
        "type": "dev.inbound.undecodable",
        "datacontenttype": "application/octet-stream",
    }
    event._data = record.value or b""
    message = encode_binary(event)
    return HttpParts([f"{name}: {value}".encode() for name, value in message.headers.items()], message.body)


__all__ = ["Encoding", "HttpParts", "Mode", "as_record", "batch_of", "dead_letter", "error_extensions", "wrapped"]
