"""A real standalone master of Spark with workers, each a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from inbound.cli import places
from inbound.embedded.ports import free_ports
from tests.waiting import until


@contextmanager
def standalone(folder: Path, workers: int = 2) -> Iterator[str]:
    """Start a master and workers of one core each; yields the master's URL, and ends all of them."""
    home = Path(pyspark.__file__).parent
    (port,) = free_ports(1)
    java = [places.java_command(), "-Xmx256m", "-cp", f"{home}/jars/*"]
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13"}
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [[*java, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    for number in range(workers):
        work = ["--work-dir", str(folder / f"work-{number}"), "--webui-port", "0", "--host", "127.0.0.1"]
        commands.append([*java, f"{deploy}.worker.Worker", "--cores", "1", "--memory", "768M", *work, url])
    processes = []
    log = folder / "standalone.log"
    try:
        with log.open("wb") as output:
            for command in commands:
                processes.append(
                    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
                )
                if len(processes) == 1:
                    until(lambda: _listens(port), 90, log.read_text)
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
