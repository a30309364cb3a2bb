"""Deletes the beginning of partitions' logs, which is all that Kafka can delete of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kafka
import kafka.errors
from kafka.structs import TopicPartition as KafkaPartition

from inbound.errors import ConfigError
from inbound.kafka.connections import described
from inbound.kafka.kafka_python import away
from inbound.publishing.topics import settings_for

#: How long the leaders may take. Milliseconds.
TIMEOUT_MS = 30_000


def delete_before(properties: Mapping[str, Any], topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
    """Delete all records of `topic` before these offsets, by partition. Returns where each log begins now.

    Raises:
        ConfigError: the brokers refuse it. Single partitions may have been cut.
        BrokerUnavailableError: they do not answer. Asking again does no harm.
    """
    settings = settings_for(properties, kafka.KafkaAdminClient.DEFAULT_CONFIG)
    try:
        admin = kafka.KafkaAdminClient(**{**settings, "client_id": "inbound-dead-letters"})
    except kafka.errors.KafkaConfigurationError as error:
        raise ConfigError(f"kafka: {error}") from None
    except (kafka.errors.KafkaError, OSError) as error:
        raise away(settings.get("bootstrap_servers", ""), settings, error) from None
    found: dict[int, int] = {}
    try:
        for partition, offset in offsets.items():  # one by one: an error then says which
            key = KafkaPartition(topic, partition)
            try:
                answer = admin.delete_records({key: offset}, timeout_ms=TIMEOUT_MS)
            except kafka.errors.BrokerResponseError as error:
                raise ConfigError(_refused(topic, partition, offset, error, found)) from None
            found[partition] = int(answer[key]["low_watermark"])
    except (kafka.errors.KafkaError, OSError) as error:
        raise away(settings.get("bootstrap_servers", ""), settings, error) from None
    finally:
        admin.close()
    return found


def _refused(topic: str, partition: int, offset: int, error: Exception, done: Mapping[int, int]) -> str:
    what = f"{topic}/{partition}: the records before offset {offset} cannot be deleted"
    after = f"; partitions deleted before it: {', '.join(map(str, sorted(done)))}" if done else ""
    if isinstance(error, kafka.errors.PolicyViolationError):
        return (
            f"{what}: the topic is compacted (cleanup.policy), and Kafka deletes the beginning of a log only where that has "
            f"`delete` in it; set cleanup.policy=compact,delete, or let retention do it{after}"
        )
    if isinstance(error, (kafka.errors.TopicAuthorizationFailedError, kafka.errors.ClusterAuthorizationFailedError)):
        return f"{what}: this user may not; allow it DELETE on the topic{after}"
    return f"{what}: {described(error)}{after}"
