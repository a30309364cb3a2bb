"""A real standalone master of Spark with two workers, each a process of its own, which see nothing of the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from inbound.embedded.cluster import free_ports
from tests.waiting import until


@contextmanager
def standalone(folder: Path) -> Iterator[Standalone]:
    """Start a master and two workers of one core each; end all of them with the block."""
    one = Standalone(folder)
    try:
        one.start()
        yield one
    finally:
        one.close()


class Standalone:
    """A master and two workers on loopback."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._web, port_of_master = free_ports(2)
        self.url = f"spark://127.0.0.1:{port_of_master}"

    def start(self) -> None:
        """Start all, and wait until the workers are known to the master."""
        port = self.url.rpartition(":")[2]
        self._start("master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", str(self._web))
        until(self.state, 240, lambda: self.log("master.Master"))
        for name in ("one", "two"):
            work = self._folder / name
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
