"""The mirror's client over confluent-kafka's admin client, which returns futures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from inbound.kafka.confluent.settings import DEFAULTS, Credentials, admin_settings
from inbound.mirror.kafka_python import ANSWER_TIMEOUT
from inbound.mirror.plan import Answer, Asked, Kind, RefusedOffset, refusal_of
from inbound.topic_partition import TopicPartition


class ConfluentMirror:
    """A `MirrorClient` that keeps the credentials of its construction."""

    def __init__(self, properties: Mapping[str, Any], group: str, client_id: str) -> None:
        """Connects to nothing yet.

        Raises:
            BrokerRefusedError: there is no token.
            ConfigError: a file cannot be used.
        """
        self._group = group
        self._entry = Credentials(properties)
        self._entry.ready()
        self._admin = AdminClient(admin_settings({**DEFAULTS, "client.id": client_id, **self._entry.settings}))

    def send(self, offsets: Mapping[TopicPartition, int], wake: Callable[[], None]) -> Asked:
        """See `MirrorClient`."""
        wanted = [KafkaPartition(*tp, offset) for tp, offset in offsets.items()]
        request = ConsumerGroupTopicPartitions(self._group, wanted)
        (asked,) = self._admin.alter_consumer_group_offsets([request], request_timeout=ANSWER_TIMEOUT).values()
        asked.add_done_callback(lambda _: wake())
        return lambda: self._answer(asked, offsets) if asked.done() else None

    def close(self) -> None:
        """See `MirrorClient`."""
        self._admin.__exit__(None, None, None)  # it has no `close`

    def _answer(self, future: Future[ConsumerGroupTopicPartitions], offsets: Mapping[TopicPartition, int]) -> Answer:
        error = future.exception()
        if isinstance(error, KafkaException):
            self._admin.poll(0)  # calls `error_cb` with errors of its connections
            refused = self._entry.refused
            said = error.args[0]
            found = (
                refusal_of(said.code(), said.str())
                if refused is None
                else RefusedOffset(Kind.UNREACHABLE, str(refused))
            )
            return dict.fromkeys(offsets, found)
        if error is not None:
            return dict.fromkeys(offsets, RefusedOffset(Kind.OTHER, f"{type(error).__name__}: {error}"))
        self._entry.answered()
        return {
            TopicPartition(one.topic, one.partition): refusal_of(one.error.code(), one.error.str())
            for one in future.result().topic_partitions or ()
            if one.error is not None
        }
