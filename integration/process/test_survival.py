"""Nothing is lost, and repeats are bounded, while consumers and ZooKeeper die: judged by what processors saw."""

from __future__ import annotations

import signal
import time

import pytest

from inbound.embedded import EmbeddedCluster
from integration.harness import Scenes
from tests.waiting import until


def test_sigkill_inside_a_batch_loses_nothing_and_repeats_only_that_batch(scenes: Scenes) -> None:
    """The victim's partitions go on elsewhere at the last commit; only its batch in hand is read again."""
    s = scenes(seconds_per_record=0.002, session=10.0)  # no member takes over before the last commits are looked at
    victim, other = s.run_group(2)
    s.start_load(per_second=60)
    until(lambda: s.seen(victim.pid) and s.seen(other.pid), 60, "both process")
    until(lambda: s.inside(victim.pid), 60, "the victim is inside a batch")
    victim.kill()
    victim.wait()
    committed = {p: s.offset(p) or 0 for p in range(s.partitions)}
    assert s.all_owned(2), "the victim's session has not expired yet"
    in_hand = s.inside(victim.pid)
    seen_by_victim = s.seen(victim.pid)
    allowed = {
        (p, offset)
        for p in {p for p, _ in seen_by_victim}
        for offset in range(committed[p], max(o for q, o in seen_by_victim if q == p) + 1)
    }
    s.settle()
    account = s.account()
    repeated = {(p, offset) for p, offsets in account.repeated.items() for offset in offsets}
    assert (account.lost, repeated <= allowed) == ({}, True), (in_hand, repeated - allowed)
    assert s.stop_all() == [0]


def test_a_rolling_restart_under_load_loses_and_repeats_nothing(scenes: Scenes) -> None:
    """One consumer after the other is stopped, its partitions go to the other one, and a new one joins."""
    s = scenes()
    running = s.run_group(2)
    s.start_load()
    for _ in range(2):
        s.wait_more()
        assert s.stop(running.pop(0)) == 0
        until(lambda: s.owned_by(running), 60, "the other owns all")
        running.append(s.start())
        until(lambda: s.owned_by(running), 60, "the joiner owns its share")
    s.wait_more()
    s.settle()
    assert s.account().clean, s.account()
    assert s.stop_all() == [0, 0]


def test_zookeeper_down_for_longer_than_a_session_under_load_repeats_nothing_and_moves_nothing(
    mortal_cluster: EmbeddedCluster, scenes: Scenes
) -> None:
    """Every partition is at its former owner afterwards, under the same claim."""
    s = scenes(session=10.0)  # all are back within one, or the first takes over from the last
    s.run_group(3)
    s.start_load()
    s.wait_read()
    before = (s.owners(), s.claims())
    mortal_cluster.zookeepers[0].kill()
    time.sleep(1.5 * s.session)
    mortal_cluster.zookeepers[0].start()
    until(lambda: s.zk.connected, 60, "ZooKeeper is back")
    s.wait_more()
    s.settle()
    assert (s.account().clean, (s.owners(), s.claims()) == before) == (True, True)
    assert s.stop_all() == [0, 0, 0]


@pytest.mark.thorough(
    "test_stopped.py freezes a consumer past its session; tests/group/test_sessions.py has no member take over"
)
def test_an_expired_session_is_recovered_under_the_same_epoch(scenes: Scenes) -> None:
    """A consumer whose session expired, with no member to take over, goes on where it was: nothing is repeated."""
    s = scenes(session=5.0)
    (process,) = s.run_group(1)
    s.start_load()
    s.wait_read()
    # Not the epochs' numbers: a commit whose answer is lost, as the connection is, may move one on under the same claim.
    claims = s.claims()
    process.send_signal(signal.SIGSTOP)
    until(lambda: not s.owners(), 60, "its session has expired")
    process.send_signal(signal.SIGCONT)
    until(lambda: s.all_owned(1), 60, "it owns all again")
    s.settle()
    assert (s.account().clean, s.claims() == claims) == (True, True)
    assert s.stop_all() == [0]
