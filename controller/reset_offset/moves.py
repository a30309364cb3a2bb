"""The transactions of a reset, and the nodes that they read."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from inbound.controller.reset_offset.command import PATHS, ResetCommand, decode, encode, encode_targets
from inbound.controller.reset_offset.model import FINISHED, HOLDING, Moved, RefInfo, ResetSpec, TopicLog, TopicLogs
from inbound.controller.reset_offset.targets import check, chosen, resolve
from inbound.coordinators.nodes import (
    OPEN,
    BadNodeError,
    EpochInfo,
    ResetNote,
    decode_epoch,
    decode_offset,
    encode_offset,
)
from inbound.coordinators.ownership import Ownership
from inbound.coordinators.paths import GroupPaths, path_part
from inbound.coordinators.rights import named
from inbound.coordinators.zookeeper import (
    MAX_TRANSACTION_BYTES,
    MAX_TRANSACTION_OPS,
    Check,
    Create,
    Delete,
    Node,
    Op,
    SetData,
    ZooKeeper,
    accepted,
    get_all,
)
from inbound.errors import ConfigError, ResetError

T = TypeVar("T")

#: Bytes of an operation besides its path and its data: header, two lengths, a version. Rounded up.
OVERHEAD = 32
#: Bytes by which a command's conditions may grow between storing the targets and moving.
GROWTH = 8192
#: The claimant in an epoch that a reset has written.
CLAIMANT = "reset"


@dataclass(frozen=True)
class Epoch:
    """An epoch node as it was read: its version and its data."""

    version: int
    info: EpochInfo


def size(ops: Iterable[Op]) -> int:
    """Return how many bytes `ops` take in a transaction, rounded up."""
    return sum(
        OVERHEAD + len(op.path.encode()) + (len(op.data) if isinstance(op, Create | SetData) else 0) for op in ops
    )


def read_epoch(path: str, node: Node) -> Epoch:
    """Return an epoch node; an unreadable one is overwritten, as by claims."""
    try:
        info = decode_epoch(path, node.data)
    except BadNodeError:
        info = None
    return Epoch(node.stat.version, info or EpochInfo(CLAIMANT, 0, ""))


def fence_ops(paths: GroupPaths, topic: str, epochs: Mapping[int, Epoch], owned: Iterable[int]) -> list[list[Op]]:
    """Return each partition's operations that fence its owner: no commit lands after.

    The nonce is a new one: by the old one the last owner would know the epoch as its own, and move it on with a write
    that went unanswered (see docs/decisions/0014-late-requests.md). The node's other members stay. A remaining owner
    node is deleted; the closed gate keeps its session from making it again.
    """
    left = frozenset(owned)
    result: list[list[Op]] = []
    for partition, epoch in sorted(epochs.items()):
        info = _of_reset(epoch.info, epoch.info.noted())
        ops: list[Op] = [SetData(paths.epoch(topic, partition), info.encode(), epoch.version)]
        if partition in left:
            ops.append(Delete(paths.owner(topic, partition)))
        result.append(ops)
    return result


def move_ops(
    command: ResetCommand, paths: GroupPaths, topic: str, epochs: Mapping[int, Epoch], targets: Iterable[Moved]
) -> list[Op]:
    """Return the operations that move `targets`: offsets, and epochs with a note.

    The note is for the next claimant. The offset is about the topic that the brokers named when the targets were
    resolved. If that topic was recreated since, the claimant sees another id, and begins at its start.
    """
    ops: list[Op] = []
    for moved in targets:
        epoch = epochs[moved.partition]
        before = epoch.info.before_a_move(command.topic_id, moved.old)
        moved_on = _of_reset(before, before.moved(command.path, moved.old, moved.new))
        info = replace(moved_on, leader_epoch=None).of_topic(command.topic_id)
        ops.append(SetData(paths.offset(topic, moved.partition), encode_offset(moved.new)))
        ops.append(SetData(paths.epoch(topic, moved.partition), info.encode(), epoch.version))
    return ops


def chunks(
    command: ResetCommand,
    paths: GroupPaths,
    topic: str,
    epochs: Mapping[int, Epoch],
    targets: Sequence[Moved],
    largest: int = MAX_TRANSACTION_BYTES,
) -> list[tuple[Moved, ...]]:
    """Split `targets` into the fewest transactions of `largest` bytes, at least one."""
    around: list[Op] = [
        SetData(command.path, encode(command)),
        Check(paths.gate(topic), 0),
        Create(PATHS.applied(command.name, len(targets))),
    ]
    room = largest - size(around) - GROWTH
    costs = [(moved, size(move_ops(command, paths, topic, epochs, [moved]))) for moved in targets]
    return [tuple(chunk) for chunk in packed(costs, room)] or [()]


def target_ops(
    command: ResetCommand, parts: Sequence[Sequence[Moved]], largest: int = MAX_TRANSACTION_BYTES
) -> list[list[Op]]:
    """Return transactions that store the targets, with room for the command's node."""
    creates: list[Op] = [
        Create(PATHS.targets(command.name, command.targets, k), encode_targets(part)) for k, part in enumerate(parts)
    ]
    room = largest - size([SetData(command.path, encode(command))]) - GROWTH
    return [list(pack) for pack in packed([(op, size([op])) for op in creates], room)]


