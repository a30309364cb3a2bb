"""The plain loop of aiokafka: python -m benchmarks.peers.aiokafka.loop BOOTSTRAP TOPIC COUNT GROUP.

What makes it fastest, and why that is fair: uvloop, batches of up to 10,000 records, the garbage collector set as for
the other Python loops. It commits in the background every 5 s, its default: an awaited commit per batch would wait for the
broker each time, and it has no other. The last commit is awaited, and part of what is measured.
"""

from __future__ import annotations

import asyncio
import gc
import sys

import aiokafka
import uvloop

from benchmarks.meter import Meter, touch


async def drain(bootstrap: str, topic: str, count: int, group: str) -> None:
    """Read `count` records, touching each."""
    consumer = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", max_poll_records=10_000
    )
    await consumer.start()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    meter = Meter(count)
    try:
        while not meter.done:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                meter.begin()
                touch(records)
                meter.add(len(records))
        await consumer.commit()
        meter.end()
    finally:
        await consumer.stop()
    print(meter.line())


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(drain(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
