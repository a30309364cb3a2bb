"""A channel's resources, and the pieces that its working parts share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inbound.clock import Clock
from inbound.controller.kafka_controller import KafkaController
from inbound.coordinators.nodes import MemberInfo
from inbound.group.parts import MemberParts
from inbound.kafka.base import LogClient
from inbound.ledger.base import Ledger
from inbound.mirror.plan import Connect
from inbound.processors.base import TopicWriter, no_topics
from inbound.processors.spans import NO_TRACING, Tracing
from inbound.runtime.driver import Wakeup
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    import asyncio

    from inbound.channel.committer import Committer  # it commits for many channels, and knows each by its parts
    from inbound.channel.failure_policy import DeadLetters
    from inbound.channel.shared import Shared


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The resources that a channel is given; each can be a fake."""

    clock: Clock
    controller: KafkaController
    wake_controller: Callable[[], None]
    committer: Committer  # of the controller's connection
    connect: Callable[[], LogClient]  # makes the Kafka client; raises BrokerUnavailableError while there is no broker
    ledger: Ledger
    degrade: bool = False
    dead_letters: DeadLetters | None = None
    open_topic: Callable[[str], TopicWriter] = no_topics  # makes what the processor publishes with
    owner_is_dead: Callable[[MemberInfo], bool] = lambda info: False
    connect_mirror: Connect | None = None  # makes the client that offsets are mirrored with
    new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None  # for an asynchronous processor; None: a real one
    shared: Shared | None = None  # the event loop and the readers shared with other channels
    tracing: Tracing = NO_TRACING


@dataclass(slots=True)
class Consumed:
    """One partition's totals in this process, over all its claims."""

    records: int = 0
    batches: int = 0


@dataclass(eq=False, kw_only=True)
class Parts(MemberParts):
    """The parts that poll, deliver and commit. Made by `InboundKafkaChannel`."""

    worker_wakeup: Wakeup
    committer: Committer  # of all channels on the connection
    #: The totals of each partition that was ever held.
    consumed: dict[TopicPartition, Consumed] = field(default_factory=dict)
    #: Written by the committer, read by any thread.
    commits_landed: int = 0
    commits_fenced: int = 0
    transactions: int = 0  # that carried one of its commits
