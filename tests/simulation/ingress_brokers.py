"""Brokers in memory that misbehave as they are told to, and the producers of both client libraries over them.

The producers are the libraries' as far as the ingress uses them, with what was read and tried in decision 53: which batches fail
as a whole, what is fatal, what comes twice. Nothing has a thread; `Brokers.step` lets happen what is due.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import kafka.errors
from confluent_kafka import KafkaError, KafkaException
from kafka.future import Future

from inbound.testing import ManualClock

#: How long a client waits for an answer before it sends a request again. Seconds.
NO_ANSWER = 1.0


@dataclass(eq=False)
class Record:
    """One record on its way."""

    topic: str
    key: bytes | None
    value: bytes
    done: Callable[[Any], None]  # told the error, or None
    deadline: float
    lost: int = 0  # answers to its batch


@dataclass(eq=False)
class Topic:
    """What a topic takes."""

    max_bytes: int = 10_000
    compacted: bool = False
    forbidden: bool = False
    led: bool = True  # its partition has a leader
    log: list[bytes] = field(default_factory=list)


class Refusal(Exception):
    """What brokers say of a batch; `named` are the records that are to blame, if they say so."""

    def __init__(self, name: str, named: Iterable[int] | None = None) -> None:
        super().__init__(name)
        self.name = name
        self.named = None if named is None else frozenset(named)


class Brokers:
    """Topics, and what is wrong with the brokers."""

    def __init__(self, clock: ManualClock, **topics: Topic) -> None:
        self.clock = clock
        self.topics = topics
        self.down = False
        self.takes = 0.002  # until an answer, in seconds
        self.lose_answers = 0  # of so many batches
        self.fatal = 0  # so many batches of idempotent producers are out of order
        self.name_records = True  # whether they say which record of a batch is invalid
        self.queues_are_full = False  # those of clients
        self.producers: list[_Client] = []
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._number = itertools.count()
        self._written: set[tuple[int, str, int]] = (
            set()
        )  # batches of idempotent producers: by whom, where, the how many-th

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.clock.now() + seconds, next(self._number), what))

    def step(self) -> None:
        """Do what is due."""
        while self._due and self._due[0][0] <= self.clock.now():
            heapq.heappop(self._due)[2]()
        for producer in list(self.producers):
            producer.step()

    def write(self, topic: str, batch: Sequence[Record], identity: tuple[int, str, int] | None) -> bool:
        """Write a batch. Returns whether an answer gets through. Raises Refusal."""
        known = self.topics.get(topic)
        if known is None:
            raise Refusal("UNKNOWN_TOPIC_OR_PART")
        if identity is not None and self.fatal:
            self.fatal -= 1
            raise Refusal("OUT_OF_ORDER_SEQUENCE_NUMBER")
        if known.forbidden:
            raise Refusal("TOPIC_AUTHORIZATION_FAILED")
        if sum(len(record.value) for record in batch) > known.max_bytes:
            raise Refusal("MSG_SIZE_TOO_LARGE")
        keyless = [number for number, record in enumerate(batch) if record.key is None]
        if known.compacted and keyless:
            raise Refusal("INVALID_RECORD", keyless if self.name_records else None)
        if identity is None or identity not in self._written:
            known.log.extend(record.value for record in batch)
        if identity is not None:
            self._written.add(identity)
        if self.lose_answers and batch[0].lost < 2:
            self.lose_answers -= 1
            batch[0].lost += 1
            return False
        return True


class _Client:
    """What both producers have in common: queues by topic, one batch of each in flight, retries, deadlines."""

    idempotent = False

    def __init__(self, brokers: Brokers, most: int) -> None:
        self._brokers = brokers
        self._most = most  # records of a batch
        self._queues: dict[str, deque[Record]] = {}
        self._split: dict[str, deque[list[Record]]] = {}  # parts of batches that were too large: they go first
        self._flying: dict[str, list[Record]] = {}
        self._numbers = itertools.count()
        self._id = id(self)
        self._over: set[Record] = set()
        brokers.producers.append(self)

    def give(self, record: Record) -> None:
        self._queues.setdefault(record.topic, deque()).append(record)

    def waiting(self) -> list[Record]:
        queued = [record for queue in self._queues.values() for record in queue]
        queued += [record for parts in self._split.values() for part in parts for record in part]
        flying = [record for batch in self._flying.values() for record in batch]
        return [record for record in [*flying, *queued] if record not in self._over]

    def step(self) -> None:
        now = self._brokers.clock.now()
        for record in self.waiting():
            if record.deadline <= now:
                self._end([record], self.timed_out())
        for topic, queue in self._queues.items():
            if topic in self._flying:
                continue
            split = self._split.get(topic)
            batch = split.popleft() if split else [queue.popleft() for _ in range(min(self._most, len(queue)))]
            batch = [record for record in batch if record not in self._over]
            if batch:
                self._flying[topic] = batch
                self._ask(topic, batch, next(self._numbers))

    def _ask(self, topic: str, batch: list[Record], number: int) -> None:
        brokers = self._brokers
        brokers.later(brokers.takes, lambda: self._arrives(topic, batch, number))

    def _arrives(self, topic: str, batch: list[Record], number: int) -> None:
        brokers, known = self._brokers, self._brokers.topics.get(topic)
        if self._flying.get(topic) is not batch:
            return  # given up
        if all(record in self._over for record in batch):
            del self._flying[topic]
            return
        if brokers.down or (known is not None and not known.led):
            brokers.later(0.1, lambda: self._arrives(topic, batch, number))
            return
        identity = (self._id, topic, number) if self.idempotent else None
        try:
            answered = brokers.write(topic, batch, identity)
        except Refusal as refusal:
            del self._flying[topic]
            self.refused(topic, batch, refusal)
            return
        if not answered:
            brokers.later(NO_ANSWER, lambda: self._arrives(topic, batch, number))
            return
        del self._flying[topic]
        self._end(batch, None)

    def _end(self, records: Sequence[Record], error: Any) -> None:
        for record in records:
            if record not in self._over:
                self._over.add(record)
                record.done(error)

    def give_up(self, error: Any) -> None:
        """Fail all that waits."""
        self._end(self.waiting(), error)
        self._queues.clear()
        self._split.clear()
        self._flying.clear()

    def refused(self, topic: str, batch: list[Record], refusal: Refusal) -> None:
        raise NotImplementedError

    def timed_out(self) -> Any:
        raise NotImplementedError


# -- confluent-kafka -----------------------------------------------------------------------------------------------------


class ConfluentFake(_Client):
    """librdkafka's producer: idempotent; a refused batch fails as a whole, and a sequence that is out of order is fatal."""

    idempotent = True

    def __init__(self, brokers: Brokers, settings: dict[str, Any]) -> None:
        super().__init__(brokers, settings.get("batch.num.messages", 10))
        self._timeout = settings["delivery.timeout.ms"] / 1000
        self._answers: deque[tuple[Callable[[Any, Any], None], Any]] = deque()
        self._fatal = False
        self._untold: KafkaError | None = None

    def __len__(self) -> int:
        return len(self.waiting()) + len(self._answers)

    def produce(self, topic: str, value: bytes, key: bytes | None, headers: Any, on_delivery: Any) -> None:
        if self._fatal:
            raise KafkaException(KafkaError(KafkaError._FATAL, "Fatal error"))
        if self._brokers.queues_are_full:
            raise BufferError("Local: Queue full")

        def done(error: Any) -> None:
            self._answers.append((on_delivery, error))

        self.give(Record(topic, key, value, done, self._brokers.clock.now() + self._timeout))

    def poll(self, seconds: float) -> int:
        for _ in range(len(self._answers)):
            on_delivery, error = self._answers.popleft()
            on_delivery(error, SimpleNamespace(partition=lambda: 0))
        untold, self._untold = self._untold, None
        if untold is not None:
            raise KafkaException(untold)
        return 0

    def flush(self, seconds: float) -> int:
        return len(self)

    def purge(self) -> None:
        self.give_up(KafkaError(KafkaError._PURGE_QUEUE, "purged"))

    def list_topics(self, timeout: float) -> Any:
        if self._brokers.down:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no broker answers"))
        return SimpleNamespace(topics=dict.fromkeys(self._brokers.topics))

    def refused(self, topic: str, batch: list[Record], refusal: Refusal) -> None:
        error = KafkaError(getattr(KafkaError, refusal.name), refusal.name)
        if refusal.name == "OUT_OF_ORDER_SEQUENCE_NUMBER":
            self._fatal, self._untold = True, KafkaError(error.code(), "out of order", fatal=True)
            self._end(batch, error)
            self.give_up(KafkaError(KafkaError._PURGE_QUEUE, "purged"))
        elif refusal.named is not None:
            beside = KafkaError(KafkaError._INVALID_DIFFERENT_RECORD, "another record of the batch")
            for number, record in enumerate(batch):
                self._end([record], error if number in refusal.named else beside)
        else:
            self._end(batch, error)

    def timed_out(self) -> Any:
        return KafkaError(KafkaError._MSG_TIMED_OUT, "timed out")


