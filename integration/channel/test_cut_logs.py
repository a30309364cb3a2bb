"""Logs that an unclean election has cut, on three brokers: what stands there since is read, or held; nothing is passed over."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from inbound.embedded import EmbeddedCluster
from inbound.proof.model import FindingKind, Verdict
from inbound.topic_partition import TopicPartition
from integration.demo.proving import proof_of
from integration.harness import Scene, Scenes
from integration.kafka.brokers import await_election, leaders
from integration.kafka_stage import CLIENTS
from tests.waiting import until

#: Partition 0 is cut: the third broker leads it, the second one has a copy. The first leads partition 1 all the time.
REPLICAS = {0: [3, 2], 1: [1, 2]}
TOPIC_CONFIGS = {"unclean.leader.election.enable": "true"}
#: So many records have both copies; so many the leader alone; so many are published when the log is cut.
COPIED, ALONE, SINCE = 4, 5, 10


@dataclass
class CutLogs:
    """Three groups, each on a topic of its own, whose partition 0 was cut at 4 behind its commit 9, and has 14 records by now."""

    away: Scene  # `earliest`; no consumer ran while it was cut
    held: Scene  # `hold`; the same
    there: Scene  # `earliest`; its consumer saw the cut, went back, and left gracefully before more was published


@pytest.fixture(
    scope="module",
    params=["kafka-python", pytest.param("confluent-kafka", marks=pytest.mark.thorough("the second twin of a test"))],
)
def logs(
    request: pytest.FixtureRequest,
    cluster_factory: Callable[..., EmbeddedCluster],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[CutLogs]:
    """Cut them: the only follower is dead while records are published, then it leads without them."""
    cluster = cluster_factory(brokers=3)
    scenes = Scenes(
        cluster, tmp_path_factory.mktemp("cut"), client=request.param, partitions=len(REPLICAS), replicas=REPLICAS,
        topic_configs=TOPIC_CONFIGS,
    )  # fmt: skip
    found = CutLogs(scenes(), scenes(), scenes())
    try:
        cut(cluster, found)
        yield found
    finally:
        scenes.close()
        cluster.close()


def cut(cluster: EmbeddedCluster, logs: CutLogs) -> None:
    """Let the groups read what is there, cut the logs, and publish ten records more."""
    first, follower, leader = cluster.brokers
    scenes = (logs.away, logs.held, logs.there)
    for scene, choice in zip(scenes, ("earliest", "hold", "earliest"), strict=True):
        until(lambda: leaders(scene, first) == {0: 3, 1: 1}, 60, "the first replicas lead")  # noqa: B023
        scene.write_config(on_truncation=choice)
        scene.run_group(1, records=COPIED)
    follower.kill()
    for scene in scenes:
        scene.publish(ALONE)
        scene.settle()
    assert [*logs.away.stop_all(), *logs.held.stop_all()] == [0, 0]
    leader.kill()
    follower.start()
    for scene in scenes:
        await_election(scene, first, [0], leader.node_id)
        scene.published[0] = COPIED
    until(
        lambda: logs.there.offset(0) == COPIED, 60,
        lambda: f"the cut is noticed, led by {leaders(logs.there, follower)}: {log_of(logs.there)}",
    )  # fmt: skip
    assert logs.there.stop_all() == [0]
    for scene in scenes:
        scene.publish(SINCE)
    assert {scene.published[0] for scene in scenes} == {14}


def log_of(scene: Scene) -> str:
    """Return the end of what the last consumer of a scene logged, and what it says of the partition that was cut."""
    explained = scene.inbound("explain", scene.topic, "0", code=None).stdout
    return f"{scene.log(scene.processes[-1])[-3000:]}\n{explained}"


def handed(scene: Scene, process: subprocess.Popen[bytes]) -> Counter[int]:
    """Return how often a process was handed each offset of the partition that was cut."""
    return Counter({offset: times for (p, offset), times in scene.seen(process.pid).items() if p == 0})


def once(first: int, following: int) -> Counter[int]:
    """Return each offset of a range once."""
    return Counter(range(first, following))


class Judged(NamedTuple):
    """What the proof says of the partition that was cut, and of the whole group."""

    verdict: Verdict
    proven: int | None
    findings: set[tuple[FindingKind, int, int]]


def judged(scene: Scene) -> Judged:
    """Validate the group."""
    proof = proof_of(scene.config)
    (one,) = (one for one in proof.partitions if one.key.partition == 0)
    return Judged(proof.verdict, one.proven, {(finding.kind, finding.first, finding.next) for finding in one.findings})


def test_a_reader_that_reads_on_behind_a_cut_learns_where_the_log_ends_now(logs: CutLogs) -> None:
    """Asked with the first leader, though others have written what is there; asked without, it is read."""
    scene = logs.away
    tp, told, read = TopicPartition(scene.topic, 0), Counter[int | None](), list[int]()
    with closing(CLIENTS[scene.client](scene.bootstrap_servers, 100)) as client:

        def polled() -> bool:
            poll = client.poll(0.1)
            told.update(poll.diverged.values())
            read.extend(record.offset for fetched in poll.fetched.values() for record in fetched.records)
            return bool(told if read == [] else len(read) == 2)

        client.read({tp: 12}, {tp: 0})
        until(polled, 30, "the client reports the cut")
        before = (set(told), list(read))
        told.clear()
        client.read({tp: 12})
        until(polled, 30, "what is there is read")
    assert (before, read) == (({COPIED}, []), [12, 13])


def test_a_group_that_comes_back_to_a_log_that_was_cut_and_has_grown_reads_all_that_stands_there(
    logs: CutLogs,
) -> None:
    """Its commit lies inside the new log: four old records, and ten that it was not handed, five of them below the commit."""
    scene = logs.away
    process = scene.start()
    until(scene.everything_committed, 90, lambda: f"all is read: {log_of(scene)}")
    assert (handed(scene, process), judged(scene)) == (once(0, 14), Judged(Verdict.PROVEN, 14, set()))
    assert "the log was cut at 4, before the commit 9, and has grown to 14" in scene.log(process)
    assert scene.stop_all() == [0]


def test_a_group_that_holds_is_handed_nothing_of_a_log_that_was_cut_and_says_so(logs: CutLogs) -> None:
    """The other partition goes on, and the proof names what the commit has passed. Told otherwise, it reads all."""
    scene = logs.held
    process = scene.start()
    until(lambda: "held: the log was cut at 4" in scene.log(process), 90, lambda: f"it is held: {log_of(scene)}")
    until(lambda: scene.offset(1) == scene.published[1], 90, lambda: f"the other is read: {log_of(scene)}")
    assert (handed(scene, process), scene.offset(0)) == (Counter(), 9)
    assert judged(scene) == Judged(Verdict.ANOMALIES, 9, {("lost", 4, 9)})
    assert scene.stop_all() == [0]
    scene.write_config(on_truncation="earliest")
    process = scene.start()
    until(scene.everything_committed, 90, lambda: f"all is read: {log_of(scene)}")
    assert (handed(scene, process), judged(scene)) == (once(0, 14), Judged(Verdict.PROVEN, 14, set()))
    assert scene.stop_all() == [0]


def test_a_member_that_saw_the_cut_leaves_and_the_next_one_reads_all_that_came_since(logs: CutLogs) -> None:
    """Where the first went back to is committed: the next begins there, not at the commit from before the cut."""
    scene = logs.there
    process = scene.start()
    until(scene.everything_committed, 90, lambda: f"all is read: {log_of(scene)}")
    assert (handed(scene, process), judged(scene)) == (once(4, 14), Judged(Verdict.PROVEN, 14, set()))
    assert scene.stop_all() == [0]
