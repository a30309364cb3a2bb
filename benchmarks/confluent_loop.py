"""The plain confluent-kafka loop with its best settings: what the channel with that client is measured against.

    python -m benchmarks.confluent_loop BOOTSTRAP TOPIC COUNT GROUP

Prints the JSON line of `benchmarks.meter`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from typing import Any

import confluent_kafka

from benchmarks.meter import Meter

#: Messages per call: with fewer the calls count, with more the first has left the processor's cache before it is touched.
BATCH = 500


def main(bootstrap: str, topic: str, count: int, group: str) -> None:
    """Read `count` records, touching each, with an asynchronous commit per batch."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # How long fetching rests once the queue is full; by default a second, in which the queue runs empty.
            "fetch.queue.backoff.ms": 5,
            # By default 100,000, and up to 64 MiB: more than the processor's cache holds.
            "queued.min.messages": 10_000,
        }
    )
    consumer.subscribe([topic])
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    meter = Meter(count)
    while not meter.done:
        messages = consumer.consume(BATCH, 1.0)
        if not messages:
            continue
        meter.begin()
        _touch(messages)
        meter.add(len(messages))
        consumer.commit(asynchronous=True)
    print(meter.line())
    consumer.close()


def _touch(messages: Iterable[Any]) -> int:
    """As `benchmarks.meter.touch`, for messages whose parts are method calls."""
    total = 0
    for message in messages:
        if message.error() is not None:
            raise confluent_kafka.KafkaException(message.error())
        total += len(message.key()) + len(message.value())
        for name, value in message.headers():
            total += len(name) + len(value)
    return total


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
