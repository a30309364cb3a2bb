"""What a member knows of the gates of its topics: which are closed, by what, and since when.

    /consumers/<group>/gates/<topic>    `open`, or the path of the reset that closed it

One watch per topic and connection tells of a change, so a look asks only for what has changed since the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from inbound.coordinators.nodes import OPEN
from inbound.coordinators.paths import CommandPaths, GroupPaths
from inbound.coordinators.watch import Watch
from inbound.coordinators.zookeeper import Node, ZooKeeper, unavailable


@dataclass(frozen=True)
class ClosedGate:
    """A gate that a reset has closed."""

    topic: str
    command: str  # the reset's path, or whatever else stands in the node
    since: float  # Unix time; 0: not known

    @property
    def by_hand(self) -> bool:
        """Whether it names no reset: then nobody opens it again."""
        return not self.command.startswith(f"{CommandPaths.RESETS}/")

    @property
    def name(self) -> str:
        """The reset's name."""
        return self.command.rpartition("/")[2]


class Gates:
    """Follows gates. Controller's thread, but for `closed`, which any thread may look at."""

    def __init__(self, zk: ZooKeeper, paths: GroupPaths, changed: Callable[[], None]) -> None:
        """`changed` is called, by any thread, when a gate that was looked at is not any more as it was then."""
        self._zk = zk
        self._paths = paths
        self._changed = changed
        self._watches: dict[str, Watch] = {}
        #: By topic, as last looked at. Replaced as a whole.
        self.closed: Mapping[str, ClosedGate] = {}

    @property
    def known(self) -> Iterable[str]:
        """The topics whose gates have been looked at."""
        return tuple(self._watches)

    async def look(self, topics: Iterable[str]) -> None:
        """Learn how the gates of these topics stand; asks for those only that may have changed since the last look.

        1. A read is answered; 2. somebody closes the gate; 3. the watch fires, the answer comes here. The answer is old
        then, and the look that the watch asks for says more: it has disarmed itself.

        Raises:
            TransientError: nothing new is known: there is no connection, or no answer.
        """
        if self._zk.connection is None:
            raise unavailable(f"look at the gates of {self._paths.root}")
        asked = []
        for topic in topics:
            watch = self._watches.setdefault(topic, Watch(self._changed))
            if not watch.stands(self._zk):
                asked.append((topic, watch.get(self._zk, self._paths.gate(topic))))
        if not asked:
            return
        closed = dict(self.closed)
        try:
            for topic, call in asked:
                closed.pop(topic, None)
                gate = _closed(topic, await call)
                if gate is not None:
                    closed[topic] = gate
        except BaseException:
            for topic, _ in asked:
                self._watches[topic].forget()
            raise
        self.closed = closed


def _closed(topic: str, node: Node | None) -> ClosedGate | None:
    if node is None or node.data == OPEN:  # a gate that does not exist yet has been closed by nobody
        return None
    return ClosedGate(topic, node.data.decode(errors="replace"), node.stat.mtime)
