"""Attackers and broken clients at the admin listener and at the ingress: nothing breaks, leaks or changes."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from inbound.embedded import EmbeddedCluster
from inbound.http.server.server import PROBE_THREADS, PageBounds
from integration.harness import Scene
from integration.http.fuzzing import ADMIN_PATHS, INGRESS_PATHS, Maker, Player
from integration.ingress.ingress_scene import records
from tests.waiting import until

#: The first of these many seeds a run plays; `make fuzz` plays more, and others.
SEED = int(os.environ.get("FUZZ_SEED", "1"))
SECONDS = float(os.environ.get("FUZZ_SECONDS", "4"))
#: No run is so slow that it plays fewer against each port.
LEAST = 200
#: What the attacks of a run are answered with, among others; a slow machine plays on until each was there, up to so many.
ADMIN_CODES, INGRESS_CODES = {200, 400, 401, 404, 405}, {400, 401, 404, 405}
MOST = 5000
#: Threads that are begun when they are needed: of pages, of probes, and the one that takes large events apart.
KEPT = PageBounds().threads + PROBE_THREADS + 1
TOKEN, INGRESS_TOKEN = "t0ken-of-the-admin", "t0ken-of-the-ingress"


class Fuzzed:
    """A consumer with an ingress beside it, on real servers."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path) -> None:
        (folder / "admin-token").write_text(TOKEN)
        (folder / "ingress-token").write_text(INGRESS_TOKEN)
        ingress = (
            f'ingress: {{listen: "127.0.0.1:0", topics: [fuzz-{folder.name}], token_file: {folder}/ingress-token}}\n'
        )
        # Attacks may keep it busy for seconds: how long ZooKeeper waits for it is not what is looked at.
        self.scene = Scene(cluster, folder, extra=ingress, session=30.0)
        self.topic = f"fuzz-{folder.name}"
        self.config = self.scene.config.read_text()
        self.at_rest = (0, 0, 0)

    def start(self) -> None:
        """Make the ingress's topic, start the process, and wait until it has read what there is."""
        from kafka.admin import KafkaAdminClient, NewTopic

        admin = KafkaAdminClient(bootstrap_servers=self.scene.cluster.bootstrap_servers)
        admin.create_topics([NewTopic(self.topic, 1, 1)])
        admin.close()
        token = f"admin.token_file={self.scene.folder}/admin-token"
        self.process = self.scene.start("--set", token, "--set", "logging.format=json")
        until(lambda: self._port("ingress") and self._port("admin"), 60, lambda: f"it listens: {self.log()}")
        self.admin = Player(self._port("admin"), [TOKEN, INGRESS_TOKEN])
        self.ingress = Player(self._port("ingress"), [TOKEN, INGRESS_TOKEN])
        self.scene.publish(20)
        self.scene.settle(60)
        until(lambda: self.ingress.ask("/readyz")[0] == 200, 60, "the ingress is ready")
        assert (
            self.admin.ask("/healthz")[0] == 200
        )  # an event loop keeps a file for the time when there is none: from now on

    def log(self) -> str:
        """Return what the process logged."""
        return self.scene.log(self.process)

    def _port(self, who: str) -> int:
        found = re.search(rf"{who}: http://127\.0\.0\.1:([0-9]+)", self.log())
        return int(found[1]) if found else 0

    def nodes(self) -> dict[str, bytes]:
        """Return the group's nodes in ZooKeeper with what they hold; of members only that they are there."""
        found: dict[str, bytes] = {}
        todo = [f"/consumers/{self.scene.group}"]
        while todo:
            path = todo.pop()
            found[path] = b"" if "/ids" in path else self.scene.zk.get(path)[0]
            todo += [f"{path}/{child}" for child in self.scene.zk.get_children(path)]
        return found

    def size(self) -> tuple[int, int, int]:
        """Return threads, open files and resident KiB of the process."""
        proc = Path(f"/proc/{self.process.pid}")
        status = (proc / "status").read_text()
        found = {key: int(re.search(rf"{key}:\s+([0-9]+)", status)[1]) for key in ("Threads", "VmRSS")}  # type: ignore[index]
        return found["Threads"], len(os.listdir(proc / "fd")), found["VmRSS"]

    def everyone_gone(self) -> bool:
        """Whether no client is connected any more, as far as threads and files tell. Threads that make pages are kept."""
        threads, files, _ = self.size()
        return threads <= self.at_rest[0] + KEPT and files <= self.at_rest[1]

    def varied(self) -> bool:
        """Whether the attacks so far were answered in every way that they are to be."""
        return set(self.admin.codes) >= ADMIN_CODES and set(self.ingress.codes) >= INGRESS_CODES

    def play(self, seconds: float, seed: int) -> int:
        """Play against both ports for so long, beside clients that never get to the end of what they send."""
        makers = (
            (self.admin, Maker(seed, [path.replace("orders&", f"{self.scene.topic}&") for path in ADMIN_PATHS])),
            (self.ingress, Maker(seed, [p.format(topic=self.topic) for p in INGRESS_PATHS], [INGRESS_TOKEN])),
        )
        deadline, played = time.monotonic() + seconds, 0
        with ExitStack() as slow:
            for player, maker in makers:
                for _ in range(20):
                    slow.enter_context(player.connect()).sendall(maker.half())
            while time.monotonic() < deadline or played < LEAST or (played < MOST and not self.varied()):
                for player, maker in makers:
                    player.play(maker.attack())
                played += 1
                if played % 50 == 0:
                    assert self.admin.ask("/healthz") == (200, b"ok\n")
        return played


