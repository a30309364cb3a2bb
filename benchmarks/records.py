"""The records that the benchmarks read: 1 KiB, 4 headers, spread over partitions."""

from __future__ import annotations

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
