"""Which partitions have an owner: the list of owner nodes of each topic, asked for ahead and watched."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.watch import Watch
from inbound.coordinators.zookeeper import Call, ZooKeeper
from inbound.topic_partition import TopicPartition


class OwnerLists:
    """One channel's. Controller's thread, but for the watches."""

    def __init__(self, zk: ZooKeeper, paths: GroupPaths, changed: Callable[[], None]) -> None:
        """`changed` is called, by any thread, when an owner node has come or gone since the last look."""
        self._zk = zk
        self._paths = paths
        self._changed = changed
        self._watches: dict[str, Watch] = {}
        self._asked: dict[str, Call[list[str] | None]] = {}  # whose answers are on their way

    def ask(self, topics: Iterable[str]) -> None:
        """Ask for these now; `read` takes the answers, if it comes next."""
        self._asked = {topic: self._list(topic) for topic in topics}

    async def read(self, topics: Iterable[str]) -> frozenset[TopicPartition]:
        """Return the partitions of these topics that have an owner node, whoever's.

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
