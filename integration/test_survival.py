"""Nothing is lost, and repeats are bounded, while consumers and ZooKeeper die: judged by what processors saw."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from inbound.embedded import EmbeddedCluster
from integration.harness import Scene
from tests.waiting import until

MakeScene = Callable[..., Scene]
#: A session that outlives any delay of the machine, for those of which none is to expire. Seconds.
STEADY = 15.0


@pytest.fixture
def scene(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[MakeScene]:
    """Make scenes on the shared cluster; end what they started."""
    scenes: list[Scene] = []

    def make(**settings: object) -> Scene:
        folder = tmp_path / f"scene-{uuid.uuid4().hex[:8]}"
        folder.mkdir()
        scenes.append(Scene(embedded_cluster, folder, **settings))  # type: ignore[arg-type]
        return scenes[-1]

    yield make
    for one in scenes:
        one.close()


def test_sigkill_inside_a_batch_loses_nothing_and_repeats_only_that_batch(scene: MakeScene) -> None:
    """The victim's partitions go on elsewhere at the last commit; only what it had in hand is read again."""
    s = scene(seconds_per_record=0.002, session=8.0)  # nobody takes over before the last commits are looked at
    victim, other = s.start(), s.start()
    until(lambda: s.all_owned(2), 60, "both own partitions")
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
    s.settle(90)
    account = s.account()
    repeated = {(p, offset) for p, offsets in account.repeated.items() for offset in offsets}
    assert (account.lost, repeated <= allowed) == ({}, True), (in_hand, repeated - allowed)
    assert s.stop(other) == 0


def test_a_graceful_leave_and_a_join_lose_and_repeat_nothing(scene: MakeScene) -> None:
    """Partitions move while the load goes on."""
    s = scene(session=STEADY)
    first, second = s.start(), s.start()
    until(lambda: s.all_owned(2), 60, "both own partitions")
    s.start_load()
    time.sleep(1)
    assert s.stop(first) == 0
    until(lambda: s.all_owned(1), 60, "the other owns all")
    third = s.start()
    until(lambda: s.all_owned(2), 60, "the joiner owns its share")
    time.sleep(1)
    s.settle(90)
    assert s.account().clean
    assert (s.stop(second), s.stop(third)) == (0, 0)


def test_a_rolling_restart_under_load_loses_and_repeats_nothing(scene: MakeScene) -> None:
    """One consumer after the other is stopped and started again."""
    s = scene(session=STEADY)
    running = [s.start() for _ in range(3)]
    until(lambda: s.all_owned(3), 60, "all own partitions")
    s.start_load()
    for _ in range(3):
        assert s.stop(running.pop(0)) == 0
        running.append(s.start())
        until(lambda: s.all_owned(3), 60, "all own partitions again")
        time.sleep(0.5)
    s.settle(90)
    assert s.account().clean, s.account()
    assert [s.stop(process) for process in running] == [0, 0, 0]


def test_zookeeper_down_for_three_sessions_under_load_repeats_nothing_and_moves_nothing(
    cluster_factory: Callable[..., EmbeddedCluster], tmp_path: Path
) -> None:
    """Every partition is at its former owner afterwards, under the same claim."""
    cluster = cluster_factory()
    folder = tmp_path / "outage"
    folder.mkdir()
    s = Scene(cluster, folder, session=7.0)  # all are back within one, or the first takes over from the last
    try:
        processes = [s.start() for _ in range(3)]
        until(lambda: s.all_owned(3), 60, "all own partitions")
        s.start_load()
        s.wait_read()
        before = (s.owners(), s.claims())
        cluster.zookeepers[0].kill()
        time.sleep(3 * s.session)
        seen_in_outage = s.seen()
        cluster.zookeepers[0].start()
        until(lambda: s.zk.connected, 60, "ZooKeeper is back")
        until(lambda: sum(s.seen().values()) > sum(seen_in_outage.values()), 60, "consuming goes on")
        s.settle(90)
        account = s.account()
        assert (account.lost, account.repeated) == ({}, {})
        assert (s.owners(), s.claims()) == before
        assert [s.stop(process) for process in processes] == [0, 0, 0]
    finally:
        s.close()


def test_an_expired_session_is_recovered_under_the_same_epoch(scene: MakeScene) -> None:
    """A consumer whose session expired, with nobody to take over, goes on where it was: nothing is repeated."""
    s = scene()
    process = s.start()
    until(lambda: s.all_owned(1), 60, "it owns all")
    s.start_load()
    s.wait_read()
    # Not the epochs' numbers: a commit whose answer is lost, as the connection is, may move one on under the same claim.
    claims = s.claims()
    process.send_signal(signal.SIGSTOP)
    until(lambda: not s.owners(), 60, "its session has expired")
    process.send_signal(signal.SIGCONT)
    until(lambda: s.all_owned(1), 60, "it owns all again")
    s.settle(90)
    assert (s.account().clean, s.claims() == claims) == (True, True)
    assert s.stop(process) == 0