def grouped(ops: Sequence[Sequence[Op]], first: Op, largest: int = MAX_TRANSACTION_BYTES) -> list[list[Op]]:
    """Pack operations that belong together into transactions that begin with `first`."""
    room = largest - size([first])
    packs = packed([(some, size(some)) for some in ops], room, most=(MAX_TRANSACTION_OPS - 1) // 2)
    return [[first, *(op for some in pack for op in some)] for pack in packs]


def packed(items: Iterable[tuple[T, int]], room: int, most: int | None = None) -> Iterator[list[T]]:
    """Yield the sized items in packs of at most `room` and `most`."""
    pack: list[T] = []
    used = 0
    for item, cost in items:
        if pack and (used + cost > room or len(pack) == most):
            yield pack
            pack, used = [], 0
        pack.append(item)
        used += cost
    if pack:
        yield pack


def _of_reset(before: EpochInfo, note: ResetNote | None) -> EpochInfo:
    """Return an epoch as a reset writes it after `before`."""
    nonce = f"{CLAIMANT}-{os.urandom(8).hex()}"
    return replace(before, consumer=CLAIMANT, session=0, nonce=nonce, reset=note, claimed=before.was_claimed)


#: Nodes requested at a time: all of them must be answered within one request's deadline.
TOGETHER = 500


class ResetNodes:
    """The nodes of one (group, topic).

    Controller's thread; methods raise TransientError if ZooKeeper does not answer.
    """

    def __init__(self, zk: ZooKeeper, info: RefInfo) -> None:
        """Raises ConfigError if group or topic cannot be names of nodes."""
        self.zk = zk
        self.topic = path_part(info.topic, "topic")
        self.info = info
        self.paths = GroupPaths(info.group)
        self._ownership = Ownership(zk, info.group, "reset")

    async def check_known(self) -> None:
        """Refuse an unknown group or topic: a misspelt name would make one.

        Raises:
            ResetError: it is not known; the message says what there is.
        """
        if await self.zk.get(self.paths.offsets(self.topic)) is not None:
            return
        topics = await self.zk.children(self.paths.all_offsets)
        if topics is None:
            groups = await self.zk.children(GroupPaths.GROUPS) or ()
            raise ResetError(
                f"group {self.info.group}: there is none; ZooKeeper has {named(sorted(groups)) or 'no groups'}. A group "
                "comes about when its first consumer starts"
            )
        raise ResetError(
            f"group {self.info.group}: has no offsets of topic {self.topic}; it has offsets of "
            f"{named(sorted(topics)) or 'no topics'}"
        )

    async def ensure(self, log: TopicLog) -> None:
        """Make the nodes of partitions without a claim, each once."""
        await self._ownership.ensure(self.topic, max(log.ranges, default=-1) + 1)

    async def mend(self, log: TopicLog) -> None:
        self._ownership = Ownership(self.zk, self.info.group, "reset")
        await self.ensure(log)

    async def gate(self) -> Node | None:
        return await self.zk.get(self.paths.gate(self.topic))

    async def owned(self) -> frozenset[int]:
        """Return the partitions that have an owner node."""
        names = await self.zk.children(self.paths.owners(self.topic))
        return frozenset(int(name) for name in names or () if name.isdigit())

    async def epochs(self, partitions: Collection[int]) -> dict[int, Epoch]:
        """Read epoch nodes; the result lacks missing ones."""
        nodes = await self._read(partitions, self.paths.epoch)
        return {p: read_epoch(self.paths.epoch(self.topic, p), node) for p, node in nodes.items() if node is not None}

    async def offsets(self, partitions: Collection[int]) -> dict[int, int | None]:
        """Read the group's offsets; None where there is none.

        Raises:
            ResetError: a node holds no offset.
        """
        nodes = await self._read(partitions, self.paths.offset)
        try:
            return {
                p: None if node is None else decode_offset(self.paths.offset(self.topic, p), node.data)
                for p, node in nodes.items()
            }
        except BadNodeError as error:
            raise ResetError(f"{error}; or delete the node: the group has then no offset in that partition") from None

    async def _read(self, partitions: Collection[int], path: Callable[[str, int], str]) -> dict[int, Node | None]:
        wanted = sorted(partitions)
        nodes = await get_all(self.zk, [path(self.topic, p) for p in wanted], TOGETHER)
        return dict(zip(wanted, nodes, strict=True))


def about(committed: dict[int, int | None], epochs: dict[int, Epoch], topic_id: str | None) -> dict[int, int | None]:
    """Return the offsets, but None for those of a former topic."""
    former = {p for p, epoch in epochs.items() if not epoch.info.is_about(topic_id)}
    return {p: None if p in former else offset for p, offset in committed.items()}


def ahead_of(command: ResetCommand, commands: Iterable[ResetCommand]) -> ResetCommand | None:
    """Return another reset of the same group that goes first.

    One that has begun goes on; else the one that was submitted first goes first.
    """
    if command.info is None:
        return None
    group = [c for c in commands if c.info is not None and c.info.group == command.info.group and not c.finished]
    first = min(group, key=lambda c: (c.state not in HOLDING, c.czxid, c.name), default=command)
    return None if first.name == command.name else first


async def open_abandoned(zk: ZooKeeper, path: str) -> str | None:
    """Open a gate whose reset is gone; return that reset's path.

    None: nothing was done. A command's path is never used again, and a gate is closed only together with a change of
    its command. So a gate whose command is missing, or has ended, stays closed for no reason, and no reset will open
    it: any process may do it. The gate's version keeps a late attempt from opening it for the next reset.

    Raises:
        TransientError: ZooKeeper does not answer.
    """
    gate = await zk.get(path)
    if gate is None or gate.data == OPEN:
        return None
    closed_by = gate.data.decode(errors="replace")
    if not closed_by.startswith(f"{PATHS.RESETS}/") or "/" in closed_by[len(PATHS.RESETS) + 1 :]:
        return None  # closed by an unknown tool
    node = await zk.get(closed_by)
    if node is not None:
        try:
            if decode(closed_by, node).state not in FINISHED:
                return None
        except BadNodeError:
            return None  # maybe of a later version: a process that can read it opens the gate
    opened = await accepted(zk, [SetData(path, OPEN, gate.stat.version)])
    return closed_by if opened else None  # else another process was faster


def checked(zk: ZooKeeper, info: RefInfo) -> ResetNodes:
    """Return the nodes of topic and group.

    Raises:
        ResetError: group or topic cannot be names of nodes.
    """
    try:
        return ResetNodes(zk, info)
    except ConfigError as error:
        raise ResetError(str(error)) from None


async def preview(zk: ZooKeeper, logs: TopicLogs, info: RefInfo, spec: ResetSpec, now: float) -> list[Moved]:
    """Return what a reset would move at `now` (seconds since 1970).

    Nothing is moved. The group may still run, so its offsets may differ by the time that it has stopped. A coroutine on
    `inbound.coordinators.tasks`.

    Raises:
        ResetError: it cannot be done: no such group, topic, partition or offset; the message says what there is.
        TransientError: ZooKeeper or a broker does not answer.
    """
    nodes = checked(zk, info)
    await nodes.check_known()
    found = await logs.ask(info.topic, spec.time)
    if found is None:
        raise ResetError(f"topic {info.topic}: the brokers know none of this name; name another one, or make it")
    check(spec, found, now)
    wanted = chosen(spec, found)
    epochs = await nodes.epochs(wanted)
    return resolve(spec, about(await nodes.offsets(wanted), epochs, found.topic_id), found)
