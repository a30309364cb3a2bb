"""What the judge says at the end of a story: what is open, what is not provable, where an earlier proof had ended."""

from __future__ import annotations

import pytest

from inbound.proof.model import Damage, NotedReset, Verdict, ZooKeeperState
from tests.proof.proof_stories import Story

# -- at the end ----------------------------------------------------------------------------------------------------------


def test_what_is_in_flight_is_no_loss() -> None:
    """Begun by the claim that holds the partition."""
    story = Story().log(40)
    story.run("a").claim(1, at=0).batch(10).begin(5)
    story.zookeeper(10, epoch=1, owner="a")

    proof = story.proof()

    assert (proof.verdict, proof.in_flight, proof.proven) == (Verdict.PROVEN, ((10, 15),), 10)
    assert proof.claims[-1].ending == "holds"


def test_an_answer_whose_commit_did_not_land_and_that_has_no_owner_is_uncommitted() -> None:
    """The next owner repeats it; no anomaly."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).begin(5).answer()
    story.zookeeper(10, epoch=1)

    assert story.found() == [("uncommitted", 10, 15)]
    assert story.proof().verdict is Verdict.PROVEN


def test_an_open_commit_that_zookeeper_has_did_land() -> None:
    """`done` without `settled`, and no later claim: ZooKeeper says it."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).begin(5).answer()
    story.zookeeper(15, epoch=1)

    assert (story.proof().committed, story.proof().findings) == (15, ())


def test_an_offset_node_that_is_gone_is_reported_also_where_the_commits_number_is_not_known() -> None:
    """Its answer was lost, and it was read back. The node was deleted since."""
    story = Story().log(10)
    story.run("a").claim(1, at=0).begin(3).answer(3).settle("landed", 3)
    story.coordination = ZooKeeperState(None, None, 1, "a")

    proof = story.proof()

    assert (proof.verdict, proof.committed) == (Verdict.NOT_PROVABLE, 3)


def test_zookeeper_read_before_the_ledger_is_no_contradiction() -> None:
    """A running group commits during the reading: an older change of the node says nothing."""
    story = Story()
    a = story.run("a").claim(1, at=0).batch(10)
    story.zookeeper(10, epoch=1, owner="a")
    a.batch(10).batch(10)

    assert (story.proof().verdict, story.proof().committed) == (Verdict.PROVEN, 30)


def test_zookeeper_read_before_the_last_claim_is_no_contradiction() -> None:
    """The epoch says so, where the claim has not committed yet."""
    story = Story()
    story.run("b").claim(5, at=40).begin(10)
    story.zookeeper(30, epoch=4, owner="a")

    assert (story.proof().verdict, story.proof().committed) == (Verdict.PROVEN, 40)


@pytest.mark.parametrize("ending", ["released", "lost"])
def test_an_abandoned_callback_that_comes_back_ends_only_the_claim_that_it_was_of(ending: str) -> None:
    """Its run has claimed the partition again, and goes on."""
    story = Story().log(20)
    a = story.run("a").claim(1, at=0).begin(5)
    a.claim(2, at=0).batch(10)
    a.epoch = 1
    a.note(ending, abandoned=True)
    a.epoch = 2
    a.batch(10)
    story.zookeeper(20, epoch=2, owner="a")

    proof = story.proof()

    assert (proof.verdict, [claim.ending for claim in proof.claims]) == (Verdict.PROVEN, [ending, "holds"])


def test_a_commit_that_is_refused_late_is_one_of_the_claim_that_asked_for_it() -> None:
    """The run has claimed again and asked for the same commit, which lands; it is killed before it can note that."""
    story = Story().log(10)
    a = story.run("a").claim(1, at=0).begin(5).answer()
    a.claim(2, at=0).begin(5).answer()
    a.epoch = 1
    a.settle("fenced", 5)
    story.run("b").claim(3, at=5).batch(5)

    proof = story.proof()

    assert (proof.verdict, [claim.ending for claim in proof.claims]) == (Verdict.PROVEN, ["fenced", "died", "holds"])


