"""Encodes records as requests of a subscription, and as dead letters."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, Literal

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
from inbound.processors.cloudevents_http import BATCH_CONTENT_TYPE, TRACE, encode_binary
from inbound.processors.cloudevents_kafka import event_of
from inbound.processors.dead_letters import KIND, REPLY, origin_headers
from inbound.processors.dispatch.counters import DispatchCounters
from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.dispatch.shapes import Shapes
from inbound.processors.dispatch.transport import Answer
from inbound.processors.http_headers import MOST_BYTES, MOST_HEADERS, MOST_LOOKED_AT, Forwarding

_PRINTABLE: Final = bytes(range(0x20, 0x7F))
_TRACE_LINES: Final = tuple(f"{name}:".encode() for name in TRACE)


def pass_headers(
    passes: Callable[[str], bool],
    counters: DispatchCounters,
    parts: HttpParts,
    headers: Sequence[tuple[str, bytes | None]],
) -> HttpParts:
    """Return a request with its record's passed-on headers, and count the others.

    The event's own trace is not mixed with that of the headers. A value that is not printable ASCII is left out, so that none
    ends a line.
    """
    lines: list[bytes] = []
    room, left_out = MOST_BYTES, max(0, len(headers) - MOST_LOOKED_AT)
    for name, raw in islice(headers, MOST_LOOKED_AT):
        if raw is None or not passes(name):
            continue
        if name.lower() in TRACE and any(line.startswith(_TRACE_LINES) for line in parts.lines):
            continue
        value = raw.strip(b" \t")
        size = len(name) + len(value)
        if size > room or len(lines) == MOST_HEADERS or value.translate(None, _PRINTABLE):
            left_out += 1
        else:
            room -= size
            lines.append(name.encode() + b": " + value)
    counters.headers_left_out += left_out
    return HttpParts(parts.lines + lines, parts.body) if lines else parts


BATCH_LINES = [b"content-type: " + BATCH_CONTENT_TYPE.encode()]
#: The most bytes of an answer's body in `knativeerrordata`: in base64 they have 1,024 characters, Knative's limit.
MOST_ERROR_DATA = 768
#: `knativeerrorcode` without a whole answer, as in Knative.
NO_ANSWER = 500
ENCODERS = {"binary": record_to_binary, "structured": record_to_structured}
Mode = Literal["binary", "structured"]


class Encoding:
    """Writes the events of one subscription. One thread."""

    def __init__(self, options: DispatchOptions, lines: Iterable[bytes], counters: DispatchCounters) -> None:
        """`lines` are headers of every request, which no record's header replaces."""
        names = [line.partition(b":")[0].decode() for line in lines]
        forwarding = Forwarding(options.pass_headers, names)
        passed = partial(pass_headers, forwarding.passes, counters) if options.pass_headers else None
        self._extensions = options.ceOverrides.extensions
        #: Returns the request with a record's event and passed-on headers, or raises Refused.
        self.as_it_is: Callable[[Record], HttpParts] = partial(ENCODERS[options.mode], beside=passed)
        shapes = Shapes(forwarding.passes, self.as_it_is)
        self._json = shapes.json
        if options.mode == "binary":
            self.as_it_is = shapes.binary
        #: The same for the subscriber, with extensions.
        self.for_subscriber = self._changed if self._extensions else self.as_it_is

    def _changed(self, record: Record) -> HttpParts:
        return with_extensions(self.as_it_is(record), self._extensions)

    def in_batch(self, record: Record) -> bytes:
        """Return a record's event for a batch, or raise Refused."""
        event = self._json(record)
        return json_with_extensions(event, self._extensions) if self._extensions else event


def as_record(parts: RecordParts) -> PlainRecord:
    """Return `parts` as a record."""
    headers: Sequence[tuple[str, bytes | None]] = parts.headers
    return PlainRecord(0, key=parts.key, value=parts.value, headers=headers)


def batch_of(objects: Sequence[bytes]) -> HttpParts:
    """Return the request with these JSON objects, each of one event."""
    return HttpParts(BATCH_LINES, b"[" + b",".join(objects) + b"]")


def error_extensions(destination: str, answer: Answer) -> Mapping[str, str]:
    """Return the attributes of a dead-lettered event, under Knative's names."""
    code, data = (answer.status, answer.body) if answer.problem is None else (NO_ANSWER, answer.problem.encode())
    extra = {"knativeerrordest": destination, "knativeerrorcode": str(code)}
    if data:
        extra["knativeerrordata"] = base64.b64encode(data[:MOST_ERROR_DATA]).decode()
    return extra


def dead_letter(
    record: Record, extra: Mapping[str, str], group: str, origin: tuple[str, int, int], *, reply: bool
) -> RecordParts:
    """Return an event for a dead letter topic, with its origin.

    `origin` is topic, partition and offset. With `reply` the record is the subscriber's reply to the record there.
    """
    parts = record_with_extensions(record, extra)
    kind = [(KIND, REPLY.encode())] if reply else []
    return parts._replace(headers=[*parts.headers, *origin_headers(group, *origin), *kind])


def wrapped(topic: str, partition: int, offset: int, record: Record, mode: Mode) -> HttpParts:
    """Return an undecodable record as an event: value and place."""
    attributes = {
        "specversion": "1.0",
        "id": f"{topic}/{partition}/{offset}",
        "source": f"kafka:{topic}",
        "type": "dev.inbound.undecodable",
        "datacontenttype": "application/octet-stream",
    }
    message = encode_binary(event_of(attributes, record.value or b""))
    return HttpParts([f"{name}: {value}".encode() for name, value in message.headers.items()], message.body)
