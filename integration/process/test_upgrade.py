"""Replicas of the previous release and of this work tree in one group, under load: up one by one, back, and killed."""

from __future__ import annotations

import pytest

from integration.process.upgrading import LedgerFacts, MakeScene, Releases, ledger_facts
from tests.waiting import until

#: Seconds; the first test waits for two releases to be built and installed, which takes minutes on a busy machine.
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.thorough(
        "builds and installs two releases, minutes; the fast tests of compatibility and of mixed groups decide the rest"
    ),
]


def test_three_replicas_are_upgraded_one_by_one_under_load_and_one_is_put_back(
    mixed_scene: MakeScene, releases: Releases
) -> None:
    """Nothing is lost and nothing repeated, commits only go on, and each step leaves an even share for everyone."""
    s = mixed_scene()
    old, new = releases.previous, releases.current
    running = [(s.start_of(old), old) for _ in range(3)]
    s.wait_until_shared(*running)
    s.watch_commits()
    s.start_load()
    until(lambda: all(s.seen(process.pid) for process, _ in running), 60, "all consume")

    codes = []
    for release in (new, new, new, old):  # the last one puts the first that was upgraded back
        leaver, _ = running.pop(0)
        codes.append(s.stop(leaver))
        running.append((s.start_of(release), release))
        s.wait_until_shared(*running)
        until(lambda: all(s.seen(process.pid) for process, _ in running), 60, "all consume")
    s.settle()
    codes += [s.stop(process) for process, _ in running]

    account = s.account()
    assert (account.lost, account.repeated) == ({}, {}), s.ends()
    assert s.commits_that_went_back() == {}
    assert codes == [0] * 7
    assert ledger_facts(s, new) == LedgerFacts(damaged=0, numbers_missing=0, landed=dict(s.published))
    assert s.no_traceback(), s.ends()


@pytest.mark.parametrize("dies", ["previous", "current"])
def test_the_partitions_of_one_that_is_killed_go_to_the_other_release(
    mixed_scene: MakeScene, releases: Releases, dies: str
) -> None:
    """After the session; nothing is lost, and repeated is at most the batch that the dead one had in hand."""
    s = mixed_scene(session=8.0, seconds_per_record=0.002)  # only the dead one is to lose its session
    old, new = releases.previous, releases.current
    running = [(s.start_of(old), old), (s.start_of(new), new)]
    s.wait_until_shared(*running)
    s.watch_commits()
    s.start_load(per_second=20)
    until(lambda: all(s.seen(process.pid) for process, _ in running), 60, "both consume")

    victim, survivor = [process for process, _ in (running if dies == "previous" else reversed(running))]
    victim.kill()
    victim.wait()
    until(lambda: s.owned_by([survivor]), 120, lambda: f"the other has all: {s.owners()} {s.ends()}")
    s.settle()

    account = s.account()
    in_hand = s.last_batches(victim.pid)
    unexplained = {p: offsets for p, offsets in account.repeated.items() if not set(offsets) <= in_hand.get(p, set())}
    assert (account.lost, unexplained) == ({}, {}), s.ends()
    assert s.commits_that_went_back() == {}
    assert s.stop(survivor) == 0
    assert s.no_traceback(), s.ends()
