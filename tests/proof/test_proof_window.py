"""What the judge says of claims that deliver the next batch while commits of earlier ones are in flight."""

from __future__ import annotations

import pytest

from inbound.proof.model import Verdict
from tests.proof.proof_stories import Story, TelledRun, windowed

# -- steady progress -----------------------------------------------------------------------------------------------------


def test_batches_delivered_while_a_commit_is_in_flight_are_proven() -> None:
    """One commit answers for several batches, and its lines come after later batches were begun."""
    story = Story().log(60)
    a = windowed(story, "a", 1, at=0)
    a.begin(10).advance().begin(10).advance().begin(10).send(20).advance().begin(10).land(20)
    a.advance().send().begin(10).land().advance().send().land()
    story.zookeeper(50, epoch=1, owner="a")

    proof = story.proof()

    assert (proof.verdict, proof.findings, proof.proven, proof.handed_out) == (Verdict.PROVEN, (), 50, 50)


def test_a_batch_that_is_begun_where_the_answer_for_the_one_before_ended() -> None:
    """`advance(5)` of ten: the rest is delivered with the next batch, before the line of that commit."""
    story = Story().log(40)
    windowed(story, "a", 1, at=0).begin(10).advance(5).begin(10).send(5).land().advance().send().land()
    story.zookeeper(15, epoch=1, owner="a")

    proof = story.proof()

    assert (proof.verdict, proof.findings, proof.explained, proof.proven) == (Verdict.PROVEN, (), ((5, 10),), 15)


def test_an_answer_for_a_part_that_was_never_sent() -> None:
    """The next answer was there before the committer came to it: one commit stands for both."""
    story = Story().log(40)
    windowed(story, "a", 1, at=0).begin(10).advance(5).begin(10).advance().send().begin(5).land()
    story.zookeeper(15, epoch=1, owner="a")

    assert (story.found(), story.proof().explained) == ([], ((5, 10),))


def test_a_revert_goes_back_to_what_was_answered_last() -> None:
    """A batch fails while the commit of the one before is in flight."""
    story = Story().log(40)
    a = windowed(story, "a", 1, at=0).begin(10).advance().begin(10).revert(to=10).send().begin(10).land()
    a.advance().send().land()
    story.zookeeper(20, epoch=1, owner="a")

    assert (story.found(), story.proof().explained) == ([], ((10, 20),))


def test_a_batch_that_is_withheld_while_commits_are_in_flight_is_begun_again() -> None:
    """The lines of the commit stand between its `begun` and its `withheld`: it was delivered once."""
    story = Story().log(40)
    a = windowed(story, "a", 1, at=0).begin(10).advance().begin(10).send().land().withhold()
    a.begin(10).advance().send().land()
    story.zookeeper(20, epoch=1, owner="a")

    proof = story.proof()

    assert (proof.verdict, proof.findings, proof.explained, proof.handed_out) == (Verdict.PROVEN, (), (), 20)


def test_the_rest_of_a_batch_may_be_withheld() -> None:
    """It was answered for a part, and the session came into doubt: what follows is that part, again."""
    story = Story().log(40)
    a = windowed(story, "a", 1, at=0).begin(10).advance(5).begin(10).send().withhold().begin(10).land()
    a.advance().send().land()
    story.zookeeper(15, epoch=1, owner="a")

    assert (story.found(), story.proof().explained) == ([], ((5, 10),))


# -- crashes -------------------------------------------------------------------------------------------------------------


def test_a_crash_with_three_batches_in_flight_repeats_them_and_the_one_in_hand() -> None:
    """All of it within the window; the finding says which of them had been answered for."""
    story = Story().log(60)
    a = windowed(story, "a", 1, at=0).begin(10).advance().send().land()
    a.begin(10).advance().begin(10).advance().begin(10).advance().begin(10)
    windowed(story, "b", 2, at=10).batch(40)
    story.zookeeper(50, epoch=2, owner="b")

    (finding,) = story.proof().findings

    assert (finding.kind, finding.first, finding.next, finding.offsets) == ("repeated", 10, 50, 40)
    assert "it had answered up to 40, and that commit was in flight" in finding.cause
    assert story.proof().verdict is Verdict.PROVEN


