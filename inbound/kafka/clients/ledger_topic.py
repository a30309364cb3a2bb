"""Writes the ledger's topic: in order, acknowledged by all replicas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import kafka
import kafka.errors
from kafka.admin import ConfigResource, ConfigResourceType

from inbound.errors import LedgerError
from inbound.kafka.python.client import is_refused, why
from inbound.kafka.python.producer import LARGEST, client_settings
from inbound.ledger.kafka import LedgerProducer

#: Time limit for finding a broker, and the metadata that a first record needs. Milliseconds.
_BLOCK_MS = 5_000
#: The producer fails if a record is in flight for longer. Milliseconds.
_DELIVERY_MS = 15_000
#: Each record once and in order, on all replicas in sync, or an error.
_PRODUCER = {
    "acks": "all",
    "enable_idempotence": True,
    "allow_auto_create_topics": False,
    "max_block_ms": _BLOCK_MS,
    "delivery_timeout_ms": _DELIVERY_MS,
    "request_timeout_ms": _DELIVERY_MS - 1000,
    "max_request_size": LARGEST,
}
#: Replicas of each partition; fewer with fewer brokers.
_COPIES = 3


class KafkaLedgerTopic(LedgerProducer):
    """A producer that sends each record once, and in order, or fails."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        topic: str,
        client_id: str,
        *,
        partitions: int,
        replication_factor: int | None,
        retention: float,
    ) -> None:
        """Connect, and create the topic if it is missing.

        `properties` are Kafka's own, `retention` is in seconds.

        Raises:
            LedgerError: the brokers are unavailable or refuse, or the topic would delete entries.
        """
        self._topic = topic
        settings = self._settings = {
            **client_settings(properties),
            "client_id": client_id,
            "bootstrap_timeout_ms": _BLOCK_MS,
        }
        self._servers = settings["bootstrap_servers"]
        try:
            with closing(kafka.KafkaAdminClient(**settings)) as admin:
                self._prepare(admin, partitions, replication_factor, retention)
            self._producer = kafka.KafkaProducer(**{**settings, **_PRODUCER})
        except (kafka.errors.KafkaError, OSError) as error:
            raise self._error(error) from error

    def send(self, key: bytes, value: bytes, answered: Callable[[Exception | None], None]) -> None:
        try:
            future = self._producer.send(self._topic, key=key, value=value)
        except kafka.errors.KafkaError as error:
            raise self._error(error) from error
        future.add_callback(lambda metadata: answered(None))
        future.add_errback(lambda error: answered(self._error(error)))

    def close(self) -> None:
        self._producer.close(timeout=1)

    def _prepare(
        self, admin: kafka.KafkaAdminClient, partitions: int, replication_factor: int | None, retention: float
    ) -> None:
        if self._topic not in admin.list_topics():
            copies = replication_factor or min(_COPIES, len(admin.describe_cluster()["brokers"]))
            configs = {
                "cleanup.policy": "delete",
                "retention.ms": str(int(retention * 1000)),
                # With three replicas one may fail, and acknowledged entries are still in two places.
                "min.insync.replicas": str(min(2, copies) if copies > 2 else 1),
            }
            wanted = {"num_partitions": partitions, "replication_factor": copies, "configs": configs}
            try:
                admin.create_topics({self._topic: wanted}, wait_for_metadata=True)
            except kafka.errors.TopicAlreadyExistsError:
                admin.wait_for_topics([self._topic])  # another process was faster
            return
        try:
            found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, self._topic)], config_filter="all")
        except kafka.errors.KafkaError:
            return  # we may be allowed to write the topic, and not to describe it
        policy = _value_of(found, "cleanup.policy")
        if "compact" in policy:
            raise LedgerError(
                f"ledger topic {self._topic} at {self._servers}: its cleanup.policy is {policy}, which would delete entries; "
                "set it to delete, or choose another ledger.topic"
            )

    def _error(self, error: Exception) -> LedgerError:
        said = str(error) or type(error).__name__
        if is_refused(self._settings):
            return LedgerError(f"ledger topic {self._topic} at {self._servers}: {why(self._settings, error)}")
        advice = "check that its brokers run and have enough replicas in sync"
        if isinstance(
            error, (kafka.errors.TopicAuthorizationFailedError, kafka.errors.ClusterAuthorizationFailedError)
        ):
            advice = "allow this user to describe, create and write it"
        elif isinstance(error, kafka.errors.InvalidReplicationFactorError):
            advice = "set ledger.replication_factor to at most the number of brokers"
        return LedgerError(f"ledger topic {self._topic} at {self._servers}: {said}; {advice}")


def _value_of(found: Any, name: str) -> str:
    """Return a topic's setting in a result of `describe_configs`."""
    settings: Any = next((one for by_name in found.values() for one in by_name.values() if name in one), {name: {}})
    return str(settings[name].get("value") or "")
