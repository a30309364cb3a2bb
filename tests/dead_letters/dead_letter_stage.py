"""Dead letter topics as both writers fill them, by the writers themselves."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from inbound.kafka.clients.dead_letter_topic import DeadLetterTopic
from inbound.processors.batch import PlainRecord, Record
from inbound.processors.dispatch.encoding import dead_letter, error_extensions
from inbound.processors.dispatch.transport import Answer
from inbound.testing.kafka import FakeKafka
from tests.processors.dispatch.dispatch_stage import event_headers

DEAD = "orders.dead"
STRUCTURED = [("content-type", b"application/cloudevents+json; charset=utf-8")]
#: 2026-01-31T02:40:00Z, in milliseconds.
NIGHT = 1769827200000


def event(id: str, offset: int = 7, key: bytes | None = None, **headers: bytes) -> PlainRecord:
    """Return the record of a binary event."""
    return PlainRecord(offset, key=key, value=b"data of " + id.encode(), headers=[*event_headers(id), *headers.items()])


def refused(
    record: Record, *, answer: Answer | None = None, group: str = "orders-svc.billing", partition: int = 3,
    read: Record | None = None, url: str = "http://billing/in",
) -> PlainRecord:  # fmt: skip
    """Return what the dispatcher writes for a record that a subscriber refused; `read`: it is the reply to that one."""
    extra = error_extensions(url, answer or Answer(503, body=b"try later"))
    origin = ("orders", partition, (read or record).offset)
    parts = dead_letter(record, extra, group, origin, reply=read is not None)
    return PlainRecord(0, key=parts.key, value=parts.value, headers=parts.headers)


def failed(record: Record, why: str = "ValueError: no such order 17", group: str = "stock-svc") -> PlainRecord:
    """Return what a channel with `on_error: {then: dead-letter}` writes."""
    topic = DeadLetterTopic({}, DEAD, group, "consumer")
    key, value, headers = topic._message("orders", 3, record, why)
    return PlainRecord(0, key=key, value=value, headers=headers)


def knative(record: PlainRecord) -> PlainRecord:
    """Return what Knative's own dispatcher writes: its attributes, and no origin."""
    why = [("ce_knativeerrordest", b"http://other/"), ("ce_knativeerrorcode", b"500"),
           ("ce_knativeerrordata", base64.b64encode(b"boom"))]  # fmt: skip
    return record._replace(headers=[*record.headers, *why])


def put(
    kafka: FakeKafka, letters: Sequence[PlainRecord], partition: int = 0, *, at: int = NIGHT, apart: int = 60
) -> None:
    """Append letters to the dead letter topic, so many seconds apart."""
    for number, one in enumerate(letters):
        kafka.publish(
            DEAD, partition, [one.value], key=one.key, headers=one.headers, timestamp=at + number * apart * 1000
        )
