"""What the proof says of records that were delivered, not answered, and deleted by retention before redelivery."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from inbound import BatchResponse
from inbound.proof.model import Verdict
from inbound.testing.world import Recording, World
from inbound.topic_partition import TopicPartition
from tests.channel.one_partition import offsets, publish, start, world
from tests.proof.proof_stories import Story
from tests.proof.world_proofs import proofs_of

__all__ = ["world"]  # the fixture

TP = TopicPartition("orders", 0)


# -- who announced more than it was handed -------------------------------------------------------------------------------


def _on_claim(story: Story) -> None:
    story.run("a").claim(2, at=9).note("reset", reason="on_claim", old=9, new=50).answer(50)


def _skip(story: Story) -> None:
    story.run("a").claim(2, at=9).begin(3).skip(50).answer(50)


@pytest.mark.parametrize(
    ("announces", "first"),
    [(lambda story: None, 9), (_on_claim, 9), (_skip, 12)],
    ids=["no owner", "on_claim", "skip=True"],
)
def test_what_was_announced_and_not_committed_is_no_answer_for_what_others_are_handed(
    announces: Callable[[Story], None], first: int
) -> None:
    """The next one is handed 9 to 14 and dies; retention deletes them; the one after it reads on."""
    story = Story().log(70, start=15)
    story.run("z").claim(1, at=0).batch(9).releases()
    announces(story)
    story.run("b").claim(3, at=9).begin(6)
    story.run("c").claim(4, at=9).note("retention", first=9, next=15).jump(15).batch(55)

    assert [found for found in story.found() if found[0] == "lost-to-retention"] == [("lost-to-retention", first, 15)]


def test_a_first_position_that_was_announced_is_no_answer_for_what_is_before_it() -> None:
    """The next one found no commit either, and began at the log's start."""
    story = Story().log(70, start=6)
    story.run("a").claim(2, at=None).answer(50)
    story.run("b").claim(3, at=None).answer(0).land().begin(6)
    story.run("c").claim(4, at=0).note("retention", first=0, next=6).jump(6).batch(64)

    assert ("lost-to-retention", 0, 6) in story.found()


@pytest.mark.parametrize("comes", [True, False], ids=["a new owner", "no owner"])
@pytest.mark.parametrize("gap", ["missing", "degraded"])
def test_what_may_have_been_answered_for_is_not_called_lost(gap: str, comes: bool) -> None:
    """The answer can be in lines that are missing."""
    story = Story().log(20, start=7)
    a = story.run("a").claim(1, at=0).batch(5).begin(4)
    if gap == "missing":
        a.omit(2).note("lost")
    else:
        a.note("degraded", **{"from": 1.0, "to": 2.0})
    if comes:
        story.run("b").claim(2, at=5).note("retention", first=5, next=7).jump(7).batch(13)
    else:
        story.zookeeper(5, epoch=1, mzxid=story.zxid.last)

    assert story.proof().verdict is Verdict.NOT_PROVABLE


# -- uncommitted positions of on_claim -------------------------------------------------------------------------------------


class Saying(Recording):
    """Says where its claim begins; `before` is done first."""

    def __init__(self, start: int | None, before: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._start, self._before = start, before

    def on_claim(self, partition: TopicPartition, committed: int | None) -> int | None:
        self._before()
        return self._start


def says_and_dies(world: World, start_at: int | None) -> None:
    """Leave 9 of 29 records committed, and a dead owner that had chosen a position: its commit never left the process."""
    publish(world, 9)
    start(world)
    world.leave("a")
    publish(world, 20)
    world.join("b", Saying(start_at, lambda: world.ensemble.cut_off("b")))
    world.run(5)
    world.kill("b")
    world.run(15)
    assert world.commits() == {0: 9}


def proven(world: World) -> tuple[Verdict, list[tuple[str, int, int]]]:
    """Judge the only partition."""
    proof = proofs_of(world)[TP]
    return proof.verdict, [(finding.kind, finding.first, finding.next) for finding in proof.findings]


def test_what_on_claim_said_and_no_consumer_committed_makes_no_duplicates(world: World) -> None:
    """Who comes is handed all from the commit on, and dies; so is the next: as at-least-once has it."""
    says_and_dies(world, 25)
    world.join("c", Recording(lambda batch: BatchResponse.next()))
    world.run(5)
    world.kill("c")
    last = Recording()
    world.join("d", last)
    world.run(20)
    assert (offsets(last), proven(world)) == ([*range(9, 29)], (Verdict.PROVEN, [("repeated", 9, 29)]))


@pytest.mark.parametrize("said", [25, None])
def test_what_failed_and_was_deleted_is_lost_for_every_answer_of_on_claim(world: World, said: int | None) -> None:
    """A PROVEN about it would be the worst."""

    def fails(batch: object) -> BatchResponse:
        raise ValueError("no good")

    says_and_dies(world, said)
    world.join("c", Recording(fails))
    world.run(5)
    world.kill("c")
    world.kafka.retain("orders", 0, 15)
    last = Recording()
    world.join("d", last)
    world.run(20)
    verdict, findings = proven(world)
    assert (offsets(last), verdict) == ([*range(15, 29)], Verdict.ANOMALIES)
    assert ("lost-to-retention", 9, 15) in findings


def test_an_on_claim_beyond_the_logs_end_that_is_corrected_leaves_nothing_behind(world: World) -> None:
    """It is no offset of this log: that does not say that the log was cut."""
    publish(world, 9)
    start(world)
    world.leave("a")
    world.join("b", Saying(50))
    world.run(5)
    world.leave("b")
    publish(world, 20)
    last = Recording()
    world.join("c", last)
    world.run(6)
    assert (offsets(last), proven(world)) == ([*range(9, 29)], (Verdict.PROVEN, []))
