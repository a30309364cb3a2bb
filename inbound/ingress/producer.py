"""The producer of the ingress's records.

One file per client beside this one.

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

#: Called with what went wrong, or None, and of a record that was written with the client's receipt.
Delivered = Callable[[Any, Any], object]
#: How long a question about topics may take. Seconds.
ASK_SECONDS = 3.0
#: What a client may need for a record besides its bytes.
OVERHEAD = 1024


class FailureCause(Enum):
    """The cause of a failed write, as far as the answer differs."""

    AWAY = "Kafka did not acknowledge it"
    GIVEN_UP = "Kafka's client gave it up before it was acknowledged"
    FULL = "too much waits to be written"
    TOO_LARGE = "the topic does not take records of this size"
    INVALID = "the topic does not take such a record; a compacted one takes none without a partitionkey"
    FORBIDDEN = "the ingress may not write to it; give its Kafka user the right to"
    NO_TOPIC = "the topic is gone"
    BESIDE = "Kafka refused its whole batch, for another event in it"
    REFUSED = "the brokers refused it"


#: What the error codes of Kafka's protocol mean, as both clients give them.
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


class RecordProducer(Protocol):
    """Writes records.

    `send` and `poll` by the event loop's thread; neither ever waits.
    """

    name: str
    #: What can be said of a record for the sake of another one that shared its batch; none of the batch is written then.
    of_batches: frozenset[FailureCause]

    def send(
        self, topic: str, records: Sequence[RecordParts], delivered: Sequence[Delivered], *, alone: bool = False
    ) -> tuple[int, Failure | None]:
        """Send records; a later `poll` calls the `delivered` of each. `alone`: each in its own batch.

        Returns how many were taken, and why the next one was not.
        """

    def poll(self) -> None:
        """Call what is to be called for records that were written, or failed."""

    def failure(self, error: Any) -> Failure:
        """Say what an error that `delivered` was given means."""

    def partition(self, receipt: Any) -> int:
        """Return the partition that a record was written to, by the receipt that `delivered` was given."""

    def topics(self) -> frozenset[str]:
        """Return the topics that exist. Another thread; may wait for `ASK_SECONDS`. Raises BrokerUnavailableError."""

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic, or find that it is there. Another thread. Raises BrokerUnavailableError, ConfigError."""

    def threads(self) -> Mapping[str, tuple[bool, float]]:
        """Return of each thread of ours whether it lives, and its last step on the monotonic clock. Any thread."""

    def figures(self) -> Sequence[BrokerFigures]:
        """Return what the client has measured of its requests, by broker. Any thread."""

    def close(self, seconds: float) -> None:
        """Write what can be written in so many seconds, and end."""


def make_producer(config: IngressConfig, properties: Mapping[str, Any]) -> RecordProducer:
    """Return the producer that `config` asks for; brokers need not be there yet for confluent-kafka.

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
