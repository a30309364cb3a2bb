"""`inbound offsets reset` and ResetOffset manifests, on real servers and running consumers."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections import Counter
from functools import partial
from typing import Any

import kafka
import pytest

from inbound.admin.client import fetch_status
from integration.harness import Scene, Scenes
from tests.waiting import until

#: So many records each partition has of each time; and the times, in seconds before now. Retention must not think of them.
COUNT, TIMES = 10, (3600, 1800)


class Resets:
    """A scene with some records of an hour ago and some of half an hour ago, and an operator."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.began = time.time()
        self.these = ("--group", scene.group, "--topic", scene.topic)

    def run_group(self, replicas: int) -> list[subprocess.Popen[bytes]]:
        """Start consumers that have read all of the history."""
        processes = self.scene.run_group(replicas)
        self.publish_history()
        self.scene.settle()
        return processes

    def publish_history(self) -> None:
        """Publish `COUNT` records of each of `TIMES` to each partition."""
        producer = kafka.KafkaProducer(bootstrap_servers=self.scene.cluster.bootstrap_servers, acks="all")
        for ago in TIMES:
            at = round((self.began - ago) * 1000)
            for partition in range(self.scene.partitions):
                for _ in range(COUNT):
                    producer.send(self.scene.topic, b"x", partition=partition, timestamp_ms=at).get(timeout=60)
                    self.scene.published[partition] += 1
        producer.close(timeout=5)

    def at(self, ago: float) -> str:
        """Return the time so many seconds before the scene began, as RFC 3339."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.began - ago))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `inbound offsets reset` with these arguments."""
        return self.scene.inbound("offsets", "reset", *arguments, code=None)

    def seen(self) -> Counter[int]:
        """Return how many offsets were seen how often."""
        return Counter(self.scene.seen().values())

    def until_seen(self, **times: int) -> None:
        """Wait until so many offsets have been seen once, twice, ... and no other number of times."""
        names = ("once", "twice", "thrice")
        wanted = Counter({names.index(name) + 1: count for name, count in times.items()})
        until(lambda: self.seen() == wanted, 90, lambda: f"seen as often as wanted: {self.seen()}")

    def offsets(self) -> list[int | None]:
        return [self.scene.offset(p) for p in range(self.scene.partitions)]


def moved(done: subprocess.CompletedProcess[str]) -> list[tuple[int, int, int]]:
    """Return partition, old and new offset as a command printed them in JSON."""
    assert done.returncode == 0, done.stderr
    return [(p["partition"], p["oldOffset"], p["newOffset"]) for p in json.loads(done.stdout)["partitions"]]


def test_what_a_dry_run_prints_is_done_and_printed_again(scenes: Scenes) -> None:
    """Latest, a time between two records, earliest; two replicas read from there, each record once for each reset."""
    resets = Resets(scenes(partitions=3))
    resets.run_group(2)
    end, half = 2 * COUNT, COUNT
    for options, new in (
        (("--to-latest",), end),
        (("--to-datetime", resets.at((TIMES[0] + TIMES[1]) / 2)), half),
        (("--to-earliest",), 0),
    ):
        resets.scene.settle()
        dry = resets.run(*resets.these, *options, "--json")
        assert moved(dry) == [(p, end, new) for p in range(3)]
        assert moved(resets.run(*resets.these, *options, "--execute", "--json")) == moved(dry)
    resets.until_seen(twice=3 * half, thrice=3 * half)
    resets.scene.settle()
    tables = [resets.run("--ref", "channel/orders", "--by-duration", "PT45M", *do) for do in ((), ("--execute",))]
    assert tables[0].stdout == tables[1].stdout != ""
    assert "succeeded after" in tables[1].stderr
    assert len(resets.run("--list").stdout.splitlines()) > 4


@pytest.mark.thorough("tests/cli/test_reset_command.py has no replica alive, and offsets from a file")
def test_it_works_while_no_replica_is_alive(scenes: Scenes) -> None:
    """From a file too; who starts then reads from there."""
    resets = Resets(scenes(partitions=2))
    resets.run_group(1)
    assert resets.scene.stop_all() == [0]
    offsets = resets.scene.folder / "offsets.csv"
    offsets.write_text(f"{resets.scene.topic},0,5\n{resets.scene.topic},1,20\n")

    done = resets.run("--group", resets.scene.group, "--from-file", str(offsets), "--execute", "--json")

    assert moved(done) == [(0, 20, 5), (1, 20, 20)]
    resets.scene.start()
    resets.until_seen(once=25, twice=15)


