"""One channel with all its defaults on, in a process of its own.

    python -m benchmarks.channel_loop CONFIG COUNT

Prints the same JSON line as `plain_loop`.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from benchmarks.records import touch
from inbound import Batch, BatchEventProcessor, BatchResponse
from inbound.application import Application
from inbound.config import load, read_text

#: The longest time that one run may take, in seconds.
LIMIT = 300.0


class Touching(BatchEventProcessor):
    """Touches every record, and notes when the first batch began and the last one ended."""

    count = 0
    seen = 0
    began = ended = cpu_began = cpu_ended = 0.0
    lock = threading.Lock()
    done = threading.Event()

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        cls = Touching
        with cls.lock:
            if not cls.began:
                cls.began, cls.cpu_began = time.monotonic(), time.process_time()
        touch(batch.records)
        with cls.lock:
            cls.seen += len(batch)
            if cls.seen >= cls.count and not cls.ended:
                cls.ended, cls.cpu_ended = time.monotonic(), time.process_time()
        return BatchResponse.advance()

    def on_batch_processed(self, batch: Batch) -> None:
        if Touching.ended:
            Touching.done.set()


def main(config: Path, count: int) -> None:
    """Run a channel until it has processed `count` records."""
    Touching.count = count
    application = Application(load(read_text(config), filename=str(config)), lock_dir=config.parent / "ids")
    try:
        application.start()
        if not Touching.done.wait(LIMIT):
            raise SystemExit(f"only {Touching.seen} of {count} records after {LIMIT:.0f} s")
    finally:
        application.stop()
    seconds, cpu = Touching.ended - Touching.began, Touching.cpu_ended - Touching.cpu_began
    print(json.dumps({"records": Touching.seen, "seconds": seconds, "cpu": cpu}))


if __name__ == "__main__":
    # Under its import name, so that the configuration's plugin is this very class.
    from benchmarks import channel_loop

    channel_loop.main(Path(sys.argv[1]), int(sys.argv[2]))
