"""Saves reads by watches on held partitions' epochs and on owner lists.

A member that takes a partition from us changes its epoch node, which fires a watch. An owner node that only vanished is
missing in the list that every evaluation reads. The timer finds the rest. That saves most of an evaluation's reads of
ZooKeeper: see docs/decisions/0013-cost-of-evaluation.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from inbound.coordinators.ownership import Fence, current
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import Call, Node, Watch, ZooKeeper, loosely
from inbound.errors import ZkNodeError
from inbound.partition.partition import Fate, Partition, Place
from inbound.topic_partition import TopicPartition

#: Partitions whose nodes are requested at a time.
TOGETHER = 100


class _EpochWatch:
    """The watch on one epoch node.

    The controller's thread writes it, but any thread writes `fired`.
    """

    __slots__ = ("__weakref__", "_changed", "fired", "generation", "sure")

    def __init__(self, generation: int, changed: Callable[[], None]) -> None:
        self.generation = generation
        self._changed = changed
        self.fired = False
        #: The fence under which the partition was held, as read after the watch was set.
        self.sure: Fence | None = None

    def fire(self) -> None:
        self.fired = True
        if self.sure is not None:
            self._changed()


class EpochWatches:
    """Watches the epochs of held partitions.

    Controller's thread, but for the watches.
    """

    def __init__(self, zk: ZooKeeper, paths: GroupPaths, changed: Callable[[], None]) -> None:
        """`changed` is called, on any thread, when a held partition's epoch changes."""
        self._zk = zk
        self._paths = paths
        self._changed = loosely(changed)
        #: At most one watch per partition and connection stands: each costs memory until it fires.
        self._epoch_watches: dict[TopicPartition, _EpochWatch] = {}

    async def all_held(self, partitions: Sequence[Partition]) -> bool:
        """Return whether all partitions are held. Reads only nodes in question.

        False: check all of them against their nodes.

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
                    guard.sure = None  # the check of all partitions reports the error
                    continue
                ours = owner is not None and owner.stat.ephemeral_owner == connection.session.id == fence.session
                own = epoch is not None and epoch.stat.version == fence.epoch
                own = own and current(fence, self._paths.epoch(*partition.tp), epoch) is not None
                guard.sure = fence if ours and own else None
        return all(self._is_sure(p, connection.generation) for p in asked)

    def _is_sure(self, partition: Partition, generation: int) -> bool:
        guard = self._epoch_watches.get(partition.tp)
        return (
            guard is not None
            and guard.generation == generation
            and not guard.fired
            and guard.sure is not None
            and guard.sure is partition.fence
        )

    def _ask(self, partition: Partition, generation: int) -> tuple[_EpochWatch, Call[Node | None], Call[Node | None]]:
        tp = partition.tp
        guard = self._epoch_watches.get(tp)
        watch = None
        if guard is None or guard.fired or guard.generation != generation:
            guard = self._epoch_watches[tp] = _EpochWatch(generation, self._changed)
            watch = guard.fire
        return guard, self._zk.get(self._paths.epoch(*tp), watch), self._zk.get(self._paths.owner(*tp))


class OwnerLists:
    """Reads the owner lists of one channel's topics.

    Controller's thread, but for the watches.
    """

    def __init__(self, zk: ZooKeeper, paths: GroupPaths, changed: Callable[[], None]) -> None:
        """`changed` is called, on any thread, when owner nodes come or go."""
        self._zk = zk
        self._paths = paths
        self._changed = changed
        self._watches: dict[str, Watch] = {}
        self._asked: dict[str, Call[list[str] | None]] = {}  # requested, and not taken by `read`

    def ask(self, topics: Iterable[str]) -> None:
        """Request the owner lists of topics; the next `read` takes the answers."""
        self._asked = {topic: self._list(topic) for topic in topics}

    async def read(self, topics: Iterable[str]) -> frozenset[TopicPartition]:
        """Return the partitions of these topics that any member owns.

        Raises:
            TransientError: no answer.
        """
        asked, self._asked = self._asked, {}
        calls = {topic: asked[topic] if topic in asked else self._list(topic) for topic in topics}
        owned = set()
        for topic, call in calls.items():
            names = await call
            if names is None and topic in asked:  # its folder has been made since
                names = await self._list(topic)
            owned |= {TopicPartition(topic, int(name)) for name in names or () if name.isdigit()}
        return frozenset(owned)

    def _list(self, topic: str) -> Call[list[str] | None]:
        watch = self._watches.setdefault(topic, Watch(self._changed))
        return watch.children(self._zk, self._paths.owners(topic))
