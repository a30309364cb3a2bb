"""What the judge says of one partition: each fault, and the innocent event that looks like it."""

from __future__ import annotations

import pytest

from inbound.proof.model import Verdict
from tests.proof.proof_stories import Story

ONE, ONE_AS_BASE64 = "fbefbeff-0000-0000-0000-000000000001", "++++/wAAAAAAAAAAAAAAAQ"
TWO = "fbefbeff-0000-0000-0000-000000000002"


def test_a_claim_that_reads_on_and_commits_is_proven_to_its_commit() -> None:
    """Everything from the first position to the commit is accounted for; what comes after it is lag."""
    story = Story().log(50)
    story.run("a").claim(1, at=0).batch(10).batch(20)
    story.zookeeper(30, epoch=1, owner="a")

    proof = story.proof()

    assert (proof.verdict, proof.start, proof.proven, proof.committed, proof.lag) == (Verdict.PROVEN, 0, 30, 30, 20)
    assert (proof.findings, proof.in_flight, proof.handed_out) == ((), (), 30)


def test_a_graceful_handover_repeats_nothing() -> None:
    """The next owner begins where the one before committed."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).releases().closes()
    story.run("b").claim(2, at=10).batch(5).releases()

    assert story.proof().findings == ()
    assert [(bar.consumer, bar.ending) for bar in story.proof().claims] == [("a", "released"), ("b", "released")]


# -- repeats -------------------------------------------------------------------------------------------------------------


def test_what_was_in_flight_at_a_crash_is_repeated_and_no_anomaly() -> None:
    """Precisely the offsets that two claims delivered, who had them, and why."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).begin(8)
    story.run("b").claim(2, at=10).batch(20)

    (finding,) = story.proof().findings

    assert (finding.kind, finding.first, finding.next, finding.times) == ("repeated", 10, 18, 1)
    assert (finding.epochs, finding.consumers) == ((1, 2), ("a", "b"))
    assert "killed" in finding.cause
    assert story.proof().verdict is Verdict.PROVEN


def test_a_batch_that_two_crashes_interrupt_is_repeated_twice() -> None:
    """Times counts the deliveries beyond the first."""
    story = Story()
    for epoch, name in enumerate("abc", start=1):
        story.run(name).claim(epoch, at=0).begin(10)

    (finding,) = story.proof().findings

    assert (finding.first, finding.next, finding.times, finding.consumers) == (0, 10, 2, ("a", "b", "c"))


def test_a_fenced_commit_is_the_cause_of_a_repeat() -> None:
    """A fenced consumer: its commit was refused, the other one's stands."""
    story = Story()
    story.run("a").claim(1, at=0).begin(10).answer().settle("fenced").loses()
    story.run("b").claim(2, at=0).batch(10)

    (finding,) = story.proof().findings

    assert (finding.kind, finding.first, finding.next) == ("repeated", 0, 10)
    assert "fenced" in finding.cause


def test_what_was_not_delivered_before_is_not_among_the_repeats() -> None:
    """The log's offsets between: only what both were handed counts."""
    story = Story()
    story.run("a").claim(1, at=0).begin(4)
    story.run("b").claim(2, at=0).begin(2).answer().land().begin(8)

    assert story.found() == [("repeated", 0, 4)]


def test_a_recorded_revert_explains_its_repeats() -> None:
    """A failure, or a wish of the processor: noted, so no finding; but it can be seen."""
    story = Story()
    story.run("a").claim(1, at=0).begin(10).revert(to=0).batch(10)

    proof = story.proof()

    assert (proof.verdict, proof.findings, proof.explained) == (Verdict.PROVEN, (), ((0, 10),))


