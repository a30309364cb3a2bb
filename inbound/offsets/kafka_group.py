"""A consumer group as Kafka keeps it: its offsets and its state. Blocks, within a time."""

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

#: How long the brokers may take together: a coordinator that was just elected, or never asked yet, needs some seconds.
ANSWER_SECONDS = 15.0
_AGAIN = 0.3
#: In these states a group has no members.
_STOPPED = {"empty", "dead"}
#: Properties that say where the brokers are, and how they let us in; the others are a reader's.
_ENTRY = ("secret", "bootstrap.servers", "security.", "sasl.", "ssl.", "client.dns.lookup", "request.timeout.ms")
_NAMED = 10


@dataclass(frozen=True, kw_only=True)
class KafkaGroup:
    """A group that keeps its offsets in Kafka."""

    group: str
    state: str  # as the broker calls it
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
    """Return what Kafka has of a group. `properties` are the configuration's, for whichever client.

    A consumer that assigns its partitions itself, and only commits under the group's name, is no member: Kafka does not
    tell whether it runs.

    Raises:
        OffsetsError: there is no such group, or it has no offsets.
        BrokerUnavailableError: the brokers do not answer, or do not let us in.
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
            # Asked for again: one that came between has members now.
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
    """Ask until there is an answer: a coordinator may just be elected, or its offsets be loaded."""
    while True:
        try:
            return question()
        except kafka.errors.RetriableError:
            if clock.now() >= deadline:
                raise
            clock.wait(threading.Event(), _AGAIN)


def _states(admin: Any) -> dict[str, str]:
    """Return the state of every group; all brokers are asked, for each knows those that it coordinates."""
    return {str(one["group_id"]): str(one.get("group_state") or "Unknown") for one in admin.list_groups()}


def _named(names: list[str]) -> str:
    if not names:
        return "none"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
