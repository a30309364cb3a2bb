"""What the judge says of a log that was cut: nothing that was done with records that are gone proves anything of the new ones."""

from __future__ import annotations

from typing import Any

import pytest

from inbound.proof.model import Verdict, ZooKeeperState
from tests.proof.proof_stories import Story, TelledRun


def notices(run: TelledRun, *, cut: int | None, to: int | None, start: int = 0, end: int) -> TelledRun:
    """Let a run notice a cut, and go on at `to`; None: hold the partition."""
    position = run.position
    run.note("truncated", position=position, to=to, cut=cut, start=start, end=end)
    if to is not None and to < position:
        run.note("revert", **{"from": position, "to": to, "reason": "truncation"})
    return run if to is None else run.jump(to)


def moved(run: TelledRun, **facts: Any) -> TelledRun:
    """The same, with the commit that lands before anything is delivered."""
    notices(run, **facts)
    return run.answer(run.position).land()


def test_a_log_that_was_cut_and_is_read_from_its_start_is_proven() -> None:
    """All of it is redelivered: `on_truncation: earliest`."""
    story = Story().log(14)
    a = moved(story.run("a").claim(1, at=0).batch(9), cut=4, to=0, end=4)
    a.batch(4).batch(10).releases()

    proof = story.proof()

    assert (proof.verdict, story.found(), proof.committed, proof.proven) == (Verdict.PROVEN, [], 14, 14)


def test_what_is_left_of_a_log_that_was_cut_is_redelivered_because_reading_goes_back() -> None:
    """Of 0 to 8 the first four are the same records as before; what stands at 4 to 8 is new."""
    story = Story().log(14)
    a = moved(story.run("a").claim(1, at=0).batch(9), cut=4, to=0, end=4)
    a.batch(14).releases()

    assert (story.proof().explained, story.found()) == (((0, 4),), [])


@pytest.mark.parametrize("said", [True, False])
def test_what_is_read_behind_the_commit_over_a_cut_may_come_again_until_it_is_committed(said: bool) -> None:
    """Killed behind it; also where the ledger does not say that it landed."""
    story = Story().log(14)
    a = notices(story.run("a").claim(1, at=0).batch(9), cut=4, to=0, end=4).answer(0)
    if said:
        a.land().begin(2)
    b = story.run("b").claim(3, at=0).begin(3)
    b.loses()
    story.run("c").claim(4, at=0).batch(14)

    again = [("repeated", 0, 2)] if said else []
    assert (story.found(), story.proof().verdict) == ([*again, ("repeated", 0, 3)], Verdict.PROVEN)


def test_a_commit_goes_back_over_a_cut_once() -> None:
    """One that lands later is an older request that took effect after a newer one."""
    story = Story().log(14)
    a = moved(story.run("a").claim(1, at=0).batch(9), cut=4, to=0, end=4)
    a.batch(14)
    a.answer(0).land()

    assert ("unfenced", 0, 14) in story.found()


def test_a_reset_past_where_the_log_is_cut_later_is_no_loss() -> None:
    """The passed records that still exist were left out; what stands behind the cut is read."""
    story = Story().log(14)
    story.run("a").claim(1, at=0).batch(3).releases()
    b = story.run("b").note("reset", reason="offsets reset", command="r", old=3, new=9)
    moved(b.claim(3, at=9), cut=6, to=6, end=6).batch(8)

    assert story.found() == [("jumped", 3, 6)]


def test_a_log_that_was_cut_and_is_read_on_at_its_end_is_proven() -> None:
    """`on_truncation: latest`, and nothing had come since: new records have old offsets."""
    story = Story().log(14)
    moved(story.run("a").claim(1, at=0).batch(9), cut=4, to=4, end=4).releases()
    story.run("b").claim(2, at=4).batch(10)

    proof = story.proof()

    assert (proof.verdict, story.found(), proof.proven) == (Verdict.PROVEN, [], 14)


