"""Proofs of consumers on fakes: never PROVEN for records that were not delivered."""

from __future__ import annotations

from typing import Any

import pytest

from inbound import Batch, BatchResponse
from inbound.cli.inspect.status_text import shown
from inbound.coordinators.static import StaticCoordinator
from inbound.coordinators.zookeeper import Delete, SetData
from inbound.ledger.base import Range
from inbound.ledger.memory import Note
from inbound.proof.model import PartitionProof, Proof, Verdict
from inbound.proof.words import headline
from inbound.testing.world import Recording, World
from inbound.topic_partition import TopicPartition
from tests.channel.one_partition import offsets, publish, start, world
from tests.observe.status.made_status import NOW, process
from tests.proof.proof_stories import brief
from tests.proof.world_proofs import proofs_of

__all__ = ["world"]  # the fixture


def proof_of(world: World, partition: int = 0) -> PartitionProof:
    return proofs_of(world)[TopicPartition("orders", partition)]


def said(world: World) -> str:
    """Return the headline of the whole proof, without whose it is."""
    proof = Proof("exact", 0.0, 0.0, tuple(proofs_of(world).values()))
    return headline(proof).partition(": ")[2]


def found(proof: PartitionProof) -> list[tuple[str, int, int]]:
    return [brief(finding) for finding in proof.findings]


@pytest.mark.parametrize("elected", [False, True], ids=["one leader", "another leader since"])
@pytest.mark.parametrize("how", ["emptied", "deleted"])
def test_an_offset_node_that_is_gone_while_no_consumer_owns_the_partition(
    world: World, how: str, elected: bool
) -> None:
    """With `latest` the next claim begins at the log's end: the records since the last commit are never delivered.

    The last commit moves the epoch on, where another leader has written: no outsider is needed to explain that epoch.
    """
    publish(world, 60)
    start(world)
    if elected:
        world.kafka.lose_leader("orders", 0)
        world.kafka.elect_leader("orders", 0)
    publish(world, 40)
    world.run(2)
    world.kill("a")
    world.run(12)
    path = world.paths.offset("orders", 0)
    world.ensemble.tree.transaction([SetData(path, b"") if how == "emptied" else Delete(path)], 0)
    gone = proof_of(world)
    publish(world, 900)

    world.join("b", auto_offset_reset="latest")
    world.run(5)
    publish(world, 5)
    world.run(2)

    assert (gone.verdict, gone.proven) == (Verdict.NOT_PROVABLE, 100)
    proof = proof_of(world)
    assert (proof.verdict, found(proof), proof.findings[0].offsets) == (Verdict.ANOMALIES, [("lost", 100, 1000)], 900)


@pytest.mark.parametrize(
    ("then", "kind", "told"),
    [("skip", "given-up", "10 given up (on_error: skip)"), ("dead-letter", "dead-lettered", "10 dead-lettered")],
)
def test_records_that_fail_for_good_are_in_headline_table_and_status(
    world: World, then: str, kind: str, told: str
) -> None:
    """Ten records raise: none of them was processed, and each place says so."""

    def answer(batch: Batch) -> BatchResponse:
        raise ValueError("poison")

    publish(world, 10)
    settings: dict[str, Any] = {"dead_letters": lambda *arguments: None} if then == "dead-letter" else {}
    on_error = {"max_attempts": 1, "then": then} | ({"dead_letter_topic": "dead"} if settings else {})
    start(world, answer, on_error=on_error, **settings)
    world.run(20)

    proof = proof_of(world)
    text = shown([process(channels=[world.consumers["a"].channel.status()])], NOW)

    assert (proof.verdict, proof.committed, proof.left_out) == (Verdict.PROVEN, 10, ((0, 10),))
    assert {finding.kind for finding in proof.findings} == {kind}
    assert said(world) == f"0 offsets of 1 partition delivered and committed, none lost; {told}"
    assert f"Offsets not processed: {told}; " in text


def test_what_the_processor_passes_over_is_not_among_what_was_processed(world: World) -> None:
    """`advance(..., skip=True)` from the first batch on."""
    publish(world, 53)
    skips = lambda batch: BatchResponse.advance(40, skip=True) if batch.next_offset < 40 else BatchResponse.advance()  # noqa: E731
    start(world, skips, reader={"max_batch_records": 3})

    assert (proof_of(world).verdict, found(proof_of(world))) == (Verdict.PROVEN, [("passed-over", 3, 40)])
    assert (
        said(world) == "16 offsets of 1 partition delivered and committed, none lost; 37 passed over by the processor"
    )


def test_a_partition_that_no_consumer_claims() -> None:
    """Its beginning is deleted by and by; the other partition is proven."""
    world = World()
    world.kafka.create_topic("orders", 2)
    for partition in range(2):
        world.kafka.publish("orders", partition, [b"x"] * 50)
    world.join("a", coordinator=StaticCoordinator({"orders": [0]}))
    world.run(5)
    world.kafka.retain("orders", 1, 30)

    proof = proof_of(world, 1)

    assert (proof_of(world, 0).verdict, proof.verdict) == (Verdict.PROVEN, Verdict.UNCLAIMED)
    assert found(proof) == [("unclaimed", 0, 30), ("unclaimed", 30, 50)]
    assert "of 1 of 2 partitions that no consumer ever owned" in said(world)


def test_a_topic_that_is_recreated_is_in_the_verdict(world: World) -> None:
    """With what was committed of the old one."""
    publish(world, 30)
    start(world)
    world.kafka.delete_topic("orders")
    world.kafka.create_topic("orders", 1)
    publish(world, 5)
    world.run(20)

    proof = proof_of(world)

    assert (proof.verdict, proof.start, proof.proven) == (Verdict.PROVEN, 0, 5)
    assert [(former.start, former.committed) for former in proof.former] == [(0, 30)]
    assert said(world).endswith("; 1 partition of a recreated topic, whose deleted predecessor is no longer judged")


def test_a_batch_that_is_begun_and_released_without_a_delivery_is_not_repeated(world: World) -> None:
    """Writing `begun` takes so long that the session may have expired: it is not delivered, and another consumer has it."""
    ledger = world.join("a").ledger
    world.join("b")
    world.run(5)
    begun = ledger.begun

    def slow(entry: Range) -> None:
        begun(entry)
        world.clock.advance(7)

    ledger.begun = slow  # type: ignore[method-assign]
    publish(world, 20)
    world.run_until(lambda: any(isinstance(e, Note) and e.kind == "withheld" for e in ledger.entries), within=5)
    world.kill("a")
    world.run(30)

    a, b = (world.consumers[name].processor for name in "ab")
    assert isinstance(a, Recording)
    assert isinstance(b, Recording)
    assert (offsets(a), offsets(b)) == ([], list(range(20)))
    assert (found(proof_of(world)), proof_of(world).explained, proof_of(world).handed_out) == ([], (), 20)
