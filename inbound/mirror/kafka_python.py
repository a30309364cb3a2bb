"""The mirror's client over kafka-python, which waits for no answer.

It writes offsets to a Kafka group without members, as administrators do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import kafka
import kafka.errors
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition

from inbound.errors import BrokerRefusedError, ConfigError
from inbound.kafka.python.client import is_refused, unavailable, why
from inbound.kafka.python.connections import described
from inbound.kafka.python.producer import client_settings
from inbound.mirror.plan import Answer, Asked, Connect, Kind, MirrorClient, RefusedOffset, refusal_of
from inbound.topic_partition import TopicPartition

#: The time limit for finding a broker, and for its answer. Seconds.
ANSWER_TIMEOUT = 5.0


def mirror_connector(client: str, properties: Mapping[str, Any], *, client_id: str) -> Connect:
    """Return a function that connects to a Kafka group.

    It reads mounted credentials when it is called. `client` is a channel's `reader.client`, `properties` are the configuration's.
    """

    def connect(group: str) -> MirrorClient:
        try:
            if client == "confluent-kafka":
                from inbound.mirror.confluent import ConfluentMirror  # an extra

                return ConfluentMirror(properties, group, client_id)
            return KafkaPythonMirror(properties, group, client_id)
        except ConfigError as error:
            # The properties were usable when the process began: a mounted file is gone, or has other contents.
            raise BrokerRefusedError(f"Kafka is not asked: {error}") from None

    return connect


class KafkaPythonMirror:
    """A `MirrorClient` over kafka-python, on its own daemon thread."""

    def __init__(self, properties: Mapping[str, Any], group: str, client_id: str) -> None:
        """Connect.

        Raises:
            BrokerUnavailableError: no broker answers.
            ConfigError: a file that `properties` name cannot be used.
        """
        self._group = group
        self._settings = client_settings(properties)
        milliseconds = round(ANSWER_TIMEOUT * 1000)
        bounds = {"request_timeout_ms": milliseconds, "bootstrap_timeout_ms": milliseconds}
        try:
            self._admin = kafka.KafkaAdminClient(**{**self._settings, **bounds, "client_id": client_id})
        except (kafka.errors.KafkaError, OSError) as error:
            raise unavailable(self._settings, error) from None

    def send(self, offsets: Mapping[TopicPartition, int], wake: Callable[[], None]) -> Asked:
        """See `MirrorClient`."""
        wanted = {KafkaPartition(*tp): OffsetAndMetadata(offset, "", None) for tp, offset in offsets.items()}
        # Not `alter_group_offsets`, which waits.
        asked = self._admin._manager.call_soon(self._admin._async_alter_group_offsets, self._group, wanted)
        asked.add_both(lambda _: wake())

        def answer() -> Answer | None:
            if not asked.is_done:
                return None
            if asked.exception is not None:
                return dict.fromkeys(offsets, self._refusal(asked.exception))
            return _refused(asked.value)

        return answer

    def close(self) -> None:
        """See `MirrorClient`."""
        self._admin.close()

    def _refusal(self, error: BaseException) -> RefusedOffset:
        if is_refused(self._settings):
            return RefusedOffset(Kind.UNREACHABLE, why(self._settings, error))
        code = error.errno if isinstance(error, kafka.errors.BrokerResponseError) else -1
        return refusal_of(code, described(error))


def _refused(found: Mapping[KafkaPartition, type[kafka.errors.BrokerResponseError]]) -> Answer:
    return {
        TopicPartition(*key): refusal_of(error.errno, error.__name__.removesuffix("Error"))
        for key, error in found.items()
        if error is not kafka.errors.NoError
    }
