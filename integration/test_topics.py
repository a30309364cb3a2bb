"""Topics that grow, appear, vanish and are created anew, and logs that are cut, on real servers."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kafka
import pytest
from kafka.admin import KafkaAdminClient, NewPartitions, NewTopic

from inbound.coordinators.nodes import decode_epoch
from inbound.embedded import EmbeddedCluster
from inbound.kafka.kafka_python import KafkaPythonClient
from integration.harness import Scene, both_clients
from tests.waiting import until

MakeScene = Callable[..., Scene]
#: The id of a topic that the broker does not know.
UNKNOWN = uuid.UUID(int=0)


@pytest.fixture
def scene(embedded_cluster: EmbeddedCluster, tmp_path: Path, client: str) -> Iterator[MakeScene]:
    """Make scenes on the shared cluster, with sessions that outlive any delay of the machine; end what they started."""
    scenes: list[Scene] = []

    def make(**settings: object) -> Scene:
        folder = tmp_path / f"scene-{uuid.uuid4().hex[:8]}"
        folder.mkdir()
        scenes.append(Scene(embedded_cluster, folder, client=client, session=15.0, **settings))  # type: ignore[arg-type]
        return scenes[-1]

    yield make
    for one in scenes:
        one.close()


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
    """Delete the scene's topic, and create it anew as soon as the brokers let us.

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

    until(created, 60, "the topic is created anew")
    until(lambda: described(admin, s)["topic_id"] not in (old, UNKNOWN), 60, lambda: f"known: {described(admin, s)}")
    s.published.clear()


def test_the_brokers_say_a_topics_id_and_that_it_is_another_one(scene: MakeScene, admin: KafkaAdminClient) -> None:
    """What everything about topics created anew rests on; asked for without waiting for the next routine look."""
    s = scene(partitions=1)
    client = KafkaPythonClient({"bootstrap.servers": s.cluster.bootstrap_servers}, client_id="test")
    try:
        before = client.topics([s.topic], None)[s.topic].topic_id
        recreate(admin, s)
        answered = client.ask_topics()
        until(answered, 30, "the brokers answer")
        after = client.topics([s.topic], None)[s.topic].topic_id
        assert (before is not None, after is not None, before != after) == (True, True, True)
    finally:
        client.close()


@both_clients
@pytest.mark.parametrize("count", [20, 80], ids=["shorter", "longer"])
def test_a_topic_created_anew_is_read_from_its_start(scene: MakeScene, admin: KafkaAdminClient, count: int) -> None:
    """By a running group of two, whether the old position exists in the new topic or not; nothing of it is skipped."""
    s = scene()
    both = [s.start(), s.start()]
    until(lambda: s.all_owned(2), 60, "both own partitions")
    s.publish(50)
    until(s.everything_committed, 60, "the old topic is read")
    old = topic_ids(s)
    before = s.seen()
    recreate(admin, s)
    s.publish(count)
    until(lambda: not topic_ids(s) & old and s.everything_committed(), 60, "the new topic is read")
    new = s.seen() - before
    wanted = {(partition, offset) for partition in range(6) for offset in range(count)}
    logs = "".join(s.log(process) for process in both)
    assert (set(new), max(new.values()) <= 2) == (wanted, True)
    assert {place for place, times in new.items() if times > 1} <= {(p, o) for p, o in wanted if o >= 50}
    assert (len(topic_ids(s)), len(old), "truncated" in logs, "Traceback" in logs) == (1, 1, False, False)
    assert logs.count("the group starts at offset 0 of the new one") == 6
    assert [s.stop(process) for process in both] == [0, 0]


@both_clients
def test_a_topic_created_anew_while_nobody_ran_is_read_once_from_its_start(
    scene: MakeScene, admin: KafkaAdminClient
) -> None:
    """The offsets in ZooKeeper are the old topic's, and would skip records of the new one."""
    s = scene()
    first = s.start()
    s.publish(10)
    until(s.everything_committed, 60, "the old topic is read")
    assert s.stop(first) == 0
    recreate(admin, s)
    s.publish(15)
    second, third = s.start(), s.start()
    until(lambda: s.all_owned(2), 60, "both own partitions")  # one that is only starting does not take a SIGTERM well
    until(s.everything_committed, 60, "the new topic is read")
    assert s.seen(second.pid) + s.seen(third.pid) == {(p, o): 1 for p in range(6) for o in range(15)}
    assert [s.stop(second), s.stop(third)] == [0, 0]


