"""Sends records that a processor cannot handle to another topic."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import kafka
import kafka.errors

from inbound.errors import BrokerUnavailableError
from inbound.kafka.kafka_python import to_kafka_python
from inbound.processors.batch import Record

#: How long one record may take to be acknowledged, in seconds.
SEND_TIMEOUT = 15.0
#: Settings of the consumer that a producer does not know.
_SHARED = ("bootstrap_servers", "security_protocol", "client_dns_lookup", "request_timeout_ms")


class DeadLetterTopic:
    """A producer for one dead-letter topic, made when first needed. May be called from several workers."""

    def __init__(self, properties: Mapping[str, Any], topic: str, group: str, client_id: str) -> None:
        self._settings = {
            k: v for k, v in to_kafka_python(properties).items() if k in _SHARED or k.startswith(("ssl_", "sasl_"))
        }
        self._topic = topic
        self._group = group
        self._client_id = client_id
        self._producer: kafka.KafkaProducer | None = None
        self._lock = threading.Lock()

    def send(self, topic: str, partition: int, records: Sequence[Record], reason: str) -> None:
        """Send records with where they came from and why, and wait until all are acknowledged.

        Raises:
            BrokerUnavailableError: not all of them were; send again.
        """
        try:
            with self._lock:
                if self._producer is None:
                    self._producer = kafka.KafkaProducer(
                        **self._settings, client_id=f"{self._client_id}-dead-letters", acks="all",
                        allow_auto_create_topics=False, max_block_ms=int(SEND_TIMEOUT * 1000),
                    )  # fmt: skip
                producer = self._producer
            sent = [producer.send(self._topic, **self._message(topic, partition, r, reason)) for r in records]
            for future in sent:
                future.get(timeout=SEND_TIMEOUT)
        except kafka.errors.KafkaError as error:
            raise BrokerUnavailableError(
                f"dead-letter topic {self._topic}: {type(error).__name__}: {error}; check that the topic exists"
            ) from None

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close(timeout=3)

    def _message(self, topic: str, partition: int, record: Record, reason: str) -> dict[str, Any]:
        # The producer takes neither a null header nor a null key with a null value: they are sent empty.
        headers = [(name, value if value is not None else b"") for name, value in record.headers]
        key = b"" if record.key is None and record.value is None else record.key
        return {"key": key, "value": record.value, "headers": [*headers, *self._why(topic, partition, record, reason)]}

    def _why(self, topic: str, partition: int, record: Record, reason: str) -> list[tuple[str, bytes]]:
        return [
            ("inbound-dead-letter-group", self._group.encode()),
            ("inbound-dead-letter-topic", topic.encode()),
            ("inbound-dead-letter-partition", str(partition).encode()),
            ("inbound-dead-letter-offset", str(record.offset).encode()),
            ("inbound-dead-letter-reason", reason.encode()[:1024]),
        ]
