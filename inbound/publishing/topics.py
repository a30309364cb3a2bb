"""Questions about a topic before and after publishing to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kafka
import kafka.errors

from inbound.errors import BrokerUnavailableError, ConfigError
from inbound.kafka.kafka_python import away as no_answer
from inbound.kafka.kafka_python import to_kafka_python

#: How long to look for a broker, and for an answer. Milliseconds.
CONNECT_TIMEOUT_MS = 10_000


def settings_for(properties: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Translate Kafka's property names for a client that knows `known`; those of a reader alone are left out.

    Raises ConfigError if no client of kafka-python has such a setting.
    """
    settings = {"bootstrap_timeout_ms": CONNECT_TIMEOUT_MS, **to_kafka_python(properties)}
    return {name: value for name, value in settings.items() if name in known}


def away(settings: Mapping[str, Any], error: Exception) -> BrokerUnavailableError:
    """Return the error for brokers that a client made with `settings` gets no answer of, or that do not let it in."""
    return no_answer(settings.get("bootstrap_servers", ""), settings, error)


def prepare_topic(
    properties: Mapping[str, Any], topic: str, *, create: bool = False, partitions: int | None = None
) -> int:
    """Return how many partitions `topic` has; with `create` it is made if it is missing, with so many `partitions`.

    Raises:
        ConfigError: it is missing and not to be created, cannot be created, or has another number of partitions.
        BrokerUnavailableError: no broker answers.
    """
    settings = settings_for(properties, kafka.KafkaAdminClient.DEFAULT_CONFIG)
    try:
        admin = kafka.KafkaAdminClient(**{"client_id": "inbound-publish", **settings})
    except kafka.errors.KafkaConfigurationError as error:
        raise ConfigError(f"kafka: {error}") from None
    except (kafka.errors.KafkaError, OSError) as error:
        raise away(settings, error) from None
    try:
        if topic not in admin.list_topics():
            if not create:
                raise ConfigError(
                    f"topic {topic}: does not exist; create it with --create (and --partitions N), or check the name"
                )
            _create(admin, topic, partitions)
        found = len(admin.describe_topics([topic])[0]["partitions"])
    except kafka.errors.BrokerResponseError as error:
        raise ConfigError(f"topic {topic}: the broker refused: {error}") from None
    except kafka.errors.KafkaError as error:
        raise away(settings, error) from None
    finally:
        admin.close()
    if partitions is not None and found != partitions:
        raise ConfigError(
            f"topic {topic}: has {found} partitions, not {partitions}; leave --partitions out, or take another topic"
        )
    return found


def _create(admin: kafka.KafkaAdminClient, topic: str, partitions: int | None) -> None:
    try:
        admin.create_topics({topic: {"num_partitions": partitions or -1}}, wait_for_metadata=True)
    except kafka.errors.TopicAlreadyExistsError:
        admin.wait_for_topics([topic])  # somebody was faster: as good


def log_ends(properties: Mapping[str, Any], topic: str, partitions: int) -> dict[int, int]:
    """Return the end of each partition's log: the offset that the next record will get.

    Raises BrokerUnavailableError: no broker answers.
    """
    settings = settings_for(properties, kafka.KafkaConsumer.DEFAULT_CONFIG)
    try:
        consumer = kafka.KafkaConsumer(**{**settings, "group_id": None, "enable_auto_commit": False})
        try:
            keys = [kafka.TopicPartition(topic, number) for number in range(partitions)]
            ends = consumer.end_offsets(keys, timeout_ms=CONNECT_TIMEOUT_MS)
            return {key.partition: int(ends[key]) for key in keys}
        finally:
            consumer.close(autocommit=False, timeout_ms=3000)
    except (kafka.errors.KafkaError, OSError) as error:
        raise away(settings, error) from None