def confluent_library(brokers: Brokers) -> Any:
    """Return what stands for the module confluent_kafka."""
    return SimpleNamespace(
        Producer=lambda settings: ConfluentFake(brokers, settings),
        KafkaError=confluent_kafka.KafkaError,
        KafkaException=confluent_kafka.KafkaException,
    )


# -- kafka-python --------------------------------------------------------------------------------------------------------

_ERRORS = {
    "UNKNOWN_TOPIC_OR_PART": kafka.errors.UnknownTopicOrPartitionError,
    "OUT_OF_ORDER_SEQUENCE_NUMBER": kafka.errors.OutOfOrderSequenceNumberError,
    "TOPIC_AUTHORIZATION_FAILED": kafka.errors.TopicAuthorizationFailedError,
    "MSG_SIZE_TOO_LARGE": kafka.errors.MessageSizeTooLargeError,
    "INVALID_RECORD": kafka.errors.InvalidRecordError,
}


class KafkaPythonFake(_Client):
    """kafka-python's producer: what is too large is split; if it is idempotent, any refusal is fatal, with the same error."""

    def __init__(self, brokers: Brokers, settings: dict[str, Any]) -> None:
        if brokers.down:
            raise kafka.errors.NoBrokersAvailable
        super().__init__(brokers, 10 if settings.get("batch_size") else 1)
        self.idempotent = settings["enable_idempotence"]
        self._timeout = settings["delivery_timeout_ms"] / 1000
        self._fatal: Exception | None = None

    def send(self, topic: str, value: bytes, key: bytes | None, headers: Any) -> Future:
        future = Future()
        if self._fatal is not None:
            return future.failure(self._fatal)
        if topic not in self._brokers.topics:
            raise kafka.errors.KafkaTimeoutError("no metadata")

        def done(error: Any) -> None:
            if error is None:
                future.success(SimpleNamespace(partition=0))
            else:
                future.failure(error)

        self.give(Record(topic, key, value, done, self._brokers.clock.now() + self._timeout))
        return future

    def refused(self, topic: str, batch: list[Record], refusal: Refusal) -> None:
        error = _ERRORS[refusal.name](refusal.name)
        if self.idempotent:
            self._fatal = error
            self._end(batch, error)
            self.give_up(error)
        elif refusal.name == "MSG_SIZE_TOO_LARGE" and len(batch) > 1:
            half = len(batch) // 2
            self._split.setdefault(topic, deque()).extendleft([batch[half:], batch[:half]])
        elif refusal.named is not None:
            for number, record in enumerate(batch):
                beside = kafka.errors.KafkaError("part of a batch with invalid records")
                self._end([record], error if number in refusal.named else beside)
        else:
            self._end(batch, error)

    def timed_out(self) -> Any:
        return kafka.errors.KafkaTimeoutError("batch expired")


def kafka_python_library(brokers: Brokers) -> Any:
    """Return what stands for the module kafka."""

    class Admin:
        DEFAULT_CONFIG = kafka.KafkaAdminClient.DEFAULT_CONFIG

        def __init__(self, **settings: Any) -> None:
            if brokers.down:
                raise kafka.errors.NoBrokersAvailable

        def list_topics(self) -> list[str]:
            return list(brokers.topics)

        def close(self) -> None:
            pass

    class Producer:
        DEFAULT_CONFIG = kafka.KafkaProducer.DEFAULT_CONFIG

        def __new__(cls, **settings: Any) -> Any:
            return KafkaPythonFake(brokers, settings)

    return SimpleNamespace(KafkaProducer=Producer, KafkaAdminClient=Admin, errors=kafka.errors)
