"""Redrives letters to topics, acknowledged by all replicas, each to be noted before the next hundreds are sent."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import kafka
import kafka.errors

from inbound.dead_letters.redrive_plan import Parcel
from inbound.dead_letters.redriving import Done, Outcome
from inbound.errors import BrokerRefusedError, BrokerUnavailableError
from inbound.kafka.connections import described
from inbound.kafka.kafka_python import is_refused, why
from inbound.kafka.producing import UNAFFECTED, advice, end
from inbound.kafka.topic_writer import LARGEST, SEND_TIMEOUT, client_settings

#: Letters that may be sent and not noted: so many are sent again after a crash at most.
WINDOW = 500
_MILLISECONDS = int(SEND_TIMEOUT * 1000)
#: What the brokers refuse of one record, whoever asks again.
_REFUSALS = (
    kafka.errors.MessageSizeTooLargeError,
    kafka.errors.RecordListTooLargeError,
    kafka.errors.InvalidRecordError,
    kafka.errors.InvalidTimestampError,
    kafka.errors.PolicyViolationError,
    kafka.errors.TopicAuthorizationFailedError,
    kafka.errors.InvalidTopicError,
)


class TopicSender:
    """A producer for any topic. One thread; `close` it."""

    def __init__(self, properties: Mapping[str, Any], make: Callable[..., Any] = kafka.KafkaProducer) -> None:
        """`properties` are Kafka's own. Connects to nothing yet."""
        self._settings = client_settings(properties)
        self._make = make
        self._producer: Any = None

    def send(self, parcels: Iterable[Parcel], done: Done, stop: threading.Event) -> None:
        """See `inbound.dead_letters.redriving.Sender`. In order: those of one partition keep theirs."""
        waiting: deque[tuple[Parcel, Any]] = deque()
        try:
            for parcel in parcels:
                while waiting and (len(waiting) >= WINDOW or waiting[0][1].is_done):
                    self._settle(*waiting.popleft(), done)
                waiting.append((parcel, self._begin(parcel)))
        finally:  # also where the reading fails: what was sent is noted
            self._settle_all(waiting, done)

    def close(self) -> None:
        """Close the producer, if there is one; bounded."""
        if self._producer is not None:
            end(self._producer, 3.0)

    def _begin(self, parcel: Parcel) -> Any:
        key, value, headers = parcel.parts
        try:
            if self._producer is None:
                self._producer = self._make(
                    **{
                        **self._settings, **UNAFFECTED, "client_id": "inbound-dead-letters", "max_request_size": LARGEST,
                        "max_block_ms": _MILLISECONDS, "request_timeout_ms": _MILLISECONDS - 1000, "linger_ms": 5,
                        "delivery_timeout_ms": _MILLISECONDS,  # what has failed is over: it is not written later
                    }
                )  # fmt: skip
            return self._producer.send(
                parcel.topic,
                # The producer takes no null key with a null value: it is sent empty.
                key=b"" if key is None and value is None else key,
                value=value,
                headers=list(headers),
                partition=parcel.to_partition,
            )
        except kafka.errors.KafkaError as error:
            raise self._away(parcel, error) from None

    def _settle_all(self, waiting: deque[tuple[Parcel, Any]], done: Done) -> None:
        """Note all that were acknowledged, and raise the first error of the others."""
        problem = None
        while waiting:
            try:
                self._settle(*waiting.popleft(), done)
            except BrokerUnavailableError as error:
                problem = problem or error
        if problem is not None:
            raise problem

    def _settle(self, parcel: Parcel, sent: Any, done: Done) -> None:
        try:
            written = sent.get(timeout=SEND_TIMEOUT)
        except _REFUSALS as error:
            done(parcel, Outcome(False, f"topic {parcel.topic}", f"{described(error)}; {advice(error)}"))
            return
        except kafka.errors.KafkaError as error:
            raise self._away(parcel, error) from None
        done(parcel, Outcome(True, f"{parcel.topic}/{written.partition}/{written.offset}"))

    def _away(self, parcel: Parcel, error: kafka.errors.KafkaError) -> BrokerUnavailableError:
        if is_refused(self._settings):
            return BrokerRefusedError(f"topic {parcel.topic}: {why(self._settings, error)}")
        return BrokerUnavailableError(
            f"topic {parcel.topic}: letter {parcel.partition}/{parcel.offset} was not acknowledged ({described(error)}); "
            f"{advice(error)}"
        )