def test_what_latest_passes_over_is_what_the_ledger_says() -> None:
    """The log had grown when it was noticed."""
    story = Story().log(20)
    a = story.run("a").claim(1, at=0).batch(9)
    notices(a, cut=4, to=14, end=14)
    a.note("skip", **{"from": 4, "to": 14, "reason": "truncation: on_truncation is latest"})
    a.answer(14).land().batch(6)

    assert [finding for finding in story.found() if finding[0] == "lost"] == []


def test_a_commit_that_stays_behind_a_cut_has_passed_over_what_stands_there_now() -> None:
    """Held, and the next owner goes on at the commit: deliveries of the old 4 to 8 are none of the new."""
    story = Story().log(14)
    notices(story.run("a").claim(1, at=0).batch(9), cut=4, to=None, end=14).releases()
    story.run("b").claim(2, at=9).batch(5)

    assert (story.found(), story.proof().verdict) == ([("lost", 4, 9)], Verdict.ANOMALIES)


def test_a_reset_of_a_held_partition_leaves_out_what_stands_behind_the_cut() -> None:
    """Also what stands before the commit that was held; until another reset wants it."""
    story = Story().log(14)
    notices(story.run("a").claim(1, at=0).batch(9), cut=4, to=None, end=14).releases()
    b = story.run("b").note("reset", reason="offsets reset", command="r", old=9, since=9, new=11)
    b.claim(4, at=11).batch(3).releases()

    proof = story.proof()

    assert (story.found(), proof.missing, proof.verdict) == ([("jumped", 4, 11)], (), Verdict.PROVEN)
    c = story.run("c").note("reset", reason="offsets reset", command="r2", old=14, since=14, new=2)
    c.claim(7, at=2).batch(12)
    assert (story.found(), story.proof().verdict) == ([], Verdict.PROVEN)


def test_while_a_partition_is_held_its_commit_is_beyond_what_was_delivered() -> None:
    """As ZooKeeper says; before the log has grown it is beyond its end."""
    story = Story()
    a = story.run("a").claim(1, at=0).batch(9)
    notices(a, cut=4, to=None, end=4)
    story.zookeeper(9, epoch=1, owner="a", mzxid=story.zxid.last)

    assert story.log(4).found() == [("beyond-end", 4, 9)]
    assert story.log(14).found() == [("lost", 4, 9)]


def test_a_cut_that_a_held_partition_has_noted_is_no_unnoticed_one() -> None:
    """The brokers still say that the commit is behind it: what is lost is named all the same."""
    story = Story().log(14)
    notices(story.run("a").claim(1, at=0).batch(9), cut=4, to=None, end=4)
    story.coordination = ZooKeeperState(9, story.zxid.last, 1, "a", cut=4)

    assert (story.found(), story.proof().verdict, story.proof().missing) == ([("lost", 4, 9)], Verdict.ANOMALIES, ())


@pytest.mark.parametrize("on_failure", ["stop", "degrade"])
def test_a_cut_is_noted_also_of_a_commit_that_a_hand_has_put_back(on_failure: str) -> None:
    """The node was emptied and restored: its number (mzxid) is another, and the ledger knows the commit all the same."""
    story = Story().log(14)
    notices(story.run("a").claim(1, at=0, on_failure=on_failure).batch(9), cut=4, to=None, end=4)
    story.coordination = ZooKeeperState(9, story.zxid.next(), 1, "a", cut=4)

    assert (story.found(), story.proof().verdict, story.proof().missing) == ([("lost", 4, 9)], Verdict.ANOMALIES, ())


def test_a_commit_that_a_hand_has_moved_is_none_of_which_a_cut_was_noted() -> None:
    """The mover and the passed records are not known."""
    story = Story().log(14)
    notices(story.run("a").claim(1, at=0, on_failure="degrade").batch(9), cut=4, to=None, end=4)
    story.coordination = ZooKeeperState(10, story.zxid.next(), 1, "a", cut=4)

    assert (story.proof().verdict, story.proof().proven) == (Verdict.NOT_PROVABLE, 4)


