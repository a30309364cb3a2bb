"""A broker in memory behind kafka-python's own producer: real batches, real requests, and topics that refuse."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from kafka.errors import KafkaConnectionError
from kafka.future import Future
from kafka.protocol.producer import InitProducerIdResponse, ProduceResponse
from kafka.record import MemoryRecords
from kafka.structs import TopicPartition

_TOO_LARGE, _FORBIDDEN, _INVALID = 10, 29, 87
_VERSION = 8  # of the produce API; what is answered is encoded and read again, as on a wire
_Topic = ProduceResponse.TopicProduceResponse
_Partition = _Topic.PartitionProduceResponse
_Named = _Partition.BatchIndexAndErrorMessage


@dataclass(frozen=True)
class Topic:
    """What a topic of one partition takes."""

    max_bytes: int = 1_000_000  # max.message.bytes
    compacted: bool = False
    forbidden: bool = False


class ProducerBroker:
    """The setting `kafka_client` of `kafka.KafkaProducer`."""

    def __init__(self, **topics: Topic) -> None:
        self.topics = topics
        #: Key, value and headers of all that was written, by topic.
        self.logs: Mapping[str, list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]]] = defaultdict(list)
        self.cut_after = 0  # so many requests are executed, and their connection breaks before the answer
        self.connections = 0

    def __call__(self, **config: Any) -> _Client:
        self.connections += 1
        return _Client(self)

    def values(self, topic: str) -> list[bytes | None]:
        return [value for _, value, _ in self.logs[topic]]

    def write(self, request: Any) -> Any:
        """Execute a produce request; returns its answer."""
        answers = []
        for topic in request.topic_data:
            parts = [self._append(topic.name, part) for part in topic.partition_data]
            answers.append(_Topic(name=topic.name, partition_responses=parts))
        answer = ProduceResponse(responses=answers, throttle_time_ms=0)
        return ProduceResponse.decode(answer.encode(version=_VERSION), version=_VERSION)

    def _append(self, name: str, part: Any) -> Any:
        topic, data = self.topics[name], bytes(part.records)
        records = [record for batch in MemoryRecords(data) for record in batch]
        keyless = [n for n, record in enumerate(records) if record.key is None] if topic.compacted else []
        code = _FORBIDDEN if topic.forbidden else _TOO_LARGE if len(data) > topic.max_bytes else 0
        if keyless and not code:
            code = _INVALID
        if not code:
            self.logs[name].extend((record.key, record.value, list(record.headers)) for record in records)
        return _Partition(
            index=part.index, error_code=code, base_offset=0 if not code else -1, log_append_time_ms=-1,
            log_start_offset=0, error_message="refused" if code else None,
            record_errors=[_Named(batch_index=n, batch_index_error_message="no key") for n in keyless],
        )  # fmt: skip


class _Client:
    """As much of kafka-python's network client as its producer needs."""

    def __init__(self, broker: ProducerBroker) -> None:
        self._broker = broker
        self.cluster = _Cluster(broker)
        self._manager = SimpleNamespace(broker_version_data=True, broker_version=(4, 0), cluster=self.cluster)
        self._asked: list[tuple[Any, Future]] = []
        self._woken = threading.Event()

    def send(self, node_id: int, request: Any, wakeup: bool = True) -> Future:
        future = Future()
        self._asked.append((request, future))
        return future

    def poll(self, timeout_ms: float | None = None, future: Future | None = None) -> None:
        if not self._asked:
            self._woken.wait(min(timeout_ms if timeout_ms is not None else 0, 100) / 1000)
            self._woken.clear()
        asked, self._asked = self._asked, []
        for request, answered in asked:
            if not hasattr(request, "topic_data"):
                answered.success(InitProducerIdResponse(error_code=0, producer_id=7, producer_epoch=0))
                continue
            answer = self._broker.write(request)
            if self._broker.cut_after:
                self._broker.cut_after -= 1
                answered.failure(KafkaConnectionError("the connection broke"))
            else:
                answered.success(answer)

    def wakeup(self) -> None:
        self._woken.set()

    def is_ready(self, node_id: int) -> bool:
        return True

    def await_ready(self, node_id: int, timeout_ms: float = 0) -> bool:
        return True

    def least_loaded_node(self) -> int:
        return 0

    def in_flight_request_count(self) -> int:
        return len(self._asked)

    def close(self) -> None:
        self._broker.connections -= 1


class _Cluster:
    """A producer's metadata of brokers and topics: one broker, one partition each."""

    unauthorized_topics: frozenset[str] = frozenset()

    def __init__(self, broker: ProducerBroker) -> None:
        self._topics = set(broker.topics)

    def topics(self) -> set[str]:
        return self._topics

    def add_topic(self, topic: str) -> None:
        self._topics.add(topic)

    def request_update(self) -> Future:
        return Future().success(None)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return {0} if topic in self._topics else None

    available_partitions_for_topic = partitions_for_topic

    def leader_for_partition(self, partition: TopicPartition) -> int:
        return 0

    def partitions_for_broker(self, node_id: int) -> list[TopicPartition]:
        return [TopicPartition(topic, 0) for topic in sorted(self._topics)]
