"""What a replay asks of the brokers before it begins: which partitions there are, what their logs hold, where a time is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import kafka
import kafka.errors
from kafka.structs import TopicPartition as KafkaPartition

from inbound.errors import ConfigError
from inbound.kafka.base import LogRange
from inbound.kafka.kafka_python import away, to_kafka_python
from inbound.topic_names import chooser
from inbound.topic_partition import TopicPartition

#: How long a broker may take to answer, in seconds.
TIMEOUT = 5.0


class KafkaLog:
    """The logs of some topics, through one client without a group. One thread; made by `open_log`."""

    def __init__(self, consumer: Any, settings: Mapping[str, Any]) -> None:
        self._consumer = consumer
        self._settings = settings

    def topics(self, names: Collection[str], pattern: str | None) -> dict[str, int]:
        """Return the partitions' number of the named topics, or of those that match, as far as they exist."""
        with self._asking():
            known = self._consumer.topics()
            wanted = chooser(names, pattern)
            found = {name: self._consumer.partitions_for_topic(name) for name in sorted(known) if wanted(name)}
        return {name: max(partitions) + 1 for name, partitions in found.items() if partitions}

    def ranges(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
        """Return what the logs hold."""
        keys = [KafkaPartition(*tp) for tp in partitions]
        with self._asking():
            starts, ends = self._consumer.beginning_offsets(keys), self._consumer.end_offsets(keys)
        return {TopicPartition(*key): LogRange(starts[key], ends[key]) for key in keys}

    def at_time(self, partitions: Collection[TopicPartition], milliseconds: int) -> dict[TopicPartition, int | None]:
        """Return, per partition, the first offset with a timestamp at or after this; None: there is none."""
        with self._asking():
            found: Mapping[Any, Any] = self._consumer.offsets_for_times(
                {KafkaPartition(*tp): milliseconds for tp in partitions}
            )
        return {TopicPartition(*key): None if answer is None else answer.offset for key, answer in found.items()}

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except (kafka.errors.KafkaError, OSError) as error:
            raise away(self._settings["bootstrap_servers"], self._settings, error) from None


@contextmanager
def open_log(properties: Mapping[str, Any], isolation: str) -> Iterator[KafkaLog]:
    """Connect, and close at the end of the block.

    Raises:
        BrokerUnavailableError: no broker answers.
        ConfigError: the client does not take one of `properties`.
    """
    settings = to_kafka_python(properties)
    own = {
        "client_id": "inbound-replay",
        "group_id": None,
        "enable_auto_commit": False,
        "allow_auto_create_topics": False,
        "isolation_level": isolation,
        "bootstrap_timeout_ms": round(TIMEOUT * 1000),
    }
    try:
        consumer = kafka.KafkaConsumer(**{**settings, **own})
    except kafka.errors.KafkaConfigurationError as error:
        raise ConfigError(f"kafka: {error}") from None
    except (kafka.errors.KafkaError, OSError) as error:
        raise away(settings["bootstrap_servers"], settings, error) from None
    try:
        yield KafkaLog(consumer, settings)
    finally:
        consumer.close()
