"""One channel with all its defaults on, in a process of its own.

    python -m benchmarks.channel_loop CONFIG COUNT

Prints the JSON line of `benchmarks.meter`.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from benchmarks.meter import Meter, touch
from inbound import Batch, BatchEventProcessor, BatchResponse
from inbound.application import Application
from inbound.config import load, read_text

#: The longest time that one run may take, in seconds.
LIMIT = 300.0


class Touching(BatchEventProcessor):
    """Touches every record, and tells the meter of it."""

    meter = Meter(0)
    lock = threading.Lock()
    done = threading.Event()

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        with Touching.lock:
            Touching.meter.begin()
        touch(batch.records)
        with Touching.lock:
            Touching.meter.add(len(batch))
        return BatchResponse.advance()

    def on_batch_processed(self, batch: Batch) -> None:
        if Touching.meter.done:
            Touching.done.set()


def main(config: Path, count: int) -> None:
    """Run a channel until it has processed `count` records."""
    Touching.meter = Meter(count)
    application = Application(load(read_text(config), filename=str(config)), lock_dir=config.parent / "ids")
    try:
        application.start()
        if not Touching.done.wait(LIMIT):
            raise SystemExit(f"fewer than {count} records after {LIMIT:.0f} s")
    finally:
        application.stop()
    print(Touching.meter.line())


if __name__ == "__main__":
    # Under its import name, so that the configuration's plugin is this very class.
    from benchmarks import channel_loop

    channel_loop.main(Path(sys.argv[1]), int(sys.argv[2]))