def test_a_revert_below_the_commit_is_explained_too() -> None:
    """What was committed is read again because the processor asked for it."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).revert(to=4).begin(6).begin(5).answer().land()

    proof = story.proof()

    assert (proof.verdict, proof.findings, proof.explained) == (Verdict.PROVEN, (), ((4, 10),))


def test_an_answer_for_a_part_has_the_rest_redelivered() -> None:
    """`advance(offset)`: the rest of the batch comes again, and nothing of it had been answered."""
    story = Story()
    a = story.run("a").claim(1, at=0).begin(10).answer(6).land()
    a.begin(9).answer().land()

    proof = story.proof()

    assert (proof.verdict, proof.findings, proof.explained) == (Verdict.PROVEN, (), ((6, 10),))


@pytest.mark.parametrize("ends", ["releases", "loses", "dies"])
def test_what_an_answer_gave_back_is_not_repeated_by_the_next_owner(ends: str) -> None:
    """A stopping processor answers for a part of its batch, or for none; the next owner gets the rest."""
    story = Story()
    a = story.run("a").claim(1, at=0).begin(60).answer(22).land()
    b = story.run("b").claim(2, at=22).begin(60).revert(to=22)
    for one in (a, b):
        if ends != "dies":
            getattr(one, ends)()
    story.run("c").claim(3, at=22).batch(60)

    proof = story.proof()

    assert (proof.findings, proof.explained) == ((), ((22, 82),))


def test_what_was_given_back_once_explains_one_repetition() -> None:
    """The next owner gets it, and is killed: so the one after that gets it again."""
    story = Story()
    story.run("a").claim(1, at=0).begin(60).answer(22).land().releases()
    story.run("b").claim(2, at=22).begin(38)
    story.run("c").claim(3, at=22).batch(38)

    assert story.found() == [("repeated", 22, 60)]
    assert story.proof().explained == ((22, 60),)


def test_a_commit_of_what_was_finished_gives_nothing_back() -> None:
    """Not an answer: the rest of the batch is still being worked on when its process is killed."""
    story = Story()
    story.run("a").claim(1, at=0).begin(60).leave(22).land()
    story.run("b").claim(2, at=22).batch(38)

    assert story.found() == [("repeated", 22, 60)]


def test_a_batch_put_back_because_of_doubt_is_delivered_once() -> None:
    """`begun`, and then the session was in doubt: the same batch begins again under the same claim."""
    story = Story()
    story.run("a").claim(1, at=0).begin(10).jump(0).batch(10)

    assert story.found() == []


def test_deferred_commits_cover_several_batches() -> None:
    """`next(commit_within=...)`: many deliveries, one commit; what is not committed is repeated after a crash."""
    story = Story()
    story.run("a").claim(1, at=0).begin(10).begin(10).leave(10).land().begin(10)
    story.run("b").claim(2, at=10).batch(20)

    assert story.found() == [("repeated", 10, 30)]


# -- duplicates ----------------------------------------------------------------------------------------------------------


def test_committed_offsets_redelivered_are_duplicates() -> None:
    """The next claim begins below the commit, and nothing says why."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).releases().closes()
    story.run("b").claim(2, at=4).batch(10)

    proof = story.proof()

    assert proof.verdict is Verdict.ANOMALIES
    assert story.found() == [("duplicate", 4, 10)]


def test_a_duplicate_under_the_same_claim() -> None:
    """A consumer that redelivers its last commit."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).batch(10).jump(10).batch(10)

    assert story.found() == [("duplicate", 10, 20)]


def test_a_reset_that_is_noted_explains_where_a_claim_begins() -> None:
    """`on_claim` gave an offset below the commit: what follows is wanted."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).releases().closes()
    b = story.run("b").claim(2, at=10).note("reset", old=10, new=4, reason="on_claim").jump(4)
    b.answer().land().begin(8).answer().land()

    proof = story.proof()

    assert (proof.verdict, proof.findings, proof.explained) == (Verdict.PROVEN, (), ((4, 10),))


def test_a_reset_under_a_claim_explains_commits_that_go_back() -> None:
    """A command that moves the group's offset under a running claim notes it."""
    story = Story()
    a = story.run("a").claim(1, at=0).batch(10).note("reset", old=10, new=2).jump(2)
    a.batch(4).batch(6)

    assert story.found() == []


def test_a_commit_that_goes_back_under_a_claim_was_an_old_request() -> None:
    """Executed after a newer one, with a higher mzxid: nothing fenced it."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).batch(10).land(10)

    assert story.found() == [("unfenced", 10, 20)]


# -- losses --------------------------------------------------------------------------------------------------------------


def test_an_offset_that_was_never_delivered_and_that_is_committed_past_is_lost() -> None:
    """A hole between two deliveries of a claim."""
    story = Story().log(30)
    story.run("a").claim(1, at=0).batch(10).jump(13).batch(10)

    (finding,) = story.proof().findings

    assert (finding.kind, finding.first, finding.next, finding.offsets) == ("lost", 10, 13, 3)


def test_what_the_log_lacks_is_not_lost() -> None:
    """Compacted offsets and transaction markers, in a hole and inside a batch."""
    story = Story().log(30, lacks=((4, 6), (10, 13)))
    story.run("a").claim(1, at=0).batch(8, lacking=2).jump(13).batch(10)

    assert story.found() == []


def test_of_a_hole_only_what_the_log_has_is_lost() -> None:
    """Exact mode names the offsets; quick mode the range."""
    story = Story().log(30, lacks=((10, 12), (13, 15)))
    story.run("a").claim(1, at=0).batch(10).jump(15).batch(10)

    (exact,) = story.proof().findings
    (quick,) = story.log(30, exact=False).proof().findings

    assert (exact.first, exact.next, exact.offsets) == (12, 13, 1)
    assert (quick.first, quick.next, quick.offsets) == (10, 15, None)


def test_a_batch_with_fewer_records_than_the_log_has_lost_some() -> None:
    """Inside the range of a delivery: the log has ten, the processor was handed eight."""
    story = Story().log(10)
    story.run("a").claim(1, at=0).batch(8, lacking=2)

    (finding,) = story.proof().findings

    assert (finding.kind, finding.first, finding.next, finding.offsets) == ("lost", 0, 10, 2)


def test_a_log_that_was_compacted_since_has_fewer_records_than_were_delivered() -> None:
    """That is no loss: they were there when they were delivered."""
    story = Story().log(10, lacks=((2, 7),))
    story.run("a").claim(1, at=0).batch(10)

    assert story.found() == []


def test_a_claim_that_begins_above_the_commit_loses_what_lies_between() -> None:
    """No epoch between them that could have moved it."""
    story = Story().log(40)
    story.run("a").claim(1, at=0).batch(10).releases().closes()
    story.run("b").claim(2, at=15).batch(10)

    assert story.found() == [("lost", 10, 15)]


def test_done_without_settled_is_judged_by_where_the_next_claim_begins() -> None:
    """Killed between the commit and its line: the next claim begins at it, so it landed; nothing is repeated."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).begin(5).answer()
    story.run("b").claim(2, at=15).batch(5)

    assert story.found() == []


