"""`spark replay` on a standalone master with two workers: an executor that dies, and what of it lives on."""

from __future__ import annotations

from pathlib import Path

import pytest

from inbound.embedded import EmbeddedCluster
from integration.replay_scene import BATCH, ReplayScene
from integration.spark_standalone import standalone

RECORDS = 300


@pytest.mark.timeout(600)
def test_an_executor_that_dies_is_replaced(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """SIGKILL of the executor's JVM inside a batch, whose Python worker goes on for a second: nobody else gets in meanwhile.

    What is marked is not repeated, and what is repeated is listed, whoever marked it in the end.
    """
    scene = ReplayScene(embedded_cluster, tmp_path)
    for partition in range(2):
        scene.publish(partition, [b"%d" % n for n in range(RECORDS)])
    scene.configure(processor={"kill_at": [1, 160], "kill_executor": True})
    (scene.folder / "cluster").mkdir()
    with standalone(scene.folder / "cluster") as master:
        process = scene.process(
            "--master", master, "--json", str(scene.folder / "summary.json"), "--conf", "spark.executor.memory=512m",
            "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1",
        )  # fmt: skip
        try:
            code = process.wait(500)
        finally:
            process.kill()
            process.wait()

    assert code == 0, (scene.folder / "replay.log").read_text()
    assert (scene.seen / "kill").exists()
    assert {p: sorted(set(offsets)) for p, offsets in scene.handed().items()} == {
        p: list(range(RECORDS)) for p in range(2)
    }
    assert scene.repeated() == scene.listed()
    assert all(len(offsets) <= BATCH for offsets in scene.repeated().values())
    (unit,) = (unit for unit in scene.summary["units"] if unit["partition"] == 1)
    assert unit["attempts"] >= 2
