"""Publishes records to a topic, and waits until each is acknowledged."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import kafka
import kafka.errors

from inbound.clock import Clock, SystemClock
from inbound.errors import ConfigError, InboundError
from inbound.kafka.python.client import unavailable
from inbound.kafka.python.topics import settings_for
from inbound.publishing.sources import Encoded

#: A record without an acknowledgement for this time has failed. Seconds.
DELIVERY_TIMEOUT = 30.0
#: The most unacknowledged records: enough to keep the connection busy, little to hold in memory.
WINDOW = 20_000
#: The shortest pause between records, and the interval of progress reports. Seconds.
SHORTEST_WAIT, PROGRESS_EVERY = 0.005, 0.1


class PublishError(InboundError):
    """A record was refused, or did not arrive."""


class SentRecord(Protocol):
    """A producer's future for one record (as kafka-python's)."""

    @property
    def is_done(self) -> bool: ...
    def get(self, timeout: float | None = None) -> object:
        """Wait for the acknowledgement, or raise the record's error."""


class RecordProducer(Protocol):
    """The methods of a `kafka.KafkaProducer` that `Publisher` calls."""

    def send(self, topic: str, value: Any, key: Any, headers: Any) -> SentRecord: ...
    def flush(self, timeout: float | None = None) -> None: ...
    def close(self, timeout: float | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class Published:
    """The number of acknowledged records, and the seconds that they took."""

    count: int
    seconds: float

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.count / self.seconds if self.seconds else 0.0


def publisher_to(
    properties: Mapping[str, Any],
    topic: str,
    around: Callable[[RecordProducer], RecordProducer] = lambda producer: producer,
) -> Publisher:
    """Return a publisher for one topic, with an idempotent producer and `acks=all`.

    `around` gets the producer, and returns the one to use.

    Raises:
        BrokerUnavailableError: no broker answers.
        ConfigError: a property cannot be used.
    """
    settings = {
        "client_id": "inbound-publish",
        "linger_ms": 5,
        "batch_size": 65536,
        **settings_for(properties, kafka.KafkaProducer.DEFAULT_CONFIG),
        "acks": "all",
        "enable_idempotence": True,
        "allow_auto_create_topics": False,
        "delivery_timeout_ms": round(DELIVERY_TIMEOUT * 1000),
        "max_block_ms": round(DELIVERY_TIMEOUT * 1000),
    }
    settings["request_timeout_ms"] = min(settings.get("request_timeout_ms", 10_000), 20_000)
    try:
        producer = kafka.KafkaProducer(**settings)
    except (kafka.errors.KafkaConfigurationError, ValueError) as error:
        raise ConfigError(f"kafka: {error}") from None
    except (kafka.errors.KafkaError, OSError) as error:
        raise unavailable(settings, error) from None
    return Publisher(around(producer), topic)


class Publisher:
    """Sends records to one topic with any producer.

    One thread uses it; its owner closes it.
    """

    def __init__(self, producer: RecordProducer, topic: str, clock: Clock | None = None) -> None:
        self._producer = producer
        self._topic = topic
        self._clock = clock or SystemClock()
        self._waiting: deque[tuple[int, SentRecord]] = deque()
        self._sent = 0
        self.delivered = 0  # acknowledged records; any thread

    def publish(
        self,
        records: Iterable[Encoded],
        *,
        rate: float | None = None,
        stop: threading.Event | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Published:
        """Send all records, and wait for their acknowledgements.

        At most `rate` records are sent per second. `stop` ends it early, after the acknowledgements of those sent so far.
        `progress` gets the number of sent records now and then. A ConfigError that `records` raise, and Ctrl-C, come
        through after the acknowledgements of the records before.

        Raises:
            PublishError: a record was refused or not acknowledged; the message has its number, from 1.
        """
        began = self._clock.now()
        self._sent = self.delivered = 0
        try:
            self._send(records, rate, stop or threading.Event(), progress)
        except (ConfigError, KeyboardInterrupt):
            self._arrive()
            raise
        self._arrive()
        if progress:
            progress(self._sent)
        return Published(self._sent, self._clock.now() - began)

    def _send(
        self,
        records: Iterable[Encoded],
        rate: float | None,
        stop: threading.Event,
        progress: Callable[[int], None] | None,
    ) -> None:
        clock, send, topic = self._clock, self._producer.send, self._topic
        began = shown = clock.now()
        for sent, (key, value, headers) in enumerate(records):
            now = clock.now()
            if rate is not None and (ahead := began + sent / rate - now) > SHORTEST_WAIT:
                clock.wait(stop, ahead)
            if stop.is_set():
                break
            try:
                self._waiting.append((sent + 1, send(topic, value=value, key=key, headers=headers)))
            except (kafka.errors.KafkaError, ValueError, TypeError) as error:
                raise self._failed(sent + 1, error) from None
            self._sent = sent + 1
            self._confirm(WINDOW)
            if progress and now - shown >= PROGRESS_EVERY:
                shown = now
                progress(self._sent)

    def _arrive(self) -> None:
        try:
            self._producer.flush(timeout=DELIVERY_TIMEOUT)
        except kafka.errors.KafkaError as error:
            raise self._failed(self.delivered + 1, error) from None
        self._confirm(0)

    def close(self) -> None:
        """Close the connections; unacknowledged records have failed."""
        self._producer.close(timeout=5)

    def _confirm(self, most: int) -> None:
        """Wait for the oldest records while more than `most` are unacknowledged."""
        waiting = self._waiting
        while waiting and (waiting[0][1].is_done or len(waiting) > most):
            number, delivery = waiting.popleft()
            try:
                delivery.get(timeout=DELIVERY_TIMEOUT)
            except kafka.errors.KafkaError as error:
                raise self._failed(number, error) from None
            self.delivered += 1

    def _failed(self, number: int, error: Exception) -> PublishError:
        return PublishError(
            f"topic {self._topic}: record {number} was not delivered: {str(error) or type(error).__name__}; "
            f"{self.delivered} before it were. {_advice(error)}"
        )


def _advice(error: Exception) -> str:
    if isinstance(error, (kafka.errors.MessageSizeTooLargeError, kafka.errors.RecordListTooLargeError)):
        return "Make it smaller, or raise the topic's max.message.bytes (a producer sends at most 1 MiB)."
    if isinstance(error, kafka.errors.KafkaError) and getattr(error, "retriable", False):
        return "Check the brokers and their logs, then publish the rest."
    return "Put the cause right, then publish the rest."
