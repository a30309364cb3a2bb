"""A dataflow of bytewax: python -m benchmarks.peers.bytewax.loop BOOTSTRAP TOPIC COUNT GROUP.

What makes it fastest, and why that is fair: whole batches reach the function that touches them, batches of up to
10,000 records, librdkafka's back-off and queue and the garbage collector set as for the plain confluent-kafka loop, one
worker (a second one shares the interpreter). It commits nothing to Kafka, its default: positions would be in a recovery store
of its own, which is left out.

The process ends itself once it has its records: bytewax stops only where the topic does.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

import bytewax.operators as op
from bytewax._bytewax import cli_main
from bytewax.connectors.kafka import KafkaSource
from bytewax.connectors.stdio import StdOutSink
from bytewax.dataflow import Dataflow

from benchmarks.meter import Meter, touch


def main(bootstrap: str, topic: str, count: int) -> None:
    """Read `count` records, touching each."""
    meter = Meter(count)

    def touch_batch(batch: list[Any]) -> list[str]:
        meter.begin()
        touch(batch)
        if meter.add(len(batch)):
            print(meter.line(), flush=True)
            os._exit(0)
        return []

    flow = Dataflow("drain")
    # Each partition has a consumer, and so a queue, of its own.
    settings = {"fetch.queue.backoff.ms": "5", "queued.max.messages.kbytes": "8192"}
    source = KafkaSource(bootstrap.split(","), [topic], batch_size=10_000, add_config=settings)
    op.output("out", op.flat_map_batch("touch", op.input("in", flow, source), touch_batch), StdOutSink())
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    cli_main(flow)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
