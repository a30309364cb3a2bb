"""Writing records for the ingress: with confluent-kafka where it is installed, else with kafka-python.

A record counts as written when all in-sync brokers have it. A record that the brokers refuse costs no other one: see
decision 53.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

from inbound.config import IngressConfig
from inbound.errors import BrokerUnavailableError, ConfigError
from inbound.kafka.access import login, resolve
from inbound.kafka.kafka_python import why
from inbound.kafka.producing import UNAFFECTED, end
from inbound.processors.cloudevents_bridge import RecordParts

log = logging.getLogger(__name__)

#: Called with what went wrong, or None, and something of the client's own.
Delivered = Callable[[Any, Any], object]
#: How long a question about topics may take. Seconds.
ASK_SECONDS = 3.0
#: What a client may need for a record besides its bytes.
_OVERHEAD = 1024
#: A producer of confluent-kafka that cannot go on is replaced at most so often. Seconds.
_REPLACE_EVERY = 1.0
#: How long kafka-python may block for what it must know before it takes a record. Seconds.
_BLOCKS = 5.0


class Cause(Enum):
    """Why a record was not written, as far as the answer depends on it."""

    AWAY = "Kafka did not acknowledge it"
    GIVEN_UP = "Kafka's client gave it up before it was acknowledged"
    FULL = "too much waits to be written"
    TOO_LARGE = "the topic does not take records of this size"
    INVALID = "the topic does not take such a record; a compacted one takes none without a partitionkey"
    FORBIDDEN = "the ingress may not write to it; give its Kafka user the right to"
    NO_TOPIC = "the topic is gone"
    BESIDE = "Kafka took nothing of what it was sent with, for another event in it"
    REFUSED = "the brokers refused it"


class Failure(NamedTuple):
    """Why a record was not written, and what the client said of it."""

    cause: Cause
    text: str


class Producer(Protocol):
    """Writes records. `send` and `poll` by the event loop's thread; neither ever waits."""

    name: str
    #: What can be said of a record for the sake of another one that shared its batch; none of the batch is written then.
    of_batches: frozenset[Cause]

    def send(
        self, topic: str, records: Sequence[RecordParts], delivered: Sequence[Delivered], *, alone: bool = False
    ) -> tuple[int, Failure | None]:
        """Take records; the `delivered` of each is called by a later `poll`. `alone`: each in a batch of its own.

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

    def threads(self) -> Mapping[str, tuple[bool, float]]:
        """Return of each thread of ours whether it lives, and its last step on the monotonic clock. Any thread."""

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
    if config.linger >= config.delivery_timeout:
        raise ConfigError("ingress.linger: need less than ingress.delivery_timeout")
    if chosen_client(config) == "confluent-kafka":
        return ConfluentProducer(config, properties)
    return KafkaPythonProducer(config, properties)


class ConfluentProducer:
    """librdkafka's producer. Its callbacks run in `poll`, on the event loop's own thread.

    A batch that is too large for its topic fails as a whole.

    After a fatal error (the brokers and librdkafka disagree on what was written) it takes nothing more: another one takes
    its place. What the old one had sent is answered when the brokers answer, or the delivery timeout is over; what it had
    not sent fails at once.
    """

    name = "confluent-kafka"
    of_batches = frozenset({Cause.TOO_LARGE, Cause.INVALID, Cause.BESIDE})

    def __init__(
        self,
        config: IngressConfig,
        properties: Mapping[str, Any],
        *,
        library: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`library` is the client library's module, if not confluent_kafka itself; `clock` returns seconds."""
        import confluent_kafka

        from inbound.kafka.confluent_entry import Entry
        from inbound.kafka.confluent_log import log_settings

        self._kafka = library or confluent_kafka
        self._clock = clock
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
        self._settings = settings
        self._entry.ready()
        try:
            self._producer: Any = self._kafka.Producer(settings)
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
            return taken, Failure(Cause.FULL, "the client's queue is full")
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
        except self._kafka.KafkaException as error:  # how a fatal error is told, once
            self._look(producer, error.args[0])

    def _one_by_one(self) -> Any:
        if self._alone is None:
            self._alone = self._kafka.Producer({**self._settings, "batch.num.messages": 1, "linger.ms": 0})
        return self._alone

    def _look(self, producer: Any, error: Any) -> None:
        """Let another producer take the place of `producer` if its `error` is fatal."""
        # `produce` raises _FATAL, of which `fatal` is false; `poll` raises the error itself, of which it is true.
        if not (error.fatal() or error.code() == self._kafka.KafkaError._FATAL) or producer in self._replaced:
            return
        self._broken.setdefault(producer, error.str())
        self._replace()

    def _replace(self) -> None:
        """Replace what is broken; at most once a second, for what is fatal for the next one, too."""
        if (now := self._clock()) < self._replaced_at + _REPLACE_EVERY:
            return
        broken, self._broken = self._broken, {}
        for producer, why_broken in broken.items():
            log.error(
                "ingress: the producer can write nothing more (%s): another one takes its place; what it had not sent is "
                "answered with 503",
                why_broken,
            )
            self._replaced_at = now
            self._replaced.append(producer)
            if producer is self._alone:
                self._alone = None
            else:
                self._producer = self._kafka.Producer(self._settings)

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

    def threads(self) -> Mapping[str, tuple[bool, float]]:
        return {}  # librdkafka's own

    def close(self, seconds: float) -> None:
        for producer in filter(None, [self._producer, self._alone, *self._replaced]):
            producer.flush(seconds)
            producer.purge()
            producer.flush(1.0)


