"""What the active parts of one channel share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from inbound.channel.failure_policy import describe
from inbound.channel.partition import Partition
from inbound.channel.schedule import Schedule
from inbound.clock import Clock
from inbound.config import ChannelConfig
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.driver import Wakeup
from inbound.errors import LedgerError, PartitionLostError
from inbound.journal import Journal
from inbound.kafka.mirror_base import Connect
from inbound.ledger.base import Ledger
from inbound.meters import Meters
from inbound.mirroring import Mirror
from inbound.pausing import Pausing
from inbound.processors.base import BatchEventProcessor, gives_starts, has_room, is_async
from inbound.processors.spans import NO_TRACING, Consumer, Tracing
from inbound.processors.stopping import StopEvent
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    from inbound.channel.committer import Committer


@dataclass(slots=True)
class Consumed:
    """What one partition amounted to in this process, over all the times that it was held."""

    records: int = 0
    batches: int = 0


@dataclass(slots=True)
class Commits:
    """What one channel's commits have come to. Written by the committer, read by any thread."""

    landed: int = 0
    fenced: int = 0
    transactions: int = 0  # that carried one of them


@dataclass(eq=False)
class Parts:
    """One channel's shared pieces, made in one place (`InboundKafkaChannel`) and handed to every active part."""

    name: str
    config: ChannelConfig
    consumer_id: str
    clock: Clock
    zk: ZooKeeper
    ledger: Ledger
    degrade: bool  # go on without the ledger when it cannot be written
    processor: BatchEventProcessor
    paths: GroupPaths
    schedule: Schedule
    worker_wakeup: Wakeup
    committer: Committer  # of all channels on the connection
    #: Ask the controller to look at this channel's partitions again.
    evaluate: Callable[[], None] = lambda: None
    #: What spans are asked for, if any are made.
    tracing: Tracing = NO_TRACING
    #: Makes the client that offsets are mirrored with; None: there is none.
    connect_mirror: Connect | None = None
    stopping: StopEvent = field(default_factory=StopEvent)
    totals: dict[TopicPartition, Consumed] = field(default_factory=dict)
    #: Why the ledger cannot be written; None while it can.
    ledger_problem: str | None = None
    #: Set for good once something was not recorded: the ledger proves nothing from here on.
    not_provable: bool = False
    _said_nothing: set[str] = field(default_factory=set, init=False)  # see `said`
    commits: Commits = field(default_factory=Commits, init=False)
    meters: Meters = field(default_factory=Meters, init=False)
    journal: Journal = field(init=False)
    pausing: Pausing = field(init=False)
    mirror: Mirror = field(init=False)
    asynchronous: bool = field(init=False)  # whether the processor's callbacks may be coroutines
    gives_starts: bool = field(init=False)  # whether the processor is to be asked where claims begin
    has_room: bool = field(init=False)  # whether it is to be asked how much it takes
    consumer: Consumer = field(init=False)  # who reads, as spans name it

    def __post_init__(self) -> None:
        self.journal = Journal(self.name, self.config.group, self.clock.wall)
        self.pausing = Pausing(self.zk, self.schedule)
        self.mirror = Mirror(self, self.connect_mirror)
        self.asynchronous = is_async(type(self.processor))
        self.gives_starts = gives_starts(type(self.processor))
        self.has_room = has_room(type(self.processor))
        self.consumer = Consumer(self.config.group, self.consumer_id)
        if type(self.processor).makes_spans:
            self.tracing = NO_TRACING  # its own are of single events

    def adopt(self, partition: Partition) -> None:
        """Take in a partition that was just claimed.

        Where a reset did not wait for the last claim's commit, and no callback ran in which the processor could have been
        told, it is told before anything else that what it keeps of that claim counts no more.
        """
        tp = partition.tp
        if self.schedule.take_untold(tp) is self.processor:  # else another one has taken over since
            error = PartitionLostError(*tp, "given up before its last commit was written; this is another claim of it")
            partition.callbacks.appendleft(lambda: (partition.served_by or self.processor).on_exception(tp, error))
        self.schedule.adopt(partition)

    def note(self, kind: str, tp: TopicPartition, epoch: int, **facts: Any) -> None:
        """Record an event of a partition; where the ledger cannot take it, say so, here and in status."""
        self.meters.noted(kind, facts, self.clock.now())
        try:
            self.ledger.note(kind, **tp._asdict(), epoch=epoch, **facts)
        except LedgerError as error:
            self.ledger_trouble(error, f"it lacks {kind!r} of {tp}")
            self.unrecorded(tp, epoch)

    def said(self, name: str) -> Mapping[Any, Any]:
        """Return what the processor's `status` or `waits` says; nothing where that fails, which is logged once. Any thread."""
        try:
            said: object = getattr(self.processor, name)()
            if isinstance(said, Mapping):
                return said
            why = f"it returned {said!r}"
        except Exception as error:
            why = describe(error)
        if name not in self._said_nothing:
            self._said_nothing.add(name)
            self.journal.note("callback-failed", f"{name} failed: {why}; what it says is left out", level=logging.ERROR)
        return {}

    def unrecorded(self, tp: TopicPartition, epoch: int) -> None:
        """Take note that something was done with a partition that is not in the ledger. Any thread."""
        self.not_provable = True
        self.ledger.lacks(*tp, epoch)

    def ledger_trouble(self, error: LedgerError, meanwhile: str) -> None:
        """Take note that the ledger cannot be written. Any thread."""
        if self.ledger_problem is None:
            self.journal.note("ledger-trouble", f"{error}; {meanwhile}", level=logging.ERROR)
        self.ledger_problem = str(error)

    def recorded(self) -> None:
        """Take note that the ledger can be written. Any thread."""
        if self.ledger_problem is not None:
            self.ledger_problem = None
            self.journal.note("ledger-over", "the ledger can be written again")
