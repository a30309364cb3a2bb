"""What the judge says of offsets that were passed over: on purpose, for a reason that counts no more, or without a reason."""

from __future__ import annotations

import pytest

from inbound.proof.model import OffsetRange, Verdict
from tests.proof.proof_stories import Story

# -- left out on purpose ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("processor", "passed-over"), ("skip: ValueError", "given-up"), ("dead-letter: ValueError", "dead-lettered")],
)
def test_what_is_skipped_on_purpose_is_proven_and_named(reason: str, kind: str) -> None:
    """A processor that skips, a record that `on_error` gave up: committed past, and not among what was processed."""
    story = Story().log(40)
    a = story.run("a").claim(1, at=0).batch(10)
    if reason != "processor":  # it was delivered, and failed
        a.begin(5).jump(10)
    a.skip(to=15, reason=reason).answer().land().batch(5)

    proof = story.proof()

    assert (proof.verdict, story.found()) == (Verdict.PROVEN, [(kind, 10, 15)])
    assert (proof.proven, proof.left_out) == (20, ((10, 15),))


def test_what_is_given_up_and_not_committed_past_is_not_given_up_yet() -> None:
    """Killed before the commit: the next owner gets it again."""
    story = Story().log(40)
    story.run("a").claim(1, at=0).batch(10).begin(5).jump(10).skip(to=15, reason="skip: ValueError")
    story.zookeeper(10, epoch=1)

    assert (story.found(), story.proof().left_out) == ([], ())


def test_what_was_given_up_and_is_processed_later_is_not_given_up() -> None:
    """Its commit did not land: the next claim begins at it, and this time it succeeds."""
    story = Story().log(40)
    story.run("a").claim(1, at=0).batch(10).begin(5).jump(10).skip(to=15, reason="skip: ValueError").answer().loses()
    story.run("b").claim(2, at=10).batch(10)

    proof = story.proof()

    assert (story.found(), proof.left_out) == ([("repeated", 10, 15)], ())


@pytest.mark.parametrize("back", ["reset", "revert"])
def test_an_excuse_counts_no_more_where_reading_went_back(back: str) -> None:
    """Skipped once; then a reset asks for all of it again, and it is passed over without a word."""
    story = Story().log(40)
    a = story.run("a").claim(1, at=0).batch(10).skip(to=15).answer().land().batch(5)
    if back == "revert":
        a.revert(to=0)
    else:
        a.note("reset", old=20, new=0, reason="on_claim").jump(0)
    a.begin(10).jump(15).begin(10).answer().land()

    proof = story.proof()

    assert (proof.verdict, proof.left_out) == (Verdict.ANOMALIES, ())
    assert ("lost", 10, 15) in story.found()


def test_what_is_excused_later_does_not_excuse_what_was_lost_before() -> None:
    """A hole; later a reset jumps over the same offsets, once they had been read again up to there."""
    story = Story().log(40)
    a = story.run("a").claim(1, at=0).batch(10).jump(15).batch(5)
    a.note("reset", old=20, new=5, reason="on_claim").jump(5).batch(5)
    a.note("reset", old=10, new=20, reason="on_claim").jump(20).batch(5)

    assert ("lost", 10, 15) in story.found()


def test_a_skip_covers_nothing_before_it() -> None:
    """From 10 to 20 nothing was delivered, and only the second half was skipped."""
    story = Story().log(40)
    story.run("a").claim(1, at=0).batch(10).jump(15).skip(to=20).answer().land().batch(5)

    assert story.found() == [("lost", 10, 15), ("passed-over", 15, 20)]


# -- a group without its commit ---------------------------------------------------------------------------------------


def test_a_group_offset_that_was_deleted_begins_without_a_commit() -> None:
    """The claim finds no offset: it was deleted, and the first position is the log's."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).releases().closes()
    story.run("b").claim(2, at=None).answer(0).land().batch(10)

    proof = story.proof()

    assert (proof.verdict, proof.findings, proof.explained) == (Verdict.PROVEN, (), ((0, 10),))


def test_a_first_position_whose_line_is_missing_explains_where_the_next_claim_begins() -> None:
    """Killed between that commit and its line: the next claim finds it."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).releases().closes()
    story.run("b").claim(2, at=None).answer(0)
    story.run("c").claim(3, at=0).batch(4).batch(6)

    proof = story.proof()

    assert (proof.verdict, proof.findings, proof.explained) == (Verdict.PROVEN, (), ((0, 10),))


