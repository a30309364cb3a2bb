"""Publishes what processors publish: records to one topic, acknowledged by all replicas."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import kafka
import kafka.errors

from inbound.errors import BrokerRefusedError, BrokerUnavailableError
from inbound.kafka.kafka_python import is_refused, to_kafka_python, why
from inbound.kafka.producing import UNAFFECTED, advice, end

#: How long one record may take to be acknowledged, in seconds.
SEND_TIMEOUT = 15.0
_MILLISECONDS = int(SEND_TIMEOUT * 1000)
#: How large a record may be, in bytes, is for the topic to say.
LARGEST = 2**30
#: Settings of the consumer that a producer knows too.
_SHARED = ("bootstrap_servers", "security_protocol", "client_dns_lookup", "request_timeout_ms", "kafka_client")


def client_settings(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Translate Kafka's properties for a producer or an admin client: where the brokers are, and how to come in."""
    settings = to_kafka_python(properties)
    return {k: v for k, v in settings.items() if k in _SHARED or k.startswith(("ssl_", "sasl_"))}


class KafkaTopicWriter:
    """A producer for one topic, made when first needed. Any thread; `send` blocks.

    Records that the brokers refuse cost no others: see decision 53.
    """

    def __init__(self, properties: Mapping[str, Any], topic: str, client_id: str) -> None:
        """`properties` are Kafka's own; `client_id` is how the brokers name it. Connects to nothing yet."""
        self._settings = client_settings(properties)
        self._topic = topic
        self._client_id = client_id
        self._producer: kafka.KafkaProducer | None = None
        self._lock = threading.Lock()

    def send(self, records: Sequence[tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]]) -> None:
        """Publish (key, value, headers) of each, and wait until all are acknowledged.

        Raises:
            BrokerUnavailableError: not all of them were; publish them again.
        """
        try:
            with self._lock:
                if self._producer is None:
                    self._producer = kafka.KafkaProducer(
                        **{
                            **self._settings, **UNAFFECTED, "client_id": self._client_id, "max_request_size": LARGEST,
                            "max_block_ms": _MILLISECONDS, "request_timeout_ms": _MILLISECONDS - 1000,
                            "delivery_timeout_ms": _MILLISECONDS,  # what has failed is over: it is not written later
                        }
                    )  # fmt: skip
                producer = self._producer
            sent = [
                # The producer takes no null key with a null value: it is sent empty.
                producer.send(
                    self._topic, key=b"" if key is None and value is None else key, value=value, headers=list(headers)
                )
                for key, value, headers in records
            ]
            for future in sent:
                future.get(timeout=SEND_TIMEOUT)
        except kafka.errors.KafkaError as error:
            if is_refused(self._settings):
                raise BrokerRefusedError(f"topic {self._topic}: {why(self._settings, error)}") from None
            raise BrokerUnavailableError(
                f"topic {self._topic}: {str(error) or type(error).__name__}; {advice(error)}"
            ) from None

    def close(self) -> None:
        """Close the producer, if there is one; bounded."""
        if self._producer is not None:
            end(self._producer, 3.0)
