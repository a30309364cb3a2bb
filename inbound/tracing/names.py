"""The attributes of spans: OpenTelemetry's semantic conventions for messaging and HTTP, in their current names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from inbound.processors.spans import Consumer

#: Attributes of events, by the headers of a record and of a request that hold them.
_OF_RECORDS = {
    f"ce_{attribute}": f"cloudevents.event_{name}"
    for attribute, name in (
        ("id", "id"), ("source", "source"), ("specversion", "spec_version"), ("subject", "subject"), ("type", "type"),
    )
}  # fmt: skip
_OF_REQUESTS = {name.replace("_", "-", 1).encode(): attribute for name, attribute in _OF_RECORDS.items()}
#: A longer value is cut off there.
LONGEST = 256


def processing(consumer: Consumer, topic: str, partition: int, offset: int, count: int | None) -> dict[str, str | int]:
    """Return the attributes of a span `process`, for a batch of so many records, or (None) for one."""
    found: dict[str, str | int] = {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(partition),
        "messaging.consumer.group.name": consumer.group,
        "messaging.client.id": consumer.consumer_id,
        "messaging.kafka.offset": offset,
    }
    if count is not None:
        found["messaging.batch.message_count"] = count
    return found


def sending(topic: str, count: int = 1) -> dict[str, str | int]:
    """Return the attributes of a span `send`."""
    found: dict[str, str | int] = {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
    }
    if count != 1:
        found["messaging.batch.message_count"] = count
    return found


def posting(shown: str, attempt: int, receiver: str) -> dict[str, str | int]:
    """Return the attributes of a span `POST` to a URL, given without what may be secret in it."""
    found = {**_whereto(shown), "inbound.receiver": receiver}
    if attempt:
        found["http.request.resend_count"] = attempt
    return found


@lru_cache(256)
def _whereto(shown: str) -> Mapping[str, str | int]:
    url = urlsplit(shown)
    return {
        "http.request.method": "POST",
        "server.address": url.hostname or "",
        "server.port": url.port or (443 if url.scheme == "https" else 80),
        "url.full": shown,
    }


def serving(
    method: str, scheme: str, host: str, target: str, headers: Iterable[tuple[bytes, bytes]]
) -> dict[str, str | int]:
    """Return the attributes of the span of a request that came in. What its query holds is not among them."""
    found: dict[str, str | int] = {
        "http.request.method": method,
        "url.path": target.partition("?")[0][:LONGEST],
        "url.scheme": scheme,
    }
    name, colon, port = host.rpartition(":")
    if colon and port.isdecimal() and len(port) < 6:
        found |= {"server.address": name.strip("[]")[:LONGEST], "server.port": int(port)}
    elif host:
        found["server.address"] = host.strip("[]")[:LONGEST]
    for header, raw in headers:
        attribute = _OF_REQUESTS.get(header) or _OF_REQUESTS.get(header.lower())
        if attribute is not None:
            found[attribute] = raw[:LONGEST].decode("latin-1")
    return found


def event(headers: Iterable[tuple[str, bytes | None]] | None) -> dict[str, str]:
    """Return the attributes of the event that a record holds in binary mode."""
    found = {}
    for header, raw in headers or ():
        attribute = _OF_RECORDS.get(header)
        if attribute is not None and raw:
            found[attribute] = raw[:LONGEST].decode("utf-8", "replace")
    return found
