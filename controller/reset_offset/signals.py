"""How a reset waits: for a time, or until a watch fires."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

from inbound.clock import Clock
from inbound.coordinators.watch import Watch
from inbound.coordinators.zookeeper import Call, Node, ZooKeeper
from inbound.errors import ZkAmbiguousError


class Signal:
    """Something to wait for that any thread may set; it stays set until somebody has waited for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._is_set = False
        self._waiting: Call[None] | None = None

    def set(self) -> None:
        """Let whoever waits, or comes to wait next, go on. Any thread."""
        with self._lock:
            self._is_set = True
            waiting = self._waiting
        if waiting is not None:
            waiting.succeed(None)

    async def wait(self, seconds: float) -> None:
        """Wait until it is set, for `seconds` at most. One task at a time."""
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
    """Reads that leave a watch, which is set again only when it has fired. Used by one thread; the watches fire on any."""

    def __init__(self, zk: ZooKeeper, changed: Callable[[], None]) -> None:
        """`changed` is called, on any thread, when something that was read through here is not as it was any more."""
        self._zk = zk
        self._nodes: defaultdict[str, Watch] = defaultdict(lambda: Watch(changed))
        self._lists: defaultdict[str, Watch] = defaultdict(lambda: Watch(changed))

    def get(self, path: str) -> Call[Node | None]:
        """Read a node; see `ZooKeeper.get`."""
        return self._nodes[path].get(self._zk, path)

    async def children(self, path: str) -> list[str] | None:
        """List a node's children; see `ZooKeeper.children`. On an absent node the watch waits for its making."""
        names = await self._lists[path].children(self._zk, path)
        if names is None and await self.get(path) is not None:
            return await self.children(path)
        return names
