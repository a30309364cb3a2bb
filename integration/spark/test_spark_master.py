"""A real standalone master with two workers, each a process of its own: executors get inbound as a wheel."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.ledgers import write_run
from inbound.embedded import EmbeddedCluster
from inbound.spark.ledger_source import SMALL
from integration.spark.spark_stage import Stage
from integration.spark.spark_standalone import standalone

#: What a user does in Python, with the master's address and a configuration: says what executors run, then validates.
SCRIPT = """
import json, sys
from pathlib import Path
from inbound.cli.main import main
from inbound.cli.shared.files import jar_cache, java_command
from inbound.spark.session import SparkSettings, spark_session

def where(number):
    import os, time, inbound
    time.sleep(0.2)  # so that both executors have some to do
    return os.path.join(os.getcwd(), inbound.__file__)

conf = dict(pair.split("=", 1) for pair in sys.argv[3:])
with spark_session(SparkSettings(jar_cache(), java_command(), sys.argv[1], conf), "test") as spark:
    places = spark.sparkContext.parallelize(range(16), 16).map(where).collect()
    code = main(["spark", "validate", "-c", sys.argv[2], "--json"])
    print("\\n" + json.dumps({"places": sorted(set(places)), "code": code}))
"""


@pytest.mark.thorough(
    "starts a master and two workers; tests/spark/test_spark_shipping.py decides what executors are sent"
)
@pytest.mark.timeout(900)
def test_a_job_on_two_workers_runs_what_the_wheel_holds(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """The ledger is behind a URI and large: executors read it, with the inbound of the wheel that they were sent."""
    stage = Stage(embedded_cluster, tmp_path)
    stage.publish(1000)
    epoch = 1
    stage.zk.ensure_path(stage.paths.epoch(stage.topic, 0))
    stage.zk.set(stage.paths.epoch(stage.topic, 0), b"")
    mzxid = stage.set_offset(1000)
    # Other topics make it large: more than the driver reads without a job.
    write_run(stage.ledger, stage.group, "other", {0: 2000 * SMALL // 500}, 2000, consumer="other")
    write_run(stage.ledger, stage.group, stage.topic, {0: 1000}, 10, epoch=epoch, mzxid=mzxid - 100)
    stage.write_config(ledger=f"{{path: 'file://{stage.ledger}'}}")
    stage.close()
    conf = [
        "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1", "spark.driver.memory=1g",
        "spark.executor.memory=640m", "spark.sql.shuffle.partitions=2",
        # No task is given out before both executors are there: the first could be done with all before the second is up.
        "spark.cores.max=2", "spark.scheduler.minRegisteredResourcesRatio=1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime=400s",
    ]  # fmt: skip

    (tmp_path / "standalone").mkdir()
    with standalone(tmp_path / "standalone") as master:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, master.url, str(stage.config), *conf],
            cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip

    assert done.returncode == 0, f"{done.stderr}\n{master.executors()}"
    *proof, told = done.stdout.strip().split("\n")
    said = json.loads(told)
    assert said["code"] == 0, done.stdout
    assert json.loads("\n".join(proof))["partitions"][0]["proven"] == 1000
    assert len(said["places"]) == 2, said  # one for each executor
    assert all("-py3-none-any.zip/inbound/__init__.py" in place for place in said["places"]), said
