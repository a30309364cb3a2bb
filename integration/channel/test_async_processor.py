"""An asynchronous processor on real servers: every partition under way at once, and a graceful stop in the middle of it."""

from __future__ import annotations

import time
from urllib.request import urlopen

import pytest

from integration.harness import Scene, Scenes
from tests.waiting import patient, until

PARTITIONS = 50


@pytest.fixture
def scene(scenes: Scenes) -> Scene:
    """Fifty partitions, one worker, and batches that take long enough for all to be inside one at some time."""
    one = scenes(partitions=PARTITIONS, seconds_per_record=3.0)
    configure(one, workers="1")
    return one


def configure(scene: Scene, **channel: str) -> None:
    """Have consumers run the asynchronous recorder."""
    scene.write_config(**channel)
    scene.config.write_text(scene.config.read_text().replace("recorder:Recorder", "async_recorder:AsyncRecorder"))


def started(scene: Scene, pid: int) -> int:
    """Return in how many partitions a process is inside a batch."""
    return len(scene.inside(pid)) if scene.first_seen(pid) is not None else 0


@pytest.mark.thorough("fifty partitions take their time; tests/channel/test_async_processors.py decides")
def test_fifty_partitions_are_under_way_at_once_and_a_stop_repeats_nothing(scene: Scene) -> None:
    """SIGTERM while all of them are inside a batch: each ends, is committed, and is not redelivered."""
    (first,) = scene.run_group(1)
    scene.start_load(per_second=10)
    until(lambda: started(scene, first.pid) == PARTITIONS, 60, "all are inside a batch")
    with urlopen(f"{scene.admin_url(first)}/healthz", timeout=30) as answer:
        assert answer.status == 200
    assert scene.stop(first) == 0
    assert (scene.inside(first.pid), scene.owners()) == ({}, {})
    assert "abandoned" not in scene.log(first)
    scene.run_group(1)
    scene.settle()
    assert scene.account().clean, scene.account()
    assert scene.stop_all() == [0]


@pytest.mark.thorough("tests/channel/test_async_processors.py cancels a coroutine that hangs")
def test_coroutines_that_hang_are_cancelled_at_shutdown_and_said_where_they_hang(scene: Scene) -> None:
    """Bounded by shutdown_timeout, all of them at once; nothing of theirs is committed."""
    scene.seconds_per_record = 600.0
    configure(scene, workers="1", shutdown_timeout="2s")
    (process,) = scene.run_group(1)
    scene.publish(1)
    until(lambda: started(scene, process.pid) == PARTITIONS, 60, "all are inside a batch")
    began = time.monotonic()
    assert scene.stop(process) == 0
    took = time.monotonic() - began
    assert took < patient(8)
    assert scene.log(process).count("its callback did not end in time; it is at:") == PARTITIONS
    assert "await asyncio.sleep(self._pause)" in scene.log(process)
    assert "was destroyed but it is pending" not in scene.log(process)
    assert [scene.offset(p) for p in range(scene.partitions)] == [0] * scene.partitions
