"""The plain kafka-python poll loop with its best settings: what the channel with that client is measured against.

    python -m benchmarks.plain_loop BOOTSTRAP TOPIC COUNT GROUP

Prints the JSON line of `benchmarks.meter`. The last commit is synchronous, and part of what is measured.
"""

from __future__ import annotations

import gc
import sys

import kafka

from benchmarks.meter import Meter, touch


def main(bootstrap: str, topic: str, count: int, group: str) -> None:
    """Read `count` records, touching each, with an asynchronous commit per poll."""
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=10_000,
    )
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    meter = Meter(count)
    while not meter.done:
        polled = consumer.poll(timeout_ms=1000)
        if not polled:
            continue
        meter.begin()
        for records in polled.values():
            touch(records)
            meter.add(len(records))
        if not meter.done:
            consumer.commit_async()
    consumer.commit()
    meter.end()
    print(meter.line())
    consumer.close(autocommit=False, timeout_ms=3000)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
