"""Processes that are stopped (SIGSTOP) and go on, and two with the same consumer id, on real servers."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest

from inbound.ledger.format import path_part
from integration.harness import Scene, Scenes
from tests.waiting import until

#: Each batch waits for the commit of the one before: else those on their way, where ZooKeeper is slow just then, are repeated, too.
ONE_AT_A_TIME = "    max_uncommitted_records: 0\n"


def outcomes(s: Scene, pid: int) -> list[tuple[int, int, str]]:
    """Return (partition, epoch, outcome) of the commits in a process's ledger."""
    found = []
    for path in (s.folder / "ledger" / path_part(s.group)).glob(f"*-{pid}-*.jsonl"):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if entry["kind"] == "settled":
                found.append((entry["partition"], entry["epoch"], entry["outcome"]))
    return found


def under_load(s: Scene, per_second: float = 40.0) -> list[subprocess.Popen[bytes]]:
    """Start two consumers and load; return them when both are handed records."""
    both = s.run_group(2)
    s.start_load(per_second)
    s.wait_read()
    until(lambda: all(s.first_seen(process.pid) for process in both), 60, "both consume")
    return both


def repeats_only_in_hand(s: Scene, victim: subprocess.Popen[bytes]) -> None:
    """Assert that nothing is lost, and that of each partition one batch of the victim's is repeated at most."""
    account, in_hand = s.account(), s.batches(victim.pid)
    assert account.lost == {}
    for partition, offsets in account.repeated.items():
        its = [range(batch.first, batch.next) for batch in in_hand if batch.partition == partition]
        assert any(set(offsets) <= set(batch) for batch in its), (partition, offsets)
    assert "Traceback" not in "".join(s.log(process) for process in s.processes)


@pytest.mark.parametrize(
    "seconds_per_record",
    [
        pytest.param(
            0.0, id="between batches", marks=pytest.mark.thorough("`make test` stops one inside the callback")
        ),
        pytest.param(0.03, id="inside the callback"),
    ],
)
def test_a_process_stopped_past_its_session_does_no_harm_but_the_batch_in_hand(
    scenes: Scenes, seconds_per_record: float
) -> None:
    """Others take over; going on, it commits nothing of the old epochs, gives up, joins again and gets its share."""
    # The machine may stall, but for the victim.
    s = scenes(seconds_per_record=seconds_per_record, session=10.0, channel_extra=ONE_AT_A_TIME)
    victim, _ = under_load(s, 10 if seconds_per_record else 40)
    if seconds_per_record:
        until(lambda: s.inside(victim.pid), 60, "the victim is inside a batch")
    before, claims = s.epochs(), s.claims()
    victim.send_signal(signal.SIGSTOP)
    until(lambda: s.all_owned(1), 60, "the other has taken over")
    # By the claims: an epoch is also moved on by a commit of its owner's after one that was not answered.
    moved = {p for p, claim in s.claims().items() if claim != claims[p]}
    victim.send_signal(signal.SIGCONT)
    until(lambda: s.all_owned(2), 60, "the victim has its share again")
    s.settle()
    repeats_only_in_hand(s, victim)
    landed_late = [o for p, e, o in outcomes(s, victim.pid) if o != "landed" and (p not in moved or e != before[p])]
    assert (len(moved), landed_late) == (3, [])
    assert sum("lost: another consumer has claimed it" in line for line in s.log(victim).splitlines()) == 3
    assert s.stop_all() == [0, 0]


@pytest.mark.thorough("`make test` freezes one for longer, and other tests' sessions outlive the machine's own pauses")
def test_a_process_stopped_for_less_than_its_session_repeats_and_moves_nothing(scenes: Scenes) -> None:
    """Only consumers of its records notice."""
    s = scenes()
    victim, _ = under_load(s)
    before = (s.owners(), s.epochs())
    for pause in (1.0, 2.0):
        victim.send_signal(signal.SIGSTOP)
        time.sleep(pause)
        victim.send_signal(signal.SIGCONT)
        s.wait_more()
    s.settle()
    assert (s.account().clean, (s.owners(), s.epochs()) == before) == (True, True)
    assert s.stop_all() == [0, 0]


@pytest.mark.thorough("waits for two sessions; tests/group/test_sessions.py has two processes with one id")
def test_a_second_process_with_our_id_waits_while_we_live_and_ends_us_if_we_come_back_late(
    scenes: Scenes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on two machines, which share no lock file. Never a tug of war, nothing lost."""
    # The first must not lose it while it lives, should the machine stall.
    s = scenes(session=10.0, channel_extra=ONE_AT_A_TIME)
    s.write_config(consumer_id="one")
    first = s.start()
    until(lambda: s.all_owned(1), 60, "the first owns all")
    monkeypatch.setenv("XDG_STATE_HOME", str(s.folder / "another machine"))
    second = s.start()
    until(lambda: "is still registered by another session; waiting for it to expire" in s.log(second), 60, "it waits")
    s.start_load()
    time.sleep(1.5 * s.session)
    assert (s.all_owned(1), second.poll(), s.first_seen(second.pid)) == (True, None, None)
    first.send_signal(signal.SIGSTOP)
    until(lambda: s.first_seen(second.pid), 60, "the second has taken over")
    first.send_signal(signal.SIGCONT)
    assert first.wait(timeout=60) == 1
    assert f"consumer id 'one' is in use by process {second.pid} on " in s.log(first)
    s.settle()
    repeats_only_in_hand(s, first)
    assert s.stop_all() == [0]
