"""The data of the fake ensemble: nodes, versions, transactions, and what each of them changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from inbound.coordinators.zookeeper import Create, Delete, Node, Op, RefusedError, SetData, Stat

#: What a watch is set on: ("data" or "children", path).
WatchKey = tuple[str, str]


@dataclass(frozen=True)
class _Stored:
    data: bytes
    version: int
    owner: int
    czxid: int
    mzxid: int

    def stat(self) -> Stat:
        return Stat(self.version, self.owner, self.czxid, self.mzxid)


@dataclass(frozen=True)
class Snapshot:
    """The tree as it was after one transaction."""

    zxid: int
    nodes: Mapping[str, _Stored]
    names: Mapping[str, frozenset[str]]

    def get(self, path: str) -> Node | None:
        stored = self.nodes.get(path)
        return Node(stored.data, stored.stat()) if stored else None

    def children(self, path: str) -> list[str] | None:
        return sorted(self.names[path]) if path in self.nodes else None


@dataclass(frozen=True)
class Commit:
    """One transaction that was done: the tree after it, and the watches that it sets off."""

    after: Snapshot
    changed: tuple[WatchKey, ...]
    session: int  # whose transaction it was
    expired: bool = False  # the end of that session, and not its client's wish


class Tree:
    """Nodes by path. A recreated node starts at version 0 again; a refused transaction changes nothing, not even zxid.

    `on_commit` is called with every transaction that was done.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, _Stored] = {"/": _Stored(b"", 0, 0, 0, 0)}
        self.zxid = 0
        self.on_commit: Callable[[Commit], None] = lambda commit: None
        self._names: dict[str, frozenset[str]] = {"/": frozenset()}

    def now(self) -> Snapshot:
        """Return the tree as it is. It stays as it is: every transaction works on copies."""
        return Snapshot(self.zxid, self.nodes, self._names)

    def get(self, path: str) -> Node | None:
        return self.now().get(path)

    def children(self, path: str) -> list[str] | None:
        return self.now().children(path)

    def transaction(self, ops: Sequence[Op], session: int, *, expired: bool = False) -> list[Stat | None]:
        """Do all or nothing.

        Raises:
            RefusedError: with the first operation that could not be done.
        """
        work = _Work(dict(self.nodes), dict(self._names), self.zxid + 1, session)
        for index, op in enumerate(ops):
            reason = work.apply(op)
            if reason is not None:
                raise RefusedError(index, op, reason)
        self.nodes, self._names, self.zxid = work.nodes, work.names, work.zxid
        self.on_commit(Commit(self.now(), tuple(dict.fromkeys(work.changed)), session, expired))
        return work.stats

    def remove_ephemerals(self, session: int) -> None:
        """Delete the nodes of a session that has ended."""
        gone = [path for path, stored in self.nodes.items() if stored.owner == session]
        if gone:
            self.transaction([Delete(path) for path in gone], session, expired=True)


class _Work:
    """A transaction while it is being tried, on copies."""

    def __init__(self, nodes: dict[str, _Stored], names: dict[str, frozenset[str]], zxid: int, session: int) -> None:
        self.nodes = nodes
        self.names = names
        self.zxid = zxid
        self.session = session
        self.changed: list[WatchKey] = []
        self.stats: list[Stat | None] = []

    def apply(self, op: Op) -> str | None:
        """Do one operation. Returns why it cannot be done, or None."""
        if isinstance(op, Create):
            return self._create(op)
        stored = self.nodes.get(op.path)
        if stored is None:
            return "NoNode"
        if op.version not in (-1, stored.version):
            return "BadVersion"
        if isinstance(op, Delete):
            return self._delete(op.path)
        if isinstance(op, SetData):
            stored = replace(stored, data=op.data, version=stored.version + 1, mzxid=self.zxid)
            self.nodes[op.path] = stored
            self.changed.append(("data", op.path))
        self.stats.append(stored.stat() if isinstance(op, SetData) else None)
        return None

    def _create(self, op: Create) -> str | None:
        parent, name = _split(op.path)
        if parent not in self.nodes:
            return "NoNode"
        if op.path in self.nodes:
            return "NodeExists"
        if self.nodes[parent].owner:
            return "NoChildrenForEphemerals"
        owner = self.session if op.ephemeral else 0
        self.nodes[op.path] = _Stored(op.data, 0, owner, self.zxid, self.zxid)
        self.names[op.path] = frozenset()
        self.names[parent] |= {name}
        self.changed += [("data", op.path), ("children", parent)]
        self.stats.append(None)
        return None

    def _delete(self, path: str) -> str | None:
        if self.names[path]:
            return "NotEmpty"
        parent, name = _split(path)
        del self.nodes[path], self.names[path]
        self.names[parent] -= {name}
        self.changed += [("data", path), ("children", path), ("children", parent)]
        self.stats.append(None)
        return None


def _split(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent or "/", name
