"""A consumer whose configuration is mounted as Kubernetes mounts a ConfigMap, its load, and an account of every offset."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import kafka
from kafka.admin import KafkaAdminClient, NewTopic
from kazoo.client import KazooClient

from inbound.admin.client import fetch_status
from inbound.cli.shared.files import ConfigFiles
from inbound.embedded import EmbeddedCluster
from inbound.errors import InboundError
from inbound.process.reload.reconfiguration import SETTLE
from integration.harness import PLUGINS
from integration.heartbeat import Heartbeat
from integration.kubernetes.mounted import mount
from integration.reloading.edits import APPLIED, REFUSED, ROLLED_BACK, Edit, Tree, text_of
from tests.waiting import until

PARTITIONS = 3
#: The channel that no edit touches gets a record so often in each partition, and the others so often. Seconds.
STEADY, OTHERS = 0.5, 0.05
#: How long an edit may take to count, in seconds.
LIMIT = 90.0


class Mount:
    """A folder with one file, which changes in each of the ways in which files change."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self.path = folder / name

    def swap(self, text: bytes) -> None:
        """Put a new version in the place of the old one, as the kubelet does."""
        mount(self._folder, {self._name: text})

    def overwrite(self, text: bytes, pieces: int, rng: random.Random) -> float:
        """Write into the file, in so many pieces: a reader between them sees a half.

        Returns the longest pause between two of them, in seconds.
        """
        longest, last = 0.0, time.monotonic()
        with open(self.path, "r+b" if self.path.exists() else "wb") as file:
            file.truncate()
            size = max(1, len(text) // pieces + 1)
            for start in range(0, len(text), size):
                file.write(text[start : start + size])
                file.flush()
                longest, last = max(longest, time.monotonic() - last), time.monotonic()
                if pieces > 1:
                    time.sleep(rng.random() * 0.05)
        return longest

    def rename(self, text: bytes) -> None:
        """Write beside it, and put that in its place: what most editors do."""
        beside = self._folder / f".{self._name}.swp"
        beside.write_bytes(text)
        os.replace(beside, self.path)

    def remove(self) -> None:
        """Let the file go."""
        self.path.unlink()


class ReloadScene:
    """One consumer process, four channels, steady load. `close` ends everything that it started."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path, seed: int) -> None:
        self.cluster = cluster
        self.folder = folder
        self._rng = random.Random(seed)
        suffix = f"-{os.urandom(3).hex()}"
        self.topics = {name: f"{name}{suffix}" for name in ("steady", "edited", "paced", "comes")}
        self.topics["more"] = f"{self.topics['edited']}-more"
        self.groups = {name: f"g-{name}{suffix}" for name in ("steady", "edited", "paced", "comes")}
        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in self.topics.values()])
        admin.close()
        self.heart = Heartbeat()
        self.heart.__enter__()
        self.zk = KazooClient(cluster.zookeeper_hosts, timeout=30)
        self.zk.start(timeout=30)
        self.mount = Mount(folder / "config", "inbound.yaml")
        self.published: Counter[tuple[str, int]] = Counter()
        self._stop_load = threading.Event()
        self._loads: list[threading.Thread] = []
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.accepted = 0  # bad edits that were applied
        self.way = ""  # how the last edit was written
        self.half_stood = False  # whether it stood half written for so long that it may be taken for whole

    def tree(self) -> Tree:
        """Return the configuration to begin with."""
        channels = {name: self.channel(name) for name in ("steady", "edited", "paced")}
        channels["paced"]["processor"] = {
            "type": "simple",
            "options": {
                "max_read_rate": "1000/s",
                "sinks": [{"type": "noting:NotingSink", "file": self._file("paced")}],
            },
        }
        channels["edited"]["topics"] = [self.topics["edited"]]
        return {
            "zookeeper": {"hosts": self.cluster.zookeeper_hosts, "session_timeout": "6s"},
            "kafka": {"bootstrap.servers": self.cluster.bootstrap_servers},
            "admin": {"listen": "127.0.0.1:0"},
            "controller": {"join_delay": "1s"},
            "ledger": {"path": str(self.folder / "ledger"), "compact": False},
            "channels": channels,
        }

    def channel(self, name: str) -> Tree:
        """Return a channel that notes what it is handed."""
        return {
            "topics": [self.topics[name]],
            "group": self.groups[name],
            "workers": 2,
            "reader": {"idle_wait": "50ms"},
            "processor": {"type": "noting:Noting", "options": {"file": self._file(name)}},
        }

    def _file(self, name: str) -> str:
        return str(self.folder / f"{name}.notes")

    def begin(self, tree: Tree) -> None:
        """Start the consumer and the load."""
        self.mount.swap(text_of(tree).encode())
        path = os.pathsep.join([str(PLUGINS), str(PLUGINS.parent.parent), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "inbound", "run", "-c", str(self.mount.path)]
        with open(self.folder / "consumer.log", "wb") as log:
            self.process = subprocess.Popen(
                command,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": path, "XDG_STATE_HOME": str(self.folder)},
            )
        until(lambda: "admin: http" in self.log(), 60, lambda: f"it says where its admin listener is: {self.log()}")
        self.url = next(word for word in self.log().split() if word.startswith("http")).removesuffix("/status")
        for names, every in ((("steady",), STEADY), (("edited", "more", "paced", "comes"), OTHERS)):
            load = threading.Thread(target=self._publish, args=(names, every), name="load", daemon=True)
            load.start()
            self._loads.append(load)
        until(lambda: all(Path(self._file(n)).exists() for n in ("steady", "edited", "paced")), 60, "all are read")

    def log(self) -> str:
        """Return what the consumer has logged."""
        return (self.folder / "consumer.log").read_text()

    def _publish(self, names: tuple[str, ...], every: float) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=self.cluster.bootstrap_servers, acks="all", linger_ms=2)
        topics = [self.topics[name] for name in names]
        futures: list[Any] = []
        while not self._stop_load.wait(every):
            futures += [producer.send(topic, b"x", partition=p) for topic in topics for p in range(PARTITIONS)]
        for future in futures:
            done = future.get(timeout=60)
            self.published[done.topic, done.partition] += 1
        producer.close(timeout=5)

    # -- edits -------------------------------------------------------------------------------------------------------

    def reload(self) -> Tree:
        """Return what the process says of changes of its configuration."""
        while True:
            with suppress(InboundError):  # a busy machine
                found: Tree = fetch_status(self.url, timeout=20)["reload"]
                return found

    def make(self, edit: Edit) -> None:
        """Make an edit, in one of the ways in which files change, and wait until it counts, or is refused.

        Raises:
            AssertionError: neither came about.
        """
        before = self.reload()
        self._write(edit)
        if edit.expected == APPLIED:
            args = argparse.Namespace(config=self.mount.path, set=[])
            digest = ConfigFiles(args).load().digest
            until(
                lambda: (r := self.reload())["digest"] == digest and not r["under_way"] and r["problem"] is None,
                LIMIT, lambda: f"{edit.name} is applied: {self.reload()}\n{self.log()[-3000:]}",
            )  # fmt: skip
            return
        key = {REFUSED: "refused_total", ROLLED_BACK: "rolled_back_total"}[edit.expected]

        def settled() -> bool:
            now = self.reload()
            if now["applied_total"] > before["applied_total"] or now["digest"] != before["digest"]:
                self.accepted += not self.half_stood
                print(f"accepted: {edit.name}, written {self.way}: {before} {now}", file=sys.stderr)
                return True
            return bool(now[key] > before[key] and not now["under_way"])

        until(settled, LIMIT, lambda: f"{edit.name} is {edit.expected}: {self.reload()}\n{self.log()[-3000:]}")

    def _write(self, edit: Edit) -> None:
        if edit.text is None:
            self.mount.remove()
            return
        data = edit.text.encode("utf-8", "surrogateescape")
        self.half_stood = False
        way = self._rng.choice(["swapped", "swapped", "renamed", "at once", "in pieces"])
        self.way = way if self.mount.path.exists() else "swapped"
        if self.way == "swapped":
            self.mount.swap(data)
        elif self.way == "renamed":
            self.mount.rename(data)
        else:
            pause = self.mount.overwrite(data, 1 if self.way == "at once" else 4, self._rng)
            # What stands for so long, and can be used, is an edit like any other.
            self.half_stood = pause >= SETTLE

    # -- the account -------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """End the load, and wait until everything is committed."""
        self._stop_load.set()
        for load in self._loads:
            load.join(timeout=120)

        def committed() -> bool:
            return all(self._offset(topic, p) == count for (topic, p), count in self.published.items())

        until(committed, 120, lambda: f"everything is committed: {self.log()[-3000:]}")

    def _group_of(self, topic: str) -> str:
        name = next(name for name, one in self.topics.items() if one == topic)
        return self.groups["edited" if name == "more" else name]

    def _offset(self, topic: str, partition: int) -> int | None:
        path = f"/consumers/{self._group_of(topic)}/offsets/{topic}/{partition}"
        data = self.zk.get(path)[0] if self.zk.exists(path) else b""
        return int(data) if data else None

    def noted(self, name: str) -> int:
        """Return how many batches a channel was handed; it may be writing just now."""
        path = Path(self._file(name))
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def notes(self, name: str) -> Iterator[tuple[str, int, float, list[int]]]:
        """Yield what a channel was handed: topic, partition, seconds after its publishing, offsets."""
        path = Path(self._file(name))
        for line in path.read_text().splitlines() if path.exists() else ():
            topic, partition, late, *offsets = line.split()
            yield topic, int(partition), float(late), [int(offset) for offset in offsets]

    def account(self) -> tuple[int, int]:
        """Return how many offsets nobody was handed, and how many more than once."""
        times: Counter[tuple[str, int, int]] = Counter()
        for name in self.groups:
            for topic, partition, _, offsets in self.notes(name):
                times.update((topic, partition, offset) for offset in offsets)
        everything = [(t, p, offset) for (t, p), count in self.published.items() for offset in range(count)]
        return sum(not times[one] for one in everything), sum(times[one] > 1 for one in everything)

    def latest(self, name: str, skip: int = 0) -> float:
        """Return how long after its publishing a record was handed to a channel at the most, without the first ones.

        The time that the machine itself was frozen is not counted.
        """
        late = [late for _, _, late, offsets in self.notes(name) if offsets[0] >= skip]
        latest = max(late, default=0.0)
        return max(0.0, latest - self.heart.worst(latest))

    def size(self) -> tuple[int, int]:
        """Return how many threads the consumer has, and how many KiB of memory."""
        assert self.process is not None
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        found = dict(line.split(":", 1) for line in lines if ":" in line)
        return int(found["Threads"]), int(found["VmRSS"].split()[0])

    def stop(self) -> int:
        """Stop the consumer gracefully. Returns its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout=60)

    def close(self) -> None:
        """End all that still runs."""
        self._stop_load.set()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for load in self._loads:
            load.join(timeout=120)
        self.heart.__exit__(None, None, None)
        self.zk.stop()
        self.zk.close()
