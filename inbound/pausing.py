"""Whether the partitions of a channel may be handed out, as the pauses of its group say."""

from __future__ import annotations

from inbound.channel.schedule import Schedule
from inbound.coordinators.pauses import Pause
from inbound.coordinators.zookeeper import ZooKeeper


class Pausing:
    """What one channel knows of pauses. The controller writes it, workers ask it right before each hand-out.

    What is known counts for the connection that it was read on: whoever paused while we were away is heard of before
    anything is handed out, and so is who pauses while a read is on its way.
    """

    def __init__(self, zk: ZooKeeper, schedule: Schedule) -> None:
        self._zk = zk
        self._schedule = schedule
        self._known_in = 0  # generation of the connection; 0: nothing is known
        self._doubts = 0
        #: Those that concern this member, as last read. Replaced as a whole.
        self.pauses: tuple[Pause, ...] = ()

    def allows(self) -> bool:
        """Whether a batch may be handed out now. Any thread."""
        connection = self._zk.connection
        return connection is not None and connection.generation == self._known_in and not self._schedule.paused

    def doubt(self) -> None:
        """Something has changed: nothing is handed out before the pauses have been read again. Any thread."""
        self._doubts += 1
        self._known_in = 0

    @property
    def doubts(self) -> int:
        """To be taken before a read, and given to `learned` with what it answered."""
        return self._doubts

    def learned(self, generation: int, pauses: tuple[Pause, ...], doubts: int) -> bool:
        """Take note of what was read. Returns whether the channel is paused now and was not, or the other way round.

        1. A read is answered; 2. a watch fires, for a change after it; 3. the answer comes here. So the read counts as
        knowledge only if nobody has doubted since before it; else the look that the watch asked for says more.
        """
        self.pauses = pauses
        changed = self._schedule.paused != bool(pauses)
        self._schedule.set_paused(bool(pauses))
        if doubts == self._doubts and self._known_in != generation:
            self._known_in = generation
            if doubts != self._doubts:  # a watch fired between these lines
                self._known_in = 0
            self._schedule.hurry_all()  # those that were put back while nothing was known
        return changed
