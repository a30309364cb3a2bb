"""A group in which one of each anomaly was planted, among much that only looks like one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import kafka
from confluent_kafka import Producer
from kafka.admin import KafkaAdminClient, NewTopic
from kazoo.client import KazooClient

from benchmarks.perf_test import fill
from inbound.clock import SystemClock
from inbound.coordinators.nodes import EpochInfo
from inbound.coordinators.paths import GroupPaths
from inbound.embedded import EmbeddedCluster
from inbound.ledger import Done, FilesLedger, Range, Settled
from inbound.proof.model import ANOMALIES, Proof
from inbound.spark.cluster_state import KafkaLogs
from inbound.topic_partition import TopicPartition

GROUP, MAIN, COMPACTED, TRANSACTIONAL = "planted", "planted", "planted-compacted", "planted-transactional"
BATCH = 2_000
UNKNOWN = -1


class Anomaly(NamedTuple):
    """A finding that must be there. How far `unfenced` reaches is the judge's matter: up to what had landed meanwhile."""

    kind: str
    topic: str
    partition: int
    first: int
    next: int


class Planted:
    """Makes topics, ledger and nodes; compares a proof with what was planted."""

    group = GROUP
    topics = (MAIN, COMPACTED, TRANSACTIONAL)

    def __init__(self, cluster: EmbeddedCluster, ledger: Path, records: int) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._records = records
        self._kafka = {"bootstrap.servers": cluster.bootstrap_servers}
        self._paths = GroupPaths(GROUP)
        self.expected: set[Anomaly] = set()

    def plant(self) -> None:
        """Make everything."""
        stories: list[Callable[[Story], None]] = [
            _loss, _duplicate, _reorder, _unfenced, _retention, _reset, _crash, _clean,
        ]  # fmt: skip
        admin = KafkaAdminClient(bootstrap_servers=self._cluster.bootstrap_servers)
        compacted = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
        admin.create_topics(
            [
                NewTopic(MAIN, len(stories), 1),
                NewTopic(COMPACTED, 1, 1, topic_configs=compacted),
                NewTopic(TRANSACTIONAL, 1, 1),
            ]
        )
        fill(self._cluster.bootstrap_servers, MAIN, self._records)
        small = max(1_000, self._records // 100)
        self._fill_compacted(small)
        self._fill_transactional(small)
        self._zk = KazooClient(self._cluster.zookeeper_hosts, timeout=30)
        self._zk.start(timeout=30)
        for partition, story in enumerate(stories):
            told = Story(self, MAIN, partition, self._end(MAIN, partition))
            story(told)
            if story is _retention:
                first, after = told.deleted
                admin.delete_records({kafka.TopicPartition(MAIN, partition): after})
                self.expected.add(Anomaly("lost-to-retention", MAIN, partition, first, after))
        for topic in (COMPACTED, TRANSACTIONAL):
            _clean(Story(self, topic, 0, self._end(topic, 0)))
        admin.close()
        self._zk.stop()
        self._zk.close()

    def compare(self, proof: Proof) -> tuple[list[Anomaly], list[Anomaly]]:
        """Return what was planted and not found, and what was found and not planted. What is missing counts as both."""
        found = {
            Anomaly(
                finding.kind,
                one.key.topic,
                one.key.partition,
                finding.first,
                UNKNOWN if finding.kind == "unfenced" else finding.next,
            )
            for one in proof.partitions
            for finding in one.findings
            if finding.kind in ANOMALIES
        }
        unproven = [
            Anomaly("not provable", one.key.topic, one.key.partition, 0, 0) for one in proof.partitions if one.missing
        ]
        assert len(proof.partitions) == 10, proof.missing
        return sorted(self.expected - found) + unproven, sorted(found - self.expected) + unproven

    def set_node(self, path: str, data: bytes) -> int:
        """Write a node of ZooKeeper; returns its version."""
        self._zk.ensure_path(path)
        return int(self._zk.set(path, data).version)

    def mzxid_of(self, path: str, data: bytes) -> int:
        """Write a node of ZooKeeper; returns the transaction's number."""
        self._zk.ensure_path(path)
        return int(self._zk.set(path, data).mzxid)

    def ledger(self, consumer: str) -> FilesLedger:
        """Begin a consumer's ledger."""
        return FilesLedger(self._ledger, GROUP, consumer, SystemClock())

    @property
    def paths(self) -> GroupPaths:
        """Where the group's nodes are."""
        return self._paths

    def _end(self, topic: str, partition: int) -> int:
        key = TopicPartition(topic, partition)
        with KafkaLogs(self._kafka) as brokers:
            return brokers.limits([key])[key].end

    def _fill_compacted(self, count: int) -> None:
        producer = Producer({**self._kafka, "linger.ms": 5, "log_level": 0})
        for number in range(count):
            producer.produce(COMPACTED, b"x" * 100, b"%d" % (number % 50), partition=0)
        producer.flush(60)

    def _fill_transactional(self, count: int) -> None:
        producer = Producer({**self._kafka, "transactional.id": "planted", "log_level": 0})
        producer.init_transactions(30)
        for number in range(10):
            producer.begin_transaction()
            for _ in range(count // 10):
                producer.produce(TRANSACTIONAL, b"x" * 100, partition=0)
            producer.flush(60)
            if number % 3 == 2:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)


class Story:
    """One partition from beginning to end, read by two consumers, one after the other."""

    def __init__(self, planted: Planted, topic: str, partition: int, end: int) -> None:
        self.planted, self.topic, self.partition, self.end = planted, topic, partition, end
        self.middle = end // 2 // BATCH * BATCH or end // 2
        self.deleted = (0, 0)
        self._offset: int | None = None

    def consumer(self, name: str) -> Reader:
        """Another process begins, and claims the partition."""
        return Reader(self, f"{name}-{self.topic}-{self.partition}")

    def expect(self, kind: str, first: int, after: int) -> None:
        """Say what must be found."""
        self.planted.expected.add(Anomaly(kind, self.topic, self.partition, first, after))

    def commit(self, offset: int) -> int:
        """Set the group's offset; returns the transaction's number."""
        self._offset = offset
        return self.planted.mzxid_of(self.planted.paths.offset(self.topic, self.partition), b"%d" % offset)

    @property
    def offset(self) -> int | None:
        """The group's offset."""
        return self._offset


class Reader:
    """A consumer of one partition, which keeps its ledger as inbound does."""

    def __init__(self, story: Story, name: str) -> None:
        self._story = story
        self._ledger = story.planted.ledger(name)
        node = story.planted.paths.epoch(story.topic, story.partition)
        self._epoch = story.planted.set_node(node, EpochInfo(name, 1, "n").encode())
        self.note("claimed", position=story.offset, session=1)

    def note(self, kind: str, **facts: object) -> Reader:
        self._ledger.note(kind, topic=self._story.topic, partition=self._story.partition, epoch=self._epoch, **facts)
        return self

    def begin(self, first: int, after: int) -> Reader:
        self._ledger.begun(Range(self._story.topic, self._story.partition, self._epoch, first, after, after - first))
        return self

    def commit(self, first: int, after: int) -> Reader:
        story = self._story
        self._ledger.done([Done(story.topic, story.partition, self._epoch, first, after, after)])
        mzxid = story.commit(after)
        self._ledger.settled([Settled(story.topic, story.partition, self._epoch, after, "landed", mzxid)])
        return self

    def read(self, first: int, after: int) -> Reader:
        """All from `first` to `after` in batches."""
        for begin in range(first, after, BATCH):
            end = min(begin + BATCH, after)
            self.begin(begin, end).commit(begin, end)
        return self

    def leave(self) -> None:
        self.note("released")
        self._ledger.close()


def _clean(story: Story) -> None:
    story.consumer("a").read(0, story.middle).leave()
    story.consumer("b").read(story.middle, story.end).leave()


def _loss(story: Story) -> None:
    story.consumer("a").read(0, story.middle).leave()
    story.consumer("b").read(story.middle, story.middle + 100).read(story.middle + 107, story.end).leave()
    story.expect("lost", story.middle + 100, story.middle + 107)


def _duplicate(story: Story) -> None:
    story.consumer("a").read(0, story.middle).leave()
    story.commit(story.middle - 5)  # an operator sets it back past inbound
    story.consumer("b").read(story.middle - 5, story.end).leave()
    story.expect("duplicate", story.middle - 5, story.middle)


def _reorder(story: Story) -> None:
    at = story.middle
    one = story.consumer("a").read(0, at).begin(at + 50, at + 90).begin(at, at + 50)
    one.begin(at + 90, story.end).commit(at + 90, story.end).leave()
    story.expect("reordered", at, at + 50)


def _unfenced(story: Story) -> None:
    at = story.middle
    zombie = story.consumer("a").read(0, at).begin(at, at + 40)
    heir = story.consumer("b").begin(at, at + 60).commit(at, at + 60)
    zombie.commit(at, at + 40)
    heir.read(at + 60, story.end).leave()
    story.expect("unfenced", at + 40, UNKNOWN)


def _retention(story: Story) -> None:
    story.consumer("a").read(0, story.middle).leave()
    gap = story.middle + 500
    story.deleted = (story.middle, gap)
    story.consumer("b").note("retention", first=story.middle, next=gap).read(gap, story.end).leave()


def _reset(story: Story) -> None:
    story.consumer("a").read(0, story.middle).leave()
    back = story.middle // 2
    one = story.consumer("b").note("reset", old=story.middle, new=back, reason="on_claim")
    one.commit(back, back).read(back, story.end).leave()


def _crash(story: Story) -> None:
    story.consumer("a").read(0, story.middle).begin(story.middle, story.middle + 300)  # and it is killed
    story.consumer("b").read(story.middle, story.end).leave()
