"""The producers of one channel: dead letters, and its processor's topics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inbound.kafka.clients.dead_letter_topic import DeadLetterTopic
from inbound.kafka.python.producer import KafkaTopicWriter, TopicOutlet
from inbound.processors.batch import Record


class Outlets:
    """Opens, reconfigures and closes a channel's producers.

    Any thread sends; the other methods are called from one thread at a time.
    """

    def __init__(
        self, properties: Mapping[str, Any], group: str, client_id: str, dead_letter_topic: str | None = None
    ) -> None:
        """`properties` are Kafka's own. Connects to nothing yet.

        Raises:
            ConfigError: kafka-python cannot use one of `properties`.
        """
        self._group = group
        self._client_id = client_id
        self._outlets: list[tuple[str, TopicOutlet]] = []
        self._dead_letters: DeadLetterTopic | None = None
        self.configure(properties, dead_letter_topic)

    def configure(self, properties: Mapping[str, Any], dead_letter_topic: str | None) -> None:
        """Send with these settings from now on; each producer reconnects when needed."""
        self._properties = properties
        if dead_letter_topic is not None and self._dead_letters is not None:
            self._dead_letters.configure(properties, dead_letter_topic)
        elif dead_letter_topic is not None:
            self._dead_letters = DeadLetterTopic(properties, dead_letter_topic, self._group, self._client_id)
        for topic, outlet in self._outlets:
            outlet.replace(KafkaTopicWriter(properties, topic, self._client_id))

    def open_topic(self, topic: str) -> TopicOutlet:
        """Return a writer to `topic`, which is closed with the channel."""
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
