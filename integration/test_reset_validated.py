"""`spark validate --exact` of a group that was reset under load: nothing lost, and no repeat but those of the reset."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inbound.cli.main import main
from inbound.controller.reset_offset import To
from inbound.embedded import EmbeddedCluster
from integration.reset_scene import ResetScene, jumps_of, maker
from tests.waiting import until

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.thorough(
        "a group under load; tests/test_proof_stories.py decides that a reset by command explains its repeats"
    ),
]


@pytest.fixture
def make(embedded_cluster: EmbeddedCluster, tmp_path: Path, spark: Any) -> Iterator[Callable[..., ResetScene]]:
    """Make scenes on the shared cluster."""
    yield from maker(embedded_cluster, tmp_path)


def test_the_proof_explains_each_repeat_of_a_reset(
    make: Callable[..., ResetScene], capsys: pytest.CaptureFixture[str]
) -> None:
    """What processors were handed twice is what the proof says was asked for, offset by offset."""
    scene = make(partitions=4)
    processes = scene.run_group(2)
    scene.start_load(per_second=100)
    until(lambda: all((scene.offset(p) or 0) > 50 for p in range(4)), 60, "all consume")
    resets = [scene.ended(scene.reset(To.OFFSET, offset=offset)) for offset in (0, 20)]
    scene.settle()
    until(scene.read_to_the_ends, 60, "read to the end")
    assert [scene.stop(process) for process in processes] == [0, 0]

    capsys.readouterr()
    code = main(["spark", "validate", "-c", str(scene.config), "--json", "--exact"])
    proof = json.loads(capsys.readouterr().out)

    explained = {
        (p["partition"], offset)
        for p in proof["partitions"]
        for first, end in p["explained"]
        for offset in range(first, end)
    }
    account = scene.account()
    twice = {(partition, offset) for partition, offsets in account.repeated.items() for offset in offsets}
    findings = [finding for p in proof["partitions"] for finding in p["findings"]]
    assert (code, proof["verdict"], findings, account.lost) == (0, "proven", [], {})
    assert explained == twice
    assert scene.jumps() == jumps_of(4, *resets)
