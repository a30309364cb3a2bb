"""Sends records that a processor cannot handle to another topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inbound.kafka.topic_writer import KafkaTopicWriter
from inbound.processors.batch import Record, readable_headers
from inbound.processors.dead_letters import REASON, origin_headers


class DeadLetterTopic:
    """A producer for one dead-letter topic, made when first needed. May be called from several workers."""

    def __init__(self, properties: Mapping[str, Any], topic: str, group: str, client_id: str) -> None:
        self._group = group
        self._writer = KafkaTopicWriter(properties, topic, f"{client_id}-dead-letters")

    def send(self, topic: str, partition: int, records: Sequence[Record], reason: str) -> None:
        """Send records with where they came from and why, and wait until all are acknowledged.

        Raises:
            BrokerUnavailableError: not all of them were; send again.
        """
        self._writer.send([self._message(topic, partition, record, reason) for record in records])

    def close(self) -> None:
        """Close the producer."""
        self._writer.close()

    def _message(
        self, topic: str, partition: int, record: Record, reason: str
    ) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]:
        # The producer takes no null header: it is sent empty.
        headers = [(name, value if value is not None else b"") for name, value in readable_headers(record)]
        return record.key, record.value, [*headers, *self._why(topic, partition, record, reason)]

    def _why(self, topic: str, partition: int, record: Record, reason: str) -> list[tuple[str, bytes]]:
        return [
            *origin_headers(self._group, topic, partition, record.offset),
            (REASON, reason.encode()[:1024].decode(errors="ignore").encode()),
        ]
