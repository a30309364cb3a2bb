"""A ledger that cannot be written: holding, or going on without proof and saying so for good."""

from __future__ import annotations

from pathlib import Path

import pytest

from inbound.errors import LedgerError
from inbound.ledger import Entry, FilesLedger, Range, died, read_directory
from inbound.ledger.memory import Note
from inbound.observe.metrics import Exposition
from inbound.observe.status.status import ProcessStatus
from inbound.proof.model import Verdict
from inbound.testing import ManualClock
from inbound.testing.world import Consumer, World
from tests.channel.one_partition import offsets, publish, start, world
from tests.observe.status.made_status import process
from tests.proof.world_proofs import proofs_of

__all__ = ["world"]  # the fixture


def broken(consumer: Consumer, calls: int) -> None:
    """Let the next calls of the ledger fail."""
    for _ in range(calls):
        consumer.ledger.fail_next(LedgerError("disk full"))


def gaps(consumer: Consumer) -> list[Note]:
    return [entry for entry in consumer.ledger.entries if isinstance(entry, Note) and entry.kind == "degraded"]


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


def test_the_ledger_says_between_which_lines_something_is_missing(world: World) -> None:
    """Once, before the next entry that gets through, with the partition: that much can't be proved, all after it can."""
    start(world, degrade=True)
    a = world.consumers["a"]
    broken(a, 3)
    publish(world, 2)
    world.run(1)
    before = list(a.ledger.entries)

    world.kafka.publish("orders", 0, [b"more"])
    world.run(1)
    world.kafka.publish("orders", 0, [b"and more"])
    world.run(1)

    first, *after = a.ledger.entries[len(before) :]
    assert (gaps(a), first, [type(entry).__name__ for entry in after]) == (
        [first], Note("degraded", "orders", 0, 1), ["Range", "Done", "Settled"] * 2,
    )  # fmt: skip


def test_holding_leaves_no_gap(world: World) -> None:
    """Nothing was delivered that is not in the ledger."""
    processor = start(world)
    a = world.consumers["a"]
    broken(a, 2)
    publish(world, 2)
    world.run(5)

    assert (offsets(processor), world.commits(), gaps(a)) == ([0, 1], {0: 2}, [])
    assert a.channel.status().provable


def test_an_event_that_was_not_recorded_is_a_gap_also_where_batches_are_held(world: World) -> None:
    """A claim can't wait for the disk; its gap is marked."""
    world.join("a")
    world.consumers["a"].ledger.fail_next(LedgerError("disk full"), "note")
    world.run(4)
    publish(world, 1)
    world.run(2)

    a = world.consumers["a"]
    notes = [entry for entry in a.ledger.entries if isinstance(entry, Note)]
    assert (notes, a.channel.status().provable) == ([Note("degraded", "orders", 0, 1)], False)


def test_what_is_missing_of_one_partition_is_no_other_ones(world: World) -> None:
    """Each is proven but the one whose batch is not in the ledger."""
    world.kafka.create_topic("orders", 3)
    start(world, degrade=True)
    a = world.consumers["a"]
    publish(world, 2)
    world.run(1)
    broken(a, 2)  # begun, done
    world.kafka.publish("orders", 1, [b"x"])
    world.run(1)
    for partition in range(3):
        world.kafka.publish("orders", partition, [b"x"])
    world.run(1)

    assert {tp.partition: (proof.verdict, proof.proven) for tp, proof in proofs_of(world).items()} == {
        0: (Verdict.PROVEN, 3), 1: (Verdict.NOT_PROVABLE, 0), 2: (Verdict.PROVEN, 1),
    }  # fmt: skip


def test_a_claim_that_ends_after_a_gap_does_not_hide_it(world: World) -> None:
    """The disk has room again when the partition is released: the mark stands before that line."""
    start(world, degrade=True)
    broken(world.consumers["a"], 3)
    publish(world, 5)
    world.run(1)
    world.leave("a")
    world.join("b", degrade=True)
    world.run(4)

    (proof,) = proofs_of(world).values()

    assert (proof.verdict, proof.findings, proof.proven) == (Verdict.NOT_PROVABLE, (), 0)


def test_who_is_killed_while_its_ledger_cannot_be_written_has_lost_nothing(world: World) -> None:
    """Its commits in that time are in no ledger: that is not provable, and no loss. Under `hold` it would be one."""
    start(world, degrade=True)
    broken(world.consumers["a"], 3)
    publish(world, 5)
    world.run(1)
    world.kill("a")
    (before,) = proofs_of(world).values()
    world.join("b", degrade=True)
    world.run(20)

    (proof,) = proofs_of(world).values()

    assert [(p.verdict, p.findings, p.proven) for p in (before, proof)] == [(Verdict.NOT_PROVABLE, (), 0)] * 2
    assert "could not be written (on_failure: degrade)" in proof.missing[0]


def test_in_files_each_partition_has_its_line_and_the_run_one_for_earlier_releases(tmp_path: Path) -> None:
    """With the times as facts, before the next line, or the end."""
    clock = ManualClock()
    ledger = FilesLedger(tmp_path, "g", "a", clock)
    ledger.begun(Range("orders", 3, 7, 0, 10, 10))
    ledger.lacks("orders", 4, 8)
    clock.advance(5)
    ledger.lacks("orders", 3, 7)
    ledger.begun(Range("orders", 3, 7, 10, 20, 10))
    ledger.lacks("orders", 3, 7)
    ledger.close()

    marks = [item for item in read_directory(tmp_path) if isinstance(item, Entry) and item.kind == "degraded"]

    now = clock.wall()
    assert [(mark.topic, mark.partition, mark.epoch, mark.seq, dict(mark.facts)) for mark in marks] == [
        (None, None, None, 2, {"from": now - 5, "to": now, "partitions": 2}),
        ("orders", 3, 7, 3, {"from": now, "to": now}),
        ("orders", 4, 8, 4, {"from": now - 5, "to": now}),
        (None, None, None, 6, {"from": now, "to": now, "partitions": 1}),
        ("orders", 3, 7, 7, {"from": now, "to": now}),
    ]
    assert died(read_directory(tmp_path)) == []


@pytest.mark.parametrize("recovers", [True, False])
def test_a_channel_closes_cleanly_only_if_its_gap_is_marked(world: World, recovers: bool) -> None:
    """Otherwise its run looks as if it had died: not everything can be proved."""
    start(world, degrade=True)
    a = world.consumers["a"]
    broken(a, 3)
    publish(world, 1)
    world.run(1)
    if not recovers:
        a.ledger.fail_next(LedgerError("disk full"), "close")

    a.channel.close()

    assert (a.ledger.clean, len(gaps(a))) == (recovers, int(recovers))
