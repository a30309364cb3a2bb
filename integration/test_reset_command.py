"""`inbound offsets reset` and ResetOffset manifests, on real servers and running consumers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import kafka
import pytest

from inbound.embedded import EmbeddedCluster
from inbound.http.client import fetch_status
from integration.harness import Scene
from tests.waiting import until

#: So many records each partition has of each time; and the times, in seconds before now. Retention must not think of them.
COUNT, TIMES = 10, (3600, 1800)


class Resets:
    """A scene with some records of an hour ago and some of half an hour ago, and an operator."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path, **settings: Any) -> None:
        self.scene = Scene(cluster, folder, session=15.0, **{"partitions": 3, **settings})
        self.began = time.time()
        self.these = ("--group", self.scene.group, "--topic", self.scene.topic)

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
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False, timeout=180)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "inbound", "offsets", "reset", *arguments, "-c", str(self.scene.config)]

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


@pytest.fixture
def make(embedded_cluster: EmbeddedCluster, tmp_path: Path) -> Any:
    """Make scenes on the shared cluster."""
    made: list[Resets] = []

    def one(**settings: Any) -> Resets:
        folder = tmp_path / f"scene-{os.urandom(4).hex()}"
        folder.mkdir()
        made.append(Resets(embedded_cluster, folder, **settings))
        return made[-1]

    yield one
    for resets in made:
        resets.scene.close()


def moved(done: subprocess.CompletedProcess[str]) -> list[tuple[int, int, int]]:
    """Return partition, old and new offset as a command printed them in JSON."""
    assert done.returncode == 0, done.stderr
    return [(p["partition"], p["oldOffset"], p["newOffset"]) for p in json.loads(done.stdout)["partitions"]]


def test_what_a_dry_run_prints_is_done_and_printed_again(make: Any) -> None:
    """Latest, a time between two records, earliest; two replicas read from there, each record once for each reset."""
    resets: Resets = make()
    for _ in range(2):
        resets.scene.start()
    resets.publish_history()
    resets.scene.settle()
    until(lambda: resets.scene.all_owned(2), 60, "both own partitions")
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


def test_it_works_while_no_replica_is_alive(make: Any) -> None:
    """From a file too; who starts then reads from there."""
    resets: Resets = make(partitions=2)
    process = resets.scene.start()
    resets.publish_history()
    resets.scene.settle()
    assert resets.scene.stop(process) == 0
    offsets = resets.scene.folder / "offsets.csv"
    offsets.write_text(f"{resets.scene.topic},0,5\n{resets.scene.topic},1,20\n")

    done = resets.run("--group", resets.scene.group, "--from-file", str(offsets), "--execute", "--json")

    assert moved(done) == [(0, 20, 5), (1, 20, 20)]
    resets.scene.start()
    resets.until_seen(once=25, twice=15)


def test_what_cannot_be_done_is_refused_before_anything_stops(make: Any) -> None:
    """Each with what there is, and exit code 2; nobody notices."""
    resets: Resets = make()
    resets.scene.start()
    resets.publish_history()
    resets.scene.settle()
    group, topic, claims = resets.scene.group, resets.scene.topic, resets.scene.claims()
    for options, message in (
        ((*resets.these, "--to-datetime", resets.at(-3600)), f"{topic}: {resets.at(-3600)} lies ahead; it is"),
        ((*resets.these, "--to-offset", "21"), f"{topic}/0: offset 21 is outside the log; valid is 0 to 20"),
        (
            (*resets.these, "--to-earliest", "--partitions", "3"),
            f"{topic} has no partition 3; it has partitions 0 to 2",
        ),
        (
            ("--group", group, "--topic", "nothing", "--to-latest"),
            f"no offsets of topic nothing; it has offsets of {topic}",
        ),
        (("--group", "nobody", "--topic", topic, "--to-latest"), "group nobody: there is none"),
        (
            ("--ref", "channel/oders", "--to-latest"),
            "no channel of this configuration is called 'oders'; did you mean orders?",
        ),
    ):
        refused = resets.run(*options, "--execute")
        assert (refused.returncode, message in refused.stderr, refused.stdout) == (2, True, ""), refused.stderr
    assert (resets.offsets(), resets.scene.claims()) == ([20, 20, 20], claims)


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
    found = re.search(r"admin: (http\S+)/status", resets.scene.log(process))
    return list(fetch_status(found.group(1), 30)["reset_manifests"]) if found else []


def test_a_manifest_in_the_watched_folder_is_carried_out_once(make: Any) -> None:
    """By two processes that both see it; edited it is another one, wrong it does nothing, by -f it is known."""
    resets: Resets = make(extra="manifests: {paths: [resets]}\n")
    folder = resets.scene.folder / "resets"
    folder.mkdir()
    processes = [resets.scene.start() for _ in range(2)]
    resets.publish_history()
    resets.scene.settle()
    until(lambda: resets.scene.all_owned(2), 60, "both own partitions")

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


def test_an_interrupted_command_leaves_the_reset_and_it_can_be_cancelled(make: Any) -> None:
    """The member has ten minutes' work in hand, so nothing was moved yet; it goes on as before."""
    resets: Resets = make(partitions=1, seconds_per_record=0.3)
    resets.scene.write_config(shutdown_timeout="900s")
    # Before anybody reads: of what comes while somebody does, a first batch of a few records would soon be over.
    resets.scene.publish(2000)
    process = resets.scene.start()
    until(lambda: resets.scene.all_owned(1), 60, "it owns the partition")
    until(lambda: resets.scene.seen().total() > 0 and resets.scene.inside(process.pid), 60, "it works at a batch")
    said = resets.scene.folder / "said"
    # What is started in the background of a shell script ignores SIGINT, and hands that down.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with said.open("wb") as err:
        command = subprocess.Popen(
            resets.command(*resets.these, "--to-latest", "--execute"), stderr=err, preexec_fn=heard
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
