"""What a channel publishes with: dead letters, and the topics that its processor opens. Kafka's settings may change."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from inbound.kafka.dead_letters import DeadLetterTopic
from inbound.kafka.topic_writer import KafkaTopicWriter
from inbound.processors.batch import Record

#: Key, value and headers.
Message = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]


class _Closing(Protocol):
    def close(self) -> None: ...


W = TypeVar("W", bound=_Closing)


class Held(Generic[W]):
    """A writer that others can take the place of: the one before is closed when nobody sends with it any more."""

    def __init__(self, writer: W) -> None:
        self._lock = threading.Lock()
        self._writer = writer
        self._users = {id(writer): 0}

    def take(self) -> W:
        with self._lock:
            self._users[id(self._writer)] += 1
            return self._writer

    def give_back(self, writer: W) -> None:
        with self._lock:
            self._users[id(writer)] -= 1
            over = writer is not self._writer and not self._users[id(writer)]
            if over:
                del self._users[id(writer)]
        if over:
            writer.close()

    def replace(self, writer: W) -> None:
        with self._lock:
            before, self._writer = self._writer, writer
            self._users[id(writer)] = 0
            over = not self._users[id(before)]
            if over:
                del self._users[id(before)]
        if over:
            before.close()

    def close(self) -> None:
        self._writer.close()


class Outlet:
    """A `TopicWriter` that goes on with other settings when they change. Any thread."""

    def __init__(self, topic: str, writer: KafkaTopicWriter) -> None:
        self.topic = topic
        self.held = Held(writer)

    def send(self, records: Sequence[Message]) -> None:
        """See `inbound.processors.base.TopicWriter`."""
        writer = self.held.take()
        try:
            writer.send(records)
        finally:
            self.held.give_back(writer)


class Outlets:
    """All that one channel publishes with. `send` of what it gives out from any thread, the rest from one at a time."""

    def __init__(
        self, properties: Mapping[str, Any], group: str, client_id: str, dead_letter_topic: str | None = None
    ) -> None:
        """Connects to nothing yet."""
        self._properties = properties
        self._group = group
        self._client_id = client_id
        self._outlets: list[Outlet] = []
        self._dead_letters: Held[DeadLetterTopic] | None = None
        self.configure(properties, dead_letter_topic)

    def configure(self, properties: Mapping[str, Any], dead_letter_topic: str | None) -> None:
        """Publish with these settings from now on; the connections are made anew, when they are needed."""
        self._properties = properties
        if dead_letter_topic is not None:
            writer = DeadLetterTopic(properties, dead_letter_topic, self._group, self._client_id)
            if self._dead_letters is None:
                self._dead_letters = Held(writer)
            else:
                self._dead_letters.replace(writer)
        for outlet in self._outlets:
            outlet.held.replace(KafkaTopicWriter(properties, outlet.topic, self._client_id))

    def open_topic(self, topic: str) -> Outlet:
        """Return what publishes to `topic`; it is closed with the channel."""
        self._outlets.append(Outlet(topic, KafkaTopicWriter(self._properties, topic, self._client_id)))
        return self._outlets[-1]

    def send_dead_letters(self, topic: str, partition: int, records: Sequence[Record], reason: str) -> None:
        """See `DeadLetterTopic.send`."""
        held = self._dead_letters
        if held is None:
            raise RuntimeError("there is no dead-letter topic")
        writer = held.take()
        try:
            writer.send(topic, partition, records, reason)
        finally:
            held.give_back(writer)

    def close(self) -> None:
        """Close all connections; bounded."""
        for outlet in self._outlets:
            outlet.held.close()
        if self._dead_letters is not None:
            self._dead_letters.close()
