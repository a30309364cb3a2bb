"""What `no_duplication` and `mode: periodic` promise, on real servers, when processes are killed again and again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from functools import partial
from typing import Any

import pytest

from integration.harness import Scene, Scenes
from integration.heartbeat import Heartbeat
from tests.waiting import until

#: Records that a batch has at most.
BATCH = 25
#: Seconds between the commits of a partition in `mode: periodic`.
PERIOD = 2.0


pytestmark = pytest.mark.thorough(
    "kills seven consumers; test_survival.py kills one, tests/processors/test_simple_once.py and "
    "tests/processors/test_simple_periodic.py decide when each mode commits"
)


@pytest.fixture
def scene(scenes: Scenes) -> Scene:
    """One scene, whose processes are killed, and whose others' sessions outlive the machine's delays."""
    return scenes(session=10.0)


def configure(scene: Scene, seconds_per_record: float = 0.0, **options: Any) -> None:
    """Have consumers run `simple` with these options and the recording sink, which is a class of the user's own."""
    sink = {
        "type": "sending:RecordingSink",
        "folder": str(scene.seen_folder),
        "seconds_per_record": seconds_per_record,
    }
    scene.write_config(reader=f"{{max_batch_records: {BATCH}}}")
    head = scene.config.read_text().partition("    processor:")[0]
    processor = json.dumps({"type": "simple", "options": {"sinks": [sink], **options}})
    scene.config.write_text(f"{head}    processor: {processor}\n")


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL, and gone when this returns."""
    process.kill()
    process.wait()


def kill_while_it_sends(scene: Scene, process: subprocess.Popen[bytes]) -> None:
    """SIGKILL with a record of a batch not sent yet: the process is frozen for the look at what it has sent.

    Without that the batch may end, and everything be sent, between the look and the kill.
    """

    def killed() -> bool:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)  # all of its threads are frozen when this returns
        if sends(scene, process.pid):
            kill(process)
            return True
        process.send_signal(signal.SIGCONT)
        return False

    until(killed, 60, lambda: f"the kill comes while it sends: {scene.log(process)[-1000:]}")


def sends(scene: Scene, pid: int) -> bool:
    """Whether a process is in the middle of sending a batch, with a record to come."""
    seen = scene.seen(pid)
    ends = {batch.partition: batch.next for batch in scene.batches(pid)}
    return any((partition, ends[partition] - 1) not in seen for partition in scene.inside(pid))


def has_sent(scene: Scene, process: subprocess.Popen[bytes], count: int) -> bool:
    """Whether a process has sent more than so many records."""
    return scene.seen(process.pid).total() > count


def stretches(offsets: list[int]) -> int:
    """Return how many runs of consecutive offsets these are."""
    return sum(offset - 1 not in set(offsets) for offset in offsets)


def test_at_most_once_delivers_nothing_twice_and_loses_at_most_a_batch_for_each_kill(scene: Scene) -> None:
    """Two processes under load, killed in turns while they send, four times; then a graceful end."""
    configure(scene, seconds_per_record=0.004, no_duplication=True)
    scene.unproven = "of a batch whose process was killed the ledger cannot know how much of it was sent"
    running = scene.run_group(2)
    # A batch of many records every half a second. At a steady rate, batches on a quick machine are of one record each, and
    # a look never comes between two records of the same one.
    scene.start_bursts(per_second=2, records=20)
    kills = 4
    for _ in range(kills):
        kill_while_it_sends(scene, running.pop(0))
        running.append(scene.start())
    until(lambda: scene.owned_by(running), 60, "both own partitions again, and the victims none")
    scene.settle()
    assert scene.stop_all() == [0, 0]
    account = scene.account()
    assert account.repeated == {}
    # The victims were inside a batch whose commit had landed, so something is lost: else this test shows nothing.
    assert account.lost != {}
    for partition, offsets in account.lost.items():
        assert stretches(offsets) <= kills, (partition, offsets)
        assert len(offsets) <= kills * BATCH, (partition, offsets)
    assert sum(map(len, account.lost.values())) + account.seen == sum(scene.published.values())


def test_periodic_loses_nothing_and_repeats_what_was_sent_in_the_last_period(scene: Scene) -> None:
    """Two processes under load, one killed three times; each commit stands for a period."""
    with Heartbeat() as heart:
        deaths, elapsed = kill_three_under_load(scene)
    account = scene.account()
    assert account.lost == {}
    assert account.repeated != {}
    assert too_old(scene, deaths, heart) == []
    # A commit for each period, and one for each time that a partition changed hands, at the very most.
    for partition in range(scene.partitions):
        node = scene.zk.exists(f"/consumers/{scene.group}/offsets/{scene.topic}/{partition}")
        assert node.version <= elapsed / PERIOD + 2 * len(deaths) + 3


def kill_three_under_load(scene: Scene) -> tuple[list[tuple[float, int]], float]:
    """Have two processes commit once in a period, with one killed three times, and end gracefully.

    Returns who was killed, and when on the clock of the recording sink, and the seconds from the first record to the last.
    """
    configure(scene, mode="periodic", period=f"{PERIOD}s")
    running = scene.run_group(2)
    scene.start_load()
    began = time.monotonic()
    deaths: list[tuple[float, int]] = []
    for _ in range(3):
        victim = running.pop(0)
        until(partial(has_sent, scene, victim, 600), 60, "the next victim has sent for longer than two periods")
        kill(victim)
        deaths.append((time.clock_gettime(time.CLOCK_BOOTTIME), victim.pid))
        running.append(scene.start())
    until(lambda: scene.owned_by(running), 60, "both own partitions again, and the victims none")
    scene.settle()
    elapsed = time.monotonic() - began
    assert scene.stop_all() == [0, 0]
    return deaths, elapsed


def too_old(scene: Scene, deaths: list[tuple[float, int]], heart: Heartbeat) -> list[tuple[int, int, float]]:
    """Return what was sent again although a process that died had sent it earlier than in its last period.

    A commit that is due takes its time to land: another period at most, and the time that the machine was frozen.
    """
    times = Counter(scene.seen())
    apart = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    found, oldest = [], 0.0
    for died, pid in deaths:
        began: dict[bytes, float] = {}  # when the batch of a partition did that is being sent
        for parts in scene.journal(name=pid):
            if parts[0] == b"B":
                began[parts[1]] = float(parts[4])
            elif parts[0] == b"R" and times[int(parts[1]), int(parts[2])] > 1:
                age = died - began[parts[1]] - heart.lost(began[parts[1]] - apart, died - apart)
                oldest = max(oldest, age)
                if age > 2 * PERIOD:
                    found.append((int(parts[1]), int(parts[2]), age))
    print(f"the oldest that was sent again: {oldest:.2f} s")
    return found
