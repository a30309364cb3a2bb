"""The plain kafka-python poll loop with its best settings: what the channel is measured against.

    python -m benchmarks.plain_loop BOOTSTRAP TOPIC COUNT GROUP

Prints one JSON line: records, seconds, CPU seconds, between the first record and the last.
"""

from __future__ import annotations

import gc
import json
import sys
import time

import kafka

from benchmarks.records import touch


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
    seen = 0
    began = cpu = 0.0
    while seen < count:
        polled = consumer.poll(timeout_ms=1000)
        if not polled:
            continue
        if not seen:
            began, cpu = time.monotonic(), time.process_time()
        for records in polled.values():
            touch(records)
            seen += len(records)
        consumer.commit_async()
    print(json.dumps({"records": seen, "seconds": time.monotonic() - began, "cpu": time.process_time() - cpu}))
    consumer.close(autocommit=False, timeout_ms=3000)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
