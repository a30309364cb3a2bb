"""The records that the benchmarks read: 1 KiB, 4 headers, spread over partitions."""

from __future__ import annotations

import os
import time

import kafka
from kafka.admin import KafkaAdminClient, NewTopic

HEADERS = [
    ("ce_id", b"4711-0815"),
    ("ce_source", b"/benchmarks"),
    ("ce_type", b"record"),
    ("content-type", b"text/plain"),
]


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    """Make an empty topic."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics([NewTopic(topic, partitions, 1)])
    finally:
        admin.close()


def publish(bootstrap: str, topic: str, partitions: int, count: int, size: int = 1024) -> float:
    """Fill a topic with `count` records of `size` bytes. Returns the seconds it took."""
    began = time.monotonic()
    value = os.urandom(size)
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks=1, linger_ms=20, batch_size=256 * 1024)
    try:
        futures = [
            producer.send(topic, value=value, key=b"key-%d" % (n % 1000), headers=HEADERS, partition=n % partitions)
            for n in range(count)
        ]
        producer.flush(timeout=120)
        for future in futures:
            future.get(timeout=1)
    finally:
        producer.close(timeout=10)
    return time.monotonic() - began


def touch(records: object) -> int:
    """Read key, value and headers of every record, as any processor would. Returns the bytes seen."""
    total = 0
    for record in records:  # type: ignore[attr-defined]
        total += len(record.key) + len(record.value)
        for name, value in record.headers:
            total += len(name) + len(value)
    return total
