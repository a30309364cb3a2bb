"""Encodes the events of records whose headers have a known shape.

Records of one producer have the same headers in the same order. The names alone decide which headers are attributes, what is
before each value in the request, and which headers are passed on: that is the record's *shape*. A record that does not fit its
shape takes the slow path, which finds the errors, too: both write the same request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from operator import add, itemgetter
from typing import Final, NamedTuple, TypeAlias, TypeVar

from inbound.processors.batch import Record
from inbound.processors.cloudevents_http import TRACE, HttpParts, data_members, record_to_json
from inbound.processors.cloudevents_kafka import attribute_of
from inbound.processors.cloudevents_plain import HTTP_SAFE, JSON_SAFE, check_data, declared_plainly, is_time
from inbound.processors.cloudevents_values import ContentType
from inbound.processors.http_headers import MOST_BYTES, MOST_HEADERS

#: The most shapes, headers of one, and bytes of its names: they come from the network.
MOST_SHAPES, MOST_NAMES, MOST_NAMES_BYTES = 256, MOST_HEADERS, 2048
_VISIBLE: Final = bytes(range(0x21, 0x7F))
_NEEDED: Final = frozenset({"specversion", "id", "source", "type"})
Values: TypeAlias = tuple[bytes, ...]
Made = TypeVar("Made")


class Shape(NamedTuple):
    """The layout of records with certain header names, by header index."""

    version: int
    time: int | None
    content_type: int | None
    attributes: Callable[[Values], Values]  # selects the attributes' values
    attribute_lines: tuple[bytes, ...]  # the text before the values in binary mode
    members: tuple[bytes, ...]  # and in JSON
    others: tuple[int, ...]  # the passed-on headers
    other_lines: tuple[bytes, ...]
    others_room: int  # the most bytes of their values


class Shapes:
    """Writes events, in binary mode or as JSON. One thread."""

    def __init__(self, passes: Callable[[str], bool], otherwise: Callable[[Record], HttpParts]) -> None:
        """`passes` chooses headers; `otherwise` writes records without a shape."""
        self._passes = passes
        self._otherwise = otherwise
        self._known: dict[tuple[str, ...], Shape | None] = {}

    def binary(self, record: Record) -> HttpParts:
        """Return the request with a record's event: see `record_to_binary`."""
        return self._made(record, _binary, self._otherwise)

    def json(self, record: Record) -> bytes:
        """Return a record's event as one JSON object: see `record_to_json`."""
        return self._made(record, _json, record_to_json)

    def _made(
        self,
        record: Record,
        write: Callable[[Shape, Values, bytes | None], Made | None],
        otherwise: Callable[[Record], Made],
    ) -> Made:
        headers = record.headers
        if not 0 < len(headers) <= MOST_NAMES:  # to look at a million names takes long
            return otherwise(record)
        names, values = zip(*headers, strict=True)
        shape = self._known.get(names)
        if shape is None:
            made = otherwise(record)  # raises Refused for a record that is no event
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
    """Return the shape of records with these names; None: slow path."""
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
    """Return whether the attributes are plain: see `is_plain`. Raises TypeError: None."""
    return (
        b"" not in found
        and values[shape.version] == b"1.0"
        and not b"".join(found).translate(None, safe)
        and (shape.time is None or is_time(values[shape.time]) is not None)
    )


def _binary(shape: Shape, values: Values, body: bytes | None) -> HttpParts | None:
    """Return the request, or None. Raises Refused, and TypeError for None."""
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
    """Return the JSON object; None and errors as `_binary`."""
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
    """A content type of data, as requests write it."""

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
