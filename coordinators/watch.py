"""A watch on one node, or on one list of children, that is set once and again only after it has fired."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from inbound.coordinators.zookeeper import Call, Node, ZooKeeper

T = TypeVar("T")


class Watch:
    """Reads a node or a list of children, and leaves a watch with it unless one stands already.

    The client keeps each watch until it fires, and most nodes never change: a new one with each look would pile up. Read
    by one thread, fired by any. `_set_in` is the connection that it was set on; watches do not outlive theirs.
    """

    __slots__ = ("__weakref__", "_changed", "_set_in")

    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed` is called, by any thread, when what was read is not as it was any more."""
        self._changed = changed
        self._set_in = 0

    def stands(self, zk: ZooKeeper) -> bool:
        """Whether it is set on this connection, and nothing has changed since."""
        connection = zk.connection
        return connection is not None and self._set_in == connection.generation

    def get(self, zk: ZooKeeper, path: str) -> Call[Node | None]:
        """Read a node, present or absent; see `ZooKeeper.get`."""
        return self._read(zk, zk.get, path)

    def children(self, zk: ZooKeeper, path: str) -> Call[list[str] | None]:
        """List a node's children; see `ZooKeeper.children`. On an absent node no watch is set."""
        return self._read(zk, zk.children, path, absent=False)

    def forget(self) -> None:
        """What was read last is not taken over: the next read sets it again."""
        self._set_in = 0

    def fired(self) -> None:
        """Something has changed. Any thread."""
        self._set_in = 0
        self._changed()

    def _read(self, zk: ZooKeeper, read: Callable[..., Call[T]], path: str, *, absent: bool = True) -> Call[T]:
        connection = zk.connection
        if connection is None or self._set_in == connection.generation:
            return read(path)
        self._set_in = connection.generation
        call = read(path, self.fired)
        call.when_done(partial(self._answered, call, connection.generation, absent))
        return call

    def _answered(self, call: Call[Any], generation: int, absent: bool) -> None:
        """Any thread. Without an answer nobody knows whether it was set; on an absent node a list sets none."""
        if (call.failed or (not absent and call.result() is None)) and self._set_in == generation:
            self._set_in = 0
