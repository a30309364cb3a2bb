"""The product itself under faults, on a fake clock: its ledgers prove exactly what its processors saw."""

from __future__ import annotations

from collections import Counter

import pytest

from inbound.proof.model import Verdict
from inbound.testing.world import Recording
from inbound.topic_partition import TopicPartition
from tests.proof_of_world import play, proofs_of, repeated_by
from tests.simulation.stage import world_of


def seen_twice(*processors: Recording) -> set[int]:
    """Return the offsets that processors were handed more than once."""
    counted = Counter(offset for processor in processors for _, offset in processor.seen)
    return {offset for offset, times in counted.items() if times > 1}


def test_a_killed_consumer_repeats_what_it_had_in_its_callback() -> None:
    """Its successor is handed the batch again; the ledgers say so, with the cause."""
    world = world_of("a", session=4.0)
    a = world.consumers["a"].processor
    assert isinstance(a, Recording)
    world.kafka.publish("orders", 0, [b"x"] * 5)
    a.on_batch = lambda batch: world.kill("a")
    world.run(1)
    world.join("b", b := Recording())
    world.run(12)

    proof = proofs_of(world)[TopicPartition("orders", 0)]

    assert (proof.verdict, proof.proven, proof.lag) == (Verdict.PROVEN, 5, 0)
    assert repeated_by(proof) == seen_twice(a, b) == {0, 1, 2, 3, 4}
    assert [bar.ending for bar in proof.claims] == ["died", "holds"]


def test_a_failing_processor_explains_its_repeats() -> None:
    """It raises twice: reverts are noted, and none of it is a finding."""
    failures = iter((True, True))
    world = world_of("a")
    a = world.consumers["a"].processor
    assert isinstance(a, Recording)

    def fail(batch: object) -> None:
        if next(failures, False):
            raise RuntimeError("no")

    a.on_batch = fail
    world.kafka.publish("orders", 0, [b"x"] * 3)
    world.run(10)

    proof = proofs_of(world)[TopicPartition("orders", 0)]

    assert (proof.verdict, proof.findings, proof.explained) == (Verdict.PROVEN, (), ((0, 3),))


def test_shutdown_and_rebalance_repeat_nothing() -> None:
    """Members come and go in good order."""
    world = world_of("a", partitions=3)
    for name in ("b", "c"):
        for partition in range(3):
            world.kafka.publish("orders", partition, [b"x"] * 20)
        world.join(name)
        world.run(5)
    world.leave("a")
    world.run(5)

    assert {(p.verdict, p.findings, p.explained, p.lag) for p in proofs_of(world).values()} == {
        (Verdict.PROVEN, (), (), 0)
    }


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 100, 1700])
def test_seeds_of_the_simulator_prove_what_was_seen(first: int) -> None:
    """Storms of faults; thousands of them in tests/simulation."""
    for seed in range(first, first + 4):
        assert {seed: play(seed).disagreements()} == {seed: []}
