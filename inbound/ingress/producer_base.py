"""What the ingress needs of what writes its records. One file per client beside this one.

A record counts as written when all in-sync brokers have it. A record that the brokers refuse costs no other one: see
decision 53.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from inbound.kafka.broker_figures import BrokerFigures
from inbound.processors.cloudevents_bridge import RecordParts

#: Called with what went wrong, or None, and of a record that was written with the client's receipt.
Delivered = Callable[[Any, Any], object]
#: How long a question about topics may take. Seconds.
ASK_SECONDS = 3.0
#: What a client may need for a record besides its bytes.
OVERHEAD = 1024


class Cause(Enum):
    """Why a record was not written, as far as the answer depends on it."""

    AWAY = "Kafka did not acknowledge it"
    GIVEN_UP = "Kafka's client gave it up before it was acknowledged"
    FULL = "too much waits to be written"
    TOO_LARGE = "the topic does not take records of this size"
    INVALID = "the topic does not take such a record; a compacted one takes none without a partitionkey"
    FORBIDDEN = "the ingress may not write to it; give its Kafka user the right to"
    NO_TOPIC = "the topic is gone"
    BESIDE = "Kafka took nothing of what it was sent with, for another event in it"
    REFUSED = "the brokers refused it"


class Failure(NamedTuple):
    """Why a record was not written, and what the client said of it."""

    cause: Cause
    text: str


class Producer(Protocol):
    """Writes records. `send` and `poll` by the event loop's thread; neither ever waits."""

    name: str
    #: What can be said of a record for the sake of another one that shared its batch; none of the batch is written then.
    of_batches: frozenset[Cause]

    def send(
        self, topic: str, records: Sequence[RecordParts], delivered: Sequence[Delivered], *, alone: bool = False
    ) -> tuple[int, Failure | None]:
        """Take records; the `delivered` of each is called by a later `poll`. `alone`: each in a batch of its own.

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
