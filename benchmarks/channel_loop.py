"""One process with a channel for each topic of its configuration, all defaults on.

    python -m benchmarks.channel_loop CONFIG COUNT

COUNT is for all channels together. Prints the JSON line of `benchmarks.meter`: from the first record until the last
commit has landed.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import ClassVar

from benchmarks.meter import Meter, touch
from inbound import Batch, BatchEventProcessor, BatchResponse
from inbound.config import load, read_text
from inbound.process.application import Application

#: The longest time that one run may take, in seconds.
LIMIT = 300.0
#: How often `measure` looks for the last commit, in seconds.
EVERY = 0.002


class Touching(BatchEventProcessor):
    """Touches every record until the meter has its number; from then on batches wait: a plain loop reads no more, either.

    It has no `on_batch_processed`: for a processor that has, a channel keeps records until their commits have landed.
    """

    meter = Meter(sys.maxsize)  # under `inbound run`, where no run is measured, it touches all
    lock = threading.Lock()
    #: Up to where each partition was delivered.
    delivered: ClassVar[dict[tuple[str, int], int]] = {}
    done = threading.Event()
    over = threading.Event()

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        with Touching.lock:
            Touching.meter.begin(batch.topic)
            done = Touching.meter.done
            if not done:
                Touching.delivered[batch.topic, batch.partition] = batch.next_offset
        if done:
            Touching.over.wait(LIMIT)
            return BatchResponse.revert()
        touch(batch.records)
        with Touching.lock:
            if Touching.meter.add(len(batch)):
                Touching.done.set()
        return BatchResponse.advance()


class Told(Touching):
    """Has on_batch_processed of each commit that has landed; it does not need that."""

    def on_batch_processed(self, batch: Batch) -> None:
        pass


def measure(application: Application) -> None:
    """Wait until the meter has its records and all of them are committed: that is the end of its time.

    The processor is not told of commits, so this looks for them; not before the last record was touched.

    Raises:
        SystemExit: it takes longer than `LIMIT`.
    """
    deadline = time.monotonic() + LIMIT
    try:
        if not Touching.done.wait(LIMIT):
            raise SystemExit(f"too few records after {LIMIT:.0f} s")
        while not _committed(application):
            if time.monotonic() > deadline:
                raise SystemExit(f"not all records were committed after {LIMIT:.0f} s")
            time.sleep(EVERY)
        Touching.meter.end()
    finally:
        Touching.over.set()


def _committed(application: Application) -> bool:
    """Whether what was delivered of each partition is committed."""
    partitions = [partition for channel in application.channels for partition in channel.status().partitions]
    committed = {(one.topic, one.partition): one.committed or 0 for one in partitions}
    return all(committed.get(tp, 0) >= end for tp, end in Touching.delivered.items())


def main(config: Path, count: int) -> None:
    """Run the channels until they have processed `count` records."""
    application = Application(load(read_text(config), filename=str(config)), lock_dir=config.parent / "ids")
    Touching.meter = Meter(count, len(application.channels))
    try:
        application.start()
        measure(application)
    finally:
        application.stop()
    print(Touching.meter.line())


if __name__ == "__main__":
    # Under its import name, so that the configuration's plugin is this very class.
    from benchmarks import channel_loop

    channel_loop.main(Path(sys.argv[1]), int(sys.argv[2]))
