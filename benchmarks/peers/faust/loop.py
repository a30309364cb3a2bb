"""An agent of faust-streaming: python -m benchmarks.peers.faust.loop BOOTSTRAP TOPIC COUNT GROUP.

What makes it fastest, and why that is fair: its compiled streams with all their fast paths, uvloop, nothing is decoded
(a channel delivers bytes too), no web server, no leader topic, the garbage collector set as for the other Python
loops. It commits in the background every 2.8 s or 10,000 records, its default.

The process ends itself once it has its records: stopping a worker takes faust seconds, and is not what is measured.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from typing import Any

import mode.loop

mode.loop.use("uvloop")

import faust  # noqa: E402  the loop is chosen before it is imported

from benchmarks.meter import Meter  # noqa: E402


def main(bootstrap: str, topic: str, count: int, group: str) -> None:
    """Read `count` records, touching each."""
    app = faust.App(
        group,
        broker=f"kafka://{bootstrap}",
        datadir=tempfile.mkdtemp(),
        store="memory://",
        topic_disable_leader=True,
        web_enabled=False,
        cython_optimizations=True,
        consumer_auto_offset_reset="earliest",
    )
    meter = Meter(count)

    async def drain(stream: Any) -> None:
        left = count
        async for value in stream:
            if left == count:
                meter.begin()
            event = stream.current_event
            total = len(event.key) + len(value)
            for name, content in event.headers.items():
                total += len(name) + len(content)
            left -= 1
            if not left:
                meter.add(count)
                print(meter.line(), flush=True)
                os._exit(0)

    app.agent(app.topic(topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw"))(drain)
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    faust.Worker(app, loglevel="WARNING", redirect_stdouts=False).execute_from_commandline()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
