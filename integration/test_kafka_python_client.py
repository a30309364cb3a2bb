"""KafkaPythonClient on a real broker: all of the conformance suite, and how long its polls take."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from inbound.embedded import EmbeddedCluster
from inbound.kafka.kafka_python import KafkaPythonClient
from inbound.topic_partition import TopicPartition
from tests.log_client_conformance import LogClientConformance
from tests.log_client_stage import Headers, Reading, Stage, values


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

    def __init__(self, cluster: EmbeddedCluster, publisher: Publisher) -> None:
        self.cluster = cluster
        self.publisher = publisher
        self.prefix = f"conformance-{uuid.uuid4().hex[:8]}"
        self.clients: list[KafkaPythonClient] = []

    def client(self, *, max_poll_records: int = 1000) -> KafkaPythonClient:
        properties = {"bootstrap.servers": self.cluster.bootstrap_servers}
        self.clients.append(
            KafkaPythonClient(properties, client_id="conformance", fetch_wait=0.05, max_poll_records=max_poll_records)
        )
        return self.clients[-1]

    def name(self, suffix: str) -> str:
        return f"{self.prefix}-{suffix}"

    def create_topic(self, name: str, partitions: int) -> None:
        self._done(self.publisher.admin.create_topics([NewTopic(name, partitions, 1)], operation_timeout=10))

    def add_partitions(self, name: str, partitions: int) -> None:
        self._done(self.publisher.admin.create_partitions([NewPartitions(name, partitions)], operation_timeout=10))

    def delete_topic(self, name: str) -> None:
        self._done(self.publisher.admin.delete_topics([name], operation_timeout=10))

    def publish(
        self,
        tp: TopicPartition,
        values: Iterable[bytes | None],
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        batched: bool = True,
    ) -> None:
        producer = self.publisher.producer()
        at: dict[str, Any] = {} if timestamp is None else {"timestamp": timestamp}
        for value in values:
            producer.produce(tp.topic, value, key=key, partition=tp.partition, headers=list(headers), **at)
            if not batched:
                assert producer.flush(10) == 0
        assert producer.flush(10) == 0

    def publish_committed(self, tp: TopicPartition, values: Sequence[bytes]) -> None:
        self._begin(tp, values)
        self.publisher.transactions.commit_transaction(10)

    def publish_aborted(self, tp: TopicPartition, values: Sequence[bytes]) -> None:
        self._begin(tp, values)
        self.publisher.transactions.abort_transaction(10)

    def _begin(self, tp: TopicPartition, values: Sequence[bytes]) -> None:
        producer = self.publisher.transactions
        producer.begin_transaction()
        for value in values:
            producer.produce(tp.topic, value, partition=tp.partition)
        assert producer.flush(10) == 0

    def trim(self, tp: TopicPartition, start: int) -> None:
        self._done(self.publisher.admin.delete_records([confluent_kafka.TopicPartition(*tp, start)]))

    def _done(self, futures: Mapping[Any, Future[Any]]) -> None:
        for future in futures.values():
            future.result(15)

    def outage(self) -> None:
        """A frozen broker does not answer either, and is back at once. Killed ones: see test_brokers.py."""
        self.cluster.brokers[0].pause()

    def outage_over(self) -> None:
        self.cluster.brokers[0].resume()

    def turns(self, seconds: float) -> Iterator[None]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            yield
            time.sleep(0.002)

    def close(self) -> None:
        if self.cluster.brokers[0].paused:
            self.cluster.brokers[0].resume()
        for client in self.clients:
            client.close()


@pytest.fixture(scope="module")
def publisher(embedded_cluster: EmbeddedCluster) -> Publisher:
    """What publishes to the shared broker."""
    return Publisher(embedded_cluster)


@pytest.fixture
def stage(embedded_cluster: EmbeddedCluster, publisher: Publisher) -> Iterator[RealStage]:
    """A stage on the shared broker, which answers again afterwards whatever happened to it."""
    stage = RealStage(embedded_cluster, publisher)
    yield stage
    stage.close()


class TestKafkaPythonClient(LogClientConformance):
    """The suite."""


# -- time --------------------------------------------------------------------------------------------------------------


def test_a_poll_returns_when_something_arrives_or_when_its_time_is_up(stage: RealStage) -> None:
    """Not before, and not much later."""
    (tp,) = stage.topic()
    reading = Reading(stage, stage.client())
    reading.client.read({tp: 0})
    reading.rest()
    began = time.monotonic()
    assert not reading.client.poll(0.3).fetched
    nothing = time.monotonic() - began
    stage.publish(tp, values(1))
    began = time.monotonic()
    assert reading.client.poll(5.0).fetched
    assert 0.3 <= nothing < 0.6
    assert time.monotonic() - began < 1.0
