"""The shortest way from a record to its request: what the names of its headers say is found out once for all that have the same.

Records of one producer have the same headers in the same order. Which of them are attributes, what stands before each value
in the request, and what goes on beside the event depends on the names alone: that is the record's *shape*. What does not
fit its shape takes the way of all other records, which finds the errors, too: both write the same request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import add, itemgetter
from typing import Final, NamedTuple, TypeAlias

from inbound.processors.batch import Record
from inbound.processors.cloudevents_bridge import HttpParts
from inbound.processors.cloudevents_kafka import attribute_of
from inbound.processors.cloudevents_plain import HTTP_SAFE, check_data, declared_plainly, is_time
from inbound.processors.cloudevents_to_http import TRACE
from inbound.processors.cloudevents_values import ContentType
from inbound.processors.forwarded_headers import MOST_BYTES, MOST_HEADERS

#: So many shapes are known, of so many headers each, with names of so many bytes together: they come from the network.
MOST_SHAPES, MOST_NAMES, MOST_NAMES_BYTES = 256, MOST_HEADERS, 2048

_VISIBLE: Final = bytes(range(0x21, 0x7F))
_NEEDED: Final = frozenset({"specversion", "id", "source", "type"})


Values: TypeAlias = tuple[bytes, ...]


class Shape(NamedTuple):
    """What is made of records whose headers have certain names. Places are those of the headers."""

    version: int
    time: int | None
    content_type: int | None
    attributes: Callable[[Values], Values]  # takes their values out of all
    attribute_lines: tuple[bytes, ...]  # what stands before their values
    others: tuple[int, ...]  # that go on beside the event
    other_lines: tuple[bytes, ...]
    others_room: int  # what their values may have, in bytes


class Shapes:
    """Writes events in binary mode. Used by one thread."""

    def __init__(self, passes: Callable[[str], bool], otherwise: Callable[[Record], HttpParts]) -> None:
        """`passes` says which headers go on beside an event; `otherwise` writes the records that fit no shape."""
        self._passes = passes
        self._otherwise = otherwise
        self._known: dict[tuple[str, ...], Shape | None] = {}

    def __call__(self, record: Record) -> HttpParts:
        """Return the request that carries a record's event: see `record_to_binary`. Raises Refused."""
        headers = record.headers
        if not 0 < len(headers) <= MOST_NAMES:  # to look at a million names takes long, and for nothing
            return self._otherwise(record)
        names, values = zip(*headers, strict=True)
        shape = self._known.get(names)
        if shape is None:
            parts = self._otherwise(record)  # it raises for what is no event
            if names not in self._known:
                self._learn(names)
            return parts
        try:
            return _written(shape, values, record.value) or self._otherwise(record)
        except TypeError:  # a header without a value
            return self._otherwise(record)

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
        tuple(others),
        tuple(f"{name}: ".encode() for name in others.values()),
        MOST_BYTES - sum(len(name) for name in others.values()),
    )


def _written(shape: Shape, values: Values, body: bytes | None) -> HttpParts | None:
    """Return the request; None where one of the values is not as nearly all are. Raises Refused, and TypeError for None."""
    version, time, declared_at, attributes, attribute_lines, others, other_lines, others_room = shape
    found = attributes(values)
    if (
        b"" in found
        or values[version] != b"1.0"
        or b"".join(found).translate(None, HTTP_SAFE)
        or not (time is None or is_time(values[time]))
    ):
        return None
    lines = list(map(add, attribute_lines, found))
    if declared_at is not None:
        content_type = _content_type(values[declared_at])
        if content_type is None:
            return None
        declared, line = content_type
        check_data(body, declared)
        lines.append(line)
    if others:
        found = tuple([values[place] for place in others])
        joined = b"".join(found)
        if len(joined) > others_room or joined.translate(None, _VISIBLE):
            return None
        lines += map(add, other_lines, found)
    return HttpParts(lines, body or b"")


@lru_cache(maxsize=1024)
def _content_type(raw: bytes) -> tuple[ContentType, bytes] | None:
    declared = declared_plainly(raw) if raw else None
    return None if declared is None else (declared, b"content-type: " + declared.text.encode())
