"""A ledger that cannot be written: holding, or going on without proof and saying so for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from inbound.clock import SystemClock
from inbound.errors import LedgerError
from inbound.ledger import Entry, FilesLedger, Range, died, read_directory
from inbound.ledger.memory import Gap, Note
from inbound.metrics import Exposition
from inbound.status import ProcessStatus
from inbound.testing.world import Consumer, World
from tests.made_status import process
from tests.one_partition import offsets, publish, start, world

__all__ = ["world"]  # the fixture


def broken(consumer: Consumer, calls: int) -> None:
    """Let the next calls of the ledger fail, whatever they are."""
    for _ in range(calls):
        consumer.ledger.fail_next(LedgerError("disk full"))


def gaps(consumer: Consumer) -> list[Gap]:
    return [entry for entry in consumer.ledger.entries if isinstance(entry, Gap)]


def metric(consumer: Consumer, name: str) -> float:
    """What a scrape of the consumer's process says."""
    status: ProcessStatus = process(channels=[consumer.channel.status()])
    text = Exposition(lambda: status).render()[0].decode()
    (line,) = [line for line in text.splitlines() if line.startswith(name + "{")]
    return float(line.split()[-1])


def test_degrading_goes_on_and_is_never_provable_again(world: World) -> None:
    """Status and metrics say so: available again soon, provable no more."""
    processor = start(world, degrade=True)
    a = world.consumers["a"]
    assert metric(a, "inbound_ledger_provable") == 1
    broken(a, 3)  # begun, done, settled

    publish(world, 2)
    world.run_until(lambda: world.commits() == {0: 2}, within=1)

    assert offsets(processor) == [0, 1]
    status = a.channel.status()
    assert (status.ledger_problem, status.provable) == ("disk full", False)
    assert metric(a, "inbound_ledger_available") == 0
    world.kafka.publish("orders", 0, [b"more"])
    world.run(1)
    status = a.channel.status()
    assert (status.ledger_problem, status.provable) == (None, False)
    assert (metric(a, "inbound_ledger_available"), metric(a, "inbound_ledger_provable")) == (1, 0)


def test_the_ledger_says_between_when_something_is_missing_as_soon_as_it_can(world: World) -> None:
    """Once, with the next entry that gets through; that much can't be proved, all after it can."""
    start(world, degrade=True)
    a = world.consumers["a"]
    broken(a, 3)
    began = world.clock.wall()
    publish(world, 2)
    world.run(1)
    assert gaps(a) == []

    world.kafka.publish("orders", 0, [b"more"])
    world.run(1)
    world.kafka.publish("orders", 0, [b"and more"])
    world.run(1)

    (gap,) = gaps(a)
    assert began <= gap.since < gap.until <= world.clock.wall()
    assert world.commits() == {0: 4}


def test_a_mark_that_cannot_be_written_is_tried_again_and_reaches_back_to_the_first_loss(world: World) -> None:
    """The disk has room for one entry, and is full again when the mark is to follow."""
    start(world, degrade=True)
    a = world.consumers["a"]
    broken(a, 3)
    began = world.clock.wall()
    publish(world, 1)
    world.run(1)
    a.ledger.fail_next(LedgerError("disk full"), "degraded")
    world.kafka.publish("orders", 0, [b"more"])
    world.run(1)

    (gap,) = gaps(a)

    assert began <= gap.since < began + 1


def test_holding_leaves_no_gap(world: World) -> None:
    """Nothing was handed out that is not in the ledger."""
    processor = start(world)
    a = world.consumers["a"]
    broken(a, 2)
    publish(world, 2)
    world.run(5)

    assert (offsets(processor), world.commits(), gaps(a)) == ([0, 1], {0: 2}, [])
    assert a.channel.status().provable


def test_an_event_that_was_not_recorded_is_a_gap_also_where_batches_are_held(world: World) -> None:
    """A claim can't wait for the disk; that it is missing is said."""
    world.join("a")
    world.consumers["a"].ledger.fail_next(LedgerError("disk full"), "note")
    world.run(4)
    publish(world, 1)
    world.run(2)

    a = world.consumers["a"]
    assert [entry.kind for entry in a.ledger.entries if isinstance(entry, Note)] == []
    assert (len(gaps(a)), a.channel.status().provable) == (1, False)


def test_a_process_that_ends_marks_the_gap_before_its_clean_end(world: World) -> None:
    """Nothing was written since; the mark must not be forgotten."""
    start(world, degrade=True)
    a = world.consumers["a"]
    broken(a, 3)
    publish(world, 1)
    world.run(1)

    a.channel.parts.mark_gap()

    assert len(gaps(a)) == 1


def test_in_files_the_mark_is_a_line_without_a_partition(tmp_path: Path) -> None:
    """With the times as facts; a ledger that could not take it has no clean end either."""
    ledger = FilesLedger(tmp_path, "g", "a", SystemClock())
    ledger.begun(Range("orders", 3, 7, 0, 10, 10))
    ledger.degraded(1738367999.5, 1738368010.25)
    ledger.close(clean=False)

    *_, mark = read_directory(tmp_path)

    assert isinstance(mark, Entry)
    assert (mark.kind, mark.topic, mark.partition, mark.seq, dict(mark.facts)) == (
        "degraded", None, None, 2, {"from": 1738367999.5, "to": 1738368010.25},
    )  # fmt: skip
    assert len(died(read_directory(tmp_path))) == 1


@pytest.mark.parametrize("recovers", [True, False])
def test_a_channel_closes_cleanly_only_if_its_gap_is_marked(world: World, recovers: bool) -> None:
    """Otherwise its run looks as if it had died: not everything can be proved."""
    start(world, degrade=True)
    a = world.consumers["a"]
    broken(a, 3 if recovers else 4)
    publish(world, 1)
    world.run(1)

    a.channel.close()

    assert (a.ledger.clean, len(gaps(a))) == (recovers, int(recovers))
