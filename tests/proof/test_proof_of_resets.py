"""What a proof says of offsets that a reset has moved: redelivery, and moves that no ledger has noted yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inbound.controller.reset_offset.model import To
from inbound.coordinators.nodes import EpochInfo
from inbound.coordinators.zookeeper import SetData
from inbound.offsets.changes import TopicOffsets
from inbound.proof.model import NotedReset, PartitionProof, Verdict
from inbound.testing.world import GROUP, Recording
from inbound.topic_partition import TopicPartition
from tests.channel.one_partition import publish
from tests.controller.reset_offset.reset_by_hand import Told
from tests.controller.reset_offset.reset_stage import Stage
from tests.proof.proof_stories import Story
from tests.proof.world_proofs import proofs_of


def proof_of(stage: Stage) -> PartitionProof:
    (proof,) = proofs_of(stage.world).values()
    return proof


def recreated() -> Stage:
    """Return a group that has committed 10 of a topic that was deleted, and left; the new one has 20 records."""
    stage = Stage("a", partitions=1)
    stage.world.leave("a")
    stage.world.kafka.delete_topic("orders")
    stage.world.kafka.create_topic("orders", 1)
    publish(stage.world, 20)
    return stage


def brief(proof: PartitionProof) -> tuple[Verdict, int | None, list[tuple[str, int, int]]]:
    return proof.verdict, proof.proven, [(f.kind, f.first, f.next) for f in proof.findings]


def test_resets_that_no_ledger_noted_are_explained_by_their_nodes_and_then_by_one_note() -> None:
    """A stalled group is reset twice; the next owner learns of the last one, and notes where the group was before both."""
    stage = Stage("a", partitions=1)
    stage.world.leave("a")
    stage.lead("leader")
    found = []
    for to in (4, 8):
        stage.ended(stage.submit(To.OFFSET, offset=to), within=5)
        found.append(brief(proof_of(stage)))
    stage.world.join("b", Told())
    stage.run(10)

    assert (found, stage.told()) == ([(Verdict.PROVEN, 4, []), (Verdict.PROVEN, 8, [("jumped", 4, 8)])], [(0, 4, 8)])
    assert brief(proof_of(stage)) == (Verdict.PROVEN, 10, [("jumped", 4, 8)])


def test_a_commit_whose_line_is_missing_has_landed_if_a_reset_found_it() -> None:
    """Its owner was killed before it could note that, and the reset went back behind it."""
    story = Story().log(20)
    story.run("a").claim(1, at=0).begin(8).answer()
    told = {"old": 8, "new": 2, "reason": "offsets reset", "command": "/r", "since": 8}
    story.run("b").note("reset", **told).claim(4, at=2).batch(18)

    assert brief(story.proof()) == (Verdict.PROVEN, 20, [])


def test_a_reset_of_a_group_that_never_committed_leaves_it_unclaimed() -> None:
    """There is a commit and an epoch, and never was an owner."""
    story = Story().log(10)
    story.zookeeper(5, epoch=2)
    assert story.coordination is not None
    story.coordination = replace(story.coordination, moved=NotedReset("/r1", None, None, 5))

    assert brief(story.proof()) == (Verdict.UNCLAIMED, 5, [("unclaimed", 0, 10)])


def test_who_claims_after_a_reset_and_has_not_said_so_yet_is_responsible() -> None:
    """Its ledger may be missing: that differs from a partition that was never claimed."""
    story = Story().log(10)
    story.zookeeper(5, epoch=3, owner="a")
    assert story.coordination is not None
    story.coordination = replace(story.coordination, moved=NotedReset("/r1", None, None, 5, claimed=True))

    proof = story.proof()

    assert (brief(proof), proof.missing) == (
        (Verdict.NOT_PROVABLE, None, []),
        ("the group's commit is 5, and no ledger has a line of this partition; give the ledgers",),
    )


def test_who_claimed_before_a_reset_and_committed_nothing_is_responsible() -> None:
    """The reset takes its session out of the epoch node. A ledger that has not a line of it does not make that undone."""
    stage = Stage(partitions=1)
    paths, claim = stage.world.paths, EpochInfo("gone", 7, "n")
    stage.write(SetData(paths.offset("orders", 0), b""), SetData(paths.epoch("orders", 0), claim.encode()))
    stage.lead("leader")
    stage.ended(stage.submit(To.OFFSET, offset=5), within=5)

    assert brief(proof_of(stage)) == (Verdict.NOT_PROVABLE, None, [])


@pytest.mark.parametrize("to", [5, 10, 15])
def test_what_a_reset_of_a_topic_that_was_recreated_passes_is_named_before_anybody_claims_it(to: int) -> None:
    """The group's commit was 10, of the topic before, and what was delivered of that says nothing of this one."""
    stage = recreated()
    stage.lead("leader")
    stage.ended(stage.submit(To.OFFSET, offset=to), within=5)

    assert brief(proof_of(stage)) == (Verdict.PROVEN, to, [("jumped", 0, to)])


