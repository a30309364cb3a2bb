"""Fills topics fast. Apart from `benchmarks.records`, so that what is measured does not load a second client library."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import confluent_kafka

from benchmarks.records import HEADERS


def fill(
    bootstrap: str,
    topic: str,
    partitions: Sequence[int] | int,
    count: int,
    size: int,
    batch: int = 2**14,
    headers: Sequence[tuple[str, bytes]] = HEADERS,
) -> float:
    """Fill a topic with `count` records of `size` bytes, spread evenly. Returns the seconds it took.

    `partitions` are their numbers, or how many there are. Keys are `key-0` to `key-999`, in each partition.
    `batch` bounds, in bytes, the record batches in the log; none is ever read in parts. The default is the Java client's.
    """
    began = time.monotonic()
    value = os.urandom(size)
    numbers = range(partitions) if isinstance(partitions, int) else partitions
    sent: list[tuple[str, str | bytes | None]] = [*headers]
    failed: list[object] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": 1,
            "linger.ms": 20,
            "batch.size": batch,
            "queue.buffering.max.messages": 200_000,
        }
    )

    def delivered(error: object, message: object) -> None:
        if error is not None:
            failed.append(error)

    # Stretches of one partition: with one record for each in turn, every request would carry a thousand small batches.
    stretch = min(1000, count // len(numbers))
    for number in range(count):
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    b"key-%d" % (number % 1000),
                    partition=numbers[number // stretch % len(numbers)],
                    headers=sent,
                    on_delivery=delivered,
                )
                break
            except BufferError:  # its queue is full
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush(120)
    if failed or len(producer):
        raise SystemExit(f"{len(failed)} records were refused ({failed[:1]}), {len(producer)} not acknowledged")
    return time.monotonic() - began