def test_a_commit_that_waited_while_the_partition_came_to_be_held_does_not_hide_that_the_cut_is_noted() -> None:
    """It is about what was delivered before (`commit_within`)."""
    story = Story().log(14)
    a = story.run("a").claim(1, at=0).batch(7).begin(2)
    notices(a, cut=4, to=None, end=4).answer(9).land()
    story.coordination = ZooKeeperState(9, story.zxid.last, 1, "a", cut=4)

    assert (story.found(), story.proof().verdict, story.proof().missing) == ([("lost", 4, 9)], Verdict.ANOMALIES, ())


def test_a_held_partition_has_noted_the_cut_also_where_the_owner_before_died_with_its_last_commit() -> None:
    """No line says that it landed; the next claim begins there, and holds."""
    story = Story().log(14)
    story.run("a").claim(1, at=0).batch(7).begin(2).answer(9)
    notices(story.run("b").claim(2, at=9), cut=4, to=None, end=14)
    story.coordination = ZooKeeperState(9, story.zxid.next(), 2, "b", cut=4)

    assert (story.found(), story.proof().verdict, story.proof().missing) == ([("lost", 4, 9)], Verdict.ANOMALIES, ())


def test_a_cut_that_was_noted_before_the_last_commit_says_nothing_of_a_later_one() -> None:
    """No consumer has noticed that one."""
    story = Story().log(14)
    moved(story.run("a").claim(1, at=0).batch(9), cut=4, to=4, end=4).batch(10)
    story.coordination = ZooKeeperState(14, story.zxid.last, 1, "a", cut=8)

    assert story.proof().verdict is Verdict.NOT_PROVABLE


def test_who_may_have_gone_on_without_its_ledger_has_not_moved_a_commit_that_its_ledger_knows() -> None:
    """`on_failure: degrade`: what ZooKeeper has is what landed before the cut, as its number (mzxid) says."""
    story = Story().log(14)
    a = story.run("a").claim(1, at=0, on_failure="degrade").batch(9)
    notices(a, cut=4, to=None, end=4)
    story.zookeeper(9, epoch=1, owner="a", mzxid=story.zxid.last)

    assert (story.found(), story.proof().verdict) == ([("lost", 4, 9)], Verdict.ANOMALIES)


def test_the_next_owner_notices_what_the_one_before_did_not() -> None:
    """No consumer ran when the log was cut; the claim finds it by the leader of the commit."""
    story = Story().log(14)
    story.run("a").claim(1, at=0).batch(9).releases().closes()
    b = moved(story.run("b").claim(2, at=9), cut=4, to=0, end=14)
    b.batch(14).releases()

    assert (story.found(), story.proof().verdict) == ([], Verdict.PROVEN)


def test_who_died_before_the_commit_over_the_cut_leaves_no_trace_but_its_note() -> None:
    """The next owner begins at the old commit, and notices the cut itself."""
    story = Story().log(14)
    notices(story.run("a").claim(1, at=0).batch(9), cut=4, to=0, end=4)
    b = moved(
        story.run("b").claim(3, at=9), cut=4, to=0, end=14
    )  # the commit had moved the epoch on, and no line says so
    b.batch(14).releases()

    assert (story.found(), story.proof().verdict) == ([], Verdict.PROVEN)


@pytest.mark.parametrize("landed", [True, False])
def test_where_the_commit_over_the_cut_went_is_recognised_by_where_the_next_claim_begins(landed: bool) -> None:
    """Killed before the line that says that it landed."""
    story = Story().log(14)
    a = story.run("a").claim(1, at=0).batch(9)
    notices(a, cut=4, to=0, end=4)
    a.answer(0)
    b = story.run("b").claim(3, at=0 if landed else 9)
    if not landed:
        moved(b, cut=4, to=0, end=14)
    b.batch(14)

    assert (story.found(), story.proof().verdict) == ([], Verdict.PROVEN)


def test_a_cut_behind_the_commit_concerns_only_what_was_read_past_it() -> None:
    """Back to the commit, and what stands behind it now is delivered."""
    story = Story().log(14)
    a = story.run("a").claim(1, at=0).batch(3).begin(6)
    notices(a, cut=4, to=3, end=14)
    a.batch(11)

    proof = story.proof()

    assert (proof.verdict, story.found(), proof.explained) == (Verdict.PROVEN, [], ((3, 4),))


