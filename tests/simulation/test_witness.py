"""What the witness of simulated runs expects the proof to know: single histories, made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inbound.ledger.base import Settled
from inbound.ledger.memory import Note
from inbound.processors.batch import Batch, PlainRecord
from inbound.proof.claims import RECREATED
from inbound.proof.model import Verdict
from inbound.testing.kafka import FakeKafka
from inbound.topic_partition import TopicPartition
from tests.proof.proof_stories import KEY, Story, windowed
from tests.simulation.witness import ProofWitness

ORDERS_0 = TopicPartition(KEY.topic, KEY.partition)


def note(kind: str, epoch: int, **facts: object) -> Note:
    return Note(kind, *ORDERS_0, epoch, facts)


@pytest.mark.parametrize("noticed_by", ["who could not write", "who came after"])
@pytest.mark.parametrize(
    ("proven", "lines"), [(6, []), (5, ["orders/0: proven up to 5 alone, although {} is in no ledger: all is known below 6"])]
)  # fmt: skip
def test_behind_a_cut_nobody_knows_what_who_could_not_write_has_read(
    noticed_by: str, proven: int, lines: list[str]
) -> None:
    """It had committed 8, of records that are gone: from 6 on it may have been handed those that stand there now."""
    kafka = FakeKafka()
    kafka.create_topic("orders", 1)
    kafka.publish(*ORDERS_0, [b"x"] * 8)
    witness = ProofWitness(kafka)
    witness.claimed(ORDERS_0, 1)
    witness.wrote([note("claimed", 1, position=0), Settled(*ORDERS_0, 1, 8, "landed", 1)])
    witness.committed(ORDERS_0, 8)
    kafka.truncate(*ORDERS_0, 6)
    kafka.publish(*ORDERS_0, [b"new"] * 4)
    cut = {"position": 8, "to": 10, "cut": 6, "start": 0, "end": 10}
    if noticed_by == "who could not write":
        witness.wrote([note("truncated", 1, **cut)])
    lost = note("lost", 1)
    witness.refused([lost], degrade=False)
    witness.claimed(ORDERS_0, 2)
    witness.wrote([note("claimed", 2, position=8), note("truncated", 2, **cut)])

    story = Story().log(10)
    windowed(story, "a", 1, at=0).batch(8).note("degraded", **{"from": 1.0, "to": 2.0})
    proof = replace(story.zookeeper(8, epoch=1).proof(), proven=proven)

    said = [line for line in witness.disagreements({ORDERS_0: proof}, lambda _: "b") if ": proven up to" in line]
    assert said == [line.format(lost) for line in lines]


@pytest.mark.parametrize("goes_on", [True, False], ids=["and goes on", "and nothing more"])
def test_what_was_not_written_before_a_recreation_may_have_been_about_either_topic(goes_on: bool) -> None:
    """Its ledger says so when it comes to be written again. If that was before, it was the topic that is gone."""
    kafka = FakeKafka()
    kafka.create_topic("orders", 1)
    witness = ProofWitness(kafka)
    witness.claimed(ORDERS_0, 1)
    witness.wrote([note("claimed", 1, position=0)])
    witness.committed(ORDERS_0, 0)
    witness.claimed(ORDERS_0, 2)
    lost = note("lost", 2)
    witness.refused([note("claimed", 2, position=0), lost], degrade=False)
    if goes_on:
        witness.claimed(ORDERS_0, 3)
        witness.wrote([note("claimed", 3, position=0)])
    witness.claimed(ORDERS_0, 4)
    witness.begins_recreated(ORDERS_0, 4)
    witness.wrote([note("reset", 4, old=0, new=0, reason=RECREATED), note("claimed", 4, position=0)])

    story = Story().log(0)
    story.run("a").claim(1, at=0, topic_id="one").loses()
    b = story.run("b")
    b.epoch = 2
    b.note("degraded", **{"from": 1.0, "to": 2.0})
    b.epoch = 4
    b.note("reset", old=0, new=0, reason=RECREATED).claim(4, at=0, topic_id="two")
    proof = story.zookeeper(0, epoch=4, owner="b").proof()

    said = list(witness.disagreements({ORDERS_0: proof}, lambda _: "b"))
    unfounded = f"orders/0: not provable, although the ledgers have it all: {'; '.join(proof.missing)}"
    assert (proof.verdict, said) == (Verdict.NOT_PROVABLE, [unfounded] if goes_on else [])


@pytest.mark.parametrize(
    ("told", "said"), [(False, []), (True, ["orders/0: redelivered [0, 1] by the proof, [] in truth"])]
)
def test_what_was_repeated_of_a_deleted_topic_is_taken_for_the_new_one_where_no_ledger_tells_of_that(
    told: bool, said: list[str]
) -> None:
    kafka = FakeKafka()
    kafka.create_topic("orders", 1)
    witness = ProofWitness(kafka)
    witness.claimed(ORDERS_0, 2)
    witness.begins_recreated(ORDERS_0, 2)
    witness.handed(ORDERS_0, Batch(*ORDERS_0, 0, 2, [PlainRecord(0), PlainRecord(1)], 2))
    recreated, lost = note("reset", 2, old=4, new=0, reason=RECREATED), note("lost", 2)
    witness.refused([lost] if told else [recreated, lost], degrade=True)
    witness.wrote([recreated] if told else [])

    story = Story().log(2)
    windowed(story, "a", 1, at=0).batch(2).loses()
    proof = replace(story.zookeeper(2, epoch=1).proof(), explained=((0, 2),))

    disagreements = witness.disagreements({ORDERS_0: proof}, lambda _: "b")
    assert [line for line in disagreements if "redelivered" in line] == said
