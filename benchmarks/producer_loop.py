"""The plain confluent-kafka producer loop with its best settings: what the ingress is measured against.

    python -m benchmarks.producer_loop BOOTSTRAP TOPIC COUNT SIZE

Writes CloudEvents in binary mode, waits until all are acknowledged, and prints one line of JSON.
"""

from __future__ import annotations

import gc
import json
import sys
import time

import confluent_kafka

#: Events between two looks at what was acknowledged.
_LOOK_EVERY = 500


def main(bootstrap: str, topic: str, count: int, size: int) -> None:
    """Write `count` events of `size` bytes."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 400_000,
        }
    )
    producer.list_topics(topic)  # the connection is not part of the loop
    failed: list[object] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            failed.append(error)

    value = b"x" * size
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    began, cpu = time.monotonic(), time.process_time()
    for number in range(count):
        headers: list[tuple[str, str | bytes | None]] = [
            ("ce_specversion", b"1.0"),
            ("ce_source", b"/benchmarks"),
            ("ce_type", b"benchmark.event"),
            ("ce_id", b"%012d" % number),
            ("content-type", b"text/plain"),
        ]
        while True:
            try:
                producer.produce(topic, value, headers=headers, on_delivery=delivered)
                break
            except BufferError:  # its queue is full
                producer.poll(0.01)
        if number % _LOOK_EVERY == 0:
            producer.poll(0)
    producer.flush(60)
    seconds = time.monotonic() - began
    if failed or len(producer):
        raise SystemExit(f"{len(failed)} events failed ({failed[:1]}), {len(producer)} are not acknowledged")
    print(json.dumps({"events": count, "seconds": seconds, "cpu": time.process_time() - cpu}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