def test_one_commit_of_several_lands_and_its_process_is_killed() -> None:
    """The next claim begins at it, so it landed; what was answered after it is repeated."""
    story = Story().log(60)
    a = windowed(story, "a", 1, at=0).begin(10).advance().begin(10).advance().send(20)
    a.begin(10).advance().begin(10)
    windowed(story, "b", 2, at=20).batch(20)

    assert story.found() == [("repeated", 20, 40)]


def test_a_commit_landed_that_no_line_announced() -> None:
    """`done` comes before each commit: without it, another writer has moved the offset."""
    story = Story().log(60)
    windowed(story, "a", 1, at=0).begin(10).advance().begin(10)
    windowed(story, "b", 2, at=10).batch(20)

    assert [kind for kind, _, _ in story.found()] == ["skipped", "repeated"]
    assert story.proof().verdict is Verdict.ANOMALIES


def test_a_fenced_commit_with_later_batches_behind_it() -> None:
    """Another consumer has claimed the partition: all that was in flight is repeated there."""
    story = Story().log(60)
    a = windowed(story, "a", 1, at=0).begin(10).advance().send().begin(10).advance()
    a.begin(10).settle("fenced", 10).withhold().loses()
    windowed(story, "b", 2, at=0).batch(30)
    story.zookeeper(30, epoch=2, owner="b")

    (finding,) = story.proof().findings

    assert (finding.kind, finding.first, finding.next) == ("repeated", 0, 20)
    assert "fenced" in finding.cause
    assert story.proof().verdict is Verdict.PROVEN


def test_what_was_withheld_behind_a_fenced_commit_was_not_delivered() -> None:
    """Who goes on behind it has lost it."""
    story = Story().log(60)
    windowed(story, "a", 1, at=0).begin(10).advance().send().begin(10).settle("fenced", 10).withhold().loses()
    windowed(story, "b", 2, at=0).batch(10).jump(20).batch(10)

    assert ("lost", 10, 20) in story.found()


def test_what_was_withheld_behind_a_second_commit_was_not_delivered() -> None:
    """Two commits whose answers are not known stand between its `begun` and its `withheld`."""
    story = Story().log(60)
    a = windowed(story, "a", 1, at=0).begin(10).advance().send().begin(10).advance()
    a.begin(10).send().land(20).withhold().releases()
    windowed(story, "b", 2, at=20).jump(30).batch(10)

    assert story.found() == [("lost", 20, 30)]


# -- what was answered for -----------------------------------------------------------------------------------------------


def test_what_was_answered_and_whose_commit_was_never_sent_is_uncommitted() -> None:
    """No `done` tells of it: the batches after it do."""
    story = Story().log(60)
    windowed(story, "a", 1, at=0).begin(10).advance().begin(10).advance().begin(10).releases().closes()
    story.zookeeper(0, epoch=1)

    assert story.found() == [("uncommitted", 0, 20)]


def test_what_was_answered_before_kafka_deleted_it_is_not_lost() -> None:
    """The next batch says that it was; of what was in hand nothing says so."""
    story = Story().log(60, start=20)
    windowed(story, "a", 1, at=0).begin(10).advance().begin(10)
    windowed(story, "b", 2, at=0).note("retention", first=0, next=20).jump(20).batch(10)

    assert story.found() == [("lost-to-retention", 10, 20)]


def test_of_a_batch_that_was_answered_for_a_part_the_rest_is_lost_with_it() -> None:
    """Answered up to 5, and the rest was in the next batch when it crashed."""
    story = Story().log(60, start=20)
    windowed(story, "a", 1, at=0).begin(10).advance(5).begin(10)
    windowed(story, "b", 2, at=0).note("retention", first=0, next=20).jump(20).batch(10)

    assert ("lost-to-retention", 5, 15) in story.found()
    assert ("lost-to-retention", 0, 5) not in story.found()


