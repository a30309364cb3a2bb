"""What Kafka says of the topics to be archived."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import kafka
import kafka.errors

from inbound.errors import BrokerUnavailableError, ConfigError
from inbound.publishing.topics import CONNECT_TIMEOUT_MS, away, settings_for

#: What brokers without topic ids answer.
_NO_ID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as it is now."""

    topic_id: str | None  # None: the brokers are too old to have any
    starts: Mapping[int, int]  # of each partition: the first offset that the log has


class Topics:
    """Asks Kafka. Any thread; close it."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Raises ConfigError: properties that cannot be used. BrokerUnavailableError: no broker answers."""
        self._asking = threading.Lock()  # the clients are for one thread at a time
        self._settings = settings = settings_for(properties, kafka.KafkaConsumer.DEFAULT_CONFIG)
        try:
            self._admin = kafka.KafkaAdminClient(
                **{"client_id": "inbound-archive"}
                | {n: v for n, v in settings.items() if n in kafka.KafkaAdminClient.DEFAULT_CONFIG}
            )
            try:
                self._consumer = kafka.KafkaConsumer(**{**settings, "group_id": None, "enable_auto_commit": False})
            except BaseException:
                self._admin.close()
                raise
        except kafka.errors.KafkaConfigurationError as error:
            raise ConfigError(f"kafka: {error}") from None
        except (kafka.errors.KafkaError, OSError) as error:
            raise away(settings, error) from None

    def __enter__(self) -> Topics:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._consumer.close(autocommit=False, timeout_ms=3000)
        self._admin.close()

    def names(self) -> list[str]:
        """Return the topics that there are, but for Kafka's own."""
        try:
            with self._asking:
                return sorted(name for name in self._admin.list_topics() if not name.startswith("__"))
        except (kafka.errors.KafkaError, OSError) as error:
            raise away(self._settings, error) from None

    def state(self, topic: str) -> TopicState | None:
        """Return what a topic is like now; None if there is none of that name.

        Raises BrokerUnavailableError: the brokers do not answer, or refuse to say.
        """
        with self._asking:
            return self._state(topic)

    def _state(self, topic: str) -> TopicState | None:
        try:
            found = self._admin.describe_topics([topic])[0]
            if found["error_code"] == kafka.errors.UnknownTopicOrPartitionError.errno:
                return None
            if found["error_code"]:
                reason = kafka.errors.for_code(found["error_code"]).__name__
                raise BrokerUnavailableError(f"topic {topic}: the brokers say nothing of it ({reason})")
            keys = [kafka.TopicPartition(topic, part["partition_index"]) for part in found["partitions"]]
            starts = self._consumer.beginning_offsets(keys, timeout_ms=CONNECT_TIMEOUT_MS)
        except (kafka.errors.KafkaError, OSError) as error:
            raise away(self._settings, error) from None
        topic_id = str(found.get("topic_id") or _NO_ID)
        return TopicState(None if topic_id == _NO_ID else topic_id, {key.partition: starts[key] for key in keys})