def test_done_without_settled_that_did_not_land_is_repeated() -> None:
    """The next claim begins below it."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).begin(5).answer().settle("unknown").loses()
    story.run("b").claim(2, at=10).batch(5)

    assert story.found() == [("repeated", 10, 15)]


def test_a_commit_beyond_what_was_delivered_loses_it() -> None:
    """Committed past, and the next owner goes on there."""
    story = Story().log(40)
    story.run("a").claim(1, at=0).begin(10).answer(14).land().releases().closes()
    story.run("b").claim(2, at=14).batch(10)

    assert story.found() == [("lost", 10, 14)]


def test_skipped_offsets_that_are_not_committed_past_are_not_lost_yet() -> None:
    """A hole above the commit: the next owner reads it."""
    story = Story().log(40)
    story.run("a").claim(1, at=0).batch(10).jump(15).begin(5)

    assert story.found() == [("skipped", 10, 15)]


def test_a_hole_that_another_claim_fills_is_skipped() -> None:
    """Passed over by the commit of one, delivered by the next."""
    story = Story().log(40)
    story.run("a").claim(1, at=0).begin(10)
    story.run("b").claim(2, at=0).jump(5).begin(5).answer().land()

    assert story.found() == [("skipped", 0, 5), ("repeated", 5, 10)]


def test_a_hole_that_the_same_claim_fills_later_is_reordered() -> None:
    """Delivered after higher offsets."""
    story = Story().log(40)
    story.run("a").claim(1, at=0).begin(10).jump(20).begin(10).jump(10).begin(10).jump(30).answer().land()

    assert story.found() == [("reordered", 10, 20)]


# -- commits -------------------------------------------------------------------------------------------------------------


def test_a_commit_of_an_older_epoch_after_one_of_a_newer_is_unfenced() -> None:
    """Told by mzxid: what a wall clock or the order of files says does not count."""
    story = Story()
    a = story.run("a").claim(1, at=0).batch(10).begin(5)
    story.run("b").claim(2, at=10).batch(20)
    a.answer().land()

    found = story.found()

    assert ("unfenced", 15, 30) in found
    assert {kind for kind, _, _ in found} == {"unfenced", "repeated"}


def test_an_older_commit_that_landed_before_the_newer_claim_is_well_fenced() -> None:
    """The order of files and clocks is another; the mzxids are right."""
    story = Story()
    b = story.run("b")
    a = story.run("a").claim(1, at=0).batch(10)
    b.claim(2, at=10).batch(20)
    a.loses()

    assert story.found() == []


def test_commits_beyond_the_end_of_the_log() -> None:
    """The topic was recreated without the group's knowledge, or the brokers have lost its end."""
    story = Story().log(25)
    story.run("a").claim(1, at=0).batch(30)

    assert story.found() == [("beyond-end", 25, 30)]


def test_a_topic_that_was_recreated_begins_at_zero() -> None:
    """Noted by the claim: what was done in the deleted topic has nothing to do with it."""
    story = Story().log(5)
    story.run("a").claim(1, at=0).batch(30).loses()
    b = story.run("b")
    b.epoch = 2
    b.note("reset", old=30, new=0, reason="topic created anew").claim(2, at=0).batch(5)
    story.zookeeper(5, epoch=2, owner="b")

    proof = story.proof()

    assert (proof.verdict, proof.findings, proof.start, proof.proven) == (Verdict.PROVEN, (), 0, 5)
    (former,) = proof.former
    assert (former.epoch, former.start, former.committed, former.handed_to) == (2, 0, 30, 30)