def test_what_was_cut_off_and_grew_and_was_deleted_is_lost_to_retention() -> None:
    """The records at the offsets of the old ones were never delivered."""
    story = Story().log(60, start=50)
    a = story.run("a").claim(1, at=0).batch(9)
    a.note("truncated", position=9, to=50, cut=4, start=50, end=60)
    a.note("retention", first=4, next=50).jump(50).batch(10)

    assert story.found() == [("lost-to-retention", 4, 50)]


def test_a_reset_past_a_cut_still_explains_where_a_claim_began() -> None:
    """Moved from 2 to 9, and the log is cut at 4 later: 2 and 3 were left out on purpose."""
    story = Story().log(14)
    story.run("a").claim(1, at=0).batch(2).releases()
    b = story.run("b").note("reset", old=2, new=9, reason="offsets reset", command="/r").claim(3, at=9).batch(3)
    moved(b, cut=4, to=4, end=4).batch(10).releases()

    assert story.found() == [("jumped", 2, 4)]


def test_a_cut_at_an_unknown_place_is_not_provable() -> None:
    """Brokers that name no leaders: what was delivered before may be something else now. Read from the start, it is."""

    def told(to: int | None, end: int) -> Story:
        story = Story().log(14)
        a = story.run("a").claim(1, at=0).batch(9)
        moved(a, cut=None, to=to, end=end).batch(14 - (to or 0))
        return story

    assert (told(4, 4).proof().verdict, told(4, 4).proof().proven) == (Verdict.NOT_PROVABLE, 0)
    assert "the brokers could not tell where" in told(4, 4).proof().missing[0]
    assert told(0, 4).proof().verdict is Verdict.PROVEN


def test_a_cut_where_the_log_begins_now_may_have_been_before_that() -> None:
    """Records that stood there were published, and deleted, before anybody could read them."""
    story = Story().log(60, start=50)
    moved(story.run("a").claim(1, at=0).batch(59), cut=50, to=50, start=50, end=60).batch(10)

    assert (story.proof().verdict, story.proof().proven) == (Verdict.NOT_PROVABLE, 0)
    assert "was deleted before anybody could read it" in story.proof().missing[0]


def test_an_earlier_proof_does_not_cover_what_was_cut_off_since() -> None:
    """It had proven up to 9; what stands at 4 to 8 is something else."""
    story = Story().log(14)
    a = story.run("a").claim(1, at=0).batch(9)
    notices(a, cut=4, to=None, end=14).releases()
    story.run("b").claim(2, at=9).batch(5)

    assert story.found(since=9) == [("lost", 4, 9)]


# -- ledgers of earlier releases ---------------------------------------------------------------------------------------


def test_an_earlier_release_that_committed_lower_has_noticed_a_cut() -> None:
    """It noted a revert from the commit; what was delivered behind it before is no repeat, and no proof."""
    story = Story().log(28)
    a = story.run("a").claim(1, at=0).batch(30)
    a.revert(to=0).batch(20).batch(8).releases()
    story.run("b").claim(2, at=28)

    assert (story.found(), story.proof().verdict) == ([], Verdict.PROVEN)


def test_an_earlier_release_that_left_before_it_committed_lower_proves_nothing() -> None:
    """Commit 9, cut to 4, ten new records, the next member begins at 9: 4 to 8 were never delivered."""
    story = Story().log(14)
    story.run("a").claim(1, at=0).batch(9).revert(to=4).releases().closes()
    story.run("b").claim(2, at=9).batch(5)

    proof = story.proof()

    assert (proof.verdict, proof.proven) == (Verdict.NOT_PROVABLE, 4)
    assert "reading went back from the commit 9 to 4" in proof.missing[0]


