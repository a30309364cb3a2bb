"""From a record to the request that carries its event.

Records of one producer have the same headers in the same order. Which of them are attributes, what stands before each value
in the request, and which headers go on beside the event depends on the names alone: that is the record's *shape*. A record that
does not fit its shape takes the way of all others, which finds the errors, too: both write the same request.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import islice
from json.encoder import encode_basestring_ascii
from operator import add, itemgetter
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

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
from inbound.processors.cloudevents_http import BATCH_CONTENT_TYPE, TRACE, data_members, encode_binary, record_to_json
from inbound.processors.cloudevents_kafka import attribute_of, event_of
from inbound.processors.cloudevents_plain import HTTP_SAFE, JSON_SAFE, check_data, declared_plainly, is_time
from inbound.processors.cloudevents_values import ContentType
from inbound.processors.dead_letters import KIND, REPLY, origin_headers
from inbound.processors.dispatch.counters import DispatchCounters
from inbound.processors.dispatch.options import DispatchOptions
from inbound.processors.dispatch.transport import Answer
from inbound.processors.http_headers import MOST_BYTES, MOST_HEADERS, MOST_LOOKED_AT, Forwarding

#: So many shapes are known, of so many headers each, with names of so many bytes together: they come from the network.
MOST_SHAPES, MOST_NAMES, MOST_NAMES_BYTES = 256, MOST_HEADERS, 2048
_VISIBLE: Final = bytes(range(0x21, 0x7F))
_NEEDED: Final = frozenset({"specversion", "id", "source", "type"})
_PRINTABLE: Final = bytes(range(0x20, 0x7F))
_TRACE_LINES: Final = tuple(f"{name}:".encode() for name in TRACE)


def pass_headers(
    passes: Callable[[str], bool],
    counters: DispatchCounters,
    parts: HttpParts,
    headers: Sequence[tuple[str, bytes | None]],
) -> HttpParts:
    """Return a request with the headers of its record that go on, within bounds; the others are counted.

    The event's own trace is not mixed with that of the headers. What cannot be a header's value is left out: only printable
    ASCII can, so that none ends a line.
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
#: Of an answer's body so many bytes go into `knativeerrordata`: its base64 has 1,024 characters, Knative's limit.
MOST_ERROR_DATA = 768
#: `knativeerrorcode` where there was no whole answer, as Knative has it.
NO_ANSWER = 500
ENCODERS = {"binary": record_to_binary, "structured": record_to_structured}
Mode = Literal["binary", "structured"]


class Encoding:
    """How the events of one subscription are written. Used by one thread."""

    def __init__(self, options: DispatchOptions, lines: Iterable[bytes], counters: DispatchCounters) -> None:
        """`lines` are those that each request to the subscriber has; no header of a record takes their place."""
        names = [line.partition(b":")[0].decode() for line in lines]
        forwarding = Forwarding(options.pass_headers, names)
        passed = partial(pass_headers, forwarding.passes, counters) if options.pass_headers else None
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
    attributes = {
        "specversion": "1.0",
        "id": f"{topic}/{partition}/{offset}",
        "source": f"kafka:{topic}",
        "type": "dev.inbound.undecodable",
        "datacontenttype": "application/octet-stream",
    }
    message = encode_binary(event_of(attributes, record.value or b""))
    return HttpParts([f"{name}: {value}".encode() for name, value in message.headers.items()], message.body)


# -- the shortest way: what the names of headers say is found out once for all records that have the same ----------


Values: TypeAlias = tuple[bytes, ...]
Made = TypeVar("Made")


class Shape(NamedTuple):
    """What is made of records whose headers have certain names.

    Places are those of the headers.
    """

    version: int
    time: int | None
    content_type: int | None
    attributes: Callable[[Values], Values]  # takes their values out of all
    attribute_lines: tuple[bytes, ...]  # what stands before their values in binary mode
    members: tuple[bytes, ...]  # and in JSON
    others: tuple[int, ...]  # that go on beside the event
    other_lines: tuple[bytes, ...]
    others_room: int  # what their values may have, in bytes


