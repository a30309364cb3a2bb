"""Topics that grow, appear, vanish and are recreated, and logs that are cut, on real servers."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka
import pytest
from kafka.admin import KafkaAdminClient, NewPartitions, NewTopic

from inbound.coordinators.nodes import decode_epoch
from inbound.embedded import EmbeddedCluster
from inbound.proof.model import Verdict
from integration.harness import Scene, Scenes
from tests.waiting import slowness, until

#: The id of a topic that the broker does not know.
UNKNOWN = uuid.UUID(int=0)


@pytest.fixture
def admin(embedded_cluster: EmbeddedCluster) -> Iterator[KafkaAdminClient]:
    """An admin client of the shared cluster."""
    client = KafkaAdminClient(bootstrap_servers=embedded_cluster.bootstrap_servers)
    yield client
    client.close()


def topic_ids(s: Scene) -> set[str | None]:
    """Return the topic ids in the group's epoch nodes."""
    found = set()
    for partition in range(s.partitions):
        path = f"/consumers/{s.group}/epochs/{s.topic}/{partition}"
        info = decode_epoch(path, s.zk.get(path)[0])
        found.add(info.topic_id if info is not None else None)
    return found


def described(admin: KafkaAdminClient, s: Scene) -> dict[str, Any]:
    """Return what the broker says of the scene's topic."""
    (found,) = admin.describe_topics([s.topic])
    return dict(found)


def recreate(admin: KafkaAdminClient, s: Scene) -> None:
    """Delete the scene's topic, and recreate it as soon as the brokers let us.

    The controller answers first: until the broker has heard of it, records still go to the old topic, and away with it.
    """
    old = described(admin, s)["topic_id"]
    admin.delete_topics([s.topic])

    def created() -> bool:
        try:
            admin.create_topics([NewTopic(s.topic, s.partitions, 1)])
        except kafka.errors.TopicAlreadyExistsError:
            return False
        return True

    until(created, 60, "the topic is recreated")
    until(lambda: described(admin, s)["topic_id"] not in (old, UNKNOWN), 60, lambda: f"known: {described(admin, s)}")
    s.published.clear()
    s.former = s.seen()


@pytest.mark.parametrize(
    "count",
    [pytest.param(20, id="shorter", marks=pytest.mark.thorough("tests/channel/test_topics.py has both; `make test` the longer")),
     pytest.param(80, id="longer")],
)  # fmt: skip
def test_a_topic_recreated_is_read_from_its_start(scenes: Scenes, admin: KafkaAdminClient, count: int) -> None:
    """By a running group of two, whether the old position exists in the new topic or not; nothing of it is skipped."""
    s = scenes()
    both = s.run_group(2)
    s.publish(50)
    until(s.everything_committed, 60, "the old topic is read")
    old = topic_ids(s)
    before = s.seen()
    recreate(admin, s)
    s.publish(count)
    until(lambda: not topic_ids(s) & old and s.everything_committed(), 60, "the new topic is read")
    new = s.seen() - before
    wanted = {(partition, offset) for partition in range(6) for offset in range(count)}
    s.former += Counter(
        {place: times - 1 for place, times in new.items()}
    )  # read for the old one, before anybody noticed
    logs = "".join(s.log(process) for process in both)
    assert (set(new), max(new.values()) <= 2) == (wanted, True)
    assert {place for place, times in new.items() if times > 1} <= {(p, o) for p, o in wanted if o >= 50}
    assert (len(topic_ids(s)), len(old), "truncated" in logs, "Traceback" in logs) == (1, 1, False, False)
    assert logs.count("the group starts at offset 0 of the new one") == 6
    assert s.stop_all() == [0, 0]


@pytest.mark.thorough("watches a process do nothing; tests/channel/test_topics.py deletes a topic")
def test_a_deleted_topic_is_released_and_waited_for_in_silence(scenes: Scenes, admin: KafkaAdminClient) -> None:
    """The commits stay, the log says it once, and nothing spins; recreated, it is read."""
    s = scenes(partitions=2)
    (process,) = s.run_group(1)
    s.publish(5)
    until(s.everything_committed, 60, "it is read")
    admin.delete_topics([s.topic])
    until(lambda: not s.owners(), 60, "the partitions are released")
    until(lambda: f"topic {s.topic} does not exist" in s.log(process), 60, "it says so")
    told = len(s.log(process).splitlines())
    cpu, began = cpu_seconds(process.pid), time.monotonic()
    time.sleep(4)
    assert s.owners() == {}
    cores = (cpu_seconds(process.pid) - cpu) / (time.monotonic() - began)
    assert (s.offset(0), s.offset(1)) == (5, 5)
    assert (len(s.log(process).splitlines()) - told <= 2, cores < 0.25 * slowness()[0]) == (True, True), (
        s.log(process),
        cores,
    )
    admin.create_topics([NewTopic(s.topic, 2, 1)])
    s.published.clear()
    s.former = s.seen()
    s.publish(3)
    until(s.everything_committed, 60, "the new one is read")
    assert s.seen() == {(p, o): 2 if o < 3 else 1 for p in range(2) for o in range(5)}
    assert s.stop_all() == [0]
    assert "Traceback" not in s.log(process)


def cpu_seconds(pid: int) -> float:
    """Return what a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_partitions_added_under_load_are_read_from_their_start_by_all(scenes: Scenes, admin: KafkaAdminClient) -> None:
    """With `latest`, from which records would be lost; nothing else is disturbed."""
    s = scenes(partitions=2)
    s.write_config(auto_offset_reset="latest")
    s.run_group(2)
    until(lambda: None not in (s.offset(0), s.offset(1)), 60, "where both begin is committed")
    epochs = s.epochs()
    s.start_load()
    until(lambda: sum(s.seen().values()) > 20, 60, "they consume")
    admin.create_partitions({s.topic: NewPartitions(6)})
    s.end_load()
    until(lambda: len(described(admin, s)["partitions"]) == 6, 60, "the broker knows them: producers refuse others")
    s.partitions = 6
    s.publish(20)
    until(s.everything_committed, 60, lambda: f"all is read: {s.account()}")
    assert s.account().clean, s.account()
    assert {p: s.epochs()[p] for p in epochs} == epochs
    until(lambda: sorted(Counter(s.owners().values()).values()) == [3, 3], 30, lambda: f"each has three: {s.owners()}")
    assert s.stop_all() == [0, 0]


def test_records_deleted_below_the_commit_are_reported_with_their_range(
    scenes: Scenes, admin: KafkaAdminClient
) -> None:
    """Read on at the log's start, never at its end."""
    s = scenes(partitions=1, verdict=Verdict.ANOMALIES)
    s.run_group(1, records=5)
    assert s.stop_all() == [0]
    s.publish(20)
    admin.delete_records({kafka.TopicPartition(s.topic, 0): 15})
    second = s.start()
    until(s.everything_committed, 60, "the rest is read")
    assert f"{s.topic}/0: offsets 5 to 14 are lost to retention: the log starts at 15; reading on there" in s.log(
        second
    )
    assert s.seen(second.pid) == {(0, offset): 1 for offset in range(15, 25)}
    assert s.stop(second) == 0
    findings = s.prove().partitions[0].findings
    assert [(one.kind, one.first, one.next) for one in findings] == [("lost-to-retention", 5, 15)]
