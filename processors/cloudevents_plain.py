"""The short way for records as nearly all of them are; the long one is in `cloudevents_kafka`.

An event is *plain* if its attributes are in headers, each is there once, none is empty, and what they hold can be copied
as it is. Whatever is not is no error: it takes the long way, which finds the errors too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar

from inbound.processors.cloudevents_json import parse_json
from inbound.processors.cloudevents_kafka import attribute_of, is_kept
from inbound.processors.cloudevents_values import (
    LONGEST_CONTENT_TYPE,
    ContentType,
    Kind,
    Refused,
    content_type_of_header,
    is_name,
    read_data,
)

#: What stands in an HTTP header as it is, and in a JSON string.
HTTP_SAFE: Final = bytes(code for code in range(0x21, 0x7F) if code not in b'"%')
JSON_SAFE: Final = bytes(code for code in range(0x20, 0x7F) if code not in b'"\\')

Made = TypeVar("Made")

_TIME = (
    r"(?!0000)\d{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    r"[Tt](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
)
#: Matches an attribute `time` that is valid, as bytes.
is_time = re.compile(_TIME.encode()).fullmatch
_IS_TIME_TEXT = re.compile(_TIME, re.ASCII).fullmatch
_IS_HEADER_TEXT = re.compile(r"[!-~](?:[ -~]*[!-~])?").fullmatch
#: Names of attributes that were found valid.
_names: set[str] = set()
_JSON, _TEXT = Kind.JSON, Kind.TEXT


class Written(dict[str, Made]):
    """What is written for an attribute, by its name. Names come from the network: only so many are kept."""

    def __init__(self, write: Callable[[str], Made]) -> None:
        self._write = write

    def __missing__(self, name: str) -> Made:
        made = self._write(name)
        if is_kept(self, name):
            self[name] = made
        return made


#: The attributes of a plain event but for `datacontenttype`, as bytes, and that one.
Plain: TypeAlias = tuple[dict[str, bytes], ContentType | None]


def plain_event(headers: Iterable[tuple[str, bytes | None]], safe: bytes) -> Plain | None:
    """Return the event in a record's headers if it is plain and all bytes of its attributes are of `safe`."""
    attributes: dict[str, bytes] = {}
    for name, raw in headers:
        attribute = attribute_of.get(name)
        if attribute:
            if not raw or attribute in attributes:
                return None
            attributes[attribute] = raw
        elif attribute is None:
            return None
    declared = None
    if "content-type" in attributes:
        declared = declared_plainly(attributes.pop("content-type"))
        if declared is None:
            return None
    return (attributes, declared) if is_plain(attributes, safe) else None


def is_plain(attributes: dict[str, bytes], safe: bytes) -> bool:
    """Tell whether `attributes`, none of them empty, make a valid event, and all their bytes are of `safe`."""
    return (
        attributes.get("specversion") == b"1.0"
        and "id" in attributes
        and "source" in attributes
        and "type" in attributes
        and "datacontenttype" not in attributes
        and not b"".join(attributes.values()).translate(None, safe)
        and ("time" not in attributes or is_time(attributes["time"]) is not None)
    )


def is_plain_envelope(members: dict[str, Any]) -> bool:
    """Tell whether the members of a JSON object make a valid event whose attributes are texts, none of them empty."""
    texts = [member for name, member in members.items() if name != "data"]
    get = members.get
    return (
        get("specversion") == "1.0"
        and "id" in members
        and "source" in members
        and "type" in members
        and all(texts)
        and _are_printable(texts)
        and ("time" not in members or _IS_TIME_TEXT(members["time"]) is not None)
        and (_names.issuperset(members) or _are_names(members))
    )


def _are_printable(texts: list[Any]) -> bool:
    try:
        return "".join(texts).isprintable()
    except TypeError:
        return False  # not all of them are texts


def _are_names(members: Iterable[str]) -> bool:
    for name in members:
        if name != "data" and not is_name(name):  # `data_base64` is none
            return False
        if is_kept(_names, name):
            _names.add(name)
    return True


def declared_plainly(raw: bytes) -> ContentType | None:
    """Return a content type that may describe an event's data in a header; None for any other, and for a broken one."""
    return _declared(raw) if len(raw) <= LONGEST_CONTENT_TYPE else None


@lru_cache(maxsize=1024)
def _declared(raw: bytes) -> ContentType | None:
    try:
        declared = content_type_of_header(raw)
    except Refused:
        return None
    return declared if is_sendable(declared) else None


def is_sendable(declared: ContentType) -> bool:
    """Tell whether a Content-Type header can say `declared`, and a reader will not take the data for an event."""
    return declared.kind not in (Kind.EVENT, Kind.FOREIGN_EVENT) and _IS_HEADER_TEXT(declared.text) is not None


def is_header_text(text: str) -> bool:
    """Tell whether a header's value can be `text` as it stands: printable ASCII, no blank at either end."""
    return _IS_HEADER_TEXT(text) is not None


def check_data(raw: bytes | None, declared: ContentType | None) -> None:
    """Raise Refused where `read_data` does; faster, as nothing is kept."""
    if not raw or declared is None:
        return
    if declared.kind is _JSON:
        parse_json(raw)
    elif declared.kind is _TEXT:
        read_data(raw, declared)
