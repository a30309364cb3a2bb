"""A member's part in a reset of offsets: while a gate is closed it gives up that topic's partitions, and takes none.

Each batch in a callback may end and is committed, as at a rebalance. What has not come to its end within `shutdown_timeout`
is abandoned: its partition is released without a commit, for the reset waits until nobody owns any. Other topics go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from inbound.channel.books import Books
from inbound.channel.partition import Fate, Partition, Place
from inbound.channel.schedule import Schedule
from inbound.channel.settings import Settings
from inbound.controller.reset_offset.command import decode
from inbound.coordinators.paths import CommandPaths, GroupPaths
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.watch import Watch
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.errors import InboundError, TransientError
from inbound.gates import ClosedGate, Gates
from inbound.holdings import AFTER_ERROR, RETRY, Holdings
from inbound.journal import Journal
from inbound.status import ResetStatus
from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)

#: What a gate names that a reset has closed begins so; anything else was written by hand.
_COMMANDS = f"{CommandPaths.RESETS}/"


@dataclass
class _Command:
    """A reset that has closed a gate of ours."""

    watch: Watch
    step: str = ""  # as its node said last; empty: not known


class Resets:
    """One channel's. Controller's thread, but for `closed` and `status`."""

    def __init__(
        self, *, settings: Settings, zk: ZooKeeper, paths: GroupPaths, journal: Journal, books: Books, schedule: Schedule,
        evaluate: Callable[[], None], tasks: Tasks, holdings: Holdings, changed: Callable[[], None],
    ) -> None:  # fmt: skip
        """`changed` is called, by any thread, when the channel is to be looked at because of a gate."""
        self._settings = settings
        self._zk = zk
        self._paths = paths
        self._journal = journal
        self._books = books
        self._schedule = schedule
        self._evaluate = evaluate
        self._tasks = tasks
        self._holdings = holdings
        holdings.may_be_reset = lambda partition: partition in self._stopped
        self._gates = Gates(zk, paths, changed)
        #: Topics whose gate was seen closed in this session of ZooKeeper: nobody has anything there to get back.
        self._emptied: set[str] = set()
        self._limited: set[Partition] = set()  # those whose time is running
        self._stopped: set[Partition] = set()  # those that were held when their gate was closed
        self._commands: dict[str, _Command] = {}

    @property
    def closed(self) -> Mapping[str, ClosedGate]:
        """The topics whose gate is closed, as last seen. Any thread."""
        return self._gates.closed

    def new_session(self) -> None:
        """What was seen in another session counts no more."""
        self._emptied = set()  # also what was closed when we were cut off: it may have been opened meanwhile

    def may_hurry(self, tp: TopicPartition) -> bool:
        """Whether a partition that has no owner may be taken before the quiet time of a new session is over.

        Others may have lost their sessions, too, and are to get back what they held. But a reset that has opened its gate
        again waited until nobody held anything.
        """
        return tp.topic in self._emptied

    def waits(self, partition: Partition) -> bool:
        """Whether it has no owner node in this session, and cannot have one before its gate opens."""
        connection = self._zk.connection
        return partition.tp.topic in self.closed and (
            connection is None or partition.fence.session != connection.session.id
        )

    # -- gates -------------------------------------------------------------------------------------------------------

    async def look(self, topics: Iterable[str] = ()) -> None:
        """Learn how the gates stand: of what was looked at before, and of `topics`; then see to it that they are obeyed.

        Raises:
            TransientError: ZooKeeper did not answer.
        """
        before = self._gates.closed
        await self._gates.look({*self._gates.known, *topics})
        closed = self._gates.closed
        if closed or self._stopped:
            held = self._schedule.held()
            self._stopped = {p for p in held if p in self._stopped or p.tp.topic in closed}
        if not closed and not before:
            return
        self._emptied |= set(closed)
        for topic in before.keys() ^ closed.keys():
            self._holdings.backoff.forget(
                topic
            )  # a reset waits for its owner nodes, and writes offsets that can be read
        for topic, gate in closed.items():
            if topic not in before or before[topic].command != gate.command:
                text = (
                    f"reset {gate.name} has closed the gate of topic {topic}: its partitions are given up, and taken again when it "
                    "opens"
                )
                self._journal.note(
                    "reset-stops",
                    self._by_hand(gate) if gate.by_hand else text,
                    level=logging.WARNING,
                    command=gate.command,
                )
        for topic in before.keys() - closed.keys():
            self._journal.note(
                "reset-over", f"the gate of topic {topic} is open again: its partitions are taken",
                command=before[topic].command,
            )  # fmt: skip
        self._commands = {
            g.command: self._commands.get(g.command) or _Command(Watch(partial(self._follow, g.command)))
            for g in closed.values()
        }
        for command, known in self._commands.items():
            if not known.watch.stands(self._zk) and command.startswith(_COMMANDS):
                self._follow(command)
        self._give_up()

    def _give_up(self) -> None:
        """Begin to release what is ours of topics whose gate is closed.

        What has no owner node in this session stays as it is, and its commit waits: nothing of it is handed out, the reset
        does not wait for it, and a commit that lands now would not be among the old offsets that it has read. When the gate
        opens, it is either got back under its epoch (the reset has left it alone), or the epoch says that it was moved.
        """
        connection = self._zk.connection
        if connection is None or self._holdings.leaving:
            return
        for partition in self._schedule.held():
            if partition.tp.topic in self.closed and partition.fence.session == connection.session.id:
                if partition.fate is Fate.KEEP:
                    self._holdings.release(partition)
                self._limit(partition)  # also what was lost: its node stands as long as its callback hangs

    # -- what does not end -------------------------------------------------------------------------------------------

    def _limit(self, partition: Partition) -> None:
        if partition not in self._limited:
            self._limited.add(partition)
            self._tasks.spawn(self._abandon_late(partition), f"limit of {partition.tp}")

    async def _abandon_late(self, partition: Partition) -> None:
        """Abandon a partition that has not drained in time, and take its owner node down all the same."""
        try:
            await self._tasks.sleep(self._settings.now.shutdown_timeout)
            while self._must_go(partition):
                connection = self._zk.connection
                if connection is not None and connection.session.id == partition.fence.session:
                    await self._abandon(partition)
                    return
                await self._tasks.sleep(RETRY)
        finally:
            self._limited.discard(partition)

    def _must_go(self, partition: Partition) -> bool:
        """Whether it still stands in the way of a reset: neither drained, nor has the gate been opened meanwhile."""
        over = partition.place in (Place.LEAVING, Place.GONE, Place.ABANDONED) or self._holdings.leaving
        return not over and partition.tp.topic in self.closed

    async def _abandon(self, partition: Partition) -> None:
        gate = self.closed[partition.tp.topic]
        self._holdings.abandon(partition, f"while reset {gate.name} waits for it")
        while True:
            try:
                await self._holdings.free(partition)
                break
            except TransientError as error:
                log.debug("%s: %s", partition.tp, error)
                await self._tasks.sleep(RETRY)
            except InboundError as error:
                self._journal.note(
                    "stuck", f"cannot be released: {error}; trying again in {AFTER_ERROR:.0f} s", partition.tp,
                    epoch=partition.fence.epoch, level=logging.ERROR,
                )  # fmt: skip
                await self._tasks.sleep(AFTER_ERROR)
        self._books.note("released", partition.tp, partition.fence.epoch, abandoned=True)
        self._evaluate()

    # -- for people --------------------------------------------------------------------------------------------------

    def status(self) -> list[ResetStatus]:
        """Return the resets because of which partitions stand still. Any thread."""
        return [
            ResetStatus(name=g.name, topic=g.topic, step=self._step(g), since=g.since)
            for g in sorted(self.closed.values(), key=lambda gate: gate.topic)
        ]

    def _by_hand(self, gate: ClosedGate) -> str:
        return (
            f"the gate of topic {gate.topic} holds {gate.command[:60]!r}, which is no reset, so nobody opens it; write `open` "
            f"into {self._paths.gate(gate.topic)}"
        )

    def _step(self, gate: ClosedGate) -> str:
        if gate.by_hand:
            return self._by_hand(gate)
        known = self._commands.get(gate.command)
        return known.step if known is not None else ""

    def _follow(self, command: str) -> None:
        """See how far a reset has come. Any thread: its node's watch tells of each step."""
        self._tasks.spawn(self._read(command), f"look at {command}")

    async def _read(self, command: str) -> None:
        known = self._commands.get(command)
        if known is None:
            return  # its gate has been opened
        try:
            node = await known.watch.get(self._zk, command)
            known.step = "its command is gone" if node is None else decode(command, node).state.value
        except InboundError as error:
            log.debug("%s: %s; read again at the next evaluation", command, error)


def emptied(closed: Collection[str], topics: Mapping[str, int]) -> frozenset[TopicPartition]:
    """Return the partitions that nobody can have now, for their topic's gate is closed."""
    return frozenset(TopicPartition(t, p) for t in closed for p in range(topics.get(t, 0)))
