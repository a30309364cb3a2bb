"""Writes dead letters to a channel's dead-letter topic.

A dead letter is the record as it was read: its key, value and headers, and these headers behind them, by which
`inbound dead-letters` finds its origin (`inbound.processors.dead_letters`):

    inbound-dead-letter-group, -topic, -partition, -offset    which group gave up which record
    inbound-dead-letter-reason                                why, at most `LONGEST_REASON` bytes

The dispatcher writes its dead letters as events, to a sink of its own. Spark's replay uses this file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inbound.kafka.python.producer import KafkaTopicWriter, Message, TopicOutlet
from inbound.processors.batch import Record, readable_headers
from inbound.processors.dead_letters import REASON, origin_headers

#: A reason is cut to so many bytes, between two characters.
LONGEST_REASON = 1024


class DeadLetterTopic:
    """A producer for one dead-letter topic. Any thread.

    It connects when it sends for the first time.
    """

    def __init__(self, properties: Mapping[str, Any], topic: str, group: str, client_id: str) -> None:
        """`properties` are Kafka's own; `group` is part of each dead letter's origin.

        Raises:
            ConfigError: kafka-python cannot use one of `properties`.
        """
        self._group = group
        self._client_id = f"{client_id}-dead-letters"
        self._outlet = TopicOutlet(KafkaTopicWriter(properties, topic, self._client_id))

    def configure(self, properties: Mapping[str, Any], topic: str) -> None:
        """Write with these settings from now on."""
        self._outlet.replace(KafkaTopicWriter(properties, topic, self._client_id))

    def send(self, topic: str, partition: int, records: Sequence[Record], reason: str) -> None:
        """Write a partition's records as dead letters, and wait for all acknowledgements.

        Raises:
            BrokerUnavailableError: not all were acknowledged; send them again.
        """
        self._outlet.send([self._message(topic, partition, record, reason) for record in records])

    def close(self) -> None:
        """Close the producer."""
        self._outlet.close()

    def _message(self, topic: str, partition: int, record: Record, reason: str) -> Message:
        # The producer takes no null header: it is sent empty.
        headers = [(name, value if value is not None else b"") for name, value in readable_headers(record)]
        why = reason.encode()[:LONGEST_REASON].decode(errors="ignore").encode()
        headers += [*origin_headers(self._group, topic, partition, record.offset), (REASON, why)]
        return record.key, record.value, headers