def test_a_claim_of_a_deleted_topic_is_no_claim_of_the_new_one() -> None:
    """Its ledgers are gone, as they were old; a reset has set the offset of the new one."""
    stage = recreated()
    stage.lead("leader")
    stage.ended(stage.submit(To.OFFSET, offset=5), within=5)
    stage.world.ledgers = list  # type: ignore[assignment]

    assert proof_of(stage).verdict is Verdict.UNCLAIMED


@pytest.mark.parametrize("to", [0, 5, 10, 15])
def test_an_import_into_a_topic_that_was_recreated_has_jumped_its_beginning(to: int) -> None:
    """The group's commit was 10, of the topic before: that is no offset of this one."""
    stage = recreated()
    world = stage.world
    offsets = TopicOffsets(stage.operator.zk, GROUP, "orders", topic_id=world.kafka.topics()["orders"].topic_id)
    (change,) = stage.do(offsets.change({0: to}, 1))
    world.join("b", Recording())
    stage.run(10)
    world.leave("b")
    left_out = [("jumped", 0, to)] if to else []
    assert (change.old, brief(proofs_of(world)[TopicPartition("orders", 0)])) == (None, (Verdict.PROVEN, 20, left_out))


def test_a_reset_after_one_that_was_told_is_explained_by_its_node() -> None:
    """Nothing was committed between the two: the second begins where the first one, which the ledger knows, has ended."""
    story = Story().log(10)
    story.run("a").claim(1, at=0).batch(4).releases()
    told = {"old": 4, "since": 4, "new": 2, "reason": "offsets reset", "command": "/r1"}
    story.run("b").note("reset", **told).claim(3, at=2).releases()
    story.zookeeper(3, epoch=5)
    assert story.coordination is not None
    story.coordination = replace(story.coordination, moved=NotedReset("/r2", 2, 4, 3))

    assert brief(story.proof()) == (Verdict.PROVEN, 3, [("jumped", 2, 3)])


@pytest.mark.parametrize(
    ("since", "verdict"), [(None, Verdict.PROVEN), (4, Verdict.NOT_PROVABLE)], ids=["resets", "more"]
)
def test_resets_between_two_claims_that_begin_where_one_before_them_ended_explain_the_move(
    since: int | None, verdict: Verdict
) -> None:
    """The group had no commit; /r1 moved it to 2, /r2 to 6, which no ledger noted, /r3 to 7. Else a commit came between."""
    story = Story().log(10)
    first = {"old": None, "since": None, "new": 2, "reason": "offsets reset", "command": "/r1"}
    story.run("a").note("reset", **first).claim(3, at=2).releases()
    third = {"old": 6, "since": since, "new": 7, "reason": "offsets reset", "command": "/r3"}
    story.run("b").note("reset", **third).claim(8, at=7).batch(3)

    assert story.proof().verdict is verdict


def test_a_reset_after_one_that_no_ledger_noted_jumps_what_that_one_wanted_again() -> None:
    """Whether or not it had been delivered before, passed over, or committed past."""
    story = Story().log(80)
    a = story.run("a").claim(1, at=0).batch(10).skip(12).batch(4).begin(4)
    a.skip(22).settle("fenced", 22).loses()
    told = {"old": 8, "since": 16, "new": 61, "reason": "offsets reset", "command": "/r2"}
    story.run("b").note("reset", **told).claim(6, at=61).batch(19)

    assert brief(story.proof()) == (Verdict.PROVEN, 80, [("jumped", 8, 61)])


@pytest.mark.parametrize("told", [True, False], ids=["each was told", "the last one was"])
def test_what_was_given_up_and_is_jumped_when_it_was_wanted_again_is_still_named(told: bool) -> None:
    """It failed, and was never redelivered; once it is, it is not named any more."""
    story = Story().log(80)
    a = story.run("a").claim(1, at=0).batch(10).begin(1)
    a.note("skip", **{"from": 10, "to": 11, "reason": "dead-letter: ValueError"}).answer(11).land().batch(5).releases()
    back = {"old": 16, "since": 16, "new": 8, "reason": "offsets reset", "command": "/r1"}
    if told:
        story.run("b").note("reset", **back).claim(4, at=8).releases()
    story.run("c").note("reset", **{**back, "old": 8, "new": 61, "command": "/r2"}).claim(6, at=61).batch(19)

    jumped = [("jumped", 8, 10), ("dead-lettered", 10, 11), ("jumped", 11, 61)]
    assert brief(story.proof()) == (Verdict.PROVEN, 80, jumped)
    again = {**back, "old": 80, "since": 80, "command": "/r3"}
    story.run("d").note("reset", **again).claim(9, at=8).batch(72)
    assert brief(story.proof()) == (Verdict.PROVEN, 80, [])


