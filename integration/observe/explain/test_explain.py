"""`inbound explain` on real servers: planted causes are named, healthy partitions are not, and the command itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inbound.cli.inspect.explain import explained
from inbound.config import load
from inbound.embedded import EmbeddedCluster
from inbound.topic_partition import TopicPartition
from integration.group.mixed_load import run_mixed_load
from integration.harness import Scene, Scenes
from integration.observe.explain.explaining import Named, Stage
from integration.observe.explain.plants import plant_in_doubt, plant_in_one_process, plant_no_member, plant_suspended
from tests.waiting import until

#: Some of the twenty: `make test-explain` plants all, and measures how long each takes to be named.
SOME = ["slow", "slow-async", "reverting", "poison", "subscriber", "forgotten", "left-out"]


@pytest.fixture
def stage(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[Stage]:
    """Channels of this process, on the shared servers."""
    one = Stage(embedded_cluster, tmp_path, name=f"explained-{os.urandom(3).hex()}")
    yield one
    one.close()


@pytest.fixture
def scene(scenes: Scenes) -> Scene:
    """Consumers as processes of their own."""
    return scenes(partitions=2)


def explain(scene: Scene, partition: int, ago: float | None = None) -> dict[str, Any]:
    """Return what the command finds."""
    loaded = load(scene.config.read_text(), filename=str(scene.config), environ={}, overrides={})
    at = None if ago is None else time.time() - ago
    return explained(loaded, TopicPartition(scene.topic, partition), "orders", loaded.config.channels["orders"], at)


def command(scene: Scene, *arguments: str) -> tuple[int, str]:
    """Run the command; return its exit code and its output."""
    line = [sys.executable, "-m", "inbound", "explain", scene.topic, *arguments, "-c", str(scene.config)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout


@pytest.mark.thorough(
    "the fast tests of causes and of the detector plant each of these; one is in the command's test below"
)
def test_planted_causes_are_named_and_healthy_partitions_are_not(stage: Stage) -> None:
    """How soon is measured by `make test-explain` on a quiet machine; here only that each is."""
    named: list[Named] = plant_in_one_process(stage, SOME)
    named += [*plant_no_member(stage), *plant_suspended(stage), *plant_in_doubt(stage)]
    assert [one for one in named if one.seconds is None] == []
    account = run_mixed_load(stage, 20, per_second=20.0)
    assert account.records > 0
    assert account.false == []
    assert {"healthy", "idle"} <= account.said.keys()


def test_the_command_tells_who_owns_it_and_what_it_waits_for_and_what_was(scene: Scene) -> None:
    """One member hangs in its processor: the command says where, by the owner's own word; later, what was then."""
    scene.seconds_per_record = 600.0
    scene.write_config(consumer_id="a-1", shutdown_timeout="1s")
    process = scene.start()
    until(lambda: scene.all_owned(1), 120, lambda: scene.log(process))
    until(lambda: explain(scene, 1)["cause"] == "idle", 60, "it has nothing to read")
    scene.publish(1)
    found: dict[str, Any] = {}

    def named() -> bool:
        """An owner that takes more than 2 s to answer is not waited for: the answer has ZooKeeper alone."""
        found.update(explain(scene, 1))
        return bool(found["cause"] == "slow-processor")

    until(named, 60, lambda: f"the cause is named: {found}")
    assert (found["zookeeper"]["owner"], found["owner"]["consumer"]) == ("a-1", "a-1")
    assert "after joining the group" in found["owner"]["claimed"]["text"]
    said: list[tuple[int, str]] = []

    def told() -> bool:
        said.append(command(scene, "1"))
        return "slow-processor" in said[-1][1]

    until(told, 60, lambda: f"the command tells it: {said[-1:]}")
    code, printed = said[-1]
    assert code == 3
    assert printed.startswith(f"{scene.topic}/1 in group {scene.group} STALLED: slow-processor, since ")
    assert "recorder.py" in printed
    until(lambda: explain(scene, 1, ago=0.5)["cause"] == "slow-processor", 60, "explained afterwards, too")
    process.send_signal(signal.SIGKILL)
    process.wait()
    until(lambda: explain(scene, 1)["cause"] == "no-member", 60, "its session expires")
    then = explain(scene, 1, ago=0.5)
    assert then["cause"] == "slow-processor", "by the ledger of this machine, which alone remembers"
    assert "was in a batch, offsets 0 to 0" in then["text"]
    assert json.loads(command(scene, "1", "--json")[1])["cause"] == "no-member"
