"""A running consumer takes in its configuration as it changes: what an edit does not touch goes on, a bad one is refused."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from inbound.admin.client import fetch_status
from inbound.embedded import EmbeddedCluster
from integration.harness import Scene, Scenes
from integration.processors.dispatch.dispatching import reloads
from integration.reloading.campaign import play
from tests.waiting import until


@pytest.fixture
def scene(scenes: Scenes) -> Scene:
    """One scene on the shared cluster."""
    return scenes(partitions=4)


def edit(scene: Scene, old: str, new: str) -> None:
    """Replace a part of the configuration, in place, as an editor does that writes into the file."""
    text = scene.config.read_text()
    assert text.count(old) == 1, (old, text)
    scene.config.write_text(text.replace(old, new))


def applied(url: str, count: int) -> None:
    """Wait until so many changes are applied."""
    until(lambda: reloads(url)["applied_total"] >= count, 60, lambda: f"{count} changes are applied: {reloads(url)}")


def command(scene: Scene, url: str) -> subprocess.CompletedProcess[str]:
    """Run `inbound reload`."""
    return subprocess.run(
        [sys.executable, "-m", "inbound", "reload", "--url", url, "-c", str(scene.config)],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_what_needs_no_other_member_changes_while_partitions_stay_and_a_bad_edit_is_refused(scene: Scene) -> None:
    """Workers, sizes, times, options: no new claim, nothing repeated; a refusal has file and line, by the command, too."""
    process = scene.start()
    url = scene.admin_url(process)
    until(lambda: scene.all_owned(1), 120, "it owns all")
    until(lambda: reloads(url)["watching"], 60, "the system tells of changes")
    scene.start_load()
    scene.wait_read()
    claims = scene.claims()

    edit(scene, "seconds_per_record: 0.0", "seconds_per_record: 0.001")
    applied(url, 1)
    edit(scene, "    processor:", "    workers: 9\n    idle_time: 5s\n    processor:")
    applied(url, 2)
    edit(scene, "client: kafka-python", "client: kafka-python, max_batch_records: 7, idle_wait: 50ms")
    applied(url, 3)
    edit(scene, "workers: 9", "workers: 1")
    applied(url, 4)
    until(
        lambda: len([t for t in fetch_status(url)["threads"] if "-worker-" in t["name"]]) == 2,
        60,
        "one worker is left, and the one that polls while it is busy",
    )
    assert reloads(url)["last_steps"] == ["channel orders: edited (workers)"]

    good = scene.config.read_text()
    edit(scene, "    processor:", "    workrs: 3\n    processor:")
    line = 1 + good.splitlines().index(next(x for x in good.splitlines() if "processor:" in x))
    refusal = f"inbound.yaml:{line}: channels.orders.workrs: unknown key"
    # A machine that stalls between the truncation and the write has the empty file refused before.
    until(lambda: refusal in (reloads(url)["problem"] or ""), 60, lambda: f"it is refused: {reloads(url)}")
    refused = command(scene, url)
    assert (refused.returncode, "refused" in refused.stdout, "workrs" in refused.stderr) == (2, True, True)
    scene.config.write_text(good)
    until(lambda: reloads(url)["problem"] is None, 60, "it is good again")
    same = command(scene, url)
    assert (same.returncode, same.stdout) == (0, "nothing has changed\n")
    scene.settle()
    assert (scene.account().clean, scene.claims()) == (True, claims)
    assert scene.stop(process) == 0


@pytest.mark.thorough("waits for servers that do not answer; the fast tests of a reconfiguration take back what fails")
def test_other_connections_to_kafka_and_zookeeper_or_what_does_not_start_is_taken_back(scene: Scene) -> None:
    """New clients read on; for another ZooKeeper session all is released and claimed again: nothing is repeated."""
    process = scene.start()
    url = scene.admin_url(process)
    until(lambda: scene.all_owned(1), 120, "it owns all")
    scene.start_load()
    scene.wait_read()
    claims, good = scene.claims(), scene.config.read_text()
    edit(scene, scene.cluster.bootstrap_servers, "127.0.0.1:1")
    until(lambda: reloads(url)["rolled_back_total"] == 1, 60, lambda: f"it is taken back: {reloads(url)}")
    assert "Kafka does not answer with the new settings" in reloads(url)["problem"]
    scene.config.write_text(good.replace(scene.cluster.zookeeper_hosts, "127.0.0.1:1"))
    until(lambda: reloads(url)["rolled_back_total"] == 2, 60, lambda: f"it is taken back: {reloads(url)}")
    assert "ZooKeeper at 127.0.0.1:1 does not answer" in reloads(url)["problem"]
    scene.config.write_text(good)
    until(lambda: reloads(url)["problem"] is None, 60, "it is good again")
    done = reloads(url)["applied_total"]

    edit(scene, "kafka: {", 'kafka: {client.rack: "there", ')
    applied(url, done + 1)
    until(lambda: "with the new settings" in scene.log(process), 60, "it reads by a new client")
    assert scene.claims() == claims
    edit(scene, "session_timeout: 15.0s", "session_timeout: 12s")
    applied(url, done + 2)
    until(lambda: scene.all_owned(1), 120, "it owns all again")
    assert fetch_status(url)["session"]["timeout"] == 12.0
    scene.settle()
    assert scene.account().clean
    assert scene.stop(process) == 0


@pytest.mark.thorough(
    "the fast tests of the reload command ask several processes; in `make test` one is edited, and an ingress gets a SIGHUP"
)
def test_a_hangup_reaches_every_child(scene: Scene) -> None:
    """And so does the command, by the parent's admin port; each takes the change in once."""
    parent = scene.start("--processes", "2")
    url = scene.admin_url(parent)
    until(lambda: scene.all_owned(2), 120, "both own partitions")

    def counts() -> list[int | None]:
        # One that does not answer its parent at once says nothing of it: a machine may be frozen for longer.
        return [(one["reload"] or {}).get("applied_total") for one in fetch_status(url, 30)["processes"]]

    edit(scene, "    processor:", "    workers: 2\n    processor:")
    parent.send_signal(signal.SIGHUP)
    until(lambda: counts() == [1, 1], 60, lambda: f"both have applied it: {counts()}")
    edit(scene, "workers: 2", "workers: 3")
    done = command(scene, url)  # they may have noticed by then
    assert done.returncode == 0, done
    until(lambda: counts() == [2, 2], 60, lambda: f"both have applied it: {counts()}")
    assert scene.stop(parent) == 0


@pytest.mark.thorough("25 edits, minutes; the fast tests of a reconfiguration and the reload above are in `make test`")
def test_random_edits_under_load(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """The short form of `make test-reload`: nothing lost or repeated, nothing bad accepted, no other channel disturbed."""
    figures = play(embedded_cluster, tmp_path, edits=25, seed=7)
    assert figures.missed == [], figures