@pytest.mark.parametrize("landed", [True, False], ids=["committed", "killed before the commit's line"])
def test_a_group_offset_that_was_deleted_may_begin_too_far_on(landed: bool) -> None:
    """The claim finds no offset and begins at the log's end (`latest`): the records since the last commit are never delivered."""
    story = Story().log(1000)
    story.run("a").claim(1, at=0).batch(100).releases().closes()
    b = story.run("b").claim(2, at=None).answer(1000)
    if landed:
        b.land()
    story.run("c").claim(3, at=1000)
    story.zookeeper(1000, epoch=3, owner="c")

    (finding,) = story.proof().findings

    assert (finding.kind, finding.first, finding.next, finding.offsets) == ("lost", 100, 1000, 900)
    assert story.proof().verdict is Verdict.ANOMALIES


def test_a_group_offset_that_was_deleted_after_a_commit_without_its_line_loses_nothing() -> None:
    """Killed between the commit and its line; then the node was emptied. The log ends there."""
    story = Story().log(15)
    story.run("a").claim(1, at=0).batch(10).begin(5).answer()
    story.run("b").claim(2, at=None).answer(15).land()

    assert story.found() == []


def test_a_group_offset_that_was_deleted_after_a_commit_that_moved_its_epoch_loses_nothing() -> None:
    """The same; another leader has written what was committed, so the commit has moved the epoch on."""
    story = Story().log(15)
    story.run("a").claim(1, at=0).batch(10).begin(5).answer()
    story.run("b").claim(3, at=None).answer(15).land()
    story.zookeeper(15, epoch=3, owner="b")

    assert (story.proof().verdict, story.found()) == (Verdict.PROVEN, [])


def test_a_group_offset_that_was_deleted_under_an_epoch_that_no_line_knows() -> None:
    """What lies between may have been delivered: that is not known."""
    story = Story().log(1000)
    story.run("a").claim(1, at=0).batch(100).releases().closes()
    story.run("c").claim(3, at=None).answer(1000).land()

    proof = story.proof()

    assert (proof.verdict, proof.proven, proof.findings) == (Verdict.NOT_PROVABLE, 100, ())


@pytest.mark.parametrize(
    ("epoch", "verdict", "judged_from"),
    [(3, Verdict.NOT_PROVABLE, 23), (2, Verdict.PROVEN, 72)],
    ids=["landed", "did not"],
)
def test_a_first_position_that_was_taken_away_before_its_line_is_not_left_out(
    epoch: int, verdict: Verdict, judged_from: int
) -> None:
    """`latest`: killed between that commit and its line, and the node was emptied. A first commit moves the epoch on."""
    story = Story().log(72)
    story.run("a").claim(1, at=None).answer(23)
    story.run("b").claim(epoch, at=None).answer(72).land()

    proof = story.proof()

    assert (proof.verdict, proof.start, proof.findings) == (verdict, judged_from, ())


@pytest.mark.parametrize("claimed", [True, False], ids=["by who claims it next", "by ZooKeeper"])
@pytest.mark.parametrize(
    ("epochs", "verdict", "found"), [(2, Verdict.NOT_PROVABLE, []), (1, Verdict.ANOMALIES, [("lost", 0, 3)])]
)
def test_what_the_group_was_to_begin_with_is_known_to_be_passed_over(
    epochs: int, verdict: Verdict, found: list[tuple[str, int, int]], claimed: bool
) -> None:
    """Killed between its first commit and that one's line; then the offset was moved from outside."""
    story = Story().log(8)
    story.run("a").claim(1, at=None).leave(0)
    if claimed:
        story.run("b").claim(1 + epochs, at=3).batch(5)
        story.zookeeper(8, epoch=1 + epochs, owner="b")
    else:
        story.zookeeper(3, epoch=epochs)

    proof = story.proof()

    assert (proof.verdict, story.found(), proof.start) == (verdict, found, 0)


@pytest.mark.parametrize(
    ("epoch", "verdict"), [(2, Verdict.NOT_PROVABLE), (1, Verdict.PROVEN)], ids=["landed", "did not"]
)
def test_a_first_position_that_was_taken_away_before_anybody_comes_is_not_left_out(
    epoch: int, verdict: Verdict
) -> None:
    """The same, and no claim followed."""
    story = Story().log(72)
    story.run("a").claim(1, at=None).answer(23)
    story.zookeeper(None, epoch=epoch)

    assert story.proof().verdict is verdict


