"""A member's part in a reset of offsets.

    /consumers/<group>/gates/<topic>    `open`, or the path of the reset that closed it

Partitions behind closed gates are released. A batch in a callback may end and is committed, as at a rebalance. A
partition that has not drained within `shutdown_timeout` is abandoned: it is released without a commit, as the reset
waits until no partition has an owner. Other topics go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from inbound.controller.reset_offset.command import decode
from inbound.coordinators.nodes import OPEN
from inbound.coordinators.paths import CommandPaths
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Watch, unavailable
from inbound.errors import InboundError
from inbound.group.claims import RETRY, Claims
from inbound.group.parts import MemberParts
from inbound.observe.status.status import ResetStatus
from inbound.partition.partition import Fate, Partition, Place
from inbound.topic_partition import TopicPartition


@dataclass(frozen=True)
class ClosedGate:
    """A gate that a reset has closed."""

    topic: str
    command: str  # the reset's path, or other text that an operator has written
    since: float  # Unix time; 0: not known

    @property
    def by_hand(self) -> bool:
        """Whether the gate names no reset: only an operator can open it."""
        return not self.command.startswith(f"{CommandPaths.RESETS}/")

    @property
    def name(self) -> str:
        """The reset's name."""
        return self.command.rpartition("/")[2]


log = logging.getLogger(__name__)


@dataclass
class _Command:
    """A reset that has closed a gate of ours."""

    watch: Watch
    step: str = ""  # as last read from its node; empty: not known


