"""Writing records for the ingress: with confluent-kafka where it is installed, else with kafka-python.

A record counts as written when all in-sync brokers have it; a retry never writes it twice.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

from inbound.config import IngressConfig
from inbound.errors import BrokerUnavailableError, ConfigError
from inbound.kafka.access import login, resolve
from inbound.kafka.kafka_python import why
from inbound.processors.cloudevents_bridge import RecordParts

#: Called with what went wrong, or None, and something of the client's own.
Delivered = Callable[[Any, Any], object]
#: How long a question about topics may take. Seconds.
ASK_SECONDS = 3.0
#: What a client may need for a record besides its bytes.
_OVERHEAD = 1024


class Cause(Enum):
    """Why a record was not written, as far as the answer depends on it."""

    AWAY = "Kafka did not acknowledge it in time"
    FULL = "too much waits to be written"
    TOO_LARGE = "the topic does not take records of this size"
    NO_TOPIC = "the topic is gone"
    REFUSED = "the brokers refused it"


class Failure(NamedTuple):
    """Why a record was not written, and what the client said of it."""

    cause: Cause
    text: str


class Producer(Protocol):
    """Writes records. `send` and `poll` by the event loop's thread; neither ever waits."""

    name: str

    def send(self, topic: str, records: Sequence[RecordParts], delivered: Delivered) -> tuple[int, Failure | None]:
        """Take records; `delivered` is called for each by a later `poll`.

        Returns how many were taken, and why the next one was not.
        """

    def poll(self) -> None:
        """Call what is to be called for records that were written, or failed."""

    def failure(self, error: Any) -> Failure:
        """Say what an error that `delivered` was given means."""

    def topics(self) -> frozenset[str]:
        """Return the topics that exist. Another thread; may wait for `ASK_SECONDS`. Raises BrokerUnavailableError."""

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic, or find that it is there. Another thread. Raises BrokerUnavailableError, ConfigError."""

    def close(self, seconds: float) -> None:
        """Write what can be written in so many seconds, and end."""


def chosen_client(config: IngressConfig) -> str:
    """Return which client is used. Raises ConfigError: a named one is not installed."""
    installed = find_spec("confluent_kafka") is not None
    if config.client == "confluent-kafka" and not installed:
        raise ConfigError(
            "ingress.client: confluent-kafka is not installed; install it with: pip install 'inbound-kafka[fast]'"
        )
    if config.client == "auto":
        return "confluent-kafka" if installed else "kafka-python"
    return config.client


def make_producer(config: IngressConfig, properties: Mapping[str, Any]) -> Producer:
    """Return the producer that `config` asks for; brokers need not be there yet for confluent-kafka.

    Raises:
        ConfigError: it is not installed, or cannot use one of `properties`.
    """
    if chosen_client(config) == "confluent-kafka":
        return ConfluentProducer(config, properties)
    return KafkaPythonProducer(config, properties)


class ConfluentProducer:
    """librdkafka's producer. Its callbacks run in `poll`, on the event loop's own thread."""

    name = "confluent-kafka"

    def __init__(self, config: IngressConfig, properties: Mapping[str, Any]) -> None:
        import confluent_kafka

        from inbound.kafka.confluent_entry import Entry
        from inbound.kafka.confluent_log import log_settings

        self._kafka = confluent_kafka
        self._codes = _codes(confluent_kafka.KafkaError)
        reading = ("fetch.", "max.partition.fetch", "check.crcs")
        self._entry = Entry(properties)
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
            "message.max.bytes": max(1_000_000, config.max_event_bytes + _OVERHEAD),
            # `max_in_flight_bytes` bounds what waits; this never should.
            "queue.buffering.max.kbytes": min(2 * config.max_in_flight_bytes // 1024 + 65536, 2**31 - 1),
            "queue.buffering.max.messages": 0,
            **log_settings(),  # nothing, unless asked for: what goes wrong is told by the ingress
        }
        if config.linger * 1000 >= settings["delivery.timeout.ms"]:
            raise ConfigError("ingress.linger: need less than ingress.delivery_timeout")
        self._settings = settings
        self._entry.ready()
        try:
            self._producer = confluent_kafka.Producer(settings)
            self._admin_settings = {**given, "client.id": "inbound-ingress", "log_level": 0}
        except (confluent_kafka.KafkaException, ValueError) as error:
            raise ConfigError(f"kafka: confluent-kafka cannot be used with these properties: {error}") from None
        self._produce: Any = self._producer.produce
        self._poll = self._producer.poll

    def send(self, topic: str, records: Sequence[RecordParts], delivered: Delivered) -> tuple[int, Failure | None]:
        produce = self._produce
        taken = 0
        try:
            for key, value, headers in records:
                produce(topic, value, key, headers=headers, on_delivery=delivered)
                taken += 1
        except BufferError:
            return taken, Failure(Cause.FULL, "the client's queue is full")
        except self._kafka.KafkaException as error:
            if error.args[0].fatal():
                self._renew()
            return taken, self.failure(error.args[0])
        return taken, None

    def poll(self) -> None:
        self._poll(0)

    def _renew(self) -> None:
        """The brokers and the producer disagree on what was written: it can only begin anew, as another one."""
        old, self._producer = self._producer, self._kafka.Producer(self._settings)
        self._produce, self._poll = self._producer.produce, self._producer.poll
        old.purge()
        old.flush(1.0)  # what it had has failed, and is answered so

    def failure(self, error: Any) -> Failure:
        return Failure(self._codes.get(error.code(), Cause.REFUSED), f"{error.name()}: {error.str()}")

    def topics(self) -> frozenset[str]:
        try:
            found = frozenset(self._producer.list_topics(timeout=ASK_SECONDS).topics)
        except self._kafka.KafkaException as error:
            self._log_in_anew()
            raise self._entry.refused or BrokerUnavailableError(f"{error.args[0].str()}") from None
        self._entry.answered()
        return found

    def _log_in_anew(self) -> None:
        """Give a password that was rotated to the producer; its next connection has it."""
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

    def close(self, seconds: float) -> None:
        self._producer.flush(seconds)
        self._producer.purge()
        self._producer.flush(1.0)


def _codes(error: Any) -> dict[int, Cause]:
    """Return what the codes of confluent-kafka's errors mean; any other is a refusal."""
    away = (
        "_MSG_TIMED_OUT", "_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_PURGE_QUEUE", "_PURGE_INFLIGHT",
        "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION", "BROKER_NOT_AVAILABLE", "NETWORK_EXCEPTION",
    )  # fmt: skip
    known = {getattr(error, name): Cause.AWAY for name in away}
    known |= {error._QUEUE_FULL: Cause.FULL, error.MSG_SIZE_TOO_LARGE: Cause.TOO_LARGE}
    gone = (error.UNKNOWN_TOPIC_OR_PART, error._UNKNOWN_TOPIC, error._UNKNOWN_PARTITION)
    return known | dict.fromkeys(gone, Cause.NO_TOPIC)


