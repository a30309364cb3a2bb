"""Who stops and starts the consumers of a group: a protocol, and the one that inbound's own consumers follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from inbound.controller.reset_offset.command import decode
from inbound.controller.reset_offset.model import RefInfo
from inbound.controller.reset_offset.signals import Watches
from inbound.controller.reset_offset.targets import numbers
from inbound.coordinators.nodes import BadNodeError
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import ZooKeeper

#: How long partitions may stay as they are, with some that had an owner before and have none, until they are left at that:
#: seconds. Longer than a session, a joiner's wait and a few rebalances; a coordinator that does not take them (a static
#: member that is gone) will not take them later either.
START_PATIENCE = 30.0
#: Of so many partitions it is said by name who still owns them, if they have stayed the same for so many seconds: while
#: members let go there are looks at every owner node that goes.
NAMED_OWNERS, NAME_AFTER = 64, 0.5

_Since = dict[str, tuple[frozenset[int], float]]  # by token: which partitions, and since when it is these


@dataclass(frozen=True)
class Replica:
    """One replica's answer: whether it has done what was asked for; if not, what it waits for or what is wrong."""

    name: str  # empty: it is about the group as a whole, and nobody in particular
    done: bool
    message: str = ""


class DataPlane(Protocol):
    """Stops and starts a group's consumers, wherever they run.

    Both are called again and again until every replica is done, by several leaders at once if need be, and by another one
    after a leader has died: they are idempotent. `token` is the same for one reset, and belongs to no other.

    They are coroutines on `inbound.coordinators.tasks`, on the controller's thread: they await `Call`s, which any thread may
    complete, and never block. A TransientError that they raise is tried again.
    """

    async def stop(self, group: RefInfo, token: str) -> Sequence[Replica]:
        """Have all replicas stop that group's consumers: batches in hand end and are committed, nothing new begins.

        Returns one answer per replica that is known now; no replica at all is fine.
        """

    async def start(self, group: RefInfo, token: str) -> Sequence[Replica]:
        """Have all replicas start what `token` has stopped; as `stop`. Also called after `stop` was never completed."""


class ZkDataPlane:
    """Consumers of inbound: they see the gate close and open, and the owner nodes tell what they have done.

    The gate itself belongs to the reset, and is not touched here.
    """

    def __init__(self, zk: ZooKeeper, watches: Watches) -> None:
        """`watches` bring whoever leads back when owner nodes come and go."""
        self._zk = zk
        self._watches = watches
        self._left: _Since = {}
        self._missing: _Since = {}

    async def stop(self, group: RefInfo, token: str) -> Sequence[Replica]:
        """A replica has stopped when it owns no partition of the topic any more. See `DataPlane.stop`."""
        paths = GroupPaths(group.group)
        owned = await self._owned(paths, group.topic)
        since = _since(self._left, token, owned, self._zk.clock.now())
        if owned and (len(owned) > NAMED_OWNERS or self._zk.clock.now() - since < NAME_AFTER):
            return [Replica("", done=False, message=f"still owns {_partitions(owned)}")]
        calls = [(partition, self._zk.get(paths.owner(group.topic, partition))) for partition in sorted(owned)]
        holding: dict[str, list[int]] = {}
        for partition, call in calls:
            node = await call
            if node is not None:
                holding.setdefault(node.data.decode(errors="replace"), []).append(partition)
        names = {*(await self._zk.children(paths.ids) or ()), *holding}
        return [Replica(name, name not in holding, _still(holding.get(name, ()))) for name in sorted(names)]

    async def start(self, group: RefInfo, token: str) -> Sequence[Replica]:
        """All have started when every partition that had an owner before has one again. See `DataPlane.start`.

        What nobody takes for `START_PATIENCE` is left at that: its member is gone, and no other is meant to have it.
        """
        paths = GroupPaths(group.group)
        before = await self._owned_before(token)
        now = await self._owned(paths, group.topic)
        members = sorted(await self._zk.children(paths.ids) or ())
        missing = frozenset(before) - now
        if not missing:
            return [Replica(name, done=True) for name in members]
        clock = self._zk.clock.now()
        done = clock - _since(self._missing, token, missing, clock) >= START_PATIENCE
        told = f"{_partitions(missing)} had an owner before and {'has' if len(missing) == 1 else 'have'} none now"
        return [Replica(name, done, told) for name in members or [""]]

    async def _owned(self, paths: GroupPaths, topic: str) -> frozenset[int]:
        names = await self._watches.children(paths.owners(topic))
        return frozenset(int(name) for name in names or () if name.isdigit())

    async def _owned_before(self, token: str) -> Sequence[int]:
        node = await self._zk.get(token)
        try:
            return () if node is None else decode(token, node).owned
        except BadNodeError:
            return ()  # the token of somebody who uses this data plane for other things than resets


def _since(known: _Since, token: str, partitions: frozenset[int], now: float) -> float:
    """Take note that it is these partitions, and return since when."""
    before, since = known.get(token, (frozenset(), now))
    known[token] = partitions, since if before == partitions else now
    return known[token][1]


def _still(partitions: Iterable[int]) -> str:
    some = list(partitions)
    return f"still owns {_partitions(some)}" if some else ""


def _partitions(partitions: Iterable[int]) -> str:
    some = sorted(partitions)
    return f"partition{'' if len(some) == 1 else 's'} {numbers(some)}"
