"""The data of the fake ensemble: nodes, versions, transactions, one-shot watches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from inbound.coordinators.zookeeper import Check, Create, Delete, Node, Op, RefusedError, SetData, Stat


@dataclass(frozen=True)
class _Stored:
    data: bytes
    version: int
    owner: int
    czxid: int
    mzxid: int

    def stat(self) -> Stat:
        return Stat(self.version, self.owner, self.czxid, self.mzxid)


class Tree:
    """Nodes by path. A recreated node starts at version 0 again; a refused transaction changes nothing, not even zxid."""

    def __init__(self) -> None:
        self.nodes: dict[str, _Stored] = {"/": _Stored(b"", 0, 0, 0, 0)}
        self.zxid = 0
        self._children: dict[str, set[str]] = {"/": set()}
        self._watches: dict[tuple[str, str], list[Callable[[], None]]] = {}

    def get(self, path: str) -> Node | None:
        stored = self.nodes.get(path)
        return Node(stored.data, stored.stat()) if stored else None

    def children(self, path: str) -> list[str] | None:
        return sorted(self._children[path]) if path in self.nodes else None

    def watch(self, kind: str, path: str, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the node's data (or presence), or its children, change."""
        self._watches.setdefault((kind, path), []).append(callback)

    def transaction(self, ops: Sequence[Op], session: int) -> list[Stat | None]:
        """Do all or nothing.

        Raises:
            RefusedError: with the first operation that could not be done.
        """
        before = (dict(self.nodes), {path: set(names) for path, names in self._children.items()})
        changed: list[tuple[str, str]] = []
        stats: list[Stat | None] = []
        self.zxid += 1
        for index, op in enumerate(ops):
            reason = self._apply(op, session, stats, changed)
            if reason is not None:
                self.nodes, self._children = before
                self.zxid -= 1
                raise RefusedError(index, op, reason)
        self._fire(changed)
        return stats

    def remove_ephemerals(self, session: int) -> None:
        """Delete the nodes of a session that has ended."""
        gone = [path for path, stored in self.nodes.items() if stored.owner == session]
        if gone:
            self.transaction([Delete(path) for path in gone], session)

    def _apply(self, op: Op, session: int, stats: list[Stat | None], changed: list[tuple[str, str]]) -> str | None:
        parent = op.path.rsplit("/", 1)[0] or "/"
        stored = self.nodes.get(op.path)
        if isinstance(op, Create):
            if stored is not None:
                return "NodeExists"
            if parent not in self.nodes:
                return "NoNode"
            if self.nodes[parent].owner:
                return "NoChildrenForEphemerals"
            self.nodes[op.path] = _Stored(op.data, 0, session if op.ephemeral else 0, self.zxid, self.zxid)
            self._children[op.path] = set()
            self._children[parent].add(op.path.rsplit("/", 1)[1])
            changed += [("data", op.path), ("children", parent)]
            stats.append(None)
            return None
        if stored is None:
            return "NoNode"
        if op.version not in (-1, stored.version):
            return "BadVersion"
        if isinstance(op, SetData):
            self.nodes[op.path] = replace(stored, data=op.data, version=stored.version + 1, mzxid=self.zxid)
            changed.append(("data", op.path))
            stats.append(self.nodes[op.path].stat())
            return None
        stats.append(None)
        if isinstance(op, Check):
            return None
        if self._children[op.path]:
            return "NotEmpty"
        del self.nodes[op.path]
        del self._children[op.path]
        self._children[parent].discard(op.path.rsplit("/", 1)[1])
        changed += [("data", op.path), ("children", parent)]
        return None

    def _fire(self, changed: Sequence[tuple[str, str]]) -> None:
        for key in dict.fromkeys(changed):
            for callback in self._watches.pop(key, ()):
                callback()
