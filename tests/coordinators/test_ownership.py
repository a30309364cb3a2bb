"""Claim, recover, verify, release: what each does to the nodes, and what of it survives lost answers and late requests.

The histories that break a protocol with one rule less are in `tests/simulation/test_traces_ownership.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from inbound import TopicPartition
from inbound.coordinators.nodes import BadNodeError, EpochInfo, ResetNote, decode_epoch
from inbound.coordinators.ownership import Claim, ClaimCheck, Fence, Ownership
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import Create, Delete, Op, RefusedError, SetData
from inbound.errors import TransientError, ZkAmbiguousError, ZkUnavailableError
from inbound.testing.zookeeper import Arrival
from tests.coordinators.ownership_stage import PATHS, TP, Group


@pytest.fixture
def group() -> Group:
    """No member there yet."""
    return Group()


#: What the first claim of a partition reads before its transaction: gate, id node, epoch, owner, and whether there is an offset.
READS = 5


# -- ensure ------------------------------------------------------------------------------------------------------------


def test_everything_that_claims_need_is_made_once_but_no_owner(group: Group) -> None:
    """Done again it changes nothing."""
    a = group.join("a")
    for kind in ("epochs", "offsets"):
        assert a.ensemble.tree.children(f"{PATHS.root}/{kind}/orders") == ["0", "1", "2", "3"]
    assert (group.node(PATHS.gate("orders")), a.ensemble.tree.children(PATHS.owners("orders"))) == (b"open", [])
    before = group.ensemble.tree.zxid
    a.do(a.ownership.ensure("orders", 4))
    a.do(Ownership(a.zk, "group", "other").ensure("orders", 4))
    assert group.ensemble.tree.zxid == before


def test_two_that_make_the_nodes_at_the_same_time_both_succeed(group: Group) -> None:
    """Each finds the other's nodes there already."""
    a, b = group.join("a"), group.join("b")
    mine, theirs = Ownership(a.zk, "other", "a"), Ownership(b.zk, "other", "b")
    first, second = a.begin(mine.ensure("orders", 4)), b.begin(theirs.ensure("orders", 4))
    while not (first.done and second.done):
        for delivery in group.ensemble.pending:
            group.ensemble.step(delivery)
        a.tasks.step()
        b.tasks.step()
    assert (first.result(), second.result()) == (None, None)
    assert group.ensemble.tree.children(GroupPaths("other").epochs("orders")) == ["0", "1", "2", "3"]


def test_partitions_added_to_a_known_topic_are_told_from_those_the_group_began_with(group: Group) -> None:
    """They start at their smallest offset, also for a member that comes later."""
    a = group.join("a")
    a.do(a.ownership.ensure("orders", 6))
    b = group.join("b")
    b.do(b.ownership.ensure("orders", 6))
    old, new = b.do(b.ownership.claim(TP)), b.do(b.ownership.claim(TopicPartition("orders", 5)))
    assert old is not None
    assert new is not None
    assert (old.added_later, new.added_later) == (False, True)


# -- claim -------------------------------------------------------------------------------------------------------------


def test_a_claim_raises_the_epoch_and_makes_the_owner_node(group: Group) -> None:
    """A group without a commit has no offset."""
    a = group.join("a")
    claim = a.claim()
    assert claim == Claim(Fence(1, a.session), None)
    assert (group.epoch, group.owner, group.node(PATHS.owner(*TP))) == (1, a.session, b"a")


def test_a_partition_with_an_owner_is_not_claimed(group: Group) -> None:
    """Nothing is touched."""
    a, b = group.join("a"), group.join("b")
    a.claim()
    assert b.do(b.ownership.claim(TP)) is None
    assert (group.epoch, group.owner) == (1, a.session)


def test_of_two_that_see_it_free_the_first_one_gets_it(group: Group) -> None:
    """The other's transaction is refused by the epoch."""
    a, b = group.join("a"), group.join("b")
    theirs = b.begin(b.ownership.claim(TP))
    b.steps(*["execute", "answer"] * 4)  # it has read everything, and sent its transaction
    a.claim()
    assert b.finish(theirs) is None
    assert (group.epoch, group.owner) == (1, a.session)


def test_a_claim_gives_the_offset_of_the_owner_before(group: Group) -> None:
    """As it was left at release."""
    a, b = group.join("a"), group.join("b")
    a.do(a.ownership.release(TP, a.claim().fence, 42))
    assert b.claim() == Claim(Fence(2, b.session), 42)


def test_nothing_is_claimed_through_a_closed_gate(group: Group) -> None:
    """Neither seen closed, nor closed between the look and the claim; opened again, it is."""
    a = group.join("a")
    mine = a.begin(a.ownership.claim(TP))
    a.steps(*["execute", "answer"] * 4)
    group.close_gate()
    assert a.finish(mine) is None
    assert a.do(a.ownership.claim(TP)) is None
    assert (group.epoch, group.owner) == (0, None)
    group.open_gate()
    assert a.claim().fence.epoch == 1