class KafkaPythonProducer:
    """kafka-python's producer, fed by a thread of its own, for its `send` may wait for brokers."""

    name = "kafka-python"

    def __init__(self, config: IngressConfig, properties: Mapping[str, Any]) -> None:
        import kafka

        from inbound.publishing.topics import settings_for

        self._kafka = kafka
        self._admin_settings = {
            "client_id": "inbound-ingress",
            **settings_for(properties, kafka.KafkaAdminClient.DEFAULT_CONFIG),
            "bootstrap_timeout_ms": round(ASK_SECONDS * 1000),
        }
        timeout = round(config.delivery_timeout * 1000)
        self._settings = {
            "client_id": "inbound-ingress",
            "batch_size": 262144,
            **settings_for(properties, kafka.KafkaProducer.DEFAULT_CONFIG),
            "linger_ms": round(config.linger * 1000),
            "acks": "all",
            "enable_idempotence": True,
            "allow_auto_create_topics": False,
            "delivery_timeout_ms": timeout,
            "max_block_ms": timeout,
            "max_request_size": max(1_048_576, config.max_event_bytes + _OVERHEAD),
            "request_timeout_ms": max(1000, min(6000, timeout - round(config.linger * 1000) - 1)),
        }
        self._producer: Any = None
        self._waiting: queue.SimpleQueue[tuple[str, RecordParts, Delivered] | None] = queue.SimpleQueue()
        self._done: deque[tuple[Delivered, Any]] = deque()
        self._thread = threading.Thread(target=self._run, name="ingress-producer", daemon=True)
        self._thread.start()

    def send(self, topic: str, records: Sequence[RecordParts], delivered: Delivered) -> tuple[int, Failure | None]:
        for record in records:
            self._waiting.put((topic, record, delivered))
        return len(records), None

    def poll(self) -> None:
        for _ in range(len(self._done)):
            delivered, error = self._done.popleft()
            delivered(error, None)

    def failure(self, error: Any) -> Failure:
        errors = self._kafka.errors
        cause = Cause.REFUSED
        if isinstance(error, (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)):
            cause = Cause.TOO_LARGE
        elif isinstance(error, errors.UnknownTopicOrPartitionError):
            cause = Cause.NO_TOPIC
        elif isinstance(error, (OSError, errors.KafkaTimeoutError)) or getattr(error, "retriable", False):
            cause = Cause.AWAY
        return Failure(cause, why(self._settings, error))

    def topics(self) -> frozenset[str]:
        admin = self._admin()
        try:
            return frozenset(admin.list_topics())
        except self._kafka.errors.KafkaError as error:
            raise BrokerUnavailableError(why(self._admin_settings, error)) from None
        finally:
            admin.close()

    def create(self, topic: str, partitions: int) -> None:
        admin = self._admin()
        try:
            admin.create_topics({topic: {"num_partitions": partitions}}, wait_for_metadata=True)
        except self._kafka.errors.TopicAlreadyExistsError:
            pass
        except self._kafka.errors.KafkaError as error:
            raise BrokerUnavailableError(f"topic {topic} cannot be made: {error}") from None
        finally:
            admin.close()

    def close(self, seconds: float) -> None:
        self._waiting.put(None)
        self._thread.join(seconds)

    def _admin(self) -> Any:
        try:
            return self._kafka.KafkaAdminClient(**self._admin_settings)
        except (self._kafka.errors.KafkaError, OSError) as error:
            raise BrokerUnavailableError(why(self._admin_settings, error)) from None

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            topic, (key, value, headers), delivered = item
            try:
                if self._producer is None:
                    self._producer = self._kafka.KafkaProducer(**self._settings)
                # The producer takes no null value without a key; an empty key means the same here.
                key = b"" if key is None and value is None else key
                future = self._producer.send(topic, value=value, key=key, headers=headers)
            except (self._kafka.errors.KafkaError, OSError, ValueError) as error:
                self._done.append((delivered, error))
                continue
            future.add_callback(self._succeeded, delivered)
            future.add_errback(self._failed, delivered)
        if self._producer is not None:
            self._producer.close(timeout=2)

    def _succeeded(self, delivered: Delivered, _: Any) -> None:
        self._done.append((delivered, None))

    def _failed(self, delivered: Delivered, error: Any) -> None:
        self._done.append((delivered, error))
