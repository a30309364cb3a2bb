"""The ledger in a topic of a real broker, and behind a URI, while consumers are killed."""

from __future__ import annotations

import signal
import subprocess
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from inbound.clock import SystemClock
from inbound.embedded import EmbeddedCluster
from inbound.errors import LedgerError
from inbound.kafka.clients.ledger_topic import KafkaLedgerTopic
from inbound.ledger import Done, Entry, Item, Range, read_directory
from inbound.ledger.jsonl import read_record
from inbound.ledger.kafka import KafkaLedger
from integration.harness import Scene, Scenes
from integration.spark.spark_log import read_all
from tests.waiting import until

MakeScene = Callable[..., Scene]


@pytest.fixture
def scene(scenes: Scenes) -> MakeScene:
    """Make scenes of which consumers are killed."""
    return partial(scenes, session=6.0)


def records_of(cluster: EmbeddedCluster, topic: str) -> list[Entry]:
    """Read a ledger's topic from its beginning to its end; fails on damage."""
    found: list[Entry] = []
    for record in read_all({"bootstrap.servers": cluster.bootstrap_servers}, topic):
        item = read_record(topic, record.partition(), record.offset(), record.key(), record.value())
        assert isinstance(item, Entry), item
        found.append(item)
    return found


def handed_out(items: list[Entry] | list[Item]) -> dict[int, set[int]]:
    """Return the offsets that a ledger says were delivered, by partition."""
    found: dict[int, set[int]] = {}
    for item in items:
        if isinstance(item, Entry) and item.kind == "begun":
            assert item.partition is not None
            assert item.first is not None
            assert item.next is not None
            found.setdefault(item.partition, set()).update(range(item.first, item.next))
    return found


def seen(s: Scene) -> dict[int, set[int]]:
    """Return the offsets that all processors saw, by partition."""
    found: dict[int, set[int]] = {}
    for partition, offset in s.seen():
        found.setdefault(partition, set()).add(offset)
    return found


@pytest.mark.thorough(
    "consumers under load; tests/ledger/test_ledger_kafka.py decides what is acknowledged before what"
)
def test_a_topic_has_all_that_consumers_did_one_of_them_killed(scene: MakeScene) -> None:
    """Each run's numbers go on without a gap, what was done was acknowledged first, and only the dead lack an end."""
    s = scene()
    s.unproven = "a ledger in a topic is read by Spark alone: test_spark_validate.py proves from one"
    topic = f"ledger-{s.folder.name}"
    flags = ("--set", "ledger.type=kafka", "--set", f"ledger.topic={topic}", "--set", "ledger.partitions=2")
    victim, other = s.start(*flags), s.start(*flags)
    until(lambda: s.all_owned(2), 120, "both own partitions")
    s.start_load()
    until(lambda: s.seen(victim.pid) and s.seen(other.pid), 60, "both consume")
    victim.send_signal(signal.SIGKILL)
    until(lambda: s.all_owned(1), 120, "the other has taken over")
    s.settle(90)
    assert s.stop(other) == 0, s.log(other)

    entries = records_of(s.cluster, topic)

    missing = {p: offsets - handed_out(entries).get(p, set()) for p, offsets in seen(s).items()}
    # What the victim was handed last may not have reached the broker: it is not waited for.
    assert all(s.seen(victim.pid)[p, offset] for p, offsets in missing.items() for offset in offsets), missing
    assert s.account().lost == {}
    runs = {entry.run for entry in entries}
    assert len(runs) == 2
    for run in runs:
        numbers = [entry.seq for entry in entries if entry.run == run and entry.kind not in ("header", "end")]
        assert numbers == list(range(1, len(numbers) + 1))
    ends = [entry.consumer for entry in entries if entry.kind == "end"]
    assert [str(other.pid) in consumer for consumer in ends] == [True]
    landed = {
        p: max(e.commit or 0 for e in entries if e.kind == "settled" and e.partition == p and e.outcome == "landed")
        for p in range(s.partitions)
    }
    assert landed == {p: s.published[p] for p in range(s.partitions)}


def settings_of(cluster: EmbeddedCluster, topic: str) -> dict[str, str]:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all")
    admin.close()
    (settings,) = (settings for by_name in found.values() for settings in by_name.values())
    return {name: setting["value"] for name, setting in settings.items()}