# -- not provable --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "verdict", "proven", "missing"), [(30, Verdict.NOT_PROVABLE, 10, "epoch 2"), (10, Verdict.PROVEN, 20, "")]
)
def test_an_epoch_that_no_line_knows(at: int, verdict: Verdict, proven: int, missing: str) -> None:
    """A consumer without a ledger moved the commit under it; or nothing moved, and it was a claim whose answer was lost."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).releases().closes()
    story.run("c").claim(3, at=at).batch(10)

    proof = story.proof()

    assert (proof.verdict, proof.findings, proof.proven) == (verdict, (), proven)
    assert missing in "".join(proof.missing)


def test_a_later_epoch_in_zookeeper_with_another_commit_is_not_provable() -> None:
    """The last consumer's ledger is missing."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).releases().closes()
    story.zookeeper(40, epoch=2, owner="b")

    proof = story.proof()

    assert (proof.verdict, proof.proven) == (Verdict.NOT_PROVABLE, 10)


def test_missing_lines_in_a_claim_make_it_not_provable() -> None:
    """What they said is not known, so neither are losses nor repeats after them."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).omit(6).jump(30).batch(10)

    proof = story.proof()

    assert (proof.verdict, proof.findings, proof.proven) == (Verdict.NOT_PROVABLE, (), 10)
    assert "lines 5 to 10 of run a are missing" in proof.missing[0]


def test_missing_lines_after_a_claim_that_had_ended_concern_others() -> None:
    """The run went on with other partitions."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).releases().omit(6).claim(2, at=10).batch(10)

    assert story.proof().verdict is Verdict.PROVEN


def test_a_ledger_whose_oldest_files_were_deleted_is_proven_from_where_it_begins() -> None:
    """No fault: the evidence begins there."""
    story = Story()
    a = story.run("a").omit(100)
    a.epoch, a.position = 1, 70
    a.begin(10).answer().land()
    story.run("b").claim(2, at=80).batch(10)

    proof = story.proof()

    assert (proof.verdict, proof.start, proof.proven, proof.missing) == (Verdict.PROVEN, 70, 90, ())


def test_a_time_without_the_ledger_makes_it_not_provable() -> None:
    """`on_failure: degrade`, an earlier release: something may be missing anywhere in what the run held."""
    story = Story()
    a = story.run("a").claim(1, at=0).batch(10).jump(30).batch(10)
    mark = Damage(
        "a.jsonl", "run a went on without its ledger for a while", "group", "a", a.lines[-1].seq, degraded=True
    )
    story.damage.append(mark)

    proof = story.proof()

    assert (proof.verdict, proof.findings) == (Verdict.NOT_PROVABLE, ())


def test_a_topic_that_was_recreated_in_a_time_without_the_ledger_is_no_anomaly() -> None:
    """Neither `released`, nor `reset`, nor `claimed` could be written; then offsets are low again."""
    story = Story().log(8)
    a = story.run("a").claim(1, at=0).batch(30)
    mark = Damage("a.jsonl", "run a went on without its ledger", "group", "a", a.lines[-1].seq, degraded=True)
    story.damage.append(mark)
    a.epoch = 2
    a.jump(0).batch(4).batch(4)
    story.zookeeper(8, epoch=2, owner="a", mzxid=story.zxid.last)

    assert (story.proof().verdict, story.found()) == (Verdict.NOT_PROVABLE, [])


def test_a_group_that_has_a_commit_and_no_ledger_is_not_provable() -> None:
    """And the text says what to bring."""
    story = Story()
    story.coordination = ZooKeeperState(40, 7, 3, None)

    proof = story.proof()

    assert proof.verdict is Verdict.NOT_PROVABLE
    assert "give the ledgers" in proof.missing[0]


def test_a_commit_that_is_gone_is_not_proven() -> None:
    """The offset node was emptied or deleted after the last claim: the next one would begin anywhere."""
    story = Story().log(900)
    story.run("a").claim(1, at=0).batch(900).releases().closes()
    story.zookeeper(None, epoch=1)

    proof = story.proof()

    assert (proof.verdict, proof.proven) == (Verdict.NOT_PROVABLE, 900)
    assert "its offset node was deleted or emptied" in proof.missing[0]


