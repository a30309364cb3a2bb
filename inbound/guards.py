"""Which held partitions need no look at their nodes: found held on this connection, and their epoch has not changed since.

Whoever takes a partition from us changes its epoch node, so a watch on that tells it. An owner node that only went is
missing in the list that every evaluation reads. What neither tells, the timer finds out. That saves most of what an
evaluation would ask of ZooKeeper: see docs/decisions/0013-cost-of-evaluation.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from inbound.channel.partition import Fate, Partition, Place
from inbound.coordinators.claim import Fence, current
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import Call, Node, ZooKeeper, loosely
from inbound.errors import ZkNodeError
from inbound.topic_partition import TopicPartition

#: So many partitions are asked about at a time.
TOGETHER = 100


class _Guard:
    """The watch on one epoch node. Written by the controller's thread, `fired` by any."""

    __slots__ = ("fired", "generation", "sure")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.fired = False
        #: Under this fence the partition was found to be held, after the watch was set.
        self.sure: Fence | None = None


class Guards:
    """Used from the controller's thread only, but for the watches."""

    def __init__(self, zk: ZooKeeper, paths: GroupPaths, changed: Callable[[], None]) -> None:
        """`changed` is called, on any thread, when the epoch of a partition has changed that was found to be held."""
        self._zk = zk
        self._paths = paths
        self._changed = loosely(changed)
        #: At most one watch per partition and connection stands: each costs memory until it fires.
        self._guards: dict[TopicPartition, _Guard] = {}

    async def all_held(self, partitions: Sequence[Partition]) -> bool:
        """Return whether all of these are known to be held; looks at the nodes of those only that are not yet.

        False: hold them all against the nodes.

        Raises:
            TransientError: ZooKeeper did not answer.
        """
        connection = self._zk.connection
        if connection is None:
            return False
        asked = [p for p in partitions if p.place is not Place.LEAVING and p.fate is not Fate.DROP]
        unsure = [p for p in asked if not self._is_sure(p, connection.generation)]
        for start in range(0, len(unsure), TOGETHER):
            some = unsure[start : start + TOGETHER]
            # The owner last: see Ownership.verify.
            calls = [(p, p.fence, *self._ask(p, connection.generation)) for p in some]
            for partition, fence, guard, reading, asking in calls:
                try:
                    epoch, owner = await reading, await asking
                except ZkNodeError:
                    guard.sure = None  # the look at all of them names it
                    continue
                ours = owner is not None and owner.stat.ephemeral_owner == connection.session.id == fence.session
                guard.sure = fence if ours and self._is_under(partition.tp, epoch, fence) else None
        return all(self._is_sure(p, connection.generation) for p in asked)

    def _is_sure(self, partition: Partition, generation: int) -> bool:
        guard = self._guards.get(partition.tp)
        return (
            guard is not None
            and guard.generation == generation
            and not guard.fired
            and guard.sure is not None
            and guard.sure is partition.fence
        )

    def _ask(self, partition: Partition, generation: int) -> tuple[_Guard, Call[Node | None], Call[Node | None]]:
        tp = partition.tp
        guard = self._guards.get(tp)
        watch = None
        if guard is None or guard.fired or guard.generation != generation:
            guard = self._guards[tp] = _Guard(generation)
            watch = self._watch(guard)
        return guard, self._zk.get(self._paths.epoch(*tp), watch), self._zk.get(self._paths.owner(*tp))

    def _watch(self, guard: _Guard) -> Callable[[], None]:
        def fired() -> None:
            guard.fired = True
            if guard.sure is not None:
                self._changed()

        return fired

    def _is_under(self, tp: TopicPartition, epoch: Node | None, fence: Fence) -> bool:
        if epoch is None or epoch.stat.version != fence.epoch:
            return False
        return current(fence, self._paths.epoch(*tp), epoch) is not None
