"""`spark archive` as a process that is killed at random moments while records come, and while plain readers read."""

from __future__ import annotations

import random
import subprocess
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from inbound.embedded import EmbeddedCluster
from integration.archiving import Archive, command, configuration, publish_events
from integration.spark_log import Log, Offset
from tests.waiting import until

KILLS = 2


@pytest.mark.xdist_group("spark")
@pytest.mark.thorough("three JVMs, minutes; test_spark_archive.py lets a run end at each of its steps")
@pytest.mark.timeout(900)
def test_killed_at_any_moment(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """After every SIGKILL, and at every look in between, no offset is there twice; in the end each is there once."""
    log, to = Log(embedded_cluster), Archive(tmp_path / "archive")
    config = configuration(tmp_path, log)
    moments = random.Random(7)
    over = threading.Event()
    twice: list[Offset] = []
    looks = 0

    def seen() -> int:
        nonlocal looks
        while True:
            try:
                offsets = to.offsets()
            except FileNotFoundError:
                continue  # compacted between listing and reading: readers are told, and look again
            looks += 1
            twice.extend(offset for offset, times in offsets.items() if times > 1)
            return offsets.total()

    def load() -> None:
        number = 0
        while not over.wait(0.2):
            publish_events(log, number, 20, age=timedelta(days=number // 20 % 4))
            number += 20

    loading = threading.Thread(target=load)
    loading.start()
    try:
        for _ in range(KILLS):
            before = seen()
            process = subprocess.Popen(command(config, to, "--continuous", "--every", "100ms", "--late", "never"))
            try:
                until(lambda before=before: seen() > before, 240, "some more are archived")  # type: ignore[misc]
                over.wait(moments.uniform(0, 2))
            finally:
                process.kill()
                process.wait()
            seen()
    finally:
        over.set()
        loading.join()

    ran = subprocess.run(command(config, to, "--late", "never"), capture_output=True, text=True, timeout=300)

    assert ran.returncode == 0, ran.stderr
    assert (to.offsets() - log.offsets(), log.offsets() - to.offsets(), twice) == (Counter(), Counter(), [])
    assert looks > 10