@pytest.mark.parametrize(("before", "now"), [(ONE, TWO), (ONE_AS_BASE64, TWO)], ids=["one client", "two clients"])
def test_the_owner_that_began_a_recreated_topic_may_have_died_before_its_ledger_said_so(before: str, now: str) -> None:
    """The next claim names another topic, under an epoch that is not the next one."""
    story = Story().log(5)
    story.run("a").claim(1, at=0, topic_id=before).batch(30).loses()
    story.run("b").claim(3, at=0, topic_id=now).batch(5)
    story.zookeeper(5, epoch=3, owner="b")

    proof = story.proof()

    assert (proof.verdict, proof.findings, [former.committed for former in proof.former]) == (Verdict.PROVEN, (), [30])


def test_who_begins_behind_the_start_of_a_topic_that_another_owner_began_has_passed_over_it() -> None:
    """That one died before its ledger said so, and its commit was moved on under an epoch that no ledger knows."""
    story = Story().log(20)
    story.run("a").claim(1, at=0, topic_id=ONE).batch(30).loses()
    story.run("b").claim(4, at=9, topic_id=TWO).batch(11)
    story.zookeeper(20, epoch=4, owner="b")

    proof = story.proof()

    assert (proof.verdict, proof.findings, proof.start, proof.proven) == (Verdict.NOT_PROVABLE, (), 0, 0)
    assert "moved from 0 to 9 under epochs 2 to 3, of which the ledger has no line" in proof.missing[0]


def test_who_begins_behind_the_start_of_a_topic_under_the_next_epoch_has_lost_what_stands_before() -> None:
    """No other claim can have committed that between the two."""
    story = Story().log(20)
    story.run("a").claim(1, at=0, topic_id=ONE).batch(30).loses()
    story.run("b").claim(2, at=9, topic_id=TWO).batch(11)
    story.zookeeper(20, epoch=2, owner="b")

    assert (story.found(), story.proof().verdict) == ([("lost", 0, 9)], Verdict.ANOMALIES)


def test_who_begins_behind_the_start_of_a_topic_after_lines_are_missing_has_lost_nothing_for_sure() -> None:
    """The claim before it went on where its ledger could not be written: it may have begun the new topic."""
    story = Story().log(20)
    story.run("a").claim(1, at=0, topic_id=ONE).batch(30).loses()
    b = story.run("b").note("degraded", **{"from": 1.0, "to": 2.0})
    b.epoch, b.position = 2, 5
    b.batch(4).releases()
    story.run("c").claim(3, at=9, topic_id=TWO).batch(11)
    story.zookeeper(20, epoch=3, owner="c")

    proof = story.proof()

    assert (proof.verdict, [f.kind for f in proof.findings], proof.proven) == (Verdict.NOT_PROVABLE, [], 0)
    assert "its work on the recreated topic is not known" in "".join(proof.missing)


def test_one_topic_by_two_clients_is_no_other_one() -> None:
    """Each client writes the id in its own way."""
    story = Story().log(35)
    story.run("a").claim(1, at=0, topic_id=ONE).batch(30).releases()
    story.run("b").claim(2, at=30, topic_id=ONE_AS_BASE64).batch(5)

    assert (story.proof().former, story.proof().proven) == ((), 35)


def test_a_truncated_log_that_is_noted_is_no_fault() -> None:
    """`on_truncation: latest`: the position goes back to the end, new records have old offsets."""
    story = Story().log(28)
    a = story.run("a").claim(1, at=0).batch(30).revert(to=20)
    a.batch(8).releases()
    story.run("b").claim(2, at=28)

    assert story.found() == []


# -- retention -----------------------------------------------------------------------------------------------------------


def test_what_kafka_deleted_before_it_was_read_is_lost_to_retention() -> None:
    """The consumer noted the range when it came to it."""
    story = Story().log(60, start=40)
    a = story.run("a").claim(1, at=0).batch(10).note("retention", first=10, next=40).jump(40)
    a.batch(20)

    assert story.found() == [("lost-to-retention", 10, 40)]


def test_what_was_delivered_before_kafka_deleted_it_is_not_lost() -> None:
    """Only the log can't confirm the inside any more."""
    story = Story().log(60, start=40)
    story.run("a").claim(1, at=0).batch(50)

    assert story.found() == []


def test_what_is_deleted_above_the_commit_of_a_group_without_an_owner() -> None:
    """It is gone for every owner."""
    story = Story().log(60, start=40)
    story.run("a").claim(1, at=0).batch(10).releases().closes()
    story.zookeeper(10, epoch=1)

    assert story.found() == [("lost-to-retention", 10, 40)]
