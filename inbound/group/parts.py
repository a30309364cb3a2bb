"""A membership's pieces, shared with its channel, and the group's pauses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inbound.clock import Clock
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.pauses import Pause
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.mirror.mirror import Mirror
from inbound.partition.journal import Journal
from inbound.partition.ledger_notes import LedgerNotes
from inbound.partition.meters import Meters
from inbound.partition.partition import Partition
from inbound.partition.schedule import Schedule
from inbound.partition.service import Service, Settings
from inbound.partition.topics import Topics


class PauseState:
    """The pauses of one channel.

    The controller writes it, workers ask it right before each delivery. A reading counts for its own connection: a
    pause that was set while the connection was lost is read before anything is delivered, and so is one that was set
    while a read was in flight.
    """

    def __init__(self, zk: ZooKeeper, schedule: Schedule) -> None:
        self._zk = zk
        self._schedule = schedule
        self._known_in = 0  # generation of the connection; 0: nothing is known
        self._doubts = 0
        #: The pauses of this member, as last read. Replaced as a whole.
        self.pauses: tuple[Pause, ...] = ()

    def allows(self) -> bool:
        """Whether a batch may be delivered now. Any thread."""
        connection = self._zk.connection
        return connection is not None and connection.generation == self._known_in and not self._schedule.paused

    def doubt(self) -> None:
        """Deliver nothing before the changed pauses are read again. Any thread."""
        self._doubts += 1
        self._known_in = 0

    @property
    def doubts(self) -> int:
        """The number of doubts so far, for `learned`: taken before a read."""
        return self._doubts

    def learned(self, generation: int, pauses: tuple[Pause, ...], doubts: int) -> bool:
        """Take in the pauses as read. Returns whether pausing changed.

        1. A read is answered; 2. a watch fires, for a change after it; 3. the answer comes here. So the read counts as
        knowledge only if no doubt came after it was sent; else the read that the watch asked for is newer.
        """
        self.pauses = pauses
        changed = self._schedule.paused != bool(pauses)
        self._schedule.set_paused(bool(pauses))
        if doubts == self._doubts and self._known_in != generation:
            self._known_in = generation
            if doubts != self._doubts:  # a watch fired between these lines
                self._known_in = 0
            self._schedule.hurry_all()  # also partitions that were put back while the pauses were unknown
        return changed


@dataclass(eq=False, kw_only=True)
class MemberParts:
    """A member's parts, shared with those that poll, deliver and commit.

    Made by `InboundKafkaChannel`.
    """

    name: str
    settings: Settings
    consumer_id: str
    clock: Clock
    zk: ZooKeeper
    paths: GroupPaths
    journal: Journal
    meters: Meters
    ledger_notes: LedgerNotes
    service: Service
    schedule: Schedule
    pause_state: PauseState
    mirror: Mirror
    #: Asks the controller to evaluate this channel's partitions again.
    evaluate: Callable[[], None]
    #: Asks the committer to look at its queue again: a partition's fence, or the session, has changed.
    wake_committer: Callable[[], None]


@dataclass(eq=False, kw_only=True)
class Reading:
    """The side of the channel's reader that its membership uses."""

    topics: Topics
    #: Partitions are about to be claimed: polls are short until then, so that reading begins at once.
    expect: Callable[[], None]
    #: Reads a partition that was just claimed.
    open: Callable[[Partition], None]
