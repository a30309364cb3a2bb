"""A dataframe of quixstreams: python -m benchmarks.peers.quixstreams.loop BOOTSTRAP TOPIC COUNT GROUP.

What makes it fastest, and why that is fair: nothing is decoded (a channel delivers bytes too), no check of the
broker's availability with each record, librdkafka's back-off and queue and the garbage collector set as for the plain
confluent-kafka loop. It commits in the background every 5 s, its default.

It is stopped by the function that sees the records: quixstreams' own `run(count=...)` counts them once more.
"""

from __future__ import annotations

import gc
import logging
import sys
import tempfile
from typing import Any

from quixstreams import Application

from benchmarks.meter import Meter


def main(bootstrap: str, topic: str, count: int, group: str) -> None:
    """Read `count` records, touching each."""
    meter = Meter(count)
    left = count

    def touch(value: bytes, key: bytes, timestamp: int, headers: list[tuple[str, bytes]]) -> None:
        """As `benchmarks.meter.touch`, for one record: quixstreams delivers no batches."""
        nonlocal left
        if left == count:
            meter.begin()
        total = len(key) + len(value)
        for name, content in headers:
            total += len(name) + len(content)
        left -= 1
        if not left:
            meter.add(count)
            application.stop()

    with tempfile.TemporaryDirectory() as state:
        application = Application(
            broker_address=bootstrap,
            consumer_group=group,
            auto_offset_reset="earliest",
            auto_create_topics=False,
            broker_availability_timeout=0,
            consumer_extra_config={"fetch.queue.backoff.ms": 5, "queued.min.messages": 10_000},
            loglevel=logging.WARNING,
            state_dir=state,
        )
        frame: Any = application.dataframe(
            application.topic(topic, key_deserializer="bytes", value_deserializer="bytes")
        )
        frame.update(touch, metadata=True)
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)
        application.run()
    print(meter.line())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