MANIFEST = """\
apiVersion: kafka.eventing.knative.dev/v1alpha1
kind: ResetOffset
metadata: {{name: rewind, namespace: shop}}
spec:
  offset: {{time: "{time}"}}
  ref: {{kind: {kind}, name: orders}}
"""


def manifests_of(resets: Resets, process: subprocess.Popen[bytes]) -> list[dict[str, Any]]:
    """Return what a process says of the manifests of resets."""
    return list(fetch_status(resets.scene.admin_url(process), 30)["reset_manifests"])


@pytest.mark.thorough(
    "tests/plan/test_reset_manifests.py has two processes follow a manifest; `make test` resets by command"
)
def test_a_manifest_in_the_watched_folder_is_carried_out_once(scenes: Scenes) -> None:
    """By two processes that both see it; edited it is another one, wrong it does nothing, by -f it is known."""
    resets = Resets(scenes(partitions=3, extra="manifests: {paths: [resets]}\n"))
    folder = resets.scene.folder / "resets"
    folder.mkdir()
    processes = resets.run_group(2)

    def put(time: str, kind: str = "Channel") -> str:
        path = folder / "rewind.yaml"
        (folder / ".new").write_text(MANIFEST.format(time=time, kind=kind))
        (folder / ".new").rename(path)
        return str(path)

    def said(key: str, *, of: int = 2) -> list[str]:
        return [str(one[key]) for process in processes[:of] for one in manifests_of(resets, process)]

    path = put("earliest")
    until(lambda: said("state") == ["succeeded"] * 2, 90, lambda: f"both say so: {said('state')} {said('problem')}")
    resets.until_seen(twice=6 * COUNT)
    again = resets.run("-f", path, "--execute", "--json")
    assert (again.returncode, "is not done a second time" in again.stderr) == (0, True), again.stderr
    assert resets.seen() == {2: 6 * COUNT}

    put("earliest", kind="Trigger")
    until(lambda: ["Trigger orders" in one for one in said("problem")] == [True] * 2, 60, lambda: f"{said('problem')}")

    put(resets.at((TIMES[0] + TIMES[1]) / 2))
    resets.until_seen(twice=3 * COUNT, thrice=3 * COUNT)
    until(lambda: said("state") == ["succeeded"] * 2, 60, lambda: f"both say so: {said('state')} {said('problem')}")
    assert len(set(said("reset"))) == 1


@pytest.mark.thorough(
    "tests/cli/test_reset_command.py interrupts one, tests/controller/reset_offset/test_reset_commands.py cancels at every step"
)
def test_an_interrupted_command_leaves_the_reset_and_it_can_be_cancelled(scenes: Scenes) -> None:
    """The member has ten minutes' work in hand, so nothing was moved yet; it goes on as before."""
    resets = Resets(scenes(partitions=1, seconds_per_record=0.3))
    resets.scene.write_config(shutdown_timeout="900s")
    # Before a consumer reads: of records that arrive later, a first batch of a few would soon be over.
    resets.scene.publish(2000)
    process = resets.scene.start()
    until(lambda: resets.scene.all_owned(1), 60, "it owns the partition")
    until(lambda: resets.scene.seen().total() > 0 and resets.scene.inside(process.pid), 60, "it works at a batch")
    said = resets.scene.folder / "said"
    # What is started in the background of a shell script ignores SIGINT, and hands that down.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with said.open("wb") as err:
        command = subprocess.Popen(
            resets.scene.command_line("offsets", "reset", *resets.these, "--to-latest", "--execute"),
            stderr=err,
            preexec_fn=heard,
        )
    try:
        until(lambda: "(Waiting)" in said.read_text(), 120, lambda: f"it waits for the member: {said.read_text()}")
        command.send_signal(signal.SIGINT)
        assert command.wait(60) == 1
    finally:
        command.kill()
        command.wait()
    found = re.search(r"--cancel (\S+)", said.read_text())
    assert found is not None, said.read_text()

    cancelled = resets.run("--cancel", found.group(1))

    assert cancelled.returncode == 0, cancelled.stderr
    done = resets.run("--status", found.group(1), "--wait", "60", "--json")
    assert (done.returncode, json.loads(done.stdout)["state"]) == (1, "cancelled"), done.stderr
    assert resets.offsets()[0] != 2000