@both_clients
def test_a_deleted_topic_is_released_and_waited_for_in_silence(scene: MakeScene, admin: KafkaAdminClient) -> None:
    """The commits stay, the log says it once, and nothing spins; created anew, it is read."""
    s = scene(partitions=2)
    process = s.start()
    s.publish(5)
    until(s.everything_committed, 60, "it is read")
    admin.delete_topics([s.topic])
    until(lambda: not s.owners(), 60, "the partitions are released")
    until(lambda: f"topic {s.topic} does not exist" in s.log(process), 60, "it says so")
    told = len(s.log(process).splitlines())
    cpu, began = cpu_seconds(process.pid), time.monotonic()
    with pytest.raises(AssertionError):
        until(lambda: s.owners(), 4, "nothing happens for a while")
    cores = (cpu_seconds(process.pid) - cpu) / (time.monotonic() - began)
    assert (s.offset(0), s.offset(1)) == (5, 5)
    assert (len(s.log(process).splitlines()) - told <= 2, cores < 0.25) == (True, True), (s.log(process), cores)
    admin.create_topics([NewTopic(s.topic, 2, 1)])
    s.published.clear()
    s.publish(3)
    until(s.everything_committed, 60, "the new one is read")
    assert s.seen() == {(p, o): 2 if o < 3 else 1 for p in range(2) for o in range(5)}
    assert s.stop(process) == 0
    assert "Traceback" not in s.log(process)


def cpu_seconds(pid: int) -> float:
    """Return what a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


@both_clients
def test_partitions_added_under_load_are_read_from_their_start_by_all(
    scene: MakeScene, admin: KafkaAdminClient
) -> None:
    """With `latest`, from which records would be lost; nothing else is disturbed."""
    s = scene(partitions=2)
    s.write_config(auto_offset_reset="latest")
    both = [s.start(), s.start()]
    until(lambda: s.all_owned(2) and None not in (s.offset(0), s.offset(1)), 60, "both own a partition")
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
    assert [s.stop(process) for process in both] == [0, 0]


@both_clients
def test_a_topic_that_matches_the_pattern_later_is_read_from_its_start(
    scene: MakeScene, admin: KafkaAdminClient
) -> None:
    """Also with `latest`, and though its records were there first."""
    s = scene(partitions=2)
    first_topic = s.topic
    s.config.write_text(
        s.config.read_text().replace(
            f"topics: [{s.topic}]", f'topics_pattern: "{s.topic}.*"\n    auto_offset_reset: latest'
        )
    )
    process = s.start()
    until(lambda: len(s.owners()) == 2 and None not in (s.offset(0), s.offset(1)), 60, "it owns the first")
    s.topic = f"{first_topic}-more"
    admin.create_topics([NewTopic(s.topic, 2, 1)])
    s.publish(10)
    until(s.everything_committed, 60, "the later one is read")
    assert s.account().clean
    assert s.stop(process) == 0


@both_clients
def test_records_deleted_below_the_commit_are_reported_with_their_range(
    scene: MakeScene, admin: KafkaAdminClient
) -> None:
    """Read on at the log's start, never at its end."""
    s = scene(partitions=1)
    first = s.start()
    s.publish(5)
    until(s.everything_committed, 60, "it is read")
    assert s.stop(first) == 0
    s.publish(20)
    admin.delete_records({kafka.TopicPartition(s.topic, 0): 15})
    second = s.start()
    until(s.everything_committed, 60, "the rest is read")
    assert f"{s.topic}/0: offsets 5 to 14 are lost to retention: the log starts at 15; reading on there" in s.log(
        second
    )
    assert s.seen(second.pid) == {(0, offset): 1 for offset in range(15, 25)}
    assert s.stop(second) == 0


@both_clients
@pytest.mark.parametrize(
    ("choice", "read"),
    [("hold", set()), ("earliest", set(range(5))), ("latest", set())],
    ids=["hold", "earliest", "latest"],
)
def test_a_commit_beyond_the_logs_end_is_treated_as_configured(scene: MakeScene, choice: str, read: set[int]) -> None:
    """As after an unclean election; the offset is moved by hand here. It is said, and never a silent jump."""
    s = scene(partitions=1)
    s.write_config(on_truncation=choice)
    first = s.start()
    s.publish(5)
    until(s.everything_committed, 60, "it is read")
    assert s.stop(first) == 0
    path = f"/consumers/{s.group}/offsets/{s.topic}/0"
    s.zk.set(path, b"1000")
    second = s.start()
    until(lambda: "the commit 1000 is beyond the log's end 5" in s.log(second), 60, "it says so")
    if choice == "hold":
        assert (s.stop(second), s.seen(second.pid), s.offset(0)) == (0, {}, 1000)
        s.zk.set(path, b"3")
        third = s.start()  # the way out that the message names
        until(lambda: s.seen(third.pid) == {(0, 3): 1, (0, 4): 1}, 60, "it goes on where it was put")
        assert s.stop(third) == 0
        return
    s.publish(2)
    until(s.everything_committed, 60, "it goes on")
    assert {offset for _, offset in s.seen(second.pid)} == read | {5, 6}
    assert s.stop(second) == 0
