"""What the active parts of one channel share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from inbound.clock import Clock
from inbound.config import ChannelConfig
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.driver import Wakeup
from inbound.ledger.base import Ledger
from inbound.processors.base import BatchEventProcessor
from inbound.schedule import Schedule
from inbound.topic_partition import TopicPartition


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
