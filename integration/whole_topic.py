"""What a topic holds, read by a plain consumer.

Partitions are assigned by hand: kafka-python 3.0.12 forgets a subscription for five minutes if it was made while the client
was asking for its first metadata (`ClusterMetadata.update_metadata` takes back what `request_update` had set meanwhile).
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import kafka

from tests.waiting import until

#: The longest that is waited on a quiet machine, for a topic and for its records. Seconds.
PATIENCE = 60.0


def read_topic(bootstrap: str, topic: str, count: int = 0) -> list[Any]:
    """Return every record that is in a topic now, waiting until there are `count`; by partition, then by offset.

    Returns:
        kafka-python's `ConsumerRecord`s.
    """
    found: list[Any] = []
    with closing(kafka.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")) as consumer:
        numbers = until(lambda: consumer.partitions_for_topic(topic), PATIENCE, f"topic {topic} is there")
        keys = [kafka.TopicPartition(topic, number) for number in numbers]
        consumer.assign(keys)
        consumer.seek_to_beginning(*keys)
        ends = consumer.end_offsets(keys)

        def all_read() -> bool:
            for records in consumer.poll(timeout_ms=200).values():
                found.extend(records)
            return len(found) >= count and all(consumer.position(key) >= ends[key] for key in keys)

        until(all_read, PATIENCE, lambda: f"{topic} is read to {ends}, {count} records: {len(found)} have come")
    return sorted(found, key=lambda record: (record.partition, record.offset))
