"""Reads groups and their offsets from ZooKeeper, which may change at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

from inbound.coordinators.nodes import OPEN, BadNodeError, decode_epoch, decode_offset, decode_topic
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import Call, Node, ZooKeeper, get_all
from inbound.errors import ZkAmbiguousError
from inbound.offsets.model import ALL, GroupSnapshot, PartitionNodes, PartitionSelection, TopicNodes

T = TypeVar("T")

#: The time limit for a new connection, in seconds, and the number of looks for it.
RECONNECT_SECONDS, RECONNECT_LOOKS = 4.0, 20


async def group_names(zk: ZooKeeper) -> list[str]:
    """Return all groups with offsets or members in ZooKeeper, sorted.

    Raises:
        TransientError: ZooKeeper does not answer.
    """
    names = sorted(await zk.children(GroupPaths.GROUPS) or ())
    families = await many([zk.children(GroupPaths(name).all_offsets) for name in names])
    return [name for name, topics in zip(names, families, strict=True) if topics is not None]


async def read_group(zk: ZooKeeper, group: str, selection: PartitionSelection = ALL) -> GroupSnapshot:
    """Read the selected topics and partitions of a group.

    Raises:
        TransientError: ZooKeeper does not answer.
        ConfigError: the group's name cannot be part of a path.
    """
    paths = GroupPaths(group)
    members = await zk.children(paths.ids)
    listed = await many([zk.children(paths.all_offsets), zk.children(paths.all_epochs)])
    names = sorted({name for names in listed for name in names or () if selection.has(name)})
    topics = {name: await _read_topic(zk, paths, name, selection) for name in names}
    exists = members is not None or any(names is not None for names in listed)
    return GroupSnapshot(group=group, exists=exists, members=tuple(sorted(members or ())), topics=topics)


async def many(calls: Sequence[Call[T]]) -> list[T]:
    """Await all of `calls`, which are in flight."""
    return [await call for call in calls]


async def reconnected(zk: ZooKeeper) -> None:
    """Await a connection for some seconds; without one the next call fails."""
    for _ in range(RECONNECT_LOOKS):
        if zk.connection is not None:
            return
        with suppress(ZkAmbiguousError):  # no call succeeds: the deadline ends the wait
            await Call[Any]("a connection", zk.clock.now() + RECONNECT_SECONDS / RECONNECT_LOOKS)


# -- inside ----------------------------------------------------------------------------------------------------------


async def _read_topic(zk: ZooKeeper, paths: GroupPaths, topic: str, selection: PartitionSelection) -> TopicNodes:
    gate, about = await many([zk.get(paths.gate(topic)), zk.get(paths.epochs(topic))])
    families = (paths.offsets(topic), paths.epochs(topic), paths.owners(topic))
    listed = await many([zk.children(path) for path in families])
    numbers = sorted({int(name) for names in listed for name in names or () if name.isdecimal()})
    numbers = [number for number in numbers if selection.has(topic, number)]
    owned = {int(name) for name in listed[2] or () if name.isdecimal()}
    offsets = await get_all(zk, [paths.offset(topic, number) for number in numbers])
    epochs = await get_all(zk, [paths.epoch(topic, number) for number in numbers])
    taken = [number for number in numbers if number in owned]
    owners = dict(zip(taken, await get_all(zk, [paths.owner(topic, number) for number in taken]), strict=True))
    try:
        first = decode_topic(paths.epochs(topic), about.data).partitions if about is not None else 1 << 31
    except BadNodeError:
        first = 1 << 31
    return TopicNodes(
        gate=gate.data.decode(errors="replace") if gate is not None and gate.data != OPEN else None,
        known_from_start=first,
        partitions={
            number: _partition(paths, topic, number, offset, epoch, owners.get(number))
            for number, offset, epoch in zip(numbers, offsets, epochs, strict=True)
        },
    )


def _partition(
    paths: GroupPaths, topic: str, number: int, offset: Node | None, epoch: Node | None, owner: Node | None
) -> PartitionNodes:
    committed, problem, claimed_by = None, None, None
    try:
        committed = decode_offset(paths.offset(topic, number), offset.data) if offset is not None else None
    except BadNodeError as error:
        problem = str(error)
    try:
        claim = decode_epoch(paths.epoch(topic, number), epoch.data) if epoch is not None else None
        claimed_by = claim.consumer if claim is not None else None
    except BadNodeError:
        pass  # the next claim overwrites it; only the version counts
    return PartitionNodes(
        committed=committed,
        committed_at=(offset.stat.mtime or None) if offset is not None and committed is not None else None,
        problem=problem,
        epoch=epoch.stat.version if epoch is not None else None,
        claimed_by=claimed_by,
        owner=owner.data.decode(errors="replace") if owner is not None else None,
    )
