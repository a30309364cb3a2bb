"""The nodes of the fake ensemble, and its transactions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from inbound.coordinators.zookeeper import Create, Delete, Node, Op, RefusedError, SetData, Stat
from inbound.errors import ZkDeniedError, ZkNodeError

#: What a watch is set on: ("data" or "children", path).
WatchKey = tuple[str, str]


class Who(NamedTuple):
    """A client's user, and the access rights of its new nodes."""

    user: str | None = None  # None: not authenticated
    acl: Literal["open", "creator", "readable"] = "open"  # for all, its user alone, or its user while others may read


ANONYMOUS = Who()


@dataclass(frozen=True)
class _Stored:
    data: bytes
    version: int
    owner: int
    czxid: int
    mzxid: int
    made_by: Who = ANONYMOUS

    def allows(self, who: Who, *, reading: bool) -> bool:
        made_by = self.made_by
        return made_by.acl == "open" or who.user == made_by.user or (reading and made_by.acl == "readable")

    def stat(self) -> Stat:
        return Stat(self.version, self.owner, self.czxid, self.mzxid)


@dataclass(frozen=True)
class Snapshot:
    """The tree as it was after one transaction."""

    zxid: int
    nodes: Mapping[str, _Stored]
    names: Mapping[str, frozenset[str]]

    def get(self, path: str, who: Who | None = None) -> Node | None:
        """Return a node; raise ZkDeniedError if `who` may not read it."""
        stored = self._stored(path, who)
        return Node(stored.data, stored.stat()) if stored else None

    def children(self, path: str, who: Who | None = None) -> list[str] | None:
        return sorted(self.names[path]) if self._stored(path, who) else None

    def may_read(self, path: str, who: Who) -> bool:
        """Return whether `who` may read a node, if it exists."""
        stored = self.nodes.get(path)
        return stored is None or stored.allows(who, reading=True)

    def _stored(self, path: str, who: Who | None) -> _Stored | None:
        if who is not None and not self.may_read(path, who):
            raise denied(path, who)
        return self.nodes.get(path)


@dataclass(frozen=True)
class Commit:
    """One transaction: the tree after it, and the watches it triggers."""

    after: Snapshot
    changed: tuple[WatchKey, ...]
    session: int  # whose transaction it was
    expired: bool = False  # the servers ended the session, not its client


class Tree:
    """All nodes by path, with ZooKeeper's rules of versions and transactions.

    A recreated node starts at version 0 again. A refused transaction changes nothing, not even zxid.
    `on_commit` is called after every transaction.
    """

    def __init__(self, on_commit: Callable[[Commit], None] = lambda commit: None) -> None:
        self.nodes: dict[str, _Stored] = {"/": _Stored(b"", 0, 0, 0, 0)}
        self.zxid = 0
        self._on_commit = on_commit
        #: Nodes that cannot be created or written, and why: for example a quota.
        self.refused: dict[str, str] = {}
        self._names: dict[str, frozenset[str]] = {"/": frozenset()}

    def now(self) -> Snapshot:
        """Return a snapshot; later transactions do not change it."""
        return Snapshot(self.zxid, self.nodes, self._names)

    def get(self, path: str) -> Node | None:
        return self.now().get(path)

    def children(self, path: str) -> list[str] | None:
        return self.now().children(path)

    def transaction(
        self, ops: Sequence[Op], session: int, *, expired: bool = False, who: Who = ANONYMOUS
    ) -> list[Stat | None]:
        """Apply all operations, or none.

        Access rights bind neither the end of a session nor an operator (session 0). Raises RefusedError: the first operation
        that failed; ZkNodeError: a node is one of `refused`; ZkDeniedError: access rights forbid it.
        """
        work = _TriedTransaction(
            dict(self.nodes), dict(self._names), self.zxid + 1, session, None if expired or not session else who
        )
        for index, op in enumerate(ops):
            try:
                reason = work.apply(op)
            except ZkDeniedError as error:
                raise ZkDeniedError(str(error), error.path, index) from None
            if reason is not None:
                raise RefusedError(index, op, reason)
            if op.path in self.refused and isinstance(op, (Create, SetData)):
                raise ZkNodeError(f"ZooKeeper (fake): {op.path}: {self.refused[op.path]}", op.path, index)
        self.nodes, self._names, self.zxid = work.nodes, work.names, work.zxid
        self._on_commit(Commit(self.now(), tuple(dict.fromkeys(work.changed)), session, expired))
        return work.stats

    def give(self, path: str, who: Who) -> None:
        """Set a node's access rights, as if `who` had created it."""
        self.nodes = {**self.nodes, path: replace(self.nodes[path], made_by=who)}
        self.zxid += 1
        self._on_commit(Commit(self.now(), (), 0))

    def remove_ephemerals(self, session: int) -> None:
        """Delete the nodes of a session that has ended."""
        gone = [path for path, stored in self.nodes.items() if stored.owner == session]
        if gone:
            self.transaction([Delete(path) for path in gone], session, expired=True)


@dataclass
class _TriedTransaction:
    """A transaction that is tried on copies."""

    nodes: dict[str, _Stored]
    names: dict[str, frozenset[str]]
    zxid: int
    session: int
    who: Who | None
    changed: list[WatchKey] = field(default_factory=list)
    stats: list[Stat | None] = field(default_factory=list)

    def apply(self, op: Op) -> str | None:
        """Apply one operation; return why it fails, or None."""
        if isinstance(op, Create):
            return self._create(op)
        if isinstance(op, Delete):
            self._ask(_split(op.path)[0], op.path)
        else:
            self._ask(op.path, op.path, reading=not isinstance(op, SetData))
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
        self._ask(parent, op.path)
        if op.path in self.nodes:
            return "NodeExists"
        if self.nodes[parent].owner:
            return "NoChildrenForEphemerals"
        owner = self.session if op.ephemeral else 0
        self.nodes[op.path] = _Stored(op.data, 0, owner, self.zxid, self.zxid, self.who or ANONYMOUS)
        self.names[op.path] = frozenset()
        self.names[parent] |= {name}
        self.changed += [("data", op.path), ("children", parent)]
        self.stats.append(None)
        return None

    def _ask(self, path: str, about: str, *, reading: bool = False) -> None:
        """Raise ZkDeniedError for `about` if the node at `path` forbids it."""
        stored = self.nodes.get(path)
        if stored is not None and self.who is not None and not stored.allows(self.who, reading=reading):
            raise denied(about, self.who)

    def _delete(self, path: str) -> str | None:
        if self.names[path]:
            return "NotEmpty"
        parent, name = _split(path)
        del self.nodes[path], self.names[path]
        self.names[parent] -= {name}
        self.changed += [("data", path), ("children", path), ("children", parent)]
        self.stats.append(None)
        return None


def denied(path: str, who: Who) -> ZkDeniedError:
    """Return the error of a refused access."""
    return ZkDeniedError(f"ZooKeeper (fake): {path} is not allowed to {who.user or 'a client without a user'}", path)


def _split(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent or "/", name
