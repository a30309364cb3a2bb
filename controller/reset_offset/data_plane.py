"""Data planes stop and start a group's consumers; one is for inbound's."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from inbound.clock import Clock
from inbound.controller.reset_offset.command import decode
from inbound.controller.reset_offset.model import RefInfo
from inbound.controller.reset_offset.targets import partitions_text
from inbound.coordinators.nodes import BadNodeError
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import Call, Node, Watch, ZooKeeper, get_all
from inbound.errors import ZkAmbiguousError


class Signal:
    """An event that any thread sets, and one task awaits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._is_set = False
        self._waiting: Call[None] | None = None

    def set(self) -> None:
        """Wake the waiting task, or the next one. Any thread."""
        with self._lock:
            self._is_set = True
            waiting = self._waiting
        if waiting is not None:
            waiting.succeed(None)

    async def wait(self, seconds: float) -> None:
        """Wait until it is set, for `seconds` at most. One task."""
        waiting: Call[None] = Call("a change", self._clock.now() + seconds)
        with self._lock:
            is_set, self._waiting = self._is_set, waiting
        if not is_set:
            try:
                await waiting
            except ZkAmbiguousError:
                pass  # the time is over
        with self._lock:
            self._is_set, self._waiting = False, None


class Watches:
    """Reads that leave a watch, which is set again once it fired.

    Used by one thread; the watches fire on any.
    """

    def __init__(self, zk: ZooKeeper, changed: Callable[[], None]) -> None:
        """`changed` is called, on any thread, after a read node changed."""
        self._zk = zk
        self._nodes: defaultdict[str, Watch] = defaultdict(lambda: Watch(changed))
        self._lists: defaultdict[str, Watch] = defaultdict(lambda: Watch(changed))

    def get(self, path: str) -> Call[Node | None]:
        """Read a node; see `ZooKeeper.get`."""
        return self._nodes[path].get(self._zk, path)

    async def children(self, path: str) -> list[str] | None:
        """List a node's children; see `ZooKeeper.children`.

        On an absent node the watch waits until it is made.
        """
        names = await self._lists[path].children(self._zk, path)
        if names is None and await self.get(path) is not None:
            return await self.children(path)
        return names


#: Seconds after which formerly owned partitions without an owner are left alone. Longer than a session, a joiner's wait and a
#: few rebalances: a coordinator that has not taken them (a static member is gone) will not take them later.
START_PATIENCE = 30.0
#: Owners of at most so many partitions are named, after so many seconds without a change: during releases, each deleted owner
#: node causes a look.
NAMED_OWNERS, NAME_AFTER = 64, 0.5

_Since = dict[str, tuple[frozenset[int], float]]  # by token: which partitions, and since when it is these


@dataclass(frozen=True)
class Replica:
    """One replica's answer: done, or the reason why not."""

    name: str  # empty: the answer is about the group as a whole
    done: bool
    message: str = ""


class DataPlane(Protocol):
    """Stops and starts a group's consumers, wherever they run.

    Both methods are idempotent: they are called again until every replica is done, maybe by several leaders at once, or
    by another leader after one has died. `token` is the same for one reset, and belongs to no other.

    They are coroutines on `inbound.coordinators.tasks`, on the controller's thread: they await `Call`s, which any
    thread may complete, and never block. A TransientError that they raise is tried again.
    """

    async def stop(self, group: RefInfo, token: str) -> Sequence[Replica]:
        """Have all replicas end and commit their batches, and begin none.

        Returns one answer per replica that is known now; no replica at all is fine.
        """

    async def start(self, group: RefInfo, token: str) -> Sequence[Replica]:
        """Have all replicas start what `token` has stopped.

        Answers as `stop`. Also called if `stop` never completed.
        """


class ZkDataPlane:
    """Consumers of inbound: the gate stops and starts them, owner nodes answer.

    The reset changes the gate, this class does not.
    """

    def __init__(self, zk: ZooKeeper, watches: Watches) -> None:
        """`watches` wake the leader when owner nodes come and go."""
        self._zk = zk
        self._watches = watches
        self._left: _Since = {}
        self._missing: _Since = {}

    async def stop(self, group: RefInfo, token: str) -> Sequence[Replica]:
        """A replica has stopped when it owns no partition of the topic."""
        paths = GroupPaths(group.group)
        owned = await self._owned(paths, group.topic)
        since = _since(self._left, token, owned, self._zk.clock.now())
        if owned and (len(owned) > NAMED_OWNERS or self._zk.clock.now() - since < NAME_AFTER):
            return [Replica("", done=False, message=f"still owns {partitions_text(owned)}")]
        nodes = await get_all(self._zk, [paths.owner(group.topic, partition) for partition in sorted(owned)])
        holding: dict[str, list[int]] = {}
        for partition, node in zip(sorted(owned), nodes, strict=True):
            if node is not None:
                holding.setdefault(node.data.decode(errors="replace"), []).append(partition)
        names = {*(await self._zk.children(paths.ids) or ()), *holding}
        still = {name: f"still owns {partitions_text(partitions)}" for name, partitions in holding.items()}
        return [Replica(name, name not in holding, still.get(name, "")) for name in sorted(names)]

    async def start(self, group: RefInfo, token: str) -> Sequence[Replica]:
        """All have started when each formerly owned partition has an owner.

        A partition that no member takes for `START_PATIENCE` is left alone: its member is gone, and no other member
        should have it.
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
        told = f"{partitions_text(missing)} had an owner before and {'has' if len(missing) == 1 else 'have'} none now"
        return [Replica(name, done, told) for name in members or [""]]

    async def _owned(self, paths: GroupPaths, topic: str) -> frozenset[int]:
        names = await self._watches.children(paths.owners(topic))
        return frozenset(int(name) for name in names or () if name.isdigit())

    async def _owned_before(self, token: str) -> Sequence[int]:
        node = await self._zk.get(token)
        try:
            return () if node is None else decode(token, node).owned
        except BadNodeError:
            return ()  # not the token of a reset


def _since(known: _Since, token: str, partitions: frozenset[int], now: float) -> float:
    """Remember the partitions, and return since when they are the same."""
    before, since = known.get(token, (frozenset(), now))
    known[token] = partitions, since if before == partitions else now
    return known[token][1]
