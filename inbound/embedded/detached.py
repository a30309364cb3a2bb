"""A supervisor process owns a cluster's servers until `end` is called.

So the cluster outlives the command that started it. While it is up, its folder has `cluster.json` with addresses and pids.
The supervisor holds the folder's lock, so a `cluster.json` whose lock is free is stale.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inbound.embedded.cluster import VERSION, EmbeddedCluster, own_until_signalled, read_json, write_json
from inbound.embedded.jars import Progress, silent
from inbound.embedded.kafka import live_brokers
from inbound.embedded.locks import alive, holder
from inbound.embedded.server import Server
from inbound.embedded.zookeeper import zookeeper_mode
from inbound.errors import EmbeddedClusterError

#: Seconds until a supervisor is killed that was asked to end; its servers take at most 20 s.
_END_TIMEOUT = 40.0
_ERROR = "error: "
_UP = "up"


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """One server in cluster.json."""

    name: str
    port: int
    pid: int


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The content of cluster.json."""

    directory: Path
    pid: int  # the supervisor's
    started: float  # when it was up, in seconds since the Unix epoch
    brokers: tuple[ServerInfo, ...]
    zookeepers: tuple[ServerInfo, ...]

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses: host:port,host:port."""
        return ",".join(f"127.0.0.1:{server.port}" for server in self.brokers)

    @property
    def zookeeper_hosts(self) -> str:
        """The ZooKeeper servers' addresses: host:port,host:port."""
        return ",".join(f"127.0.0.1:{server.port}" for server in self.zookeepers)


def start(
    directory: Path,
    *,
    jars: Path,
    brokers: int = 1,
    zookeepers: int = 1,
    java: str = "java",
    progress: Progress = silent,
) -> ClusterInfo:
    """Start a supervisor for `directory`, and return once the cluster is up.

    Raises EmbeddedClusterError: the directory is in use, or the cluster did not come up; then nothing is left running.
    """
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    options = {"directory": str(directory), "jars": str(jars.absolute()), "java": java}
    command = [
        sys.executable, "-m", "inbound.embedded.detached",
        json.dumps({**options, "brokers": brokers, "zookeepers": zookeepers}),
    ]  # fmt: skip
    error = f"the supervisor ended before the cluster was up; see {directory / 'supervisor.log'}"
    with (
        open(directory / "supervisor.log", "ab") as log,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        ) as supervisor,
    ):
        assert supervisor.stdout is not None
        try:
            for line in (raw.decode("utf-8", "replace").rstrip("\n") for raw in supervisor.stdout):
                if line == _UP:
                    return _forget(supervisor, directory)
                if line.startswith(_ERROR):
                    error = line.removeprefix(_ERROR).replace("\t", "\n")
                else:
                    progress(line)
        except BaseException:
            supervisor.terminate()
            raise
    raise EmbeddedClusterError(error)


def _forget(supervisor: subprocess.Popen[bytes], directory: Path) -> ClusterInfo:
    """Return what the supervisor wrote, and stop waiting for its end."""
    info = read(directory)
    if info is None:
        raise EmbeddedClusterError(
            f"{directory}: the supervisor said it is up but left no cluster.json. Start it again."
        )
    supervisor.returncode = 0  # leaving the `with` would otherwise wait for its end
    return info


def read(directory: Path) -> ClusterInfo | None:
    """Return what `directory`/cluster.json says, or None if there is none.

    Raises EmbeddedClusterError: it cannot be read.
    """
    path = directory / "cluster.json"

    def info(value: dict[str, Any]) -> ClusterInfo:
        brokers, zookeepers = ([ServerInfo(**one) for one in value[kind]] for kind in ("brokers", "zookeepers"))
        return ClusterInfo(directory, int(value["pid"]), float(value["started"]), tuple(brokers), tuple(zookeepers))

    try:
        return read_json(
            path,
            info,
            other="Use the inbound that started the cluster to end it.",
            unreadable=f"End the servers of {directory} by hand, then delete the file.",
        )
    except FileNotFoundError:
        return None


def supervised(info: ClusterInfo) -> bool:
    """Return whether the supervisor that wrote `info` is alive."""
    return holder(info.directory / "cluster.lock") == info.pid and alive(info.pid)


def answers(info: ClusterInfo, timeout: float = 3.0) -> dict[str, str | None]:
    """Ask every server a real question, and return the answers by name.

    None: the server did not answer within `timeout` seconds.
    """
    said: dict[str, str | None] = {}
    for server in info.zookeepers:
        said[server.name] = zookeeper_mode(server.port, timeout)
    for server in info.brokers:
        seen = live_brokers(server.port, timeout)
        said[server.name] = f"sees {len(seen)} of {len(info.brokers)} brokers" if seen else None
    return said


def end(directory: Path, timeout: float = _END_TIMEOUT) -> bool:
    """End the detached cluster of `directory`, and wait for its servers.

    Returns False if there was none. A supervisor that has not ended after `timeout` seconds is killed. A stale cluster.json is
    removed. Raises EmbeddedClusterError: the directory is held by a cluster that is not detached.
    """
    directory = directory.absolute()
    info = read(directory)
    lock = directory / "cluster.lock"
    if info is None or not supervised(info):
        owner = holder(lock)
        if owner is not None and alive(owner):
            raise EmbeddedClusterError(
                f"{directory}: is in use by pid {owner}, which is no detached cluster (or one that is still starting). "
                "End that process (Ctrl-C where it runs)."
            )
        (directory / "cluster.json").unlink(missing_ok=True)
        return False
    for number, patience in ((signal.SIGTERM, timeout), (signal.SIGKILL, timeout)):
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(info.pid, number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if holder(lock) is None:  # the supervisor and every guardian have ended
                (directory / "cluster.json").unlink(missing_ok=True)
                return True
            time.sleep(0.05)
        if not alive(info.pid):
            break
    raise EmbeddedClusterError(f"{directory}: the servers do not end; their pids are in {directory / 'cluster.json'}.")


def _supervise(options: dict[str, Any]) -> int:
    """Run the supervisor; its output goes to `start` until it is up."""
    directory = Path(options["directory"])
    told = True

    def tell(message: str) -> None:
        print(message, file=sys.stdout if told else sys.stderr, flush=True)

    cluster = EmbeddedCluster(
        directory, jars=Path(options["jars"]), java=options["java"],
        brokers=options["brokers"], zookeepers=options["zookeepers"], progress=tell,
    )  # fmt: skip

    def up() -> None:
        nonlocal told
        kinds: dict[str, Sequence[Server]] = {"brokers": cluster.brokers, "zookeepers": cluster.zookeepers}
        servers = {
            kind: [{"name": one.name, "port": one.port, "pid": one.pid} for one in some] for kind, some in kinds.items()
        }
        info = {"version": VERSION, "pid": os.getpid(), "started": time.time(), **servers}
        write_json(directory / "cluster.json", info)
        tell(_UP)
        told = False
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    try:
        own_until_signalled(cluster, up, tell)
    except EmbeddedClusterError as error:
        tell(_ERROR + str(error).replace("\n", "\t"))
        return 1
    (directory / "cluster.json").unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(_supervise(json.loads(sys.argv[1])))
