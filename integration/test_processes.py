"""`run --processes N`, fixed consumer ids, and what the command line says of a running group."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from inbound.embedded import EmbeddedCluster
from inbound.embedded.locks import alive
from inbound.http.client import fetch_status
from integration.harness import Scene
from integration.heartbeat import Heartbeat
from tests.waiting import until


@pytest.fixture
def scene(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> Any:
    """One scene on the shared cluster."""
    folder = tmp_path / f"scene-{os.urandom(4).hex()}"
    folder.mkdir()
    one = Scene(embedded_cluster, folder, session=15.0)  # a machine that is busy for seconds is not what is looked at
    yield one
    one.close()


def admin_url(scene: Scene, process: subprocess.Popen[bytes]) -> str:
    """Return the address of a process's admin listener, as its log says."""
    until(lambda: "admin: http" in scene.log(process), 60, "it says where its admin listener is")
    found = re.search(r"admin: (http\S+)/status", scene.log(process))
    assert found is not None
    return found.group(1)


def processes(url: str) -> list[dict[str, Any]]:
    """Return the status of each process behind an admin port."""
    body: dict[str, Any] = dict(fetch_status(url, 30))
    found: list[dict[str, Any]] = body["processes"]
    return found


def known(url: str) -> list[tuple[int, int, int]]:
    """Return position, commit and lag of each partition, as the process knows them: it hears of a commit after ZooKeeper."""
    partitions = fetch_status(url, 30)["channels"][0]["partitions"]
    return [(p["position"], p["committed"], p["lag"]) for p in partitions]


def test_several_processes_share_one_admin_port_and_a_dead_one_is_started_again(scene: Scene) -> None:
    """The parent restarts who dies, and ends all in good order."""
    scene.session = 2.0  # of the dead one
    scene.write_config()
    parent = scene.start("--processes", "2")
    url = admin_url(scene, parent)
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
    assert scene.stop(parent) == 0
    assert [pid for pid in pids if alive(pid)] == []


def test_children_end_when_their_parent_is_killed(scene: Scene) -> None:
    """Nobody would restart or stop them any more."""
    parent = scene.start("--processes", "2")
    url = admin_url(scene, parent)
    until(lambda: scene.all_owned(2), 120, "both own partitions")
    pids = [p["pid"] for p in processes(url)]
    parent.kill()
    parent.wait()
    until(lambda: not any(alive(pid) for pid in pids), 60, "the children have ended")
    assert scene.owners() == {}  # in good order: nothing waits for a session to expire


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


def test_a_restarted_process_with_a_fixed_id_takes_over_without_waiting_for_the_session(scene: Scene) -> None:
    """The kernel has let go of the dead one's lock file: it is provably dead."""
    scene.session = 60.0
    scene.write_config(consumer_id="one")
    first = scene.start()
    until(lambda: scene.all_owned(1), 120, "it owns all")
    first.kill()
    first.wait()
    began = time.monotonic()
    second = scene.start()
    scene.publish(2)
    until(scene.everything_committed, 60, lambda: f"it consumes: {scene.log(second)[-1500:]}")
    assert time.monotonic() - began < scene.session * 2 / 3  # it may have been renewed a third of it before
    assert scene.stop(second) == 0


def test_a_second_process_with_the_same_fixed_id_does_not_start(scene: Scene) -> None:
    """Exit code 1, and who has it; the first one is not disturbed."""
    scene.write_config(consumer_id="one")
    first = scene.start()
    until(lambda: scene.all_owned(1), 120, "it owns all")
    second = scene.start()
    assert second.wait(timeout=60) == 1
    assert "consumer id 'one' of group" in scene.log(second)
    assert "Traceback" not in scene.log(second)
    assert scene.all_owned(1)
    assert scene.stop(first) == 0


def test_status_and_metrics_of_a_running_consumer(scene: Scene) -> None:
    """What an operator sees: the ancestor's gauge from 0 on, lag 0, and a table."""
    process = scene.start()
    url = admin_url(scene, process)
    until(lambda: scene.all_owned(1), 120, "it owns all")
    from urllib.request import urlopen

    def metrics() -> str:
        with urlopen(f"{url}/metrics", timeout=30) as answer:
            return str(answer.read().decode())

    gauge = re.compile(r"^eventing_kafka_consumed_msg_count\{.*\} (\d+)\.0$", re.MULTILINE)
    until(lambda: len(gauge.findall(metrics())) == scene.partitions, 60, "one series per owned partition")
    assert set(gauge.findall(metrics())) == {"0"}
    scene.publish(5)
    until(scene.everything_committed, 60, "all committed")
    assert set(gauge.findall(metrics())) == {"5"}
    for page in ("healthz", "readyz"):
        with urlopen(f"{url}/{page}", timeout=30) as answer:
            assert answer.status == 200
    shown = subprocess.run(
        [sys.executable, "-m", "inbound", "status", "--url", url],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert shown.returncode == 0, shown.stderr
    assert scene.topic in shown.stdout
    until(lambda: known(url) == [(5, 5, 0)] * scene.partitions, 60, lambda: f"it knows of its commits: {known(url)}")
    body = json.loads(
        subprocess.run(
            [sys.executable, "-m", "inbound", "status", "--json", "--url", url],
            capture_output=True, text=True, check=True, timeout=60,
        ).stdout
    )  # fmt: skip
    partitions = body["channels"][0]["partitions"]
    assert [(p["position"], p["committed"], p["lag"]) for p in partitions] == [(5, 5, 0)] * scene.partitions
    assert scene.stop(process) == 0


def test_a_hanging_callback_is_abandoned_at_shutdown_and_said_where_it_hangs(scene: Scene) -> None:
    """Bounded by shutdown_timeout; its offsets are not committed."""
    scene.seconds_per_record = 60.0
    scene.write_config(shutdown_timeout="2s")
    process = scene.start()
    until(lambda: scene.all_owned(1), 120, "it owns all")
    scene.publish(1)
    until(lambda: scene.seen(process.pid), 60, "it hangs in a batch")
    # Where a partition begins is committed before its first batch: one may hang while another does not know yet.
    zeros = [0] * scene.partitions
    until(lambda: [scene.offset(p) for p in range(scene.partitions)] == zeros, 60, "all know where they begin")
    began = time.monotonic()
    assert scene.stop(process) == 0
    assert time.monotonic() - began < 20  # of the sixty that it hangs, and of the thirty that it would wait by default
    assert "its callback did not end in time; it is at:" in scene.log(process)
    assert "recorder.py" in scene.log(process)
    assert [scene.offset(p) for p in range(scene.partitions)] == zeros


def test_a_second_signal_stops_at_once(scene: Scene) -> None:
    """For the impatient: not committed, read again later."""
    scene.seconds_per_record = 60.0
    scene.write_config()
    process = scene.start()
    until(lambda: scene.all_owned(1), 120, "it owns all")
    scene.publish(1)
    until(lambda: scene.seen(process.pid), 60, "it hangs in a batch")
    process.send_signal(signal.SIGTERM)
    until(lambda: "stopping" in scene.log(process), 60, "it is stopping")
    with Heartbeat() as heart:
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
        assert time.monotonic() - began < 5 + heart.lost(began)


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
