"""Reads from ZooKeeper what it has of groups and their offsets. A look, which the next moment may make old."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from inbound.coordinators.nodes import OPEN, BadNodeError, decode_epoch, decode_offset, decode_topic
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import Call, Node, ZooKeeper
from inbound.errors import ZkAmbiguousError
from inbound.offsets.model import ALL, GroupNodes, PartitionNodes, Selection, TopicNodes

T = TypeVar("T")

#: So many requests are on their way at once: a server answers them in one go, and other clients have their turns.
AT_ONCE = 300
#: How long a connection that broke is waited for, in seconds, and how often it is looked for meanwhile.
RECONNECT_SECONDS, RECONNECT_LOOKS = 4.0, 20


async def group_names(zk: ZooKeeper) -> list[str]:
    """Return all groups of which ZooKeeper has offsets or members, sorted.

    Raises:
        TransientError: ZooKeeper does not answer.
    """
    names = sorted(await zk.children(GroupPaths.GROUPS) or ())
    families = await many([zk.children(GroupPaths(name).all_offsets) for name in names])
    return [name for name, topics in zip(names, families, strict=True) if topics is not None]


async def read_group(zk: ZooKeeper, group: str, selection: Selection = ALL) -> GroupNodes:
    """Return what ZooKeeper has of a group, of the selected topics and partitions.

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
    return GroupNodes(group=group, exists=exists, members=tuple(sorted(members or ())), topics=topics)


async def many(calls: Sequence[Call[T]]) -> list[T]:
    """Await all of `calls`, which are on their way already."""
    return [await call for call in calls]


async def get_all(zk: ZooKeeper, paths: Iterable[str]) -> list[Node | None]:
    """Read many nodes, so many at once that no server is kept busy for long."""
    wanted, found = list(paths), list[Node | None]()
    for start in range(0, len(wanted), AT_ONCE):
        found += await many([zk.get(path) for path in wanted[start : start + AT_ONCE]])
    return found


async def reconnected(zk: ZooKeeper) -> None:
    """Await a connection, for some seconds. Returns also if there is none by then: who goes on is told so."""
    for _ in range(RECONNECT_LOOKS):
        if zk.connection is not None:
            return
        with suppress(ZkAmbiguousError):  # nobody answers it: its deadline ends the wait
            await Call[Any]("a connection", zk.clock.now() + RECONNECT_SECONDS / RECONNECT_LOOKS)


# -- inside ----------------------------------------------------------------------------------------------------------


async def _read_topic(zk: ZooKeeper, paths: GroupPaths, topic: str, selection: Selection) -> TopicNodes:
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
        pass  # who claims next overwrites it; the version is what counts
    return PartitionNodes(
        committed=committed,
        committed_at=(offset.stat.mtime or None) if offset is not None and committed is not None else None,
        problem=problem,
        epoch=epoch.stat.version if epoch is not None else None,
        claimed_by=claimed_by,
        owner=owner.data.decode(errors="replace") if owner is not None else None,
    )
