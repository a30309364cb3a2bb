"""`run --processes N`, fixed consumer ids, and what the command line says of a running group."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from inbound.admin.client import fetch_status
from inbound.embedded.locks import alive
from integration.harness import Scene, Scenes
from tests.waiting import until


@pytest.fixture
def scene(scenes: Scenes) -> Scene:
    """One scene on the shared cluster."""
    return scenes()


def processes(url: str) -> list[dict[str, Any]]:
    """Return the status of each process behind an admin port."""
    body: dict[str, Any] = dict(fetch_status(url, 30))
    found: list[dict[str, Any]] = body["processes"]
    return found


def test_several_processes_share_one_admin_port_and_a_dead_one_is_started_again(scene: Scene) -> None:
    """The parent restarts a child that dies; when the parent is killed, its children release everything and end."""
    scene.session = 4.0  # of the dead one
    scene.write_config()
    parent = scene.start("--processes", "2")
    url = scene.admin_url(parent)
    until(lambda: scene.all_owned(2), 120, "both own partitions")
    scene.start_load()
    until(lambda: len(processes(url)) == 2, 60, "both answer")
    victim = processes(url)[0]["pid"]
    os.kill(victim, signal.SIGKILL)
    until(lambda: victim not in [p["pid"] for p in processes(url)] and len(processes(url)) == 2, 60, "another one runs")
    until(lambda: scene.all_owned(2), 120, "both own partitions again")
    assert "ended with signal SIGKILL; started again in 1 s" in scene.log(parent)
    scene.settle(90)
    assert scene.account().lost == {}
    pids = [p["pid"] for p in processes(url)]
    parent.kill()
    parent.wait()
    until(lambda: not any(alive(pid) for pid in pids), 60, "the children have ended")
    assert scene.owners() == {}  # gracefully: nothing waits for a session to expire


@pytest.mark.thorough("waits between five restarts; the restart of one process is in `make test`")
def test_children_that_die_at_once_end_everything(scene: Scene) -> None:
    """Five deaths within a minute are no accident."""
    scene.write_config()
    (scene.folder / "dying.py").write_text(
        "import os\nfrom inbound import BatchEventProcessor\n"
        "class Dying(BatchEventProcessor):\n"
        "    def open(self, context): os._exit(7)\n"
        "    def on_next_batch(self, batch): ...\n"
    )
    text = scene.config.read_text()
    scene.config.write_text(text.split("    processor:")[0] + '    processor: {type: "dying:Dying"}\n')
    parent = scene.start("--processes", "3")
    assert parent.wait(timeout=90) == 1
    assert "5 processes died within a minute: giving up" in scene.log(parent)


def test_a_fixed_id_is_of_one_process_and_its_successor_does_not_wait_for_the_session(scene: Scene) -> None:
    """A second process with it does not start; a dead one's lock file is free: the kernel proves the death."""
    scene.session = 60.0  # the longest that these servers grant
    scene.write_config(consumer_id="one")
    first = scene.start()
    until(lambda: scene.all_owned(1), 120, "it owns all")
    second = scene.start()
    assert second.wait(timeout=120) == 1
    assert "consumer id 'one' of group" in scene.log(second)
    assert "Traceback" not in scene.log(second)
    assert scene.all_owned(1)
    first.kill()
    first.wait()
    third = scene.start()
    scene.publish(2)
    until(scene.everything_committed, 30, lambda: f"it consumes before the session ends: {scene.log(third)[-1500:]}")
    assert (scene.stop(third), "waiting for it to expire" in scene.log(third)) == (0, False)


def test_a_hanging_callback_is_abandoned_at_shutdown_and_at_once_by_a_second_signal(scene: Scene) -> None:
    """Bounded by shutdown_timeout, and the log says where it hangs; its offsets are not committed."""
    scene.seconds_per_record = 600.0
    scene.write_config()
    bounded = scene.start("--set", "channels.orders.shutdown_timeout=2s")
    hasty = scene.start("--set", "channels.orders.shutdown_timeout=500s")
    until(lambda: scene.owned_by([bounded, hasty]), 120, "both own partitions")
    scene.publish(1)
    until(lambda: scene.seen(bounded.pid) and scene.seen(hasty.pid), 60, "both hang in a batch")
    # Where a partition begins is committed before its first batch: one may hang while another does not know yet.
    zeros = [0] * scene.partitions
    until(lambda: [scene.offset(p) for p in range(scene.partitions)] == zeros, 60, "all know where they begin")
    hasty.send_signal(signal.SIGTERM)
    until(lambda: "stopping" in scene.log(hasty), 60, "it is stopping")
    hasty.send_signal(signal.SIGTERM)
    until(lambda: hasty.poll() is not None, 5, "it ends at once, of the 500 s that it would wait")
    assert scene.stop(bounded) == 0
    assert "its callback did not end in time; it is at:" in scene.log(bounded)
    assert "recorder.py" in scene.log(bounded)
    assert [scene.offset(p) for p in range(scene.partitions)] == zeros


def test_a_processor_that_cannot_open_ends_the_process_with_the_reason(scene: Scene) -> None:
    """Exit code 2: it could never do its work. No traceback, and close is not called."""
    (scene.folder / "opening.py").write_text(
        "from inbound import BatchEventProcessor\n"
        "class Opening(BatchEventProcessor):\n"
        "    def open(self, context): raise ConnectionError('no database at db:5432')\n"
        "    def on_next_batch(self, batch): ...\n"
        "    def close(self): raise AssertionError('not to be called')\n"
    )
    text = scene.config.read_text()
    scene.config.write_text(text.split("    processor:")[0] + '    processor: {type: "opening:Opening"}\n')
    process = scene.start()
    assert process.wait(timeout=60) == 2
    log = scene.log(process)
    assert "channel orders: Opening.open failed: ConnectionError: no database at db:5432" in log
    assert "Traceback" not in log
    assert "not to be called" not in log