def _codes(error: Any) -> dict[int, Cause]:
    """Return what the codes of confluent-kafka's errors mean; any other is a refusal."""
    away = (
        "_MSG_TIMED_OUT", "_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "REQUEST_TIMED_OUT",
        "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION",
        "BROKER_NOT_AVAILABLE", "NETWORK_EXCEPTION",
    )  # fmt: skip
    given_up = (
        "_PURGE_QUEUE", "_PURGE_INFLIGHT", "_FATAL", "OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID",
        "INVALID_PRODUCER_EPOCH", "_INCONSISTENT",
    )  # fmt: skip
    known = {getattr(error, name): Cause.AWAY for name in away}
    known |= {getattr(error, name): Cause.GIVEN_UP for name in given_up}
    known |= {error._QUEUE_FULL: Cause.FULL, error.TOPIC_AUTHORIZATION_FAILED: Cause.FORBIDDEN}
    known |= dict.fromkeys((error.MSG_SIZE_TOO_LARGE, error.RECORD_LIST_TOO_LARGE), Cause.TOO_LARGE)
    known |= dict.fromkeys((error.INVALID_RECORD, error.INVALID_TIMESTAMP, error.POLICY_VIOLATION), Cause.INVALID)
    known[error._INVALID_DIFFERENT_RECORD] = Cause.BESIDE
    gone = (error.UNKNOWN_TOPIC_OR_PART, error._UNKNOWN_TOPIC, error._UNKNOWN_PARTITION)
    return known | dict.fromkeys(gone, Cause.NO_TOPIC)


