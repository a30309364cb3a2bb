"""The protocol of the ingress's producer; each client has a file.

A record counts as written when all in-sync brokers have it. A record that the brokers refuse costs no other one: see
decision 53.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

from inbound.config import IngressConfig
from inbound.errors import ConfigError
from inbound.kafka.base import BrokerFigures
from inbound.processors.cloudevents_bridge import RecordParts

#: Called with the error, or None, and with the client's receipt of a written record.
Delivered = Callable[[Any, Any], object]
#: Seconds for a question about topics.
ASK_SECONDS = 3.0
#: Bytes that a client may need for a record besides its own.
OVERHEAD = 1024


class FailureCause(Enum):
    """The cause of a failed write; each has its answer."""

    AWAY = "Kafka did not acknowledge it"
    GIVEN_UP = "Kafka's client gave it up before it was acknowledged"
    FULL = "too much waits to be written"
    TOO_LARGE = "the topic does not take records of this size"
    INVALID = "the topic does not take such a record; a compacted one takes none without a partitionkey"
    FORBIDDEN = "the ingress may not write to it; give its Kafka user the right to"
    NO_TOPIC = "the topic is gone"
    BESIDE = "Kafka refused its whole batch, for another event in it"
    REFUSED = "the brokers refused it"


#: The causes by the error codes of Kafka's protocol, which both clients give.
CAUSES = {
    **dict.fromkeys((10, 18), FailureCause.TOO_LARGE),  # MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE
    **dict.fromkeys((32, 44, 87), FailureCause.INVALID),  # INVALID_TIMESTAMP, POLICY_VIOLATION, INVALID_RECORD
    29: FailureCause.FORBIDDEN,  # TOPIC_AUTHORIZATION_FAILED
    3: FailureCause.NO_TOPIC,  # UNKNOWN_TOPIC_OR_PARTITION
}


class Failure(NamedTuple):
    """The cause of a failed write, and the client's words for it."""

    cause: FailureCause
    text: str


class IngressProducer(Protocol):
    """Writes records; the event loop calls `send` and `poll`, which never wait."""

    name: str
    #: Causes that may belong to another record of the same batch, of which none is written then.
    of_batches: frozenset[FailureCause]

    def send(
        self, topic: str, records: Sequence[RecordParts], delivered: Sequence[Delivered], *, alone: bool = False
    ) -> tuple[int, Failure | None]:
        """Send records; a later `poll` calls the `delivered` of each.

        `alone`: each in its own batch. Returns how many were taken, and why the next one was not.
        """

    def poll(self) -> None:
        """Call `delivered` for records that were written, or failed."""

    def failure(self, error: Any) -> Failure:
        """Return the failure of an error of `delivered`."""

    def partition(self, receipt: Any) -> int:
        """Return the partition of a record's receipt."""

    def topics(self) -> frozenset[str]:
        """Return the existing topics, within `ASK_SECONDS`. Another thread.

        Raises:
            BrokerUnavailableError: Kafka does not answer.
        """

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic unless it exists. Another thread.

        Raises:
            BrokerUnavailableError: Kafka does not answer, or refuses.
            ConfigError: the client cannot be used.
        """

    def threads(self) -> Mapping[str, tuple[bool, float]]:
        """Return whether each of its threads lives, and its last step.

        The step is on the monotonic clock. Any thread.
        """

    def figures(self) -> Sequence[BrokerFigures]:
        """Return the client's figures of its requests, by broker. Any thread."""

    def close(self, seconds: float) -> None:
        """Write queued records, within `seconds`, and end."""


def make_producer(config: IngressConfig, properties: Mapping[str, Any]) -> IngressProducer:
    """Return the configured producer; confluent-kafka's needs no broker yet.

    Raises:
        ConfigError: it is not installed, or cannot use one of `properties`.
    """
    if config.linger >= config.delivery_timeout:
        raise ConfigError("ingress.linger: need less than ingress.delivery_timeout")
    installed = find_spec("confluent_kafka") is not None
    if config.client == "confluent-kafka" and not installed:
        raise ConfigError(
            "ingress.client: confluent-kafka is not installed; install it with: pip install 'inbound-kafka[fast]'"
        )
    if config.client == "confluent-kafka" or (config.client == "auto" and installed):
        from inbound.ingress.confluent_producer import ConfluentProducer  # the client is an extra

        return ConfluentProducer(config, properties)
    from inbound.ingress.kafka_python_producer import KafkaPythonProducer

    return KafkaPythonProducer(config, properties)