def test_what_an_answer_gave_back_is_not_repeated_by_the_next_owner() -> None:
    """It was answered up to 5, the batch with the rest was withheld, and the partition given up before the commit."""
    story = Story().log(60)
    windowed(story, "a", 1, at=0).begin(10).advance(5).begin(10).withhold().releases()
    windowed(story, "b", 2, at=0).batch(15)

    assert (story.found(), story.proof().explained) == ([("repeated", 0, 5)], ((5, 10),))


def test_after_a_reset_less_was_answered_for_than_before() -> None:
    """`on_claim` gave an offset below the commit: what was announced before says nothing against that."""
    story = Story().log(60)
    a = windowed(story, "a", 1, at=0).begin(10).advance().send().land()
    a.note("reset", old=10, new=4, reason="on_claim").jump(4).leave(4).land()
    a.advanced = 4
    a.begin(10).advance().begin(10).send().land()

    assert (story.found(), story.proof().missing, story.proof().explained) == ([], (), ((4, 10),))


def test_a_stale_word_after_a_reset_answers_for_nothing() -> None:
    """The reset wants [4, 10) again, and Kafka deleted it before it was delivered again: it is lost."""
    story = Story().log(60, start=10)
    a = windowed(story, "a", 1, at=0).begin(10).advance().send().land()
    a.note("reset", old=10, new=4).jump(4)
    a.line("begun", first=4, next=6, records=2, commit=10)
    windowed(story, "b", 2, at=4).note("retention", first=4, next=10).jump(10).batch(10)

    assert ("lost-to-retention", 4, 10) in story.found()


# -- no reason -----------------------------------------------------------------------------------------------------------


def test_going_back_without_an_answer_that_led_there_is_reordered() -> None:
    """The batch says itself that more had been answered for."""
    story = Story().log(60)
    a = windowed(story, "a", 1, at=0).begin(10).advance().begin(10).advance().begin(10)
    a.line("begun", first=10, next=20, records=10, commit=20)

    assert story.found() == [("reordered", 10, 20)]


def test_going_back_to_what_was_answered_before_the_last_batch_is_reordered() -> None:
    """Not the answer for the last batch led back: it had been answered that far already when it was begun."""
    story = Story().log(60)
    a = windowed(story, "a", 1, at=0).begin(10).advance().begin(10).begin(10)
    a.line("begun", first=10, next=20, records=10, commit=10)

    assert story.found() == [("reordered", 10, 20)]


def test_a_batch_that_was_answered_and_is_begun_again_is_reordered() -> None:
    """Only a batch without an answer may be begun twice; this one says itself that it was answered."""
    story = Story().log(60)
    windowed(story, "a", 1, at=0).begin(10).advance().line("begun", first=0, next=10, records=10, commit=10)

    assert story.found() == [("reordered", 0, 10)]


def test_going_back_to_a_landed_commit_is_reordered() -> None:
    """By the strict rule nothing was begun behind a commit that had not landed; now what is behind it was delivered."""
    story = Story().log(60)
    a = windowed(story, "a", 1, at=0).begin(10).advance().begin(10).send(10).land(10).advance().begin(10)
    a.line("begun", first=10, next=20, records=10, commit=20)

    assert story.found() == [("reordered", 10, 20)]


def test_going_back_below_what_was_committed_is_a_duplicate_for_every_commit_of_the_batch() -> None:
    """The `done` before it has answered for more: the word of the batch is wrong."""
    story = Story().log(60)
    windowed(story, "a", 1, at=0).begin(20).advance().send().land().line(
        "begun", first=10, next=30, records=20, commit=10
    )

    assert ("duplicate", 10, 20) in story.found()


def test_a_commit_that_goes_past_what_was_answered_is_not_provable() -> None:
    """It was delivered, and maybe in hand when its commit landed: a kill then would have lost it."""
    story = Story().log(60)
    a = windowed(story, "a", 1, at=0).begin(10).advance().begin(10)
    a.line("done", first=10, next=20, commit=20)
    a.settle("landed", 20, mzxid=500)
    a.line("begun", first=20, next=30, records=10, commit=10)
    a.line("begun", first=30, next=40, records=10, commit=10)
    story.zookeeper(20, epoch=1, owner="a", mzxid=500)

    proof = story.proof()

    assert (proof.verdict, proof.proven, len(proof.missing)) == (Verdict.NOT_PROVABLE, 10, 1)
    assert (
        "announced the commit 20, and its next batch, at 20, says that it had been answered up to 10"
        in proof.missing[0]
    )


