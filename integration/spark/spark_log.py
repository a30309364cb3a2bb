"""A topic of a test's own, and all that can be done to one."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from inbound.embedded import EmbeddedCluster
from inbound.spark.cluster_state import KafkaLogs
from inbound.topic_partition import TopicPartition
from tests.waiting import Deadline, until

Headers = list[tuple[str, str | bytes | None]]
Offset = tuple[str, int, int]  # topic, partition, offset


@dataclass
class Log:
    """A topic of a test's own."""

    cluster: EmbeddedCluster
    partitions: int = 2
    topic: str = field(default_factory=lambda: f"orders-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.kafka: dict[str, Any] = {"bootstrap.servers": self.cluster.bootstrap_servers}
        self.admin = AdminClient({**self.kafka, "log_level": 0})
        self.create()

    def create(self) -> None:
        """Make the topic. The controller answers first: see `topic_id` for whether the broker has heard of it."""
        for future in self.admin.create_topics([NewTopic(self.topic, self.partitions, 1)]).values():
            future.result(30)

    def delete(self) -> None:
        """Delete the topic, and wait until the broker has heard of it: the controller answers first."""
        for future in self.admin.delete_topics([self.topic]).values():
            future.result(30)
        until(lambda: self.topic_id() is None, 60, f"topic {self.topic} is gone")

    def topic_id(self) -> str | None:
        """Return the id that the broker knows the topic by; None: it knows no such topic."""
        asked = self.admin.describe_topics(TopicCollection([self.topic]), request_timeout=30)
        try:
            return str(asked[self.topic].result(60).topic_id)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise

    def delete_records(self, before: Mapping[int, int]) -> None:
        """Delete what is below these offsets, as retention does."""
        parts = [confluent_kafka.TopicPartition(self.topic, partition, offset) for partition, offset in before.items()]
        for future in self.admin.delete_records(parts).values():
            future.result(30)

    def publish(
        self, records: Iterable[tuple[int, bytes | None, Headers]], key: bytes | None = None, timestamp: int = 0
    ) -> None:
        """Publish (partition, value, headers); acknowledged. A timestamp of 0 is now."""
        producer = confluent_kafka.Producer({**self.kafka, "linger.ms": 5, "log_level": 0})
        for partition, value, headers in records:
            producer.produce(self.topic, value, key, partition=partition, headers=headers, timestamp=timestamp)
        assert producer.flush(60) == 0

    def publish_transactions(self, partition: int, *commits: bool) -> None:
        """Commit or abort transactions of ten records, and wait for their markers: that they end is answered before."""
        producer = confluent_kafka.Producer(
            {**self.kafka, "transactional.id": f"{self.topic}-{partition}", "log_level": 0}
        )
        producer.init_transactions(60)
        for commit in commits:
            producer.begin_transaction()
            for _ in range(10):
                producer.produce(self.topic, b"in a transaction", partition=partition)
            producer.flush(60)  # or what is aborted would never be sent
            (producer.commit_transaction if commit else producer.abort_transaction)(60)
        key = TopicPartition(self.topic, partition)

        def decided() -> int:
            with KafkaLogs(self.kafka) as brokers:
                return brokers.limits([key])[key].end

        until(lambda: decided() == 11 * len(commits), 60, lambda: f"all is decided: {decided()}")

    def offsets(self) -> Counter[Offset]:
        """Return every offset of the log, once."""
        return Counter(
            (self.topic, message.partition(), message.offset()) for message in read_all(self.kafka, self.topic)
        )


def read_all(kafka: Mapping[str, Any], topic: str) -> list[Any]:
    """Return all records of a topic, as a consumer of Kafka's own sees them."""
    consumer = confluent_kafka.Consumer({**kafka, "group.id": "unused", "enable.partition.eof": True, "log_level": 0})
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign(
        [confluent_kafka.TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING) for partition in partitions]
    )
    found: list[Any] = []
    ended: set[int | None] = set()
    deadline = Deadline(60)
    while len(ended) < len(partitions):
        assert not deadline.passed(), f"{topic}: the ends of partitions {sorted(set(partitions) - ended)} did not come"
        for message in consumer.consume(500, 0.2):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:  # others are told, too, and are over again
                ended.add(message.partition())
    consumer.close()
    return found
