"""Creates topics, counts their partitions, and deletes their first records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import kafka
import kafka.errors
from kafka.structs import TopicPartition as KafkaPartition

from inbound.errors import ConfigError
from inbound.kafka.python.client import errors_of, to_kafka_python
from inbound.kafka.python.connections import described

#: The time limit for finding a broker, and for its answer. Milliseconds.
CONNECT_TIMEOUT_MS = 10_000


def settings_for(properties: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Translate Kafka's properties for a client with the settings `known`.

    Properties of a reader alone are left out. Raises ConfigError if no client of kafka-python has such a setting.
    """
    settings = {"bootstrap_timeout_ms": CONNECT_TIMEOUT_MS, **to_kafka_python(properties)}
    return {name: value for name, value in settings.items() if name in known}


@contextmanager
def admin_client(settings: Mapping[str, Any]) -> Iterator[Any]:
    """Yield an admin client, and close it; raises as `errors_of` does."""
    with errors_of(settings), closing(kafka.KafkaAdminClient(**settings)) as admin:
        yield admin


@contextmanager
def consumer_of(settings: Mapping[str, Any]) -> Iterator[Any]:
    """Yield a consumer without a group, and close it."""
    consumer = kafka.KafkaConsumer(**{**settings, "group_id": None, "enable_auto_commit": False})
    try:
        yield consumer
    finally:
        consumer.close(autocommit=False, timeout_ms=3000)


def prepare_topic(
    properties: Mapping[str, Any], topic: str, *, create: bool = False, partitions: int | None = None
) -> int:
    """Return a topic's number of partitions, and create it if wanted.

    `create` creates a missing topic, with `partitions`, or the brokers' default number.

    Raises:
        ConfigError: the topic is missing without `create`, cannot be created, or has other than `partitions`.
        BrokerUnavailableError: no broker answers.
    """
    settings = settings_for(properties, kafka.KafkaAdminClient.DEFAULT_CONFIG)
    with admin_client({"client_id": "inbound-publish", **settings}) as admin:
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
    if partitions is not None and found != partitions:
        raise ConfigError(
            f"topic {topic}: has {found} partitions, not {partitions}; leave --partitions out, or take another topic"
        )
    return found


def _create(admin: kafka.KafkaAdminClient, topic: str, partitions: int | None) -> None:
    try:
        admin.create_topics({topic: {"num_partitions": partitions or -1}}, wait_for_metadata=True)
    except kafka.errors.TopicAlreadyExistsError:
        admin.wait_for_topics([topic])  # another process was faster


def log_ends(properties: Mapping[str, Any], topic: str, partitions: int) -> dict[int, int]:
    """Return each log's end: the offset of the next record.

    Raises BrokerUnavailableError: no broker answers.
    """
    settings = settings_for(properties, kafka.KafkaConsumer.DEFAULT_CONFIG)
    with errors_of(settings), consumer_of(settings) as consumer:
        keys = [kafka.TopicPartition(topic, number) for number in range(partitions)]
        ends = consumer.end_offsets(keys, timeout_ms=CONNECT_TIMEOUT_MS)
        return {key.partition: int(ends[key]) for key in keys}


#: The leaders' time limit for a deletion. Milliseconds.
TIMEOUT_MS = 30_000


def delete_before(properties: Mapping[str, Any], topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
    """Delete records before offsets, by partition; return the logs' new starts.

    Raises:
        ConfigError: the brokers refuse. The records of some partitions may be deleted.
        BrokerUnavailableError: the brokers do not answer. Another attempt is safe.
    """
    settings = settings_for(properties, kafka.KafkaAdminClient.DEFAULT_CONFIG)
    found: dict[int, int] = {}
    with admin_client({**settings, "client_id": "inbound-dead-letters"}) as admin:
        for partition, offset in offsets.items():  # one by one, so that an error names its partition
            key = KafkaPartition(topic, partition)
            try:
                answer = admin.delete_records({key: offset}, timeout_ms=TIMEOUT_MS)
            except kafka.errors.BrokerResponseError as error:
                raise ConfigError(_refused(topic, partition, offset, error, found)) from None
            found[partition] = int(answer[key]["low_watermark"])
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
