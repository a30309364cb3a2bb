"""A real standalone master with two workers, each a process of its own: executors get inbound as a wheel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from benchmarks.ledgers import write_run
from inbound.embedded import EmbeddedCluster
from inbound.embedded.ports import free_ports
from inbound.spark.ledger_source import SMALL
from integration.spark_stage import Stage
from tests.waiting import until

#: What a user does in Python, with the master's address and a configuration: says what executors run, then validates.
SCRIPT = """
import json, sys
from pathlib import Path
from inbound.cli.main import main
from inbound.cli.places import jar_cache, java_command
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


class Standalone:
    """A master and two workers on loopback."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._web, port_of_master = free_ports(2)
        self.url = f"spark://127.0.0.1:{port_of_master}"
        port = str(port_of_master)
        self._start("master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", str(self._web))
        until(self.state, 240, lambda: self.log("master.Master"))
        for name in ("one", "two"):
            work = folder / name
            self._start(
                "worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g",
                "--work-dir", str(work), self.url,
            )  # fmt: skip
        until(lambda: self.state().get("aliveworkers") == 2, 240, lambda: self.log("worker.Worker"))

    def _start(self, name: str, *arguments: str) -> None:
        spark = Path(pyspark.__file__).parent
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "SPARK_HOME")}
        environment |= {"SPARK_HOME": str(spark), "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1"}
        with open(self._folder / f"{name}-{len(self._processes)}.log", "wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [spark / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments],
                    cwd=self._folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def state(self) -> dict[str, object]:
        """What the master says; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/json/", timeout=5) as answer:
                return dict(json.load(answer))
        except OSError:
            return {}

    def log(self, name: str) -> str:
        """What the processes of that name logged."""
        return "\n".join(path.read_text()[-2000:] for path in sorted(self._folder.glob(f"{name}-*.log")))

    def executors(self) -> str:
        """What executors logged last."""
        return "\n".join(path.read_text()[-3000:] for path in sorted(self._folder.glob("*/app-*/*/stderr")))

    def close(self) -> None:
        """End all processes."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    """A master with two workers, which see nothing of the checkout."""
    folder = tmp_path / "standalone"
    folder.mkdir()
    with ExitStack() as stack:
        one = Standalone(folder)
        stack.callback(one.close)
        yield one


@pytest.mark.timeout(900)
def test_a_job_on_two_workers_runs_what_the_wheel_holds(
    embedded_cluster: EmbeddedCluster, tmp_path: Path, standalone: Standalone
) -> None:
    """The ledger is behind a URI and large: executors read it, with the inbound of the wheel that they were sent."""
    stage = Stage(embedded_cluster, tmp_path)
    stage.publish(1000)
    epoch = 1
    stage.zk.ensure_path(stage.paths.epoch(stage.topic, 0))
    stage.zk.set(stage.paths.epoch(stage.topic, 0), b"")
    mzxid = stage.set_offset(1000)
    # Other topics make it large: as much as the driver would no longer read by itself.
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

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, standalone.url, str(stage.config), *conf],
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip

    assert done.returncode == 0, f"{done.stderr}\n{standalone.executors()}"
    *proof, told = done.stdout.strip().split("\n")
    said = json.loads(told)
    assert said["code"] == 0, done.stdout
    assert json.loads("\n".join(proof))["partitions"][0]["proven"] == 1000
    assert len(said["places"]) == 2, said  # one for each executor
    assert all("-py3-none-any.zip/inbound/__init__.py" in place for place in said["places"]), said
