"""Writers of a channel: dead letters, and the topics that its processor opens. Kafka's settings may change."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from inbound.kafka.python.producer import KafkaTopicWriter
from inbound.processors.batch import Record, readable_headers
from inbound.processors.dead_letters import REASON, origin_headers

#: Key, value and headers.
Message = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]


class TopicOutlet:
    """A `TopicWriter` that can change its settings while threads send. Any thread."""

    def __init__(self, writer: KafkaTopicWriter) -> None:
        self._lock = threading.Lock()
        self._writer = writer
        self._sending: Counter[KafkaTopicWriter] = Counter()

    def send(self, records: Sequence[Message]) -> None:
        """See `inbound.processors.base.TopicWriter`."""
        with self._lock:
            writer = self._writer
            self._sending[writer] += 1
        try:
            writer.send(records)
        finally:
            with self._lock:
                self._sending[writer] -= 1
            self._close_unless_used(writer)

    def replace(self, writer: KafkaTopicWriter) -> None:
        """Send with `writer` from now on; the old one is closed when no thread sends with it any more."""
        with self._lock:
            before, self._writer = self._writer, writer
        self._close_unless_used(before)

    def close(self) -> None:
        """Close the producer; bounded."""
        self._writer.close()

    def _close_unless_used(self, writer: KafkaTopicWriter) -> None:
        with self._lock:
            if writer is self._writer or self._sending[writer]:
                return
            del self._sending[writer]
        writer.close()


class DeadLetterTopic:
    """A producer for one dead-letter topic, made when first needed. Any thread."""

    def __init__(self, properties: Mapping[str, Any], topic: str, group: str, client_id: str) -> None:
        self._group = group
        self._client_id = f"{client_id}-dead-letters"
        self._outlet = TopicOutlet(KafkaTopicWriter(properties, topic, self._client_id))

    def configure(self, properties: Mapping[str, Any], topic: str) -> None:
        """Publish with these settings from now on."""
        self._outlet.replace(KafkaTopicWriter(properties, topic, self._client_id))

    def send(self, topic: str, partition: int, records: Sequence[Record], reason: str) -> None:
        """Send records with where they came from and why, and wait until all are acknowledged.

        Raises:
            BrokerUnavailableError: not all of them were; send again.
        """
        self._outlet.send([self._message(topic, partition, record, reason) for record in records])

    def close(self) -> None:
        """Close the producer."""
        self._outlet.close()

    def _message(self, topic: str, partition: int, record: Record, reason: str) -> Message:
        # The producer takes no null header: it is sent empty.
        headers = [(name, value if value is not None else b"") for name, value in readable_headers(record)]
        why = reason.encode()[:1024].decode(errors="ignore").encode()
        headers += [*origin_headers(self._group, topic, partition, record.offset), (REASON, why)]
        return record.key, record.value, headers


class Outlets:
    """All writers of one channel. `send` of its outlets from any thread, the rest from one at a time."""

    def __init__(
        self, properties: Mapping[str, Any], group: str, client_id: str, dead_letter_topic: str | None = None
    ) -> None:
        """Connects to nothing yet."""
        self._group = group
        self._client_id = client_id
        self._outlets: list[tuple[str, TopicOutlet]] = []
        self._dead_letters: DeadLetterTopic | None = None
        self.configure(properties, dead_letter_topic)

    def configure(self, properties: Mapping[str, Any], dead_letter_topic: str | None) -> None:
        """Publish with these settings from now on; new connections are made when they are needed."""
        self._properties = properties
        if dead_letter_topic is not None and self._dead_letters is not None:
            self._dead_letters.configure(properties, dead_letter_topic)
        elif dead_letter_topic is not None:
            self._dead_letters = DeadLetterTopic(properties, dead_letter_topic, self._group, self._client_id)
        for topic, outlet in self._outlets:
            outlet.replace(KafkaTopicWriter(properties, topic, self._client_id))

    def open_topic(self, topic: str) -> TopicOutlet:
        """Return what publishes to `topic`; it is closed with the channel."""
        outlet = TopicOutlet(KafkaTopicWriter(self._properties, topic, self._client_id))
        self._outlets.append((topic, outlet))
        return outlet

    def send_dead_letters(self, topic: str, partition: int, records: Sequence[Record], reason: str) -> None:
        """See `DeadLetterTopic.send`."""
        if self._dead_letters is None:
            raise RuntimeError("there is no dead-letter topic")
        self._dead_letters.send(topic, partition, records, reason)

    def close(self) -> None:
        """Close all connections; bounded."""
        for _, outlet in self._outlets:
            outlet.close()
        if self._dead_letters is not None:
            self._dead_letters.close()