def test_a_node_of_a_session_that_is_provably_dead_is_replaced_at_once(group: Group) -> None:
    """Without waiting for it to expire."""
    dead, new = group.join("dead", "same"), group.join("new", "same")
    dead.claim()
    claim = new.do(new.ownership.claim(TP, {dead.session}))
    assert claim == Claim(Fence(2, new.session), None)
    assert group.owner == new.session


def test_a_node_that_holds_no_offset_is_an_error_that_names_it(group: Group) -> None:
    """Another writer was there."""
    a = group.join("a")
    group.ensemble.tree.transaction([SetData(PATHS.offset(*TP), b"x17")], 0)
    with pytest.raises(BadNodeError, match=PATHS.offset(*TP)):
        a.do(a.ownership.claim(TP))


# -- lost answers to a claim -------------------------------------------------------------------------------------------


def test_a_claim_whose_answer_is_late_is_known_by_its_nonce(group: Group) -> None:
    """It has landed, and reading the epoch back says so: the partition is ours."""
    a = group.join("a")
    mine = a.begin(a.ownership.claim(TP))
    a.steps(*["execute", "answer"] * READS, "execute")
    group.clock.advance(a.zk.call_timeout)
    a.tasks.step()  # the time is up: it asks whether it landed
    assert a.finish(mine) == Claim(Fence(1, a.session), None)


def test_a_claim_that_did_not_land_is_not_taken_for_one_that_did(group: Group) -> None:
    """The epoch holds another's nonce; and nothing more is known, for the unanswered request may still execute."""
    a, b = group.join("a"), group.join("b")
    mine = a.begin(a.ownership.claim(TP))
    a.steps(*["execute", "answer"] * READS)
    b.claim()
    group.clock.advance(a.zk.call_timeout)
    a.tasks.step()
    with pytest.raises(ZkAmbiguousError):
        a.finish(mine)
    assert group.owner == b.session


def test_a_claim_is_not_ours_if_the_session_changed_before_the_offset_was_read(group: Group) -> None:
    """The owner node went with the old session."""
    a = group.join("a")
    mine = a.begin(a.ownership.claim(TP))
    a.steps(*["execute", "answer"] * READS, "execute")
    group.ensemble.step(Arrival("a", "answer"))  # the claim has landed; before we go on, the session is another
    group.ensemble.expire_session("a")
    group.ensemble.disconnect("a")
    a.zk.reconnect()
    a.tasks.step()
    with pytest.raises(TransientError):
        a.finish(mine)
    assert group.owner is None


# -- recovery and verification -----------------------------------------------------------------------------------------


def test_recovery_in_a_new_session_keeps_the_epoch(group: Group) -> None:
    """Commits go on under it."""
    a = group.join("a")
    old = a.claim().fence
    a.reconnect(new_session=True)
    verdict, fence = a.do(a.ownership.recover(TP, old))
    assert (verdict, fence) == (ClaimCheck.HELD, Fence(1, a.session))
    assert (group.owner, a.commit(fence, 5)) == (a.session, True)


def test_recovery_finds_a_partition_lost_that_another_has_claimed(group: Group) -> None:
    """Also when that other one has released it again: its epoch stands."""
    a, b = group.join("a"), group.join("b")
    old = a.claim().fence
    a.reconnect(new_session=True)
    theirs = b.claim().fence
    assert a.do(a.ownership.recover(TP, old))[0] is ClaimCheck.LOST
    b.do(b.ownership.release(TP, theirs, 7))
    assert a.do(a.ownership.recover(TP, old))[0] is ClaimCheck.LOST
    assert not a.commit(old, 6)
    assert group.offset == b"7"


def test_a_recovery_whose_answer_did_not_come_is_found_to_have_worked(group: Group) -> None:
    """Refused the second time, because the node is our own: taken for lost, the partition would be stuck."""
    a = group.join("a")
    old = a.claim().fence
    a.reconnect(new_session=True)
    mine = a.begin(a.ownership.recover(TP, old))
    a.steps("execute", "answer", "execute")
    group.clock.advance(a.zk.call_timeout)
    a.tasks.step()
    assert a.finish(mine) == (ClaimCheck.HELD, Fence(1, a.session))


def test_recovery_stops_at_a_closed_gate(group: Group) -> None:
    """Seen closed, or closed between the look and the transaction: a reset that found no owner has counted on it."""
    a = group.join("a")
    old = a.claim().fence
    a.reconnect(new_session=True)
    mine = a.begin(a.ownership.recover(TP, old))
    a.steps("execute", "answer")
    group.close_gate()
    assert a.finish(mine)[0] is ClaimCheck.CLOSED
    assert a.do(a.ownership.recover(TP, old))[0] is ClaimCheck.CLOSED
    assert group.owner is None


