"""Writes the ingress's records with confluent-kafka."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from operator import methodcaller
from typing import Any

from inbound.config import IngressConfig
from inbound.errors import BrokerUnavailableError, ConfigError
from inbound.ingress.producer import ASK_SECONDS, CAUSES, OVERHEAD, Delivered, Failure, FailureCause
from inbound.kafka.auth.access import login, resolve
from inbound.kafka.base import BrokerFigures
from inbound.processors.cloudevents_bridge import RecordParts

log = logging.getLogger(__name__)

#: Seconds between two replacements of broken producers.
_REPLACE_EVERY = 1.0


class ConfluentProducer:
    """librdkafka's producer, with its callbacks on the event loop's thread.

    A batch that is too large for its topic fails as a whole.

    After a fatal error (the brokers and librdkafka disagree on the written records) a producer takes no more records, and is
    replaced. Records that it had sent are answered when the brokers answer, or after the delivery timeout; those that it had
    not sent fail at once.
    """

    name = "confluent-kafka"
    of_batches = frozenset({FailureCause.TOO_LARGE, FailureCause.INVALID, FailureCause.BESIDE})
    partition = staticmethod(methodcaller("partition"))  # asked for each event: no frame of ours between

    def __init__(
        self,
        config: IngressConfig,
        properties: Mapping[str, Any],
        *,
        library: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`library` replaces the module confluent_kafka; `clock` returns seconds."""
        import confluent_kafka

        from inbound.kafka.confluent.settings import Credentials, log_settings

        self._kafka = library or confluent_kafka
        self._clock = clock
        self._codes = _codes(confluent_kafka.KafkaError)
        reading = ("fetch.", "max.partition.fetch", "check.crcs")
        self._entry = Credentials(properties)
        given = {name: value for name, value in self._entry.settings.items() if not name.startswith(reading)}
        settings = {
            "client.id": "inbound-ingress",
            "linger.ms": config.linger * 1000,
            "socket.timeout.ms": 6000,
            "socket.connection.setup.timeout.ms": 5000,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            "retry.backoff.ms": 50,
            **given,
            "acks": "all",
            "enable.idempotence": True,
            "delivery.timeout.ms": round(config.delivery_timeout * 1000),
            "allow.auto.create.topics": False,
            "message.max.bytes": max(1_000_000, config.max_event_bytes + OVERHEAD),
            # `max_in_flight_bytes` bounds the queue; this never should.
            "queue.buffering.max.kbytes": min(2 * config.max_in_flight_bytes // 1024 + 65536, 2**31 - 1),
            "queue.buffering.max.messages": 0,
            **log_settings(),  # nothing, unless asked for: the ingress logs errors itself
        }
        self._settings = settings
        self._entry.ready()
        try:
            self._producer: Any = self._make_producer()
            self._admin_settings = {**given, "client.id": "inbound-ingress", "log_level": 0}
        except (confluent_kafka.KafkaException, ValueError) as error:
            raise ConfigError(f"kafka: confluent-kafka cannot be used with these properties: {error}") from None
        self._alone: Any = None  # made when first needed: each record is a batch
        self._broken: dict[Any, str] = {}  # to be replaced, and why
        self._replaced: list[Any] = []  # until they have answered for all that they took
        self._replaced_at = float("-inf")

    def send(
        self, topic: str, records: Sequence[RecordParts], delivered: Sequence[Delivered], *, alone: bool = False
    ) -> tuple[int, Failure | None]:
        if self._broken:
            self._replace()
        producer = self._one_by_one() if alone else self._producer
        produce = producer.produce
        taken = 0
        try:
            for (key, value, headers), answer in zip(records, delivered, strict=True):
                produce(topic, value, key, headers=headers, on_delivery=answer)
                taken += 1
        except BufferError:
            return taken, Failure(FailureCause.FULL, "the client's queue is full")
        except self._kafka.KafkaException as error:
            self._look(producer, error.args[0])
            return taken, self.failure(error.args[0])
        return taken, None

    def poll(self) -> None:
        self._serve(self._producer)
        if self._alone is not None:
            self._serve(self._alone)
        if self._replaced:
            for producer in self._replaced:
                self._serve(producer)
            self._replaced = [producer for producer in self._replaced if len(producer)]

    def _serve(self, producer: Any) -> None:
        try:
            producer.poll(0)
        except self._kafka.KafkaException as error:  # how librdkafka reports a fatal error, once
            self._look(producer, error.args[0])

    def _make_producer(self) -> Any:
        from inbound.kafka.confluent.figures import Statistics

        self._statistics = Statistics()  # of this producer alone
        return self._kafka.Producer({**self._settings, **self._statistics.settings})

    def _one_by_one(self) -> Any:
        if self._alone is None:
            self._alone = self._kafka.Producer({**self._settings, "batch.num.messages": 1, "linger.ms": 0})
        return self._alone

    def _look(self, producer: Any, error: Any) -> None:
        """Replace `producer` if its `error` is fatal."""
        # `produce` raises _FATAL, of which `fatal` is false; `poll` raises the error itself, of which it is true.
        if not (error.fatal() or error.code() == self._kafka.KafkaError._FATAL) or producer in self._replaced:
            return
        self._broken.setdefault(producer, error.str())
        self._replace()

    def _replace(self) -> None:
        """Replace broken producers, once a second: the next may break, too."""
        if (now := self._clock()) < self._replaced_at + _REPLACE_EVERY:
            return
        broken, self._broken = self._broken, {}
        for producer, why_broken in broken.items():
            log.error(
                "ingress: the producer can write nothing more (%s): another one takes its place; records that it had not sent are "
                "answered with 503",
                why_broken,
            )
            self._replaced_at = now
            self._replaced.append(producer)
            if producer is self._alone:
                self._alone = None
            else:
                self._producer = self._make_producer()

    def failure(self, error: Any) -> Failure:
        return Failure(self._codes.get(error.code(), FailureCause.REFUSED), f"{error.name()}: {error.str()}")

    def topics(self) -> frozenset[str]:
        try:
            found = frozenset(self._producer.list_topics(timeout=ASK_SECONDS).topics)
        except self._kafka.KafkaException as error:
            self._renew_password()
            raise self._entry.refused or BrokerUnavailableError(f"{error.args[0].str()}") from None
        self._entry.answered()
        return found

    def _renew_password(self) -> None:
        """Give a rotated password to the producer, for its next connection."""
        try:
            who = login(resolve(self._entry.properties))
        except ConfigError:
            return
        if who is not None and who.user:
            self._producer.set_sasl_credentials(who.user, who.password)

    def create(self, topic: str, partitions: int) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        admin = AdminClient(self._admin_settings)
        try:
            admin.create_topics([NewTopic(topic, partitions)], request_timeout=ASK_SECONDS)[topic].result(ASK_SECONDS)
        except self._kafka.KafkaException as error:
            code = error.args[0].code()
            if code != self._kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise BrokerUnavailableError(f"topic {topic} cannot be made: {error.args[0].str()}") from None

    def threads(self) -> Mapping[str, tuple[bool, float]]:
        return {}  # librdkafka's own

    def figures(self) -> Sequence[BrokerFigures]:
        return self._statistics.brokers

    def close(self, seconds: float) -> None:
        for producer in filter(None, [self._producer, self._alone, *self._replaced]):
            producer.flush(seconds)
            producer.purge()
            producer.flush(1.0)


def _codes(error: Any) -> dict[int, FailureCause]:
    """Return the causes by confluent-kafka's error codes; others are refusals."""
    away = (
        "_MSG_TIMED_OUT", "_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "REQUEST_TIMED_OUT",
        "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION",
        "BROKER_NOT_AVAILABLE", "NETWORK_EXCEPTION",
    )  # fmt: skip
    given_up = (
        "_PURGE_QUEUE", "_PURGE_INFLIGHT", "_FATAL", "OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID",
        "INVALID_PRODUCER_EPOCH", "_INCONSISTENT",
    )  # fmt: skip
    return {
        **CAUSES,
        **{getattr(error, name): FailureCause.AWAY for name in away},
        **{getattr(error, name): FailureCause.GIVEN_UP for name in given_up},
        **dict.fromkeys((error._UNKNOWN_TOPIC, error._UNKNOWN_PARTITION), FailureCause.NO_TOPIC),
        error._QUEUE_FULL: FailureCause.FULL,
        error._INVALID_DIFFERENT_RECORD: FailureCause.BESIDE,
    }
