"""`spark validate` of consumers that are killed under load, against what their processors wrote down themselves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inbound.embedded import EmbeddedCluster
from inbound.ledger.format import path_part
from integration.harness import Scene
from integration.spark.spark_stage import Judgement, validated
from tests.waiting import until

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.thorough(
        "three kills under load; the simulation judges thousands, test_spark_validate.py one on Spark"
    ),
]

PARTITIONS = 4


@pytest.fixture
def scene(embedded_cluster: EmbeddedCluster, tmp_path: Path, spark: Any) -> Iterator[Scene]:
    """Consumers that take their time, so that kills hit them with a batch in hand."""
    one = Scene(embedded_cluster, tmp_path, partitions=PARTITIONS, session=2.0, seconds_per_record=0.002)
    yield one
    one.close()


def found(judged: Judgement, kind: str) -> set[tuple[int, int]]:
    """Return the partitions and offsets that the proof names so."""
    return {
        (partition, offset)
        for partition, findings in judged.findings.items()
        for name, first, end in findings
        if name == kind
        for offset in range(first, end)
    }


def begun_and_not_ended(scene: Scene, pid: int) -> set[tuple[int, int]]:
    """Return what a killed process was about to record: the batches that it had begun and not ended."""
    begun: dict[int, range] = {}
    record = scene.seen_folder / f"{pid}.seen"
    if not record.exists():  # it has only just got its partitions
        return set()
    for line in record.read_bytes().split(b"\n")[:-1]:
        kind, partition, *rest = line.split()
        if kind == b"B":
            begun[int(partition)] = range(int(rest[0]), int(rest[1]))
        elif kind == b"E":
            begun.pop(int(partition), None)
    return {(partition, offset) for partition, offsets in begun.items() for offset in offsets}


def about_to_begin(scene: Scene, pid: int) -> bool:
    """Whether a process has a batch in its ledger that its processor was not handed: killed now, only the ledger knows it."""
    noted: dict[int, int] = {}
    for path in sorted((scene.folder / "ledger" / path_part(scene.group)).glob(f"*-{pid}-*.jsonl")):
        for line in path.read_bytes().split(b"\n")[:-1]:
            entry = json.loads(line)
            if entry["kind"] == "begun":
                noted[entry["partition"]] = entry["first"]
    handed: dict[int, int] = {}
    for line in (scene.seen_folder / f"{pid}.seen").read_bytes().split(b"\n")[:-1]:
        kind, partition, first, *_ = line.split()
        if kind == b"B":
            handed[int(partition)] = int(first)
    return noted != handed


def owns(scene: Scene, process: subprocess.Popen[bytes]) -> bool:
    """Whether a process owns a partition."""
    return any(f"-{process.pid}-" in owner for owner in scene.owners().values())


def kill_with_a_batch_in_hand(scene: Scene, victim: subprocess.Popen[bytes]) -> None:
    """Kill a process that has begun a batch and not ended it: the validation runs while it is stalled.

    Not while one of its other partitions is between the ledger's line and the processor's: what is repeated of that
    batch is in no record but the ledger.
    """

    def stands_in_a_batch() -> bool:
        victim.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, victim.pid, os.WSTOPPED)  # the signal returns before all threads are stopped
        if begun_and_not_ended(scene, victim.pid) and not about_to_begin(scene, victim.pid):
            return True
        victim.send_signal(signal.SIGCONT)
        return False

    until(stands_in_a_batch, 90, "the victim has a batch in hand")
    victim.kill()
    victim.wait()


def test_kills_under_load_lose_nothing_and_repeat_what_the_proof_names(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three kills under load, with a proof between them that sees no anomaly; at the end nothing is lost, and repeated
    is precisely what the processors' own record says was delivered twice."""
    scene.start()
    scene.start()
    until(lambda: scene.all_owned(2), 90, "both consumers own partitions")
    scene.start_load(per_second=100)
    killed = []
    live: list[Judgement] = []
    for number in range(3):
        until(lambda: sum(scene.seen().values()) > 200 * (1 + len(live)), 90, "the group is at work")
        live.append(validated(scene.config, capsys, *(["--from-start"] if number else [])))
        victim = scene.processes[number]
        kill_with_a_batch_in_hand(scene, victim)
        killed.append(victim.pid)
        heir = scene.start()
        # The dead one's nodes stay for a session: until its heir owns some, the two are those of before.
        until(
            lambda heir=heir: owns(scene, heir) and scene.all_owned(2),  # type: ignore[misc]
            90,
            "two consumers own all partitions",
        )
    scene.settle(90)
    for process in scene.processes[3:]:
        scene.stop(process)

    judged = validated(scene.config, capsys, "--from-start")

    account = scene.account()
    twice = {(partition, offset) for partition, offsets in account.repeated.items() for offset in offsets}
    unrecorded = set().union(*(begun_and_not_ended(scene, pid) for pid in killed))
    repeated = found(judged, "repeated")
    assert [(one.code, one.proof["verdict"], one.missing) for one in live] == [(0, "proven", "")] * 3
    assert (judged.code, judged.proof["verdict"], account.lost, found(judged, "lost")) == (0, "proven", {}, set())
    assert twice <= repeated <= twice | unrecorded
    assert repeated
    assert judged.of_each("proven") == [scene.published[p] for p in range(PARTITIONS)]
