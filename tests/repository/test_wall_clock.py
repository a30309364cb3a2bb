"""Nothing is decided by the system clock, which people and time servers set back and forth."""

from __future__ import annotations

import ast
import random
import time
from collections.abc import Iterator

import pytest

from inbound.clock import SystemClock
from inbound.processors.batch import Batch
from inbound.testing.world import Recording, World
from scripts.rooms import modules

#: Where the system clock is read below the cli, and what for: always something that people read.
DISPLAY = {
    "inbound.clock": "the one place where `Clock.wall` gets it from",
    "inbound.process.application": "`started` in the id node and in status",
    "inbound.process.ingress": "`started` in status",
    "inbound.http.server.serving": "the header Date of answers",
    "inbound.observe.jmx.jolokia": "`timestamp` of answers, and what `ifModifiedSince` is compared with",
    "inbound.kafka.auth.tokens": "when a token ends, which its issuer says as a time of day",
    "inbound.processors.dispatch.processor": "until when an event of a retry topic waits: it stands in the record, and no wait is "
    "longer than the topic's delay",
    "inbound.processors.dispatch.counters": "how old events are when their subscriber has them, in metrics",
    "inbound.dead_letters.redrive_ledger": "when a letter was sent once more, in the redrive's ledger",
    "inbound.observe.profiling.pages": "when threads were looked at",
    "inbound.observe.profiling.heap": "when the memory was looked at",
    "inbound.observe.profiling.sampler": "when a profile was begun",
    "inbound.group.operations": "since when something is paused, as `status` shows it",
    "inbound.observe.explain.answer": "when it was asked, and since when things are so",
    "inbound.observe.explain.detector": "since when a partition does what it does",
    "inbound.observe.explain.gather": "for how long ZooKeeper has been away",
    "inbound.process.exporter": "`started`, and when it looked last, in status and metrics",
    "inbound.process.reload.reconfiguration": "when the configuration changed last, in status",
    "inbound.channel.delivery": "when a partition had its last batch, in status",
    "inbound.ledger.files": "`wall` in the lines, and the start in file names; order is `seq`, `epoch` and `mzxid`",
    "inbound.ledger.lines": "the same `wall`",
    "inbound.ledger.kafka": "the same in the records of a topic",
    "inbound.ledger.housekeeping": "the age of files, whose times are the file system's: for how long they are kept",
    "inbound.ledger.shipping": "the same at a URI",
    "inbound.channel.kafka_channel": "between when the ledger could not be written; where that lies in a run, its numbers say",
    "inbound.controller.reset_offset.command_store": "when a reset was cancelled, as its status shows it",
    "inbound.controller.reset_offset.reconciler": "the times of a reset's conditions",
    "inbound.controller.reset_offset.controller": "how old finished resets are, which are kept for a week",
    "inbound.process.resets": "when a manifest's reset was submitted; a time that it asks for may not lie ahead of that",
    "inbound.spark.replay.run": "when something happened in an attempt, for the log",
    "inbound.spark.validate": "when a proof was made",
    "inbound.spark.archive.job": "which days are over, and may be packed into fewer files",
    "inbound.embedded.detached": "since when a detached cluster runs, as `cluster status` shows it",
    "inbound.demo.consumers": "the demo's table",
}
#: Readings of the system clock. `strftime(format, given)` formats only.
READINGS = {
    "time.time",
    "time.time_ns",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "time.localtime",
}


WORDS = {reading.partition(".")[2] for reading in READINGS} | {"wall"}


def readings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of every reading of the system clock, also of `Clock.wall` and of a name imported from time."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in WORDS:  # unparsing every attribute takes seconds
            text = ".".join(ast.unparse(node).split(".")[-2:])
            if text in READINGS or (node.attr == "wall" and text.split(".")[0].endswith("clock")):
                yield node.lineno, text
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from ((node.lineno, f"time.{n.name}") for n in node.names if f"time.{n.name}" in READINGS)


@pytest.mark.slow
def test_the_system_clock_is_read_for_people_only() -> None:
    """Below the cli, and apart from the fakes, nobody else reads it; and the list above has no leftovers."""
    found: dict[str, list[tuple[int, str]]] = {}
    for name, path in modules().items():
        if name.startswith(("inbound.cli", "inbound.testing")):
            continue
        if lines := list(readings(path.read_text())):
            found[name] = lines
    assert set(found) == set(DISPLAY), {name: lines for name, lines in found.items() if name not in DISPLAY}


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.time()",
        "from time import time\ntime()",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime\ndatetime.utcnow()",
        "def f(self):\n    return self._clock.wall() + 3",
        "f = time.time_ns",
    ],
)
def test_every_way_to_read_it_is_found(source: str) -> None:
    """In any form."""
    assert len(list(readings(source))) == 1


def test_time_that_counts_goes_on_while_the_machine_sleeps() -> None:
    """A laptop that slept past its session must wake as a zombie that knows it."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    now = SystemClock().now()
    assert before <= now <= time.clock_gettime(time.CLOCK_BOOTTIME)
    assert SystemClock._clock == time.CLOCK_BOOTTIME


def test_a_system_clock_that_jumps_by_hours_changes_nothing() -> None:
    """Under load, with a rebalance, an outage and a death: as if it were frozen. The simulation's seeds have jumps, too."""
    seed = 0

    def play(*, jumping: bool) -> tuple[list[tuple[str, int, int, float]], dict[int, int | None], dict[str, set[int]]]:
        world, rng = World(seed=seed), random.Random(seed)
        world.kafka.create_topic("orders", 4)
        seen: list[tuple[str, int, int, float]] = []

        def join(name: str) -> None:
            processor = Recording()

            def note(batch: Batch) -> None:
                seen.extend((name, batch.partition, record.offset, world.clock.now()) for record in batch.records)

            processor.on_batch = note
            world.join(name, processor)

        def run(seconds: int) -> None:
            for _ in range(seconds):
                world.kafka.publish("orders", rng.randrange(4), [b"x"] * 3)
                hours = rng.choice([-30, -1, 1, 20])
                if jumping:
                    world.clock.jump_wall(hours * 3600.0)
                world.run(1)

        join("a")
        run(5)
        join("b")
        run(3)
        world.ensemble.down()
        run(4)
        world.ensemble.up()
        run(2)
        world.kill("a")
        run(14)
        return seen, world.commits(), world.owned()

    assert play(jumping=True) == play(jumping=False)
