"""What a reset leaves in the epoch node, how claims carry it on, and how owner nodes go under which nothing is held."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inbound.coordinators.nodes import EpochInfo, ResetNote, decode_epoch
from inbound.coordinators.zookeeper import Create, Delete, Op, RefusedError, SetData
from tests.ownership_stage import PATHS, TP, Group

NOTE = ResetNote("/inbound/commands/reset-offset/one", 7, 3)


@pytest.fixture
def group() -> Group:
    """Nobody there yet."""
    return Group()


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


def test_whoever_claims_after_a_reset_is_told_and_passes_it_on_until_something_is_committed(group: Group) -> None:
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
    """Somebody has set it by hand since, without a word to anybody."""
    a = group.join("a")
    move(group)
    group.ensemble.tree.transaction([SetData(PATHS.offset(*TP), b"5")], 0)
    claim = a.claim()
    assert (claim.reset, claim.offset, carried(group)) == (None, 5, None)


def test_of_two_resets_the_last_one_is_told(group: Group) -> None:
    """Nobody has claimed between them; what the second found is its old offset."""
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


def test_a_topic_made_anew_knows_nothing_of_a_reset_of_the_one_before(group: Group) -> None:
    """It begins at 0, whatever the reset has said of the other topic's records."""
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
    """1. The request is on its way; 2. we claim anew; 3. it executes, and would delete what stands there now."""
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
    """It could else leave an owner node of ours that nobody knows of."""
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