def test_two_resets_that_end_where_the_group_was_have_jumped_what_the_first_one_wanted_again() -> None:
    """No ledger noted the first one."""
    story = Story().log(20)
    story.run("a").claim(1, at=0).batch(10).skip(12).batch(4).releases()
    told = {"old": 8, "since": 16, "new": 16, "reason": "offsets reset", "command": "/r2"}
    story.run("b").note("reset", **told).claim(6, at=16).batch(4)

    assert brief(story.proof()) == (Verdict.PROVEN, 20, [("jumped", 8, 16)])


def test_a_reset_tells_where_the_group_was_if_its_first_commit_went_unanswered() -> None:
    """It had begun at 2, and was moved to 5: what lies between was left out."""
    story = Story().log(10)
    story.run("a").claim(1, at=None).leave(2).settle("unknown").loses()
    told = {"old": 2, "since": 2, "new": 5, "reason": "offsets reset", "command": "/r1"}
    story.run("b").note("reset", **told).claim(4, at=5).batch(5)

    proof = story.proof()

    assert (proof.verdict, proof.start, story.found(), proof.left_out) == (
        Verdict.PROVEN,
        2,
        [("jumped", 2, 5)],
        ((2, 5),),
    )


def test_what_a_reset_wants_again_and_retention_deletes_is_lost_to_retention() -> None:
    """It was delivered before the reset, and never after."""
    story = Story().log(20, start=9)
    story.run("a").claim(1, at=0).batch(12).releases()
    b = story.run("b").note("reset", old=12, new=5, reason="offsets reset", command="/r").claim(3, at=5)
    b.note("retention", first=5, next=9).jump(9).batch(11)

    assert story.found() == [("lost-to-retention", 5, 9)]


def test_what_is_delivered_after_a_reset_is_not_taken_back_by_the_next_claim() -> None:
    """It notes the reset again, for nothing was committed since; what the first one has answered for counts."""
    story = Story().log(20, start=9)
    story.run("a").claim(1, at=0).batch(12).releases()
    told = {"old": 12, "new": 5, "reason": "offsets reset", "command": "/r"}
    story.run("b").note("reset", **told).claim(3, at=5).begin(7).answer()
    c = story.run("c").note("reset", **told).claim(4, at=5)
    c.note("retention", first=5, next=9).jump(9).batch(11)

    assert [finding for finding in story.found() if finding[0] == "lost-to-retention"] == []


def test_an_import_that_says_the_same_as_the_one_before_wants_it_all_again() -> None:
    """Offsets were committed in between."""
    story = Story().log(20, start=9)
    told = {"old": 12, "new": 5, "reason": "offsets reset", "command": "inbound offsets import"}
    story.run("a").claim(1, at=0).batch(12).releases()
    story.run("b").note("reset", **told).claim(3, at=5).batch(7).releases()
    c = story.run("c").note("reset", **told).claim(5, at=5)
    c.note("retention", first=5, next=9).jump(9).batch(11)

    assert [finding for finding in story.found() if finding[0] == "lost-to-retention"] == [("lost-to-retention", 5, 9)]


def test_a_recreation_that_each_claim_notes_until_something_is_committed_begins_one_topic() -> None:
    """What the first claim was handed is redelivered, as after any crash."""
    story = Story().log(5)
    story.run("a").claim(1, at=0, topic_id="t1").batch(30).releases()
    recreated = {"old": 30, "new": 0, "reason": "topic created anew", "topic_id": "t2", "former": "t1"}
    story.run("b").note("reset", **recreated).claim(2, at=0, topic_id="t2").begin(3)
    story.run("c").note("reset", **recreated).claim(3, at=0, topic_id="t2").batch(5)
    story.zookeeper(5, epoch=3, owner="c")

    proof = story.proof()

    assert brief(proof) == (Verdict.PROVEN, 5, [("repeated", 0, 3)])
    assert [(former.epoch, former.committed) for former in proof.former] == [(2, 30)]


def test_a_reset_of_a_recreated_topic_that_no_ledger_has_noted_yet_has_jumped_its_beginning() -> None:
    """Who began the topic died before it said so; the next claim says both."""
    story = Story().log(10)
    story.run("a").claim(1, at=0, topic_id="t1").batch(30).releases()
    b = story.run("b").note("reset", old=30, new=0, reason="topic created anew", topic_id="t2", former="t1")
    b.note("reset", old=0, new=4, since=0, reason="offsets reset", command="/r").claim(4, at=4, topic_id="t2").batch(6)
    story.zookeeper(10, epoch=4, owner="b")

    assert brief(story.proof()) == (Verdict.PROVEN, 10, [("jumped", 0, 4)])
