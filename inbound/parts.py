"""What the active parts of one channel share."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from inbound.clock import Clock
from inbound.config import ChannelConfig
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.driver import Wakeup
from inbound.errors import LedgerError
from inbound.ledger.base import Ledger
from inbound.pausing import Pausing
from inbound.processors.base import BatchEventProcessor
from inbound.schedule import Schedule
from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Totals:
    """What one partition amounted to in this process, over all the times that it was held."""

    records: int = 0
    batches: int = 0


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
    reader_wakeup: Wakeup
    committer_wakeup: Wakeup
    #: Ask the controller to look at this channel's partitions again.
    evaluate: Callable[[], None] = lambda: None
    stopping: threading.Event = field(default_factory=threading.Event)
    totals: dict[TopicPartition, Totals] = field(default_factory=dict)
    #: Why the ledger cannot be written; None while it can.
    ledger_problem: str | None = None
    #: Set for good once something was not recorded: the ledger proves nothing from here on.
    not_provable: bool = False
    pausing: Pausing = field(init=False)

    def __post_init__(self) -> None:
        self.pausing = Pausing(self.zk, self.schedule)

    def note(self, kind: str, tp: TopicPartition, epoch: int, **facts: Any) -> None:
        """Record an event of a partition; where the ledger cannot take it, say so, here and in status."""
        try:
            self.ledger.note(kind, **tp._asdict(), epoch=epoch, **facts)
        except LedgerError as error:
            log.error("%s: the ledger lacks %r: %s", tp, kind, error)
            self.ledger_problem = str(error)
            self.not_provable = True