class Shapes:
    """Writes events, in binary mode or as JSON. Used by one thread."""

    def __init__(self, passes: Callable[[str], bool], otherwise: Callable[[Record], HttpParts]) -> None:
        """`passes` says which headers go on beside an event; `otherwise` writes the records in binary mode that fit no shape."""
        self._passes = passes
        self._otherwise = otherwise
        self._known: dict[tuple[str, ...], Shape | None] = {}

    def binary(self, record: Record) -> HttpParts:
        """Return the request that carries a record's event: see `record_to_binary`. Raises Refused."""
        return self._made(record, _binary, self._otherwise)

    def json(self, record: Record) -> bytes:
        """Return a record's event as one object of the JSON format: see `record_to_json`. Raises Refused."""
        return self._made(record, _json, record_to_json)

    def _made(
        self,
        record: Record,
        write: Callable[[Shape, Values, bytes | None], Made | None],
        otherwise: Callable[[Record], Made],
    ) -> Made:
        headers = record.headers
        if not 0 < len(headers) <= MOST_NAMES:  # to look at a million names takes long, and for nothing
            return otherwise(record)
        names, values = zip(*headers, strict=True)
        shape = self._known.get(names)
        if shape is None:
            made = otherwise(record)  # it raises for what is no event
            if names not in self._known:
                self._learn(names)
            return made
        try:
            return write(shape, values, record.value) or otherwise(record)
        except TypeError:  # a header without a value
            return otherwise(record)

    def _learn(self, names: tuple[str, ...]) -> None:
        if sum(map(len, names)) > MOST_NAMES_BYTES:
            return
        if len(self._known) >= MOST_SHAPES:
            self._known.clear()
        self._known[names] = shape_of(names, self._passes)


def shape_of(names: tuple[str, ...], passes: Callable[[str], bool]) -> Shape | None:
    """Return the shape of records with these names; None if they always take the other way."""
    attributes: dict[str, int] = {}
    others: dict[int, str] = {}
    for place, name in enumerate(names):
        attribute = attribute_of.get(name)
        if attribute:
            if attribute in attributes:
                return None
            attributes[attribute] = place
        elif attribute is None:
            return None
        if passes(name):
            others[place] = name
    content_type = attributes.pop("content-type", None)
    if not attributes.keys() >= _NEEDED or attributes.keys() & {"datacontenttype", *TRACE}:
        return None
    return Shape(
        attributes["specversion"],
        attributes.get("time"),
        content_type,
        itemgetter(*attributes.values()),
        tuple(f"ce-{name}: ".encode() for name in attributes),
        tuple((b'","' if number else b'{"') + name.encode() + b'":"' for number, name in enumerate(attributes)),
        tuple(others),
        tuple(f"{name}: ".encode() for name in others.values()),
        MOST_BYTES - sum(len(name) for name in others.values()),
    )


def _are_usual(shape: Shape, values: Values, found: Values, safe: bytes) -> bool:
    """Whether the attributes' values are as nearly all are: see `is_plain`. Raises TypeError for None."""
    return (
        b"" not in found
        and values[shape.version] == b"1.0"
        and not b"".join(found).translate(None, safe)
        and (shape.time is None or is_time(values[shape.time]) is not None)
    )


def _binary(shape: Shape, values: Values, body: bytes | None) -> HttpParts | None:
    """Return the request; None where one of the values is not as nearly all are. Raises Refused, and TypeError for None."""
    found = shape.attributes(values)
    if not _are_usual(shape, values, found, HTTP_SAFE):
        return None
    lines = list(map(add, shape.attribute_lines, found))
    if shape.content_type is not None:
        content_type = _content_type(values[shape.content_type])
        if content_type is None:
            return None
        check_data(body, content_type.declared)
        lines.append(content_type.line)
    if shape.others:
        found = tuple([values[place] for place in shape.others])
        joined = b"".join(found)
        if len(joined) > shape.others_room or joined.translate(None, _VISIBLE):
            return None
        lines += map(add, shape.other_lines, found)
    return HttpParts(lines, body or b"")


def _json(shape: Shape, values: Values, body: bytes | None) -> bytes | None:
    """Return the object; None and errors as `_binary`."""
    found = shape.attributes(values)
    if not _are_usual(shape, values, found, JSON_SAFE):
        return None
    written, declared = [*map(add, shape.members, found), b'"'], None
    if shape.content_type is not None:
        content_type = _content_type(values[shape.content_type])
        if content_type is None:
            return None
        declared = content_type.declared
        written.append(content_type.member)
    if body is not None:
        for member in data_members(body, declared):
            written += (b",", member)
    written.append(b"}")
    return b"".join(written)


class _ContentType(NamedTuple):
    """A content type of data, and how requests write it."""

    declared: ContentType
    line: bytes
    member: bytes


@lru_cache(maxsize=1024)
def _content_type(raw: bytes) -> _ContentType | None:
    declared = declared_plainly(raw) if raw else None
    if declared is None:
        return None
    member = b',"datacontenttype":' + encode_basestring_ascii(declared.text).encode()
    return _ContentType(declared, b"content-type: " + declared.text.encode(), member)
