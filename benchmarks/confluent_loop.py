"""The plain confluent-kafka loop with its best settings: what the channel with that client is measured against.

    python -m benchmarks.confluent_loop BOOTSTRAP TOPIC[,TOPIC] COUNT GROUP

Each topic has a loop of its own, in a thread of its own where there are several; COUNT is for all of them together.
Prints the JSON line of `benchmarks.meter`. The last commit is synchronous, and part of what is measured.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka

from benchmarks.meter import Meter

#: Messages per call: with fewer the calls count, with more the first has left the processor's cache before it is touched.
BATCH = 500


def main(bootstrap: str, topics: list[str], count: int, group: str) -> None:
    """Read `count` records, touching each."""
    consumers = [_consumer(bootstrap, topic, group) for topic in topics]
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    meter, lock = Meter(count, len(topics)), threading.Lock()
    if len(topics) == 1:
        _drain(consumers[0], topics[0], meter, lock)
    else:
        with ThreadPoolExecutor(len(topics)) as pool:
            list(pool.map(lambda consumer, topic: _drain(consumer, topic, meter, lock), consumers, topics))
    meter.end()
    print(meter.line())
    for consumer in consumers:
        consumer.close()


def _consumer(bootstrap: str, topic: str, group: str) -> confluent_kafka.Consumer:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{group}-{topic}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # How long fetching rests once the queue is full; by default a second, in which the queue runs empty.
            "fetch.queue.backoff.ms": 5,
            # By default 100,000, and up to 64 MiB: more than the processor's cache holds.
            "queued.min.messages": 10_000,
        }
    )
    consumer.subscribe([topic])
    return consumer


def _drain(consumer: confluent_kafka.Consumer, topic: str, meter: Meter, lock: threading.Lock) -> None:
    """Touch records until the meter has its number, with an asynchronous commit per poll; wait for the last commit."""
    while not meter.done:
        messages = consumer.consume(BATCH, 1.0)
        if not messages:
            continue
        with lock:
            meter.begin(topic)
        _touch(messages)
        with lock:
            meter.add(len(messages))
        consumer.commit(asynchronous=True)
    # With offsets: without them nothing is sent, nor waited for, where an asynchronous commit already has the last one.
    consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=False)


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
    main(sys.argv[1], sys.argv[2].split(","), int(sys.argv[3]), sys.argv[4])
