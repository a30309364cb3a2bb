"""kafka-python's producers: shared settings (decision 53), and one for a single topic."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import kafka
import kafka.errors

from inbound.errors import BrokerRefusedError, BrokerUnavailableError
from inbound.kafka.python.client import is_refused, to_kafka_python, why

log = logging.getLogger(__name__)

#: Key, value and headers.
Message: TypeAlias = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]

#: Settings of a producer that keeps the order, and goes on after a record that the brokers refuse.
#:
#: One refused batch closes kafka-python's idempotent producer for good: it fails all its records, and all later ones,
#: with that batch's error. Nor does it recover after a batch that was sent twice has timed out: it waits for a producer
#: id that it never asks for. Without idempotence, and with one request in flight at each broker, a batch has nothing to do
#: with the next. A batch whose acknowledgement is lost is then in the log twice.
UNAFFECTED: Final[dict[str, Any]] = {
    "acks": "all",
    "enable_idempotence": False,
    "max_in_flight_requests_per_connection": 1,
    "allow_auto_create_topics": False,
}


def end(producer: Any, seconds: float) -> None:
    """Close a producer, which has `seconds` to send its records."""
    try:
        producer.close(timeout=seconds)
    except kafka.errors.KafkaError as error:
        # Its `close` waits for what is unanswered first, and when that takes too long it raises and closes nothing.
        log.warning("kafka: a producer ends with records that no broker has acknowledged: %s", error)
        producer._sender.force_close()


def advice(error: BaseException) -> str:
    """Return what to do about a record that was not written."""
    errors = kafka.errors
    if isinstance(error, (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)):
        return "raise the topic's max.message.bytes"
    if isinstance(error, (errors.TopicAuthorizationFailedError, errors.ClusterAuthorizationFailedError)):
        return "allow this user to write to it"
    if isinstance(error, (errors.InvalidRecordError, errors.InvalidTimestampError, errors.PolicyViolationError)):
        return "the topic does not take such a record (a compacted one takes none without a key): choose another topic"
    return "check that the topic exists, and its brokers"


#: How long one record may take to be acknowledged, in seconds.
SEND_TIMEOUT = 15.0
_MILLISECONDS = int(SEND_TIMEOUT * 1000)
#: The producer bounds no record, in bytes: the topic does.
LARGEST = 2**30
#: Settings of the consumer that a producer knows too.
_SHARED = ("bootstrap_servers", "security_protocol", "client_dns_lookup", "request_timeout_ms", "kafka_client")


def client_settings(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Translate Kafka's servers and credentials for a producer or admin client."""
    found = to_kafka_python(properties).items()
    return {name: value for name, value in found if name in _SHARED or name.startswith(("ssl_", "sasl_"))}


class KafkaTopicWriter:
    """A producer for one topic. Any thread.

    It connects at the first `send`, which blocks. Records that the brokers refuse cost no others: see decision 53.
    """

    def __init__(self, properties: Mapping[str, Any], topic: str, client_id: str) -> None:
        """`properties` are Kafka's own; the brokers log `client_id`."""
        self._settings = client_settings(properties)
        self._topic = topic
        self._client_id = client_id
        self._producer: kafka.KafkaProducer | None = None
        self._lock = threading.Lock()

    def send(self, records: Sequence[Message]) -> None:
        """Write all records, and wait for their acknowledgements.

        Raises:
            BrokerUnavailableError: not all were acknowledged; send them again.
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


class TopicOutlet:
    """A `TopicWriter` whose producer can be replaced while threads send. Any thread.

    Exactly one thread closes a replaced producer: the one that ends its last use.
    """

    def __init__(self, writer: KafkaTopicWriter) -> None:
        self._lock = threading.Lock()
        self._writer = writer
        #: Uses of each producer: one for each thread that sends with it, one more while it is the current one.
        self._uses = Counter([writer])

    def send(self, records: Sequence[Message]) -> None:
        """See `inbound.processors.base.TopicWriter`."""
        with self._lock:
            writer = self._writer
            self._uses[writer] += 1
        try:
            writer.send(records)
        finally:
            self._end_use(writer)

    def replace(self, writer: KafkaTopicWriter) -> None:
        """Send with `writer` from now on; close the old one after use."""
        with self._lock:
            before, self._writer = self._writer, writer
            self._uses[writer] += 1
        self._end_use(before)

    def close(self) -> None:
        """Close the current producer; bounded."""
        self._writer.close()

    def _end_use(self, writer: KafkaTopicWriter) -> None:
        with self._lock:  # one section, so that one thread alone sees the last use end
            self._uses[writer] -= 1
            if self._uses[writer]:
                return
            del self._uses[writer]
        writer.close()
