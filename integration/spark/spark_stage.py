"""What the tests of `spark validate` share: a Spark session, and a group whose steps a test takes one by one.

Topic, ZooKeeper nodes and ledger are real; the consumers are played, so that a fault can be planted where inbound itself
would never make one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kazoo.client import KazooClient

from inbound.cli.main import main
from inbound.cli.shared.files import jar_cache, java_command
from inbound.clock import SystemClock
from inbound.coordinators.nodes import EpochInfo
from inbound.coordinators.paths import GroupPaths
from inbound.embedded import EmbeddedCluster
from inbound.kafka.clients.ledger_topic import KafkaLedgerTopic
from inbound.ledger import Done, FilesLedger, Ledger, Range, Settled
from inbound.ledger.kafka import KafkaLedger
from inbound.spark.cluster_state import KafkaLogs
from inbound.spark.session import SparkSettings, spark_session
from integration.spark.spark_log import Log

#: Small, and with a compiler that is ready at once: it lives for some minutes.
CONF = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One session for all tests of a process: two tasks at a time, each tried three times.

    Commands in this process use it, and leave it running: what needs other settings, or none, has a process of its own.
    A test that `timeout` ends inside of a call to it leaves it useless for those after it, so they have time enough.
    """
    with spark_session(SparkSettings(jar_cache(), java_command(), "local[2,3]", CONF), "tests") as session:
        yield session


class Judgement(NamedTuple):
    """What the command said."""

    code: int
    proof: dict[str, Any]  # its JSON
    said: str  # on stderr

    @property
    def findings(self) -> dict[int, set[tuple[str, int, int]]]:
        """Kind, first and next of each finding, by partition; partitions without any are left out."""
        found = {
            p["partition"]: {(f["kind"], f["first"], f["next"]) for f in p["findings"]}
            for p in self.proof["partitions"]
        }
        return {partition: findings for partition, findings in found.items() if findings}

    def of_each(self, member: str) -> list[Any]:
        """Return one member of each partition."""
        return [partition[member] for partition in self.proof["partitions"]]

    @property
    def missing(self) -> str:
        """All that is missing."""
        return "\n".join([*self.proof["missing"], *(text for p in self.proof["partitions"] for text in p["missing"])])


