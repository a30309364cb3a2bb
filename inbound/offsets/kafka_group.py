"""Reads a consumer group's offsets and state from Kafka. Blocks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import kafka
import kafka.errors

from inbound.clock import Clock
from inbound.kafka.python.producer import client_settings
from inbound.kafka.python.topics import admin_client
from inbound.offsets.changes import OffsetsError
from inbound.topic_partition import TopicPartition

T = TypeVar("T")

#: The time limit for all answers, and the retry interval. Seconds. A new coordinator needs some seconds for its first answer.
ANSWER_SECONDS, _AGAIN = 15.0, 0.3
#: The states of groups without members.
_STOPPED = {"empty", "dead"}
#: Properties of servers and credentials; the others are a reader's.
_ENTRY = ("secret", "bootstrap.servers", "security.", "sasl.", "ssl.", "client.dns.lookup", "request.timeout.ms")
_NAMED = 10


@dataclass(frozen=True, kw_only=True)
class KafkaGroup:
    """A group that keeps its offsets in Kafka."""

    group: str
    state: str  # in the broker's words
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    def refuse_if_alive(self) -> None:
        """Raise OffsetsError unless the group is stopped."""
        if self.state.lower() not in _STOPPED:
            raise OffsetsError(
                f"Kafka's group {self.group}: is {self.state}: it has members, which go on committing; stop them, then take "
                "its offsets over"
            )


def read_kafka_group(
    properties: Mapping[str, Any], group: str, clock: Clock, seconds: float = ANSWER_SECONDS
) -> KafkaGroup:
    """Read a group from Kafka, with the configuration's properties for any client.

    A consumer that assigns its partitions itself, and only commits under the group's name, is no member: Kafka does not know
    whether it runs.

    Raises:
        OffsetsError: the group does not exist, or has no offsets.
        BrokerUnavailableError: the brokers do not answer, or refuse us.
        ConfigError: kafka-python does not take one of the properties.
    """
    settings = client_settings({name: value for name, value in properties.items() if name.startswith(_ENTRY)})
    where = settings.get("bootstrap_servers", "")
    deadline = clock.now() + seconds
    with admin_client({"bootstrap_timeout_ms": 5000, **settings, "client_id": "inbound-offsets"}) as admin:
        try:
            states = _ask(lambda: _states(admin), clock, deadline)
            if group not in states:
                raise OffsetsError(f"Kafka at {where} has no group {group!r}; it has: {_named(sorted(states))}")
            found = _ask(lambda: admin.list_group_offsets({group: None}), clock, deadline)[group]
            # Once more: a member may have joined in between.
            state = _ask(lambda: _states(admin), clock, deadline).get(group, states[group])
        except kafka.errors.BrokerResponseError as error:
            if error.retriable:
                raise
            raise OffsetsError(
                f"Kafka at {where} refuses to say what group {group} has: {error}; its ACLs have to allow DESCRIBE on the group"
            ) from None
    offsets = {TopicPartition(*key): at.offset for key, at in found.items() if at.offset >= 0}
    if not offsets:
        raise OffsetsError(f"Kafka's group {group}: has committed no offsets, so there is nothing to take over")
    return KafkaGroup(group=group, state=state, offsets=offsets)


def _ask(question: Callable[[], T], clock: Clock, deadline: float) -> T:
    """Ask until a coordinator answers, which may be elected or loading."""
    while True:
        try:
            return question()
        except kafka.errors.RetriableError:
            if clock.now() >= deadline:
                raise
            clock.wait(threading.Event(), _AGAIN)


def _states(admin: Any) -> dict[str, str]:
    """Return every group's state, from all brokers: each knows its own groups."""
    return {str(one["group_id"]): str(one.get("group_state") or "Unknown") for one in admin.list_groups()}


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (", ".join(names[:_NAMED]) + more) or "none"