def test_verify_tells_what_became_of_a_partition(group: Group) -> None:
    """Held; no owner; gate closed; another's epoch; and our node under an epoch that we do not know."""
    a, b = group.join("a"), group.join("b")
    fence = a.claim().fence
    assert a.do(a.ownership.verify(TP, fence)) == (ClaimCheck.HELD, fence)
    assert a.do(a.ownership.verify(TP, Fence(0, a.session)))[0] is ClaimCheck.BROKEN
    group.ensemble.tree.transaction([Delete(PATHS.owner(*TP))], 0)
    assert a.do(a.ownership.verify(TP, fence))[0] is ClaimCheck.UNVERIFIED
    group.close_gate()
    assert a.do(a.ownership.verify(TP, fence))[0] is ClaimCheck.CLOSED
    group.open_gate()
    b.claim()
    assert a.do(a.ownership.verify(TP, fence))[0] is ClaimCheck.LOST


def test_the_node_of_our_own_old_session_is_no_proof_that_we_hold_it(group: Group) -> None:
    """It is about to go, and any member that sees it gone may claim."""
    a = group.join("a")
    fence = a.claim().fence
    path = PATHS.owner(*TP)
    group.ensemble.tree.transaction([Delete(path), Create(path, b"a", ephemeral=True)], a.session + 1000)
    assert a.do(a.ownership.verify(TP, fence))[0] is ClaimCheck.UNVERIFIED


# -- release -----------------------------------------------------------------------------------------------------------


def test_a_release_commits_and_frees_the_partition_in_one(group: Group) -> None:
    """It answers the transaction of the commit; the epoch stays."""
    a = group.join("a")
    mzxid = a.do(a.ownership.release(TP, a.claim().fence, 12))
    assert mzxid == group.ensemble.tree.nodes[PATHS.offset(*TP)].mzxid
    assert (group.offset, group.owner, group.epoch) == (b"12", None, 1)


def test_a_release_or_drop_without_an_offset_leaves_the_commit(group: Group) -> None:
    """Only the owner node goes."""
    a = group.join("a")
    assert a.do(a.ownership.release(TP, a.claim().fence, None)) is None
    a.do(a.ownership.release(TP, a.claim().fence, None))
    assert (group.offset, group.owner, group.epoch) == (b"", None, 2)


def test_a_release_of_what_is_not_ours_any_more_does_nothing(group: Group) -> None:
    """Neither the new owner's node nor its commit is touched."""
    a, b = group.join("a"), group.join("b")
    old = a.claim().fence
    a.reconnect(new_session=True)
    theirs = b.claim().fence
    assert b.commit(theirs, 30)
    assert a.do(a.ownership.release(TP, old, 20)) is None
    assert (group.offset, group.owner) == (b"30", b.session)


def test_a_release_whose_owner_node_went_with_an_old_session_commits_alone(group: Group) -> None:
    """The epoch is ours still: no delivered record is repeated."""
    a = group.join("a")
    old = a.claim().fence
    a.reconnect(new_session=True)
    mzxid = a.do(a.ownership.release(TP, old, 20))
    assert mzxid == group.ensemble.tree.nodes[PATHS.offset(*TP)].mzxid
    assert (group.offset, group.owner) == (b"20", None)


def test_without_a_connection_nothing_is_begun(group: Group) -> None:
    """Each says that it is to be asked again."""
    a = group.join("a")
    fence = a.claim().fence
    group.ensemble.disconnect("a")
    for coroutine in (
        a.ownership.claim(TP),
        a.ownership.recover(TP, fence),
        a.ownership.verify(TP, fence),
        a.ownership.release(TP, fence, 1),
    ):
        with pytest.raises(ZkUnavailableError):
            a.do(coroutine)


# -- after a reset ------------------------------------------------------------------------------------------------------

NOTE = ResetNote("/inbound/commands/reset-offset/one", 7, 3)


def move(group: Group, note: ResetNote = NOTE) -> None:
    """Do what a reset does: set the offset, and the epoch with a note of it."""
    path = PATHS.epoch(*TP)
    before = decode_epoch(path, group.node(path)) or EpochInfo("", 0, "")
    moved = replace(before, consumer="reset", session=0, nonce=f"reset-{group.epoch}", reset=note)
    ops = [SetData(PATHS.offset(*TP), b"%d" % note.new), SetData(path, moved.encode())]
    group.ensemble.tree.transaction(ops, 0)


def carried(group: Group) -> ResetNote | None:
    """Return the note in the epoch node."""
    info = decode_epoch(PATHS.epoch(*TP), group.node(PATHS.epoch(*TP)))
    return info.reset if info is not None else None