def validated(config: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> Judgement:
    """Run the command in this process."""
    capsys.readouterr()
    code = main(["spark", "validate", "-c", str(config), "--json", *arguments])
    out, said = capsys.readouterr()
    return Judgement(code, json.loads(out) if out else {}, said)


class Stage:
    """A group on a topic of its own; `close` it."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path, partitions: int = 1) -> None:
        self.cluster = cluster
        self.folder = folder
        self.topic = f"t-{folder.name}"
        self.group = f"g-{folder.name}"
        self.paths = GroupPaths(self.group)
        self.ledger = folder / "ledger"
        self.topic_id: str | None = None
        self._ledger_topic: str | None = None
        self._producing: list[KafkaLedger] = []
        self.zk = KazooClient(cluster.zookeeper_hosts, timeout=30)
        self.zk.start(timeout=30)
        self.zk.ensure_path(self.paths.root)
        self.log = Log(cluster, partitions, self.topic)
        self.config = folder / "inbound.yaml"
        self.write_config()

    def write_config(self, **more: str) -> None:
        """Write the configuration that the command is given."""
        parts = {
            "zookeeper": f'{{hosts: "{self.cluster.zookeeper_hosts}"}}',
            "kafka": f'{{bootstrap.servers: "{self.cluster.bootstrap_servers}"}}',
            "ledger": f"{{path: {self.ledger}}}",
            "channels": f"{{orders: {{topics: [{self.topic}], group: {self.group}, processor: {{type: simple, options: "
            "{sinks: [{type: log}]}}}}",
        }
        self.config.write_text("".join(f"{key}: {value}\n" for key, value in {**parts, **more}.items()))

    def kafka_id(self) -> str | None:
        """Return the id that Kafka has given the topic; None where there is none of that name."""
        with KafkaLogs(self.log.kafka) as brokers:
            found = brokers.topics([self.topic]).get(self.topic)
            return None if found is None else found.topic_id

    def publish(self, count: int, *partitions: int) -> None:
        """Publish so many records to each of these partitions (none: 0), acknowledged."""
        self.log.publish((p, b"%d" % n, []) for p in partitions or (0,) for n in range(count))

    def keep_ledgers_in(self, topic: str) -> None:
        """From now on ledgers are in a topic of Kafka."""
        self._ledger_topic = topic
        self.write_config(ledger=f"{{type: kafka, topic: {topic}, partitions: 2}}")

    def ledger_of(self, consumer: str) -> Ledger:
        """Begin a consumer's ledger."""
        topic = self._ledger_topic
        if topic is None:
            return FilesLedger(self.ledger, self.group, consumer, SystemClock())
        servers = {"bootstrap.servers": self.cluster.bootstrap_servers}

        def open_topic() -> KafkaLedgerTopic:
            return KafkaLedgerTopic(servers, topic, consumer, partitions=2, replication_factor=1, retention=3600.0)

        ledger = KafkaLedger(open_topic, topic, self.group, consumer, SystemClock())
        self._producing.append(ledger)
        return ledger

    def consumer(self, name: str, partition: int = 0) -> Player:
        """A consumer process begins, which will claim this partition."""
        return Player(self, f"{name}{partition}", partition)

    def set_offset(self, offset: int, partition: int = 0) -> int:
        """Write the group's offset from outside; returns the transaction's number."""
        path = self.paths.offset(self.topic, partition)
        self.zk.ensure_path(path)
        return int(self.zk.set(path, b"%d" % offset).mzxid)

    def offset(self, partition: int = 0) -> int | None:
        """Return the group's offset."""
        path = self.paths.offset(self.topic, partition)
        return int(self.zk.get(path)[0]) if self.zk.exists(path) else None

    def validate(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> Judgement:
        """Run the command in this process."""
        return validated(self.config, capsys, *arguments)

    def close(self) -> None:
        """Let go of ZooKeeper, and of what players that were killed have left."""
        for ledger in self._producing:
            ledger.close(clean=False)
        self.zk.stop()
        self.zk.close()


class Player:
    """A consumer of one partition that does what the test says, and keeps its ledger as inbound does."""

    def __init__(self, stage: Stage, name: str, partition: int) -> None:
        self._stage = stage
        self._partition = partition
        self._epoch = 0
        self.name = name
        self.ledger = stage.ledger_of(name)

    def claim(self) -> Player:
        """Take the partition: its epoch moves on, and the group's offset is where this begins."""
        stage = self._stage
        path = stage.paths.epoch(stage.topic, self._partition)
        stage.zk.ensure_path(path)
        self._epoch = stage.zk.set(path, EpochInfo(self.name, 1, "n", stage.topic_id).encode()).version
        return self.note("claimed", position=stage.offset(self._partition), session=1)

    def begin(self, first: int, end: int, records: int | None = None) -> Player:
        """Deliver a batch."""
        count = end - first if records is None else records
        self.ledger.begun(Range(self._stage.topic, self._partition, self._epoch, first, end, count))
        return self

    def answer(self, first: int, end: int) -> Player:
        """The processor answers for a batch."""
        self.ledger.done([Done(self._stage.topic, self._partition, self._epoch, first, end, end)])
        return self

    def commit(self, offset: int) -> Player:
        """Commit."""
        mzxid = self._stage.set_offset(offset, self._partition)
        self.ledger.settled([Settled(self._stage.topic, self._partition, self._epoch, offset, "landed", mzxid)])
        return self

    def batch(self, first: int, end: int, records: int | None = None) -> Player:
        """A batch from beginning to end."""
        return self.begin(first, end, records).answer(first, end).commit(end)

    def note(self, kind: str, **facts: Any) -> Player:
        """Note an event."""
        self.ledger.note(kind, topic=self._stage.topic, partition=self._partition, epoch=self._epoch, **facts)
        return self

    def leave(self) -> None:
        """Shut down gracefully."""
        self.note("released")
        self.ledger.close()
