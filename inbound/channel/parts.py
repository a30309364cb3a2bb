"""The pieces of one channel, put together: for what takes part in its group, explains it, or changes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from inbound.channel.books import Books
from inbound.channel.commit import ChannelCommits
from inbound.channel.committer import Committer
from inbound.channel.delivery import Consumed
from inbound.channel.partition import Partition
from inbound.channel.schedule import Schedule
from inbound.channel.service import Service
from inbound.channel.settings import Settings
from inbound.clock import Clock
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.driver import Wakeup
from inbound.errors import PartitionLostError
from inbound.journal import Journal
from inbound.meters import Meters
from inbound.mirroring import Mirror
from inbound.pausing import Pausing
from inbound.topic_partition import TopicPartition


@dataclass(eq=False, kw_only=True)
class Parts:
    """One channel's pieces, made by `InboundKafkaChannel`; its working parts get theirs in `inbound.channel.composition`."""

    name: str
    settings: Settings
    consumer_id: str
    clock: Clock
    zk: ZooKeeper
    paths: GroupPaths
    journal: Journal
    meters: Meters
    books: Books
    service: Service
    schedule: Schedule
    pausing: Pausing
    mirror: Mirror
    worker_wakeup: Wakeup
    committer: Committer  # of all channels on the connection
    commits: ChannelCommits
    #: Ask the controller to look at this channel's partitions again.
    evaluate: Callable[[], None]
    #: What each partition that was ever held amounted to.
    consumed: dict[TopicPartition, Consumed] = field(default_factory=dict)

    def adopt(self, partition: Partition) -> None:
        """Take in a partition that was just claimed.

        Where a reset did not wait for the last claim's commit, and no callback ran in which the processor could have been
        told, it is told before anything else that what it keeps of that claim counts no more.
        """
        tp = partition.tp
        if self.schedule.take_untold(tp) is self.service.processor:  # else another one has taken over since
            error = PartitionLostError(*tp, "given up before its last commit was written; this is another claim of it")
            partition.callbacks.appendleft(
                lambda: (partition.served_by or self.service.processor).on_exception(tp, error)
            )
        self.schedule.adopt(partition)