def test_each_claim_after_a_reset_reports_it_until_something_is_committed(group: Group) -> None:
    """The first claimant may die before it has told anybody."""
    a, b = group.join("a"), group.join("b")
    move(group)
    first = a.claim()
    group.ensemble.expire_session("a")
    second = b.claim()
    during = carried(group)
    b.commit(second.fence, 4)
    b.do(b.ownership.release(TP, second.fence, None))
    third = b.claim()
    assert [(c.reset, c.offset) for c in (first, second, third)] == [(NOTE, 3), (NOTE, 3), (None, 4)]
    assert (during, carried(group)) == (NOTE, None)


def test_an_offset_that_moved_on_before_the_look_is_not_told_as_a_reset(group: Group) -> None:
    """It was set by hand since, without a note."""
    a = group.join("a")
    move(group)
    group.ensemble.tree.transaction([SetData(PATHS.offset(*TP), b"5")], 0)
    claim = a.claim()
    assert (claim.reset, claim.offset, carried(group)) == (None, 5, None)


def test_a_claim_reports_the_last_of_two_resets(group: Group) -> None:
    """No member has claimed between them; what the second found is its old offset."""
    a = group.join("a")
    move(group)
    last = ResetNote("/inbound/commands/reset-offset/two", 3, 0)
    move(group, last)
    assert a.claim().reset == last


def test_a_claim_whose_answer_was_late_tells_the_reset_all_the_same(group: Group) -> None:
    """It is known by its nonce, note and all."""
    a = group.join("a")
    move(group)
    mine = a.begin(a.ownership.claim(TP))
    a.steps(*["execute", "answer"] * 5, "execute")
    group.clock.advance(30)
    a.tasks.step()
    claim = a.finish(mine)
    assert claim is not None
    assert claim.reset == NOTE


def test_a_recreated_topic_has_no_reset_of_the_deleted_one(group: Group) -> None:
    """It begins at 0, without regard to the reset of the other topic's records."""
    a = group.join("a")
    former = a.do(a.ownership.claim(TP, topic_id="old"))
    assert former is not None
    a.do(a.ownership.release(TP, former.fence, None))
    move(group, replace(NOTE, new=0))
    claim = a.do(a.ownership.claim(TP, topic_id="new", instead_of="old"))
    assert claim is not None
    assert (claim.recreated, claim.offset, claim.reset, carried(group)) == (True, 0, None, None)


# -- owner nodes under which nothing is held ---------------------------------------------------------------------------


def test_an_owner_node_of_ours_is_deleted_under_any_epoch_and_a_strangers_never(group: Group) -> None:
    """The epoch stays where it is."""
    a, b = group.join("a"), group.join("b")
    a.claim()
    move(group)
    b.do(b.ownership.clear(TP))
    stays = group.owner == a.session
    a.do(a.ownership.clear(TP))
    assert (stays, group.owner, group.epoch) == (True, None, 2)


def test_one_that_executes_late_does_not_delete_the_node_of_the_next_claim(group: Group) -> None:
    """1. The request is on its way; 2. we claim again; 3. it executes, and would delete the new owner node."""
    a = group.join("a")
    a.claim()
    late = a.begin(a.ownership.clear(TP))
    a.steps("execute", "answer", "execute", "answer")
    epoch, owner = PATHS.epoch(*TP), PATHS.owner(*TP)
    claim: list[Op] = [SetData(epoch, group.node(epoch)), Delete(owner), Create(owner, b"a", ephemeral=True)]
    group.ensemble.tree.transaction(claim, a.session)
    with pytest.raises(RefusedError):
        a.finish(late)
    assert group.owner == a.session


def test_the_node_of_a_dead_predecessor_goes_and_what_it_had_sent_is_fenced(group: Group) -> None:
    """Its session lives on, and so does a commit on its way: it must not land once the partition counts as free."""
    dead, new = group.join("dead", "same"), group.join("new", "same")
    fence = dead.claim().fence
    new.do(new.ownership.clear(TP, {dead.session}))
    assert (group.owner, dead.commit(fence, 9), group.offset) == (None, False, b"")


def test_a_recovery_without_an_answer_is_refused_after_the_node_was_deleted(group: Group) -> None:
    """It could else leave an owner node of ours under which nothing is held."""
    a = group.join("a")
    fence = a.claim().fence
    a.reconnect(new_session=True)
    recovery = a.begin(a.ownership.recover(TP, fence))
    a.steps("execute", "answer", "execute")  # the gate's answer; the recovery executes, its answer does not come
    group.clock.advance(30)
    a.tasks.step()
    a.finish(recovery)
    a.do(a.ownership.clear(TP))
    assert (group.owner, group.epoch) == (None, fence.epoch + 1)
