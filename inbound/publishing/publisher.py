"""Sends records to one topic, at a pace, and makes sure that each of them has arrived."""

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
from inbound.publishing.sources import Encoded
from inbound.publishing.topics import away, settings_for

#: A record that no broker has taken after so long has failed. Seconds.
DELIVERY_TIMEOUT = 30.0
#: Records that may be unconfirmed at a time: enough to keep the connection busy, little to hold in memory.
WINDOW = 20_000
#: Shorter waits cost more than they even out. Seconds.
_SHORTEST_WAIT = 0.005
_PROGRESS_EVERY = 0.1


class PublishError(InboundError):
    """A record was refused, or did not arrive."""


class Delivery(Protocol):
    """What a producer gives for each record it was handed (a future of kafka-python)."""

    @property
    def is_done(self) -> bool: ...
    def get(self, timeout: float | None = None) -> object:
        """Wait until it has arrived; raises what it failed with."""


class Producer(Protocol):
    """What is used of a `kafka.KafkaProducer`."""

    def send(self, topic: str, value: Any, key: Any, headers: Any) -> Delivery: ...
    def flush(self, timeout: float | None = None) -> None: ...
    def close(self, timeout: float | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class Published:
    """What arrived: so many records, in so many seconds."""

    count: int
    seconds: float

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.count / self.seconds if self.seconds else 0.0


def publisher_to(
    properties: Mapping[str, Any], topic: str, around: Callable[[Producer], Producer] = lambda producer: producer
) -> Publisher:
    """Return a publisher for one topic: all in-sync brokers must have a record, and a retry never writes it twice.

    `around` is given the producer, and returns the one that is used. Raises BrokerUnavailableError: no broker answers;
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
        raise away(settings, error) from None
    return Publisher(around(producer), topic)


class Publisher:
    """Sends records to one topic by any producer. Used by one thread, whose owner closes it."""

    def __init__(self, producer: Producer, topic: str, clock: Clock | None = None) -> None:
        self._producer = producer
        self._topic = topic
        self._clock = clock or SystemClock()
        self._waiting: deque[tuple[int, Delivery]] = deque()
        self._sent = 0
        self.delivered = 0  # how many records are known to have arrived; any thread

    def publish(
        self,
        records: Iterable[Encoded],
        *,
        rate: float | None = None,
        stop: threading.Event | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Published:
        """Send all `records`, at most `rate` a second, and wait until every one has arrived.

        `stop` ends it early, after those sent so far have arrived. `progress` is told, now and then, how many were
        sent. Raises PublishError: a record was refused or did not arrive; its number, from 1, is in the message. A
        ConfigError that `records` raise, and Ctrl-C, come through after what was sent before has arrived.
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
            if rate is not None and (ahead := began + sent / rate - now) > _SHORTEST_WAIT:
                clock.wait(stop, ahead)
            if stop.is_set():
                break
            try:
                self._waiting.append((sent + 1, send(topic, value=value, key=key, headers=headers)))
            except (kafka.errors.KafkaError, ValueError, TypeError) as error:
                raise self._failed(sent + 1, error) from None
            self._sent = sent + 1
            self._confirm(WINDOW)
            if progress and now - shown >= _PROGRESS_EVERY:
                shown = now
                progress(self._sent)

    def _arrive(self) -> None:
        """Wait until all that was sent has arrived."""
        try:
            self._producer.flush(timeout=DELIVERY_TIMEOUT)
        except kafka.errors.KafkaError as error:
            raise self._failed(self.delivered + 1, error) from None
        self._confirm(0)

    def close(self) -> None:
        """Close the connections; what was not confirmed by then has failed."""
        self._producer.close(timeout=5)

    def _confirm(self, most: int) -> None:
        """Take those that have arrived off the list, and wait for the oldest while more than `most` have not."""
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