def test_a_callback_that_went_back_and_had_it_read_again_is_no_cut() -> None:
    """`on_idle` answered revert(4): all of it came again."""
    story = Story().log(14)
    story.run("a").claim(1, at=0).batch(9).revert(to=4).begin(5).begin(5).answer().land()

    assert (story.found(), story.proof().verdict) == ([], Verdict.PROVEN)


# -- a cut above the commit, which may go unnoticed ---------------------------------------------------------------------


def test_a_skip_counts_although_a_claim_before_it_was_delivered_what_stood_there() -> None:
    """Its deliveries above the commit were cut off, and the processor of the next owner skips what stands there now."""
    story = Story().log(60)
    story.run("a").claim(1, at=0).batch(43).begin(2).releases()
    story.run("b").claim(2, at=43).begin(1).skip(to=45).answer(45).land().batch(15)

    proof = story.proof()

    assert (proof.verdict, proof.left_out) == (Verdict.PROVEN, ((44, 45),))
    assert story.found() == [("repeated", 43, 44), ("passed-over", 44, 45)]


def test_a_skip_counts_although_its_own_claim_was_delivered_what_stood_there() -> None:
    """Reading went back to 43; the log was cut at 44 and grew before that was fetched again."""
    story = Story().log(60)
    a = story.run("a").claim(1, at=0).batch(43).begin(2)
    a.revert(to=43).begin(1).skip(to=45).answer(45).land().batch(15)

    assert (story.proof().verdict, story.found(), story.proof().left_out) == (
        Verdict.PROVEN, [("passed-over", 44, 45)], ((44, 45),),
    )  # fmt: skip


@pytest.mark.parametrize("reason", ["offsets reset", "on_claim"])
def test_a_jump_counts_although_a_claim_before_it_was_delivered_what_stood_there(reason: str) -> None:
    """A command, or a processor that keeps its own offsets, moves the group past what was cut off above the commit."""
    story = Story().log(60)
    story.run("a").claim(1, at=0).batch(43).begin(7).answer().releases()
    b, reset = story.run("b"), {"old": 43, "since": 43, "new": 50, "reason": reason}
    if reason == "offsets reset":
        b.note("reset", **reset, command="/r").claim(3, at=50)
    else:
        b.claim(2, at=43).note("reset", **reset).jump(50)
    b.batch(10)

    assert (story.proof().verdict, story.found(), story.proof().left_out) == (
        Verdict.PROVEN, [("jumped", 43, 50)], ((43, 50),),
    )  # fmt: skip


def test_what_is_delivered_after_a_skip_was_not_skipped() -> None:
    """The processor went back for it, in the same claim."""
    story = Story().log(10)
    story.run("a").claim(1, at=0).begin(4).skip(to=6).revert(to=3).begin(7).answer().land()

    assert (story.found(), story.proof().left_out) == ([], ())


@pytest.mark.parametrize("found_by", ["the next claim", "a reset", "ZooKeeper"])
def test_a_commit_past_what_its_own_claim_was_delivered_is_found_although_a_claim_before_was(found_by: str) -> None:
    """It lands, and its process is killed before the line says so."""
    story = Story().log(60)
    story.run("a").claim(1, at=0).batch(43).begin(7).releases()
    story.run("b").claim(2, at=43).begin(2).answer(50)
    if found_by == "the next claim":
        story.run("c").claim(3, at=50).batch(10)
    elif found_by == "a reset":
        c = story.run("c").note("reset", old=50, since=50, new=55, reason="offsets reset", command="/r")
        c.claim(4, at=55).batch(5)
    else:
        story.zookeeper(50, epoch=2)

    assert (story.proof().verdict, ("skipped", 45, 50) in story.found()) == (Verdict.ANOMALIES, True)


def test_a_batch_that_lacks_records_is_found_although_a_claim_before_was_delivered_it_whole() -> None:
    """What that one was delivered above the commit may have been cut off."""
    story = Story().log(60)
    story.run("a").claim(1, at=0).batch(43).begin(7).releases()
    story.run("b").claim(2, at=43).batch(5, lacking=2)

    assert ("lost", 43, 50) in story.found()
