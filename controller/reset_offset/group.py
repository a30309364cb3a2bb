"""What stands in ZooKeeper about the group that a reset moves: read in rounds, written by the reconciler alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from inbound.controller.reset_offset.command import PATHS, ResetCommand, decode
from inbound.controller.reset_offset.model import RefInfo, TopicLog
from inbound.controller.reset_offset.moves import Epoch, read_epoch
from inbound.controller.reset_offset.states import FINISHED, HOLDING
from inbound.coordinators.nodes import OPEN, BadNodeError, decode_offset
from inbound.coordinators.ownership import Ownership
from inbound.coordinators.paths import GroupPaths, path_part
from inbound.coordinators.zookeeper import Node, RefusedError, SetData, ZooKeeper
from inbound.errors import ConfigError, ResetError

T = TypeVar("T")

#: So many nodes are asked for at a time: all of them have to be answered within one request's time.
TOGETHER = 500
#: So many names stand in one message.
NAMED = 20


class GroupNodes:
    """The nodes of one (group, topic). Controller's thread; methods raise TransientError where ZooKeeper does not answer."""

    def __init__(self, zk: ZooKeeper, info: RefInfo) -> None:
        """Raises ConfigError if group or topic cannot be names of nodes."""
        self.zk = zk
        self.topic = path_part(info.topic, "topic")
        self.group = info.group
        self.paths = GroupPaths(info.group)
        self._ownership = Ownership(zk, info.group, "reset")

    async def check_known(self) -> None:
        """Refuse a group that never was, or never had this topic: a slip of the pen would else make a new one.

        Raises:
            ResetError: it is not known; the message says what there is.
        """
        if await self.zk.get(self.paths.offsets(self.topic)) is not None:
            return
        topics = await self.zk.children(self.paths.all_offsets)
        if topics is None:
            groups = await self.zk.children(GroupPaths.GROUPS) or ()
            raise ResetError(
                f"group {self.group}: there is none; ZooKeeper has {_named(groups, 'groups')}. A group comes about when its "
                "first consumer starts"
            )
        raise ResetError(
            f"group {self.group}: has no offsets of topic {self.topic}; it has offsets of {_named(topics, 'topics')}"
        )

    async def ensure(self, log: TopicLog) -> None:
        """Make the nodes of partitions that nobody has claimed yet. Each is asked for once."""
        await self._ownership.ensure(self.topic, max(log.ranges, default=-1) + 1)

    async def mend(self, log: TopicLog) -> None:
        """Make again what somebody has deleted."""
        self._ownership = Ownership(self.zk, self.group, "reset")
        await self.ensure(log)

    async def gate(self) -> Node | None:
        """Read the gate."""
        return await self.zk.get(self.paths.gate(self.topic))

    async def members(self) -> tuple[str, ...]:
        """Return the consumer ids that are registered now."""
        return tuple(sorted(await self.zk.children(self.paths.ids) or ()))

    async def owned(self) -> frozenset[int]:
        """Return the partitions that have an owner node."""
        names = await self.zk.children(self.paths.owners(self.topic))
        return frozenset(int(name) for name in names or () if name.isdigit())

    async def epochs(self, partitions: Collection[int]) -> dict[int, Epoch]:
        """Read epoch nodes; those that are missing are missing in the answer."""
        nodes = await self._read(partitions, self.paths.epoch)
        return {p: read_epoch(self.paths.epoch(self.topic, p), node) for p, node in nodes.items() if node is not None}

    async def offsets(self, partitions: Collection[int]) -> dict[int, int | None]:
        """Read the group's offsets; None where there is none.

        Raises:
            BadNodeError: a node holds no offset.
        """
        nodes = await self._read(partitions, self.paths.offset)
        return {
            p: None if node is None else decode_offset(self.paths.offset(self.topic, p), node.data)
            for p, node in nodes.items()
        }

    async def _read(self, partitions: Collection[int], path: Callable[[str, int], str]) -> dict[int, Node | None]:
        found: dict[int, Node | None] = {}
        wanted = sorted(partitions)
        for start in range(0, len(wanted), TOGETHER):
            calls = [(p, self.zk.get(path(self.topic, p))) for p in wanted[start : start + TOGETHER]]
            for partition, call in calls:
                found[partition] = await call
        return found


def about(committed: dict[int, int | None], epochs: dict[int, Epoch], topic_id: str | None) -> dict[int, int | None]:
    """Return the offsets that are about the topic with that id; those about a former one of its name count as none."""
    former = {p for p, epoch in epochs.items() if not epoch.info.is_about(topic_id)}
    return {p: None if p in former else offset for p, offset in committed.items()}


def heard_of_a_former(epochs: dict[int, Epoch], topic_id: str | None) -> bool:
    """Whether the group knows that the topic with that id was deleted: whoever named it has old metadata."""
    return topic_id is not None and any(epoch.info.knows_as_former(topic_id) for epoch in epochs.values())


def ahead_of(command: ResetCommand, commands: Iterable[ResetCommand]) -> ResetCommand | None:
    """Return the reset of the same group that goes first, if it is another one.

    One that has begun goes on; else the one that was submitted first.
    """
    if command.info is None:
        return None
    group = [c for c in commands if c.info is not None and c.info.group == command.info.group and not c.finished]
    first = min(group, key=lambda c: (c.state not in HOLDING, c.czxid, c.name), default=command)
    return None if first.name == command.name else first


async def open_abandoned(zk: ZooKeeper, path: str) -> str | None:
    """Open a gate whose reset is gone: deleted by hand, or ended. Returns the path of that reset; None: nothing was done.

    A command's path is never used again, and a gate is closed only together with a change of its command. So a gate whose
    command is missing, or has ended, is closed by nobody any more, and nobody will open it: any number may do it. The gate's
    version keeps a late attempt from opening it for the next reset.

    Raises:
        TransientError: ZooKeeper does not answer.
    """
    gate = await zk.get(path)
    if gate is None or gate.data == OPEN:
        return None
    closed_by = gate.data.decode(errors="replace")
    if not closed_by.startswith(f"{PATHS.RESETS}/") or "/" in closed_by[len(PATHS.RESETS) + 1 :]:
        return None  # closed by something that we do not know
    node = await zk.get(closed_by)
    if node is not None:
        try:
            if decode(closed_by, node).state not in FINISHED:
                return None
        except BadNodeError:
            return None  # of a later version, it may be: whoever can read it opens the gate
    try:
        await zk.transaction([SetData(path, OPEN, gate.stat.version)])
    except RefusedError:
        return None  # somebody was faster
    return closed_by


def checked(zk: ZooKeeper, info: RefInfo) -> GroupNodes:
    """Return the nodes of what a mapper has found.

    Raises:
        ResetError: group or topic cannot be names of nodes.
    """
    try:
        return GroupNodes(zk, info)
    except ConfigError as error:
        raise ResetError(str(error)) from None


def _named(names: Iterable[str], what: str) -> str:
    some = sorted(names)
    more = f" and {len(some) - NAMED} more" if len(some) > NAMED else ""
    return ", ".join(some[:NAMED]) + more if some else f"no {what}"