class KafkaPythonProducer:
    """kafka-python's producer, fed by a thread of its own, for its `send` may wait for brokers.

    A batch that is too large for its topic it sends again in parts, until only a record that is itself too large fails.
    """

    name = "kafka-python"
    of_batches = frozenset({Cause.INVALID, Cause.BESIDE})

    def __init__(
        self, config: IngressConfig, properties: Mapping[str, Any], *, library: Any = None, threaded: bool = True
    ) -> None:
        """`library` is the client library's module, if not kafka itself. Not `threaded`: `step` is called by the caller."""
        import kafka

        from inbound.publishing.topics import settings_for

        self._kafka = library or kafka
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
            **UNAFFECTED,
            "linger_ms": round(config.linger * 1000),
            "delivery_timeout_ms": timeout,
            "max_block_ms": min(timeout, round(_BLOCKS * 1000)),
            "bootstrap_timeout_ms": round(_BLOCKS * 1000),
            "max_request_size": max(1_048_576, config.max_event_bytes + _OVERHEAD),
            "request_timeout_ms": max(1, min(6000, timeout - round(config.linger * 1000) - 1)),
        }
        #: Made when first needed: with batches, and of which each record is a batch.
        self._producers: dict[bool, Any] = {}
        self._ends_within = config.delivery_timeout + _BLOCKS
        self._waiting: queue.SimpleQueue[tuple[str, RecordParts, Delivered, bool] | None] = queue.SimpleQueue()
        self._done: deque[tuple[Delivered, Any]] = deque()
        self._stepped_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="ingress-producer", daemon=True)
        if threaded:
            self._thread.start()

    def send(
        self, topic: str, records: Sequence[RecordParts], delivered: Sequence[Delivered], *, alone: bool = False
    ) -> tuple[int, Failure | None]:
        for record, answer in zip(records, delivered, strict=True):
            self._waiting.put((topic, record, answer, alone))
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
        elif isinstance(error, (errors.InvalidRecordError, errors.InvalidTimestampError, errors.PolicyViolationError)):
            cause = Cause.INVALID
        elif isinstance(error, errors.TopicAuthorizationFailedError):
            cause = Cause.FORBIDDEN
        elif isinstance(error, errors.UnknownTopicOrPartitionError):
            cause = Cause.NO_TOPIC
        elif type(error) is errors.KafkaError:  # what it gives to those beside a record that the brokers name
            cause = Cause.BESIDE
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

    def threads(self) -> Mapping[str, tuple[bool, float]]:
        return {self._thread.name: (self._thread.is_alive(), self._stepped_at)}

    def close(self, seconds: float) -> None:
        self._waiting.put(None)
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _admin(self) -> Any:
        try:
            return self._kafka.KafkaAdminClient(**self._admin_settings)
        except (self._kafka.errors.KafkaError, OSError) as error:
            raise BrokerUnavailableError(why(self._admin_settings, error)) from None

    def _run(self) -> None:
        while self.step(1.0):
            pass
        for producer in self._producers.values():
            end(producer, self._ends_within)

    def step(self, seconds: float) -> bool:
        """Give the next record to the client; wait for one so long. Returns whether there are more to come."""
        self._stepped_at = time.monotonic()
        try:
            item = self._waiting.get(timeout=seconds) if seconds else self._waiting.get_nowait()
        except queue.Empty:
            return True
        if item is None:
            return False
        topic, record, delivered, alone = item
        try:
            self._take(topic, record, delivered, alone)
        except (self._kafka.errors.KafkaError, OSError, ValueError) as error:
            self._done.append((delivered, error))
        except Exception as error:  # the thread's end would leave every later event without an answer
            log.exception("ingress: topic %s: kafka-python failed on an event, which is answered with 503", topic)
            self._done.append((delivered, error))
        return True

    def _take(self, topic: str, record: RecordParts, delivered: Delivered, alone: bool) -> None:
        if alone not in self._producers:
            waiting = self._waiting.qsize()
            settings = {**self._settings, "batch_size": 0, "linger_ms": 0} if alone else self._settings
            try:
                self._producers[alone] = self._kafka.KafkaProducer(**settings)
            except (self._kafka.errors.KafkaError, OSError) as error:
                self._fail(waiting, error)  # they would wait as long, one after the other
                raise
        key, value, headers = record
        # The producer takes no null value without a key; an empty key means the same here.
        key = b"" if key is None and value is None else key
        future = self._producers[alone].send(topic, value=value, key=key, headers=headers)
        future.add_callback(self._succeeded, delivered)
        future.add_errback(self._failed, delivered)

    def _fail(self, count: int, error: Exception) -> None:
        for _ in range(count):
            item = self._waiting.get()
            if item is None:
                self._waiting.put(None)
                return
            self._done.append((item[2], error))

    def _succeeded(self, delivered: Delivered, _: Any) -> None:
        self._done.append((delivered, None))

    def _failed(self, delivered: Delivered, error: Any) -> None:
        self._done.append((delivered, error))