@pytest.fixture
def fuzzed(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[Fuzzed]:
    """A consumer that has read and committed everything, at rest."""
    made = Fuzzed(embedded_cluster, tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.scene.close()


@pytest.mark.timeout(SECONDS + 900)
def test_attackers_change_nothing_and_break_nothing(fuzzed: Fuzzed) -> None:
    """No crash, no answer that blames us, nothing changed, no secret told; threads, files and memory as before."""
    nodes = fuzzed.nodes()
    fuzzed.at_rest = fuzzed.size()
    fuzzed.play(SECONDS / 3, SEED)  # what is loaded and cached once is not a leak
    until(fuzzed.everyone_gone, 120, lambda: f"{fuzzed.size()} after {fuzzed.at_rest}")
    before = fuzzed.size()

    played = fuzzed.play(SECONDS * 2 / 3, SEED + 1)

    until(fuzzed.everyone_gone, 120, lambda: f"{fuzzed.size()} after {fuzzed.at_rest}")
    assert fuzzed.admin.ask("/healthz") == (200, b"ok\n")
    assert fuzzed.admin.ask("/readyz")[0] == 200
    assert (fuzzed.admin.faults, fuzzed.ingress.faults) == ([], [])
    assert fuzzed.varied(), (played, fuzzed.admin.codes, fuzzed.ingress.codes)
    assert fuzzed.nodes() == nodes
    assert fuzzed.scene.config.read_text() == fuzzed.config
    status = json.loads(fuzzed.admin.ask("/status")[1])
    assert [channel["paused"] for channel in status["channels"]] == [[]]
    accepted = status["ingress"]["accepted_events_total"]
    assert len(records(fuzzed.scene.cluster.bootstrap_servers, fuzzed.topic)) == accepted
    assert fuzzed.size()[2] - before[2] < 32 * 1024, f"KiB more after {played} attacks"
    assert fuzzed.process.poll() is None
    fuzzed.process.terminate()
    assert fuzzed.process.wait(60) == 0
    log = fuzzed.log()
    assert not [token for token in (TOKEN, INGRESS_TOKEN) if token in log]
    lines = [json.loads(line) for line in log.splitlines()]
    assert [line for line in lines if line["level"] in ("error", "critical") or "exception" in line] == []
    told = {(line["topic"], line["partition"]) for line in lines if "event" in line and "partition" in line}
    assert told == {(fuzzed.scene.topic, number) for number in range(6)}