def test_a_first_commit_that_zookeeper_was_read_before_is_no_contradiction() -> None:
    """ZooKeeper is read first, and the claim has committed its first position since."""
    story = Story().log(20)
    story.run("a").claim(1, at=None).answer(0).land().batch(10)
    story.zookeeper(None, epoch=1, owner="a", mzxid=7)  # it was made for the claim, and is empty

    assert (story.proof().verdict, story.proof().committed) == (Verdict.PROVEN, 10)


# -- records without an owner -------------------------------------------------------------------------------------------


def test_a_partition_without_records_that_no_consumer_has_claimed_is_proven() -> None:
    """There is nothing to prove."""
    assert Story().log(0).zookeeper(None).proof().verdict is Verdict.PROVEN


def test_a_partition_that_no_consumer_ever_claimed_is_never_proven() -> None:
    """ZooKeeper knows no claim of it, and no ledger a line: the verdict has a word of its own."""
    story = Story().log(60, lacks=((5, 10),)).zookeeper(None)

    (finding,) = story.proof().findings

    assert (story.proof().verdict, story.proof().proven) == (Verdict.UNCLAIMED, None)
    assert (finding.kind, finding.first, finding.next, finding.offsets) == ("unclaimed", 0, 60, 55)


def test_what_retention_deleted_of_a_partition_that_no_consumer_ever_claimed_is_named() -> None:
    """How many records it held is not known any more."""
    story = Story().log(60, start=40).zookeeper(None)

    assert story.proof().verdict is Verdict.UNCLAIMED
    assert story.found() == [("unclaimed", 0, 40), ("unclaimed", 40, 60)]


def test_a_partition_that_was_claimed_and_has_no_line_in_any_ledger_is_not_provable() -> None:
    """It had an owner: the epoch says so."""
    proof = Story().log(60).zookeeper(None, epoch=1).proof()

    assert (proof.verdict, proof.findings) == (Verdict.NOT_PROVABLE, ())
    assert "was claimed (epoch 1), and no ledger has a line of it" in proof.missing[0]


# -- incremental ---------------------------------------------------------------------------------------------------------


def test_what_an_earlier_proof_has_proven_is_left_out() -> None:
    """Repeats below are not told again; what comes after is."""
    story = Story().log(60)
    story.run("a").claim(1, at=0).batch(10).begin(5)
    story.run("b").claim(2, at=10).batch(20).jump(35).batch(5)

    proof = story.proof(since=30)

    assert [(f.kind, f.first, f.next) for f in proof.findings] == [("lost", 30, 35)]
    assert (proof.start, proof.proven) == (30, 40)


def test_a_duplicate_of_what_was_proven_is_reported_all_the_same() -> None:
    """It happened after the earlier proof."""
    story = Story()
    story.run("a").claim(1, at=0).batch(30).releases().closes()
    story.run("b").claim(2, at=10).batch(10)

    assert story.found(since=30) == [("duplicate", 10, 20)]


def test_a_ledger_that_begins_after_the_earlier_proof_is_not_provable() -> None:
    """There are files missing between the two."""
    story = Story()
    story.run("b").claim(5, at=50).batch(10)

    proof = story.proof(since=30)

    assert (proof.verdict, proof.proven) == (Verdict.NOT_PROVABLE, 30)


def test_a_first_commit_by_a_reset_proves_nothing_behind_an_earlier_proof() -> None:
    """The node was emptied, the ledgers are gone, a reset sets the offset again: what lies between was never delivered."""
    story = Story()
    story.coordination = ZooKeeperState(90, 7, 3, None, moved=NotedReset("/r", None, None, 90))

    proof = story.proof(since=30)

    assert (proof.verdict, proof.proven) == (Verdict.NOT_PROVABLE, 30)
    assert proof.missing == ("the group's commit is 90, and no ledger has a line of this partition; give the ledgers",)


def test_lines_that_went_missing_later_reach_beyond_the_earlier_proof() -> None:
    """They begin below it and end above: what lies above is not proven."""
    story = Story()
    story.run("a").claim(1, at=0).batch(10).omit(6).jump(50).batch(10)

    assert story.proof(since=30).verdict is Verdict.NOT_PROVABLE
    assert story.proof(since=55).verdict is Verdict.PROVEN