class ResetParticipant:
    """The resets of one channel. Controller's thread, but for `closed` and `status`."""

    def __init__(
        self, parts: MemberParts, tasks: Tasks, claims: Claims, *, changed: Callable[[], None],
        abandon: Callable[[Partition, str], None],
    ) -> None:  # fmt: skip
        """`changed` is called, on any thread, when a gate has changed."""
        self._parts = parts
        self._tasks = tasks
        self._claims = claims
        self._abandon = abandon
        self._changed = changed
        self._gates: dict[str, Watch] = {}  # by topic
        #: The topics whose gate is closed, as last read. Replaced as a whole, read by any thread.
        self.closed: Mapping[str, ClosedGate] = {}
        #: Topics whose gate was closed in this session of ZooKeeper: no member has partitions there to recover.
        self._emptied: set[str] = set()
        self._limited: set[Partition] = set()  # abandoned unless they drain in time
        self._stopped: set[Partition] = set()  # held when their gate was closed
        self._commands: dict[str, _Command] = {}

    def new_session(self) -> None:
        """Forget the gates of another session."""
        # Also gates that were closed when the connection was lost: they may have been opened since.
        self._emptied = set()

    def may_hurry(self, tp: TopicPartition) -> bool:
        """Whether an ownerless partition may be claimed during the quiet time.

        Other members may have lost their sessions, too, and must get their partitions back. But a reset that has opened
        its gate again waited until no member held any.
        """
        return tp.topic in self._emptied

    def may_have_moved(self, partition: Partition) -> bool:
        """Whether a reset may have moved the epoch of a held partition."""
        return partition in self._stopped

    def waits(self, partition: Partition) -> bool:
        """Whether a partition's closed gate keeps it ownerless in this session."""
        connection = self._parts.zk.connection
        return partition.tp.topic in self.closed and (
            connection is None or partition.fence.session != connection.session.id
        )

    # -- gates -------------------------------------------------------------------------------------------------------

    async def look(self, topics: Iterable[str] = ()) -> None:
        """Read the known gates, and those of `topics`, and obey them.

        Raises:
            TransientError: ZooKeeper did not answer.
        """
        before = self.closed
        await self._read_gates({*self._gates, *topics})
        closed = self.closed
        if closed or self._stopped:
            held = self._parts.schedule.held()
            self._stopped = {p for p in held if p in self._stopped or p.tp.topic in closed}
        if not closed and not before:
            return
        self._emptied |= set(closed)
        for topic in before.keys() ^ closed.keys():
            self._claims.backoff.forget(topic)  # a reset waits for its owner nodes, and writes offsets that can be read
        for topic, gate in closed.items():
            if topic not in before or before[topic].command != gate.command:
                text = (
                    f"reset {gate.name} has closed the gate of topic {topic}: its partitions are released, and claimed again when "
                    "it opens"
                )
                self._parts.journal.note(
                    "reset-stops",
                    self._by_hand(gate) if gate.by_hand else text,
                    level=logging.WARNING,
                    command=gate.command,
                )
        for topic in before.keys() - closed.keys():
            self._parts.journal.note(
                "reset-over", f"the gate of topic {topic} is open again: its partitions are claimed",
                command=before[topic].command,
            )  # fmt: skip
        self._commands = {
            g.command: self._commands.get(g.command) or _Command(Watch(partial(self._follow, g.command)))
            for g in closed.values()
        }
        for command in dict.fromkeys(gate.command for gate in closed.values() if not gate.by_hand):
            if not self._commands[command].watch.stands(self._parts.zk):
                self._follow(command)
        self._give_up()

    async def _read_gates(self, topics: Iterable[str]) -> None:
        """Read the gates of these topics that may have changed.

        1. A read is answered; 2. a reset closes the gate; 3. the watch fires, the answer comes here. The answer is old
        then, and the look that the watch asks for is newer: the watch has disarmed itself.
        """
        zk, paths = self._parts.zk, self._parts.paths
        if zk.connection is None:
            raise unavailable(f"look at the gates of {paths.root}")
        asked = []
        for topic in topics:
            watch = self._gates.setdefault(topic, Watch(self._changed))
            if not watch.stands(zk):
                asked.append((topic, watch.get(zk, paths.gate(topic))))
        closed = dict(self.closed)
        try:
            for topic, call in asked:
                closed.pop(topic, None)
                node = await call
                if node is not None and node.data != OPEN:  # no reset has closed a gate that does not exist yet
                    closed[topic] = ClosedGate(topic, node.data.decode(errors="replace"), node.stat.mtime)
        except BaseException:
            for topic, _ in asked:
                self._gates[topic].forget()
            raise
        self.closed = closed

    def _give_up(self) -> None:
        """Begin to release our partitions of topics whose gate is closed.

        A partition without an owner node in this session stays, and its commit waits: nothing of it is delivered, the
        reset does not wait for it, and a commit that lands now would not be among the old offsets that it has read.
        When the gate opens, the partition is either recovered under its epoch (the reset has left it alone), or the
        epoch says that it was moved.
        """
        connection = self._parts.zk.connection
        if connection is None or self._claims.leaving:
            return
        for partition in self._parts.schedule.held():
            if partition.tp.topic in self.closed and partition.fence.session == connection.session.id:
                if partition.fate is Fate.KEEP:
                    self._claims.release(partition)
                self._limit(partition)  # also a lost partition: its owner node stays while its callback hangs

    # -- partitions that do not drain --------------------------------------------------------------------------------

    def _limit(self, partition: Partition) -> None:
        if partition not in self._limited:
            self._limited.add(partition)
            self._tasks.spawn(self._abandon_late(partition), f"limit of {partition.tp}")

    async def _abandon_late(self, partition: Partition) -> None:
        try:
            await self._tasks.sleep(self._parts.settings.now.shutdown_timeout)
            while self._must_go(partition):
                connection = self._parts.zk.connection
                if connection is not None and connection.session.id == partition.fence.session:
                    await self._abandon_one(partition)
                    return
                await self._tasks.sleep(RETRY)
        finally:
            self._limited.discard(partition)

    def _must_go(self, partition: Partition) -> bool:
        over = partition.place in (Place.LEAVING, Place.GONE, Place.ABANDONED) or self._claims.leaving
        return not over and partition.tp.topic in self.closed

    async def _abandon_one(self, partition: Partition) -> None:
        gate = self.closed[partition.tp.topic]
        self._abandon(partition, f"while reset {gate.name} waits for it")
        await self._claims.release_abandoned(partition)

    # -- status ------------------------------------------------------------------------------------------------------

    def status(self) -> list[ResetStatus]:
        """Return the resets that stall partitions. Any thread."""
        return [
            ResetStatus(name=g.name, topic=g.topic, step=self._step(g), since=g.since)
            for g in sorted(self.closed.values(), key=lambda gate: gate.topic)
        ]

    def _by_hand(self, gate: ClosedGate) -> str:
        return (
            f"the gate of topic {gate.topic} holds {gate.command[:60]!r}, which is no reset, so no reset opens it; write `open` "
            f"into {self._parts.paths.gate(gate.topic)}"
        )

    def _step(self, gate: ClosedGate) -> str:
        if gate.by_hand:
            return self._by_hand(gate)
        known = self._commands.get(gate.command)
        return known.step if known is not None else ""

    def _follow(self, command: str) -> None:
        self._tasks.spawn(self._read(command), f"look at {command}")  # any thread: a watch reports each step

    async def _read(self, command: str) -> None:
        known = self._commands.get(command)
        if known is None:
            return  # its gate has been opened
        try:
            node = await known.watch.get(self._parts.zk, command)
            known.step = "its command is gone" if node is None else decode(command, node).state.value
        except InboundError as error:
            log.debug("%s: %s; read again at the next evaluation", command, error)
