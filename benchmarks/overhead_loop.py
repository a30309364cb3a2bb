"""One channel with everything on that tells operators about it, or with all of that taken out; a process of its own.

    python -m benchmarks.overhead_loop CONFIG COUNT on|off

Prints the address of its admin port, and at the end the JSON line of `benchmarks.meter`. Taken out are the histograms and
counts (`inbound.instruments`, `inbound.meters`), the journal, the stall detector and the log. What calls them stays: a
product without them would save a few calls of empty functions for each batch besides.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from benchmarks.channel_loop import Touching, measure
from benchmarks.meter import Meter
from inbound import logs
from inbound.application import Application
from inbound.cli.profiles import profiling_listener
from inbound.config import load, read_text
from inbound.explain.detector import StallDetector
from inbound.instruments import Histogram, Kinds
from inbound.journal import Journal
from inbound.meters import Meters
from inbound.sections import Makers

#: What does nothing in a process of the kind `off`.
TAKEN_OUT = (
    (Histogram, "observe"),
    (Kinds, "add"),
    (Meters, "handed_over"),
    (Meters, "noted"),
    (Journal, "note"),
    (StallDetector, "run_once"),
)


def take_out() -> None:
    """Take out of this process whatever tells operators about it."""

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
