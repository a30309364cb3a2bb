"""Traces of one claim, release or recovery against another: T3 to T7, T10, T13. Each delivery in its place."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pytest

from inbound.coordinators.ownership import ClaimCheck
from inbound.coordinators.zookeeper import Check, Op, RefusedError, SetData
from inbound.testing.world import World
from inbound.testing.zookeeper_tree import Commit
from tests.coordinators.ownership_stage import PATHS, TP, Group
from tests.simulation.planting import is_claim, is_recovery
from tests.simulation.stage import begin_until, but_late, with_and_without


@with_and_without("gate-not-checked")
@pytest.mark.parametrize("what", ["claim", "recovery"])
def test_what_is_on_its_way_when_the_gate_closes_does_nothing(group: Group, what: str, kept: bool) -> None:
    """T3 (R2, R6). The leader of the reset sees no owner, and counts on it."""
    a = group.join("a")
    if what == "claim":
        mine = begin_until(a, is_claim, a.ownership.claim(TP))
    else:
        fence = a.claim().fence
        a.reconnect(new_session=True)
        mine = begin_until(a, is_recovery, a.ownership.recover(TP, fence))  # type: ignore[arg-type]
    group.close_gate()
    stopped = group.owner is None
    a.finish(mine)
    assert (stopped, group.owner) == (True, None if kept else a.session)


@with_and_without("release-unchecked")
def test_a_release_that_is_sent_again_deletes_no_stranger_s_node(group: Group, kept: bool) -> None:
    """T4 (R4). The first is executed late, when the second is on its way already; in between b claims."""
    a, b = group.join("a"), group.join("b")
    fence = a.claim().fence
    a.begin(a.ownership.release(TP, fence, 5))
    group.ensemble.disconnect("a", late=True)
    a.reconnect()
    assert but_late(a, a.begin(a.ownership.verify(TP, fence)))[0] is ClaimCheck.HELD
    second = a.begin(a.ownership.release(TP, fence, 5))
    a.steps("late")
    b.claim()
    a.finish(second)
    assert group.owner == (b.session if kept else None)


@with_and_without("take-over-uncompared")
def test_a_late_take_over_evicts_nobody_who_came_between(group: Group, kept: bool) -> None:
    """T5 (R2, R8). After its look the dead session expires, and c claims."""
    dead, new, c = group.join("dead", "same"), group.join("new", "same"), group.join("c")
    dead.claim()
    late = begin_until(new, is_claim, new.ownership.claim(TP, {dead.session}))
    group.ensemble.expire_session("dead")
    c.claim()
    new.finish(late)
    assert group.owner == (c.session if kept else new.session)


@with_and_without("ours-by-name")
def test_two_processes_with_one_id_never_commit_under_one_epoch(group: Group, kept: bool) -> None:
    """T6 (R8). The second finds a node that bears its name."""
    first, second = group.join("first", "same"), group.join("second", "same")
    fence = first.claim().fence
    claim = second.do(second.ownership.claim(TP))
    landed = (first.commit(fence, 5), claim is not None and second.commit(claim.fence, 7))
    assert landed == (True, not kept)


@with_and_without("owner-read-first")
def test_an_old_process_does_not_evict_its_successor(group: Group, kept: bool) -> None:
    """T7 (R1). The successor takes over between the old one's first read and the others."""
    old, new = group.join("old", "same"), group.join("new", "same")
    old.claim()
    look = old.begin(old.ownership.claim(TP))
    old.steps("execute")
    assert new.do(new.ownership.claim(TP, {old.session})) is not None
    old.finish(look)
    assert group.owner == (new.session if kept else old.session)


@with_and_without("fights-for-its-id")
def test_of_two_live_processes_with_one_id_one_stops(kept: bool) -> None:
    """T7 (R8). The second wrongly believes that the first is dead, and has taken the id over."""
    world = World()
    world.kafka.create_topic("orders", 1)
    takers: list[int] = []

    def count(commit: Commit) -> None:
        if ("data", world.paths.member("same")) in commit.changed:
            takers.append(commit.session)

    world.ensemble.observers.append(count)
    world.join("first", consumer_id="same")
    world.run(0.5)
    world.join("second", consumer_id="same", owner_is_dead=lambda info: True)
    world.run(3)
    changes = sum(1 for before, after in itertools.pairwise(takers) if before != after)
    assert (changes == 1, world.fatal("first") is not None) == (kept, kept)


@with_and_without("second-session")
def test_a_commit_of_an_old_session_that_lives_does_not_set_the_offset_back(group: Group, kept: bool) -> None:
    """T10 (R6). It is executed after a newer one of a second session. Recovered, both would have the same epoch."""
    a = group.join("a")
    fence, old = a.claim().fence, a.session
    first: list[Op] = [Check(PATHS.epoch(*TP), fence.epoch), SetData(PATHS.offset(*TP), b"1")]
    a.zk.session = None  # it begins a new session although the old one has not been declared expired
    a.reconnect()
    verdict, mine = a.do(a.ownership.recover(TP, fence))
    if verdict is not ClaimCheck.HELD:
        claim = a.do(a.ownership.claim(TP, {old}))
        assert claim is not None
        mine = claim.fence
    assert a.commit(mine, 2)
    with suppress(RefusedError):
        group.ensemble.tree.transaction(first, old)
    assert group.offset == (b"2" if kept else b"1")


@with_and_without("offset-read-first")
def test_what_is_committed_until_the_claim_is_not_read_again(group: Group, kept: bool) -> None:
    """T13 (R2). Between b's look and its claim a recovers (which leaves the epoch alone), commits and releases."""
    a, b = group.join("a"), group.join("b")
    fence = a.claim().fence
    assert a.commit(fence, 10)
    a.reconnect(new_session=True)
    theirs = begin_until(b, is_claim, b.ownership.claim(TP))
    fence = a.do(a.ownership.recover(TP, fence))[1]
    assert a.commit(fence, 20)
    a.do(a.ownership.release(TP, fence, None))
    claim = b.finish(theirs)
    assert claim is not None
    assert claim.offset == (20 if kept else 10)