# -- resets by command ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("new", "explained", "jumped"), [(4, ((4, 10),), []), (14, (), [("jumped", 10, 14)])], ids=["back", "on"]
)
def test_a_reset_by_command_explains_where_the_next_claim_begins(
    new: int, explained: tuple[OffsetRange, ...], jumped: list[tuple[str, int, int]]
) -> None:
    """It has moved the epoch, too, and no line names that one. The next claim notes it, before `claimed`."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).releases()
    b = story.run("b")
    b.epoch = 3
    b.note("reset", old=10, new=new, reason="offsets reset", command="/inbound/commands/reset-offset/x").claim(
        3, at=new
    )
    b.batch(20 - new).releases()

    proof = story.proof()

    assert (proof.verdict, proof.explained, proof.proven) == (Verdict.PROVEN, explained, 20)
    assert (story.found(), proof.left_out) == (jumped, tuple((first, next_) for _, first, next_ in jumped))


def test_what_a_reset_does_not_say_it_passed_is_not_excused_by_it() -> None:
    """It moved the group from 30: who had moved it there from 10 is not known."""
    story = Story().log(60)
    story.run("a").claim(1, at=0).batch(10).releases()
    b = story.run("b")
    b.epoch = 3
    b.note("reset", old=30, new=40, reason="offsets reset", command="x").claim(3, at=40).batch(20).releases()

    proof = story.proof()

    assert (proof.verdict, proof.proven, story.found()) == (Verdict.NOT_PROVABLE, 10, [("jumped", 30, 40)])
    assert "the commit moved from 10 to 30 under epoch 2" in proof.missing[0]


def test_a_reset_that_no_ledger_noted_is_not_taken_for_one() -> None:
    """The commit moved under an epoch of which there is no line: that is all that can be said."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).releases()
    story.run("b").claim(3, at=4).batch(6)

    assert story.proof().verdict is Verdict.NOT_PROVABLE


# -- begun, and not delivered -----------------------------------------------------------------------------------------


def test_a_batch_that_was_begun_and_not_delivered_is_not_repeated() -> None:
    """The session was in doubt when `begun` stood there: the batch is withheld, and another consumer gets it."""
    story = Story()
    a = story.run("a").claim(1, at=0).batch(10).begin(8).note("withheld", first=10, next=18, records=8).jump(10)
    a.loses()
    story.run("b").claim(2, at=10).batch(20)

    proof = story.proof()

    assert (proof.findings, proof.explained, proof.handed_out, proof.in_flight) == ((), (), 30, ())


def test_only_the_last_batch_is_withheld() -> None:
    """The one before it was delivered, and its commit did not land."""
    story = Story()
    a = story.run("a").claim(1, at=0).begin(10).begin(8).note("withheld", first=10, next=18, records=8).jump(10)
    a.loses()
    story.run("b").claim(2, at=0).batch(20)

    assert story.found() == [("repeated", 0, 10)]


def test_what_was_passed_over_stays_so_if_reading_that_went_back_does_not_come_to_it() -> None:
    """The processor skipped 4 and 5, went back to 3 later, and gave the partition up there: its commit is behind that."""
    story = Story().log(10)
    a = story.run("a").claim(1, at=0).begin(4).skip(to=6).answer(6).land()
    a.note("revert", **{"from": 6, "to": 3, "reason": "processor"}).jump(3).begin(1).releases()
    story.run("b").claim(2, at=6).batch(4)

    proof = story.proof()

    assert (proof.verdict, story.found(), proof.left_out) == (Verdict.PROVEN, [("passed-over", 4, 6)], ((4, 6),))


def test_what_was_given_up_stays_so_if_the_processor_skips_it_the_next_time() -> None:
    """It was delivered, and failed for good; reading went back before it, and it was never redelivered."""
    story = Story().log(10)
    a = story.run("a").claim(1, at=0).begin(3).begin(1).note("skip", **{"from": 3, "to": 4, "reason": "skip: no good"})
    a.revert(0).begin(3).skip(to=4).answer(4).land().batch(6)

    assert story.found() == [("given-up", 3, 4)]


def test_what_was_passed_over_and_is_gone_past_again_without_a_word_is_lost() -> None:
    """The second time nothing says why."""
    story = Story().log(10)
    a = story.run("a").claim(1, at=0).begin(4).skip(to=6).answer(6).land()
    a.note("revert", **{"from": 6, "to": 3, "reason": "processor"}).jump(3).begin(1).jump(6).batch(4)

    assert ("lost", 4, 6) in story.found()
