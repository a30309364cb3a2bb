"""What a Kafka group says to offsets that are written to it, and what writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from inbound.topic_partition import TopicPartition


class Kind(Enum):
    """Why offsets were not taken."""

    LIVE_GROUP = "live-group"  # the Kafka group has members: its offsets are theirs
    DENIED = "denied"  # an ACL
    COORDINATOR = "coordinator"  # the group's coordinator is about to be elected, or loads
    UNREACHABLE = "unreachable"  # no broker answers, or lets us in
    NO_TOPIC = "no-topic"  # the topic or partition is not there any more
    OTHER = "other"


#: Kafka's error codes; both clients say them. What is not here is OTHER, and UNREACHABLE where a client found it itself.
KINDS: Mapping[int, Kind] = {
    22: Kind.LIVE_GROUP,  # ILLEGAL_GENERATION
    23: Kind.LIVE_GROUP,  # INCONSISTENT_GROUP_PROTOCOL
    25: Kind.LIVE_GROUP,  # UNKNOWN_MEMBER_ID: what it mostly says
    27: Kind.LIVE_GROUP,  # REBALANCE_IN_PROGRESS
    68: Kind.LIVE_GROUP,  # NON_EMPTY_GROUP
    82: Kind.LIVE_GROUP,  # FENCED_INSTANCE_ID
    113: Kind.LIVE_GROUP,  # STALE_MEMBER_EPOCH
    29: Kind.DENIED,  # TOPIC_AUTHORIZATION_FAILED
    30: Kind.DENIED,  # GROUP_AUTHORIZATION_FAILED
    31: Kind.DENIED,  # CLUSTER_AUTHORIZATION_FAILED
    7: Kind.UNREACHABLE,  # REQUEST_TIMED_OUT
    14: Kind.COORDINATOR,  # COORDINATOR_LOAD_IN_PROGRESS
    15: Kind.COORDINATOR,  # COORDINATOR_NOT_AVAILABLE
    16: Kind.COORDINATOR,  # NOT_COORDINATOR
    3: Kind.NO_TOPIC,  # UNKNOWN_TOPIC_OR_PARTITION
    17: Kind.NO_TOPIC,  # INVALID_TOPIC_EXCEPTION
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one partition's offset was not taken."""

    kind: Kind
    said: str


#: The partitions whose offsets were not taken; those of the request that are not in it were.
Answer = Mapping[TopicPartition, Refusal]


#: Returns what came of a request; None while it is not answered. By the thread that sent it.
Asked = Callable[[], Answer | None]


class MirrorClient(Protocol):
    """A client of the brokers for one Kafka group; for one thread."""

    def send(self, offsets: Mapping[TopicPartition, int], wake: Callable[[], None]) -> Asked:
        """Write offsets, and return at once. `wake` is called when the answer is there, in any thread."""

    def close(self) -> None:
        """Close the connections; what has not been answered may never be."""


#: Makes the client for a Kafka group. Raises BrokerUnavailableError: no broker answers, or lets us in. May wait for it.
Connect = Callable[[str], MirrorClient]


#: The kinds of failure, all there from 0 on.
FAILURES = tuple(kind.value for kind in Kind)


@dataclass(frozen=True, kw_only=True)
class MirrorStatus:
    """What of a channel's offsets is in its Kafka group."""

    group: str
    state: str  # `mirroring`; `refused`: the group has members; `failing`
    problem: str | None = None  # why it is not mirroring
    waiting: int = 0  # partitions with an offset that Kafka does not have yet
    offsets_total: int = 0  # that Kafka took
    failures: dict[str, int] = field(default_factory=dict)  # requests that failed, in whole or in part, by kind
    last_success_age: float | None = None  # seconds since Kafka took offsets last; None: it never did


def refusal_of(code: int, said: str) -> Refusal:
    """Return what an error code of Kafka's protocol means for the mirror; below 0 it is a client's own."""
    return Refusal(Kind.UNREACHABLE if code < 0 else KINDS.get(code, Kind.OTHER), said)
