"""The conformance suite's stage on a real broker, for either client."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Unpack

import confluent_kafka
from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its hints forget it
from confluent_kafka.cimpl import NewPartitions, NewTopic

from inbound.embedded import EmbeddedCluster
from inbound.kafka.base import LogClient
from inbound.kafka.confluent.client import ConfluentClient
from inbound.kafka.python.client import KafkaPythonClient
from inbound.topic_partition import TopicPartition
from tests.kafka.log_client_stage import Parts, Stage
from tests.waiting import Deadline

Make = Callable[[str, int], LogClient]  # of the servers and the most records of a poll


def connect(kind: type[KafkaPythonClient] | type[ConfluentClient], servers: str, max_poll_records: int) -> LogClient:
    """Return a client of this kind."""
    return kind(
        {"bootstrap.servers": servers}, client_id="conformance", fetch_wait=0.05, max_poll_records=max_poll_records
    )


#: By their names in the configuration.
CLIENTS: Mapping[str, Make] = {
    "kafka-python": partial(connect, KafkaPythonClient),
    "confluent-kafka": partial(connect, ConfluentClient),
}


class Publisher:
    """Producers and an admin client, made once: a transactional producer takes the broker a second or more to take in."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.settings: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
        self.admin = AdminClient(self.settings)
        self.transactions = confluent_kafka.Producer({**self.settings, "transactional.id": f"tx-{uuid.uuid4().hex}"})
        self.transactions.init_transactions(30)

    def producer(self) -> confluent_kafka.Producer:
        """Return a producer that keeps the order; a new one, for it remembers topics that were deleted."""
        quick = {"linger.ms": 50, "max.in.flight": 1, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}
        return confluent_kafka.Producer({**self.settings, **quick})


class RealStage(Stage):
    """Topics of its own on a shared broker."""

    def __init__(self, cluster: EmbeddedCluster, publisher: Publisher, make: Make) -> None:
        self.cluster = cluster
        self._make = make
        self.publisher = publisher
        self.prefix = f"conformance-{uuid.uuid4().hex[:8]}"
        self.clients: list[LogClient] = []

    def client(self, *, max_poll_records: int = 1000) -> LogClient:
        self.clients.append(self._make(self.cluster.bootstrap_servers, max_poll_records))
        return self.clients[-1]

    def name(self, suffix: str) -> str:
        return f"{self.prefix}-{suffix}"

    def create_topic(self, name: str, partitions: int) -> None:
        self._done(self.publisher.admin.create_topics([NewTopic(name, partitions, 1)], operation_timeout=30))
        self.until(lambda: self._led(name) == partitions)

    def add_partitions(self, name: str, partitions: int) -> None:
        self._done(self.publisher.admin.create_partitions([NewPartitions(name, partitions)], operation_timeout=30))
        self.until(lambda: self._led(name) == partitions)

    def delete_topic(self, name: str) -> None:
        self._done(self.publisher.admin.delete_topics([name], operation_timeout=30))
        self.until(lambda: name not in self.publisher.admin.list_topics(timeout=30).topics)

    def _led(self, name: str) -> int:
        """Return how many partitions have a leader: a broker says that it made a topic before it knows of it."""
        topic = self.publisher.admin.list_topics(timeout=30).topics.get(name)
        return sum(partition.leader >= 0 for partition in topic.partitions.values()) if topic else 0

    def publish(
        self, tp: TopicPartition, values: Iterable[bytes | None], *, batched: bool = True, **parts: Unpack[Parts]
    ) -> None:
        producer = self.publisher.producer()
        for value in values:
            producer.produce(tp.topic, value, partition=tp.partition, **parts)  # type: ignore[arg-type]  # lists
            if not batched:
                assert producer.flush(30) == 0
        assert producer.flush(30) == 0

    def publish_committed(self, tp: TopicPartition, values: Sequence[bytes]) -> None:
        self._begin(tp, values)
        self.publisher.transactions.commit_transaction(30)
        self._await_marker(tp)

    def publish_aborted(self, tp: TopicPartition, values: Sequence[bytes]) -> None:
        self._begin(tp, values)
        self.publisher.transactions.abort_transaction(30)
        self._await_marker(tp)

    def _await_marker(self, tp: TopicPartition) -> None:
        """The coordinator answers before the end of a transaction is in the log: until then what can be read ends before it."""
        latest = {confluent_kafka.TopicPartition(*tp): OffsetSpec.latest()}  # type: ignore[no-untyped-call]

        def end(level: IsolationLevel) -> int:
            (answer,) = self.publisher.admin.list_offsets(latest, isolation_level=level).values()
            return int(answer.result(30).offset)

        self.until(lambda: end(IsolationLevel.READ_COMMITTED) == end(IsolationLevel.READ_UNCOMMITTED))

    def _begin(self, tp: TopicPartition, values: Sequence[bytes]) -> None:
        producer = self.publisher.transactions
        producer.begin_transaction()
        for value in values:
            producer.produce(tp.topic, value, partition=tp.partition)
        assert producer.flush(30) == 0

    def trim(self, tp: TopicPartition, start: int) -> None:
        self._done(self.publisher.admin.delete_records([confluent_kafka.TopicPartition(*tp, start)]))

    def _done(self, futures: Mapping[Any, Future[Any]]) -> None:
        for future in futures.values():
            future.result(60)

    def outage(self) -> None:
        """A frozen broker does not answer either, and is back at once. Killed ones: see test_brokers.py."""
        self.cluster.brokers[0].pause()

    def outage_over(self) -> None:
        self.cluster.brokers[0].resume()

    def until(self, condition: Callable[[], object], seconds: float = 40.0) -> None:
        """Be patient: how soon something comes about is asserted where it is what counts."""
        super().until(condition, seconds)

    def turns(self, seconds: float) -> Iterator[None]:
        deadline = Deadline(seconds)
        while not deadline.passed():
            yield
            time.sleep(0.002)

    def close(self) -> None:
        if self.cluster.brokers[0].paused:
            self.cluster.brokers[0].resume()
        for client in self.clients:
            client.close()
