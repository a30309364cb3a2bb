"""One channel with everything on that tells operators about it, or with all of that taken out; a process of its own.

    python -m benchmarks.overhead_loop CONFIG COUNT on|off

Prints the address of its admin port, and at the end the JSON line of `benchmarks.meter`. Taken out are the histograms and
counts (`inbound.runtime.instruments`, `inbound.partition.meters`), the journal, the stall detector and the log. What calls them
stays: a product without them would save a few calls of empty functions for each batch besides.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from benchmarks.channel_loop import Touching, measure
from benchmarks.meter import Meter
from inbound.cli.run.run import profiling_listener
from inbound.config import load, read_text
from inbound.observe import logs
from inbound.observe.explain.detector import StallDetector
from inbound.partition.journal import Journal
from inbound.partition.meters import Meters
from inbound.process.application import Application
from inbound.process.sections import Makers
from inbound.runtime.instruments import Histogram, Kinds

#: What does nothing in a process of the kind `off`.
TAKEN_OUT = (
    (Histogram, "observe"),
    (Kinds, "add"),
    (Meters, "delivered"),
    (Meters, "noted"),
    (Journal, "note"),
    (StallDetector, "run_once"),
)


def take_out() -> None:
    """Take all that is for operators out of this process."""

    def nothing(*args: object, **facts: object) -> None:
        return None

    for cls, method in TAKEN_OUT:
        if not callable(getattr(cls, method)):
            raise SystemExit(f"{cls.__name__} has no {method}: correct the list")
        setattr(cls, method, nothing)
    logging.disable(logging.CRITICAL)


def main(config: Path, count: int, kind: str) -> None:
    """Run a channel until it has processed `count` records."""
    Touching.meter = Meter(count)
    loaded = load(read_text(config), filename=str(config))
    if kind == "off":
        take_out()
    else:
        logs.install()
        logs.apply(loaded.config.logging)
    application = Application(loaded, lock_dir=config.parent / "ids", makers=Makers(profiling=profiling_listener))
    try:
        application.start()
        assert application.admin is not None
        print(application.admin.url, flush=True)
        measure(application)
    finally:
        application.stop()
    logs.flush()
    print(Touching.meter.line())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
