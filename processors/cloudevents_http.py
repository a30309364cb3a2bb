"""CloudEvents in HTTP messages, as the HTTP protocol binding 1.0.2 says: the encoding side.

Pure: an event in, headers and body out. Data that is bytes goes out as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple
from urllib.parse import quote

from cloudevents.core.base import BaseCloudEvent

from inbound.processors.cloudevents_kafka import json_object
from inbound.processors.cloudevents_values import (
    STRUCTURED_CONTENT_TYPE,
    Kind,
    content_type,
    is_name,
    write_attribute,
    write_data,
    write_json,
)

BATCH_CONTENT_TYPE: Final = "application/cloudevents-batch+json"

#: What stands in a header as it is: U+0021 to U+007E but for the quote and the percent sign.
_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


class HttpMessage(NamedTuple):
    """Headers (names in lower case, values ASCII) and body of a request, or of a response."""

    headers: dict[str, str]
    body: bytes


def encode_binary(event: BaseCloudEvent) -> HttpMessage:
    """Return the message that carries `event` in binary mode: attributes in `ce-` headers, data as the body.

    Data that is no bytes is written as its content type says; without one it is JSON, and declared as such. An event
    without data has an empty body. Raises ValueError for data or attributes that cannot be written.
    """
    attributes = event.get_attributes()
    body, declared = write_data(event.get_data(), attributes.get("datacontenttype"))
    headers: dict[str, str] = {}
    if declared:
        headers["content-type"] = _checked_content_type(declared)
    for name, value in attributes.items():
        if value is None or name == "datacontenttype":
            continue
        if not is_name(name):
            raise ValueError(f"attribute {name[:80]!r} cannot be a header: only a-z and 0-9 are allowed in its name")
        written = write_attribute(name, value)
        headers[f"ce-{name}"] = percent_encoded(str(written).lower() if isinstance(written, bool) else str(written))
    return HttpMessage(headers, body or b"")


def encode_structured(event: BaseCloudEvent) -> HttpMessage:
    """Return the message that carries `event` in structured mode, as JSON.

    Raises ValueError for data or attributes that cannot be written.
    """
    return HttpMessage({"content-type": STRUCTURED_CONTENT_TYPE}, write_json(json_object(event)))


def encode_batch(events: Iterable[BaseCloudEvent]) -> HttpMessage:
    """Return the message that carries `events` in their order, as one JSON array; none of them is an empty one.

    Only for receivers that asked for batches. Raises ValueError for data or attributes that cannot be written.
    """
    return HttpMessage({"content-type": BATCH_CONTENT_TYPE}, write_json([json_object(event) for event in events]))


def percent_encoded(value: str) -> str:
    """Return an attribute's text as a header's value: blanks, `"`, `%` and all but printable ASCII encoded.

    Raises ValueError for a lone surrogate, which has no UTF-8.
    """
    return quote(value, safe=_SAFE)


def _checked_content_type(declared: str) -> str:
    """Return `declared` if a header can carry it, and a reader will not take it for a whole event."""
    if content_type(declared).kind in (Kind.EVENT, Kind.FOREIGN_EVENT):
        raise ValueError(f"datacontenttype {declared!r} would pass for structured mode: use encode_structured")
    if not (declared.isascii() and declared.isprintable()) or declared != declared.strip():
        raise ValueError(f"datacontenttype {declared!r} cannot stand in a header: use encode_structured")
    return declared
