"""Processes that stand still (SIGSTOP) and go on, and two with the same consumer id, on real servers."""

from __future__ import annotations

import json
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inbound.embedded import EmbeddedCluster
from inbound.ledger.format import path_part
from integration.harness import Scene
from tests.waiting import until

MakeScene = Callable[..., Scene]


@pytest.fixture
def scene(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[MakeScene]:
    """Make scenes on the shared cluster; end what they started."""
    scenes: list[Scene] = []

    def make(**settings: Any) -> Scene:
        folder = tmp_path / f"scene-{uuid.uuid4().hex[:8]}"
        folder.mkdir()
        scenes.append(Scene(embedded_cluster, folder, **settings))
        return scenes[-1]

    yield make
    for one in scenes:
        one.close()


def batches(s: Scene, pid: int) -> list[set[tuple[int, int]]]:
    """Return what a process was handed, batch by batch."""
    lines = (s.seen_folder / f"{pid}.seen").read_bytes().split(b"\n")[:-1]
    begun = [tuple(map(int, line.split()[1:4])) for line in lines if line.startswith(b"B ")]
    return [{(partition, offset) for offset in range(first, end)} for partition, first, end in begun]


def outcomes(s: Scene, pid: int) -> list[tuple[int, int, str]]:
    """Return (partition, epoch, outcome) of the commits in a process's ledger."""
    found = []
    for path in (s.folder / "ledger" / path_part(s.group)).glob(f"*-{pid}-*.jsonl"):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if entry["kind"] == "settled":
                found.append((entry["partition"], entry["epoch"], entry["outcome"]))
    return found


@pytest.mark.parametrize("seconds_per_record", [0.0, 0.03], ids=["between batches", "inside the callback"])
def test_a_process_stopped_past_its_session_does_no_harm_but_the_batch_in_hand(
    scene: MakeScene, seconds_per_record: float
) -> None:
    """Others take over; going on, it commits nothing of the old epochs, gives up, joins again and gets its share."""
    s = scene(seconds_per_record=seconds_per_record, session=8.0)  # the machine may stand still, but for the victim
    victim, other = s.start(), s.start()
    until(lambda: s.all_owned(2), 60, "both own partitions")
    s.start_load(per_second=10 if seconds_per_record else 40)
    s.wait_read()
    until(lambda: s.seen(victim.pid) and s.seen(other.pid), 60, "both consume")
    if seconds_per_record:
        until(lambda: s.inside(victim.pid), 60, "the victim is inside a batch")
    before, claims = s.epochs(), s.claims()
    victim.send_signal(signal.SIGSTOP)
    until(lambda: s.all_owned(1), 60, "the other has taken over")
    # By the claims: an epoch is also moved on by a commit of its owner's after one that was not answered.
    moved = {p for p, claim in s.claims().items() if claim != claims[p]}
    time.sleep(1)
    victim.send_signal(signal.SIGCONT)
    until(lambda: s.all_owned(2), 60, "the victim has its share again")
    s.settle(90)
    account = s.account()
    in_hand = batches(s, victim.pid)
    assert account.lost == {}
    for partition, offsets in account.repeated.items():
        repeated = {(partition, offset) for offset in offsets}
        assert any(repeated <= batch for batch in in_hand), (partition, offsets)
    landed_late = [o for p, e, o in outcomes(s, victim.pid) if o != "landed" and (p not in moved or e != before[p])]
    assert (len(moved), landed_late) == (3, [])
    assert sum("lost: another consumer has claimed it" in line for line in s.log(victim).splitlines()) == 3
    assert "Traceback" not in s.log(victim) + s.log(other)
    assert [s.stop(process) for process in (victim, other)] == [0, 0]


def test_a_process_stopped_for_less_than_its_session_repeats_and_moves_nothing(scene: MakeScene) -> None:
    """Nobody notices but those who wait for its records."""
    s = scene(session=15.0)
    victim, other = s.start(), s.start()
    until(lambda: s.all_owned(2), 60, "both own partitions")
    s.start_load()
    s.wait_read()
    until(lambda: s.seen(victim.pid) and s.seen(other.pid), 60, "both consume")
    before = (s.owners(), s.epochs())
    for pause in (1.0, 2.0):
        victim.send_signal(signal.SIGSTOP)
        time.sleep(pause)
        victim.send_signal(signal.SIGCONT)
        time.sleep(1)
    s.settle(90)
    assert (s.account().clean, (s.owners(), s.epochs()) == before) == (True, True)
    assert [s.stop(process) for process in (victim, other)] == [0, 0]


def test_a_second_process_with_our_id_waits_while_we_live_and_ends_us_if_we_come_back_late(
    scene: MakeScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on two machines, which share no lock file. Never a tug of war, nothing lost."""
    s = scene(session=8.0)  # the first must not lose it while it lives, should the machine stand still
    s.write_config(consumer_id="one")
    first = s.start()
    until(lambda: s.all_owned(1), 60, "the first owns all")
    monkeypatch.setenv("XDG_STATE_HOME", str(s.folder / "another machine"))
    second = s.start()
    until(lambda: "is still registered by another session; waiting for it to expire" in s.log(second), 60, "it waits")
    s.start_load()
    time.sleep(2 * s.session)
    assert (s.all_owned(1), second.poll(), s.seen(second.pid) if s.first_seen(second.pid) else {}) == (True, None, {})
    first.send_signal(signal.SIGSTOP)
    until(lambda: s.first_seen(second.pid), 60, "the second has taken over")
    first.send_signal(signal.SIGCONT)
    assert first.wait(timeout=60) == 1
    assert f"consumer id 'one' is in use by process {second.pid} on " in s.log(first)
    s.settle(90)
    account = s.account()
    in_hand = batches(s, first.pid)
    assert account.lost == {}
    for partition, offsets in account.repeated.items():
        assert any({(partition, offset) for offset in offsets} <= batch for batch in in_hand), (partition, offsets)
    assert "Traceback" not in s.log(first) + s.log(second)
    assert s.stop(second) == 0