def test_a_hole_between_batches_in_flight_is_lost_when_the_commit_goes_past_it() -> None:
    """Also where one commit stands for both."""
    story = Story().log(60)
    windowed(story, "a", 1, at=0).begin(10).advance().jump(15).begin(10).advance().begin(5).send(25).land(25)

    assert story.found() == [("lost", 10, 15)]


def test_a_commit_of_a_batch_that_is_begun_later_loses_it_at_a_crash() -> None:
    """Announced and landed before it was delivered: the next claim begins behind it."""
    story = Story().log(60)
    a = windowed(story, "a", 1, at=0).begin(10).advance()
    a.line("done", first=0, next=20, commit=20)
    windowed(story, "b", 2, at=20).batch(10)

    assert story.found() == [("lost", 10, 20)]


# -- logs that are cut while a commit is in flight --------------------------------------------------------------------------


def cut_in_flight(story: Story, *, cut: int | None = 4) -> TelledRun:
    """A claim that notices that the log was cut at 4 when the commit of 14 is in flight, and reads from the start."""
    a = windowed(story, "a", 1, at=0).batch(9).begin(5).advance().send()
    a.note("truncated", position=14, to=0, cut=cut, start=0, end=4)
    a.note("revert", **{"from": 14, "to": 0, "reason": "truncation"}).jump(0)
    a.advanced = 0
    return a


@pytest.mark.parametrize("begun_first", [False, True])
def test_a_commit_of_a_log_that_was_cut_since_may_land_after_that_was_noted(begun_first: bool) -> None:
    """It says nothing of the records that stand there now, which are delivered and committed afterwards."""
    story = Story().log(20)
    a = cut_in_flight(story)
    if begun_first:
        a.begin(10).land(14).advance().send().land()
    else:
        a.land(14).begin(10).advance().send().land()
    a.begin(10).advance().send().land()
    story.zookeeper(20, epoch=1, owner="a")

    proof = story.proof()

    assert (proof.verdict, story.found(), proof.proven, proof.explained) == (Verdict.PROVEN, [], 20, ((0, 4),))


def test_who_goes_on_at_a_commit_of_a_log_that_was_cut_has_lost_what_stands_before() -> None:
    """It landed when the cut was noted, and its process was killed before it could move the commit."""
    story = Story().log(20)
    cut_in_flight(story).land(14)
    windowed(story, "b", 2, at=14).batch(6)
    story.zookeeper(20, epoch=2, owner="b")

    assert story.found() == [("lost", 4, 14)]


def test_a_commit_that_was_in_flight_does_not_move_the_group_over_a_cut() -> None:
    """Where the log was cut is not known, and nothing says that it is read from its start."""
    story = Story().log(20)
    cut_in_flight(story, cut=None).land(14)

    assert story.proof().verdict is Verdict.NOT_PROVABLE


# -- earlier releases ----------------------------------------------------------------------------------------------------


def test_batches_of_an_earlier_release_go_by_the_strict_rule() -> None:
    """They do not say what they come after: an answer for a part, a batch begun twice, and a going back for nothing."""
    story = Story().log(60)
    a = story.run("a").claim(1, at=0).begin(10).answer(5).land().begin(10).jump(5).begin(10).answer().land()
    a.jump(5).begin(5)

    assert (story.found(), story.proof().explained) == ([("duplicate", 5, 10)], ((5, 15),))


def test_a_rolling_upgrade_in_both_directions() -> None:
    """Claims of both releases, one after another."""
    story = Story().log(60)
    story.run("old").claim(1, at=0).batch(10).begin(10)
    windowed(story, "new", 2, at=10).begin(10).advance().begin(10).advance().send(20).land().releases().closes()
    story.run("old again").claim(3, at=20).batch(20).releases().closes()
    story.zookeeper(40, epoch=3)

    assert story.found() == [("repeated", 10, 20), ("repeated", 20, 30)]
    assert story.proof().verdict is Verdict.PROVEN