def test_the_topic_is_made_as_a_ledger_needs_it(embedded_cluster: EmbeddedCluster) -> None:
    """Deleted by age, never compacted; as many copies as there are brokers, at most three."""
    topic = f"ledger-{uuid.uuid4().hex[:8]}"
    properties = {"bootstrap.servers": embedded_cluster.bootstrap_servers}

    def open_topic() -> KafkaLedgerTopic:
        return KafkaLedgerTopic(properties, topic, "test", partitions=3, replication_factor=None, retention=3600)

    for consumer in "ab":
        ledger = KafkaLedger(open_topic, topic, "g", consumer, SystemClock())
        ledger.begun(Range("orders", 0, 1, 0, 10, 10))
        ledger.done([Done("orders", 0, 1, 0, 10, 10)])
        ledger.close()

    found = settings_of(embedded_cluster, topic)
    assert (found["cleanup.policy"], found["retention.ms"]) == ("delete", "3600000")
    kinds = ["header", "begun", "done", "end"]
    assert sorted(e.kind for e in records_of(embedded_cluster, topic)) == sorted(kinds * 2)


def test_a_topic_that_cannot_hold_a_ledger_is_refused(embedded_cluster: EmbeddedCluster) -> None:
    """With what to do: Kafka would delete all but the last line of each run, does not answer, or has too few brokers."""
    here, compacted, new = embedded_cluster.bootstrap_servers, f"compacted-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex[:8]
    admin = KafkaAdminClient(bootstrap_servers=here)
    admin.create_topics(
        {compacted: {"num_partitions": 1, "configs": {"cleanup.policy": "compact"}}}, wait_for_metadata=True
    )
    admin.close()

    for servers, topic, copies, said in (
        (here, compacted, None, r"its cleanup\.policy is compact.*set it to delete"),
        ("127.0.0.1:1", new, None, "check that its brokers run"),
        (here, new, 99, r"set ledger\.replication_factor to at most"),
    ):
        with pytest.raises(LedgerError, match=rf"ledger topic {topic} at {servers}: .*{said}"):
            KafkaLedgerTopic(
                {"bootstrap.servers": servers}, topic, "test", partitions=1, replication_factor=copies, retention=3600
            )


def stands_with_something_left(process: subprocess.Popen[bytes], spool: Path) -> bool:
    """Freeze a process. Returns whether it has files in its spool that are not shipped; if not, it goes on."""
    process.send_signal(signal.SIGSTOP)
    if list(spool.glob("*/*/*.jsonl")):
        return True
    process.send_signal(signal.SIGCONT)
    return False


@pytest.mark.thorough(
    "consumers under load; tests/ledger/test_ledger_shipping.py decides that the next process ships what is left"
)
def test_behind_a_uri_all_arrives_though_a_consumer_is_killed_before_its_shipment(scene: MakeScene) -> None:
    """The next process on the machine ships what the dead one left; nothing stays in the spool."""
    s = scene()
    s.unproven = "the configuration has another ledger: it is proven below"
    remote = s.folder / "remote"
    settings = (f"path=file://{remote}", f"spool={s.folder / 'spool'}", "ship_interval=1s")
    flags = [word for setting in settings for word in ("--set", f"ledger.{setting}")]
    victim = s.start(*flags)
    until(lambda: s.all_owned(1), 120, "it owns the partitions")
    s.start_load()
    until(lambda: list(remote.glob("*/*.parquet")), 60, "a file has arrived")
    until(lambda: s.seen(victim.pid), 60, "it consumes")
    until(lambda: stands_with_something_left(victim, s.folder / "spool"), 60, "it has something to leave")
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert list((s.folder / "spool").glob("*/*/*.jsonl"))
    other = s.start(*flags)
    until(lambda: s.seen(other.pid), 60, "the other has taken over")
    s.settle(90)
    assert s.stop(other) == 0, s.log(other)

    assert list((s.folder / "spool").glob("*/*/*")) == []
    assert handed_out(list(read_directory(f"file://{remote}"))) == seen(s)
    assert s.account().lost == {}
    s.prove(*flags)
