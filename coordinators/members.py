"""The group's members: our own id node and all others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from inbound.coordinators.base import Member
from inbound.coordinators.nodes import BadNodeError, MemberInfo, decode_member
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import (
    MAX_TRANSACTION_BYTES,
    Create,
    Delete,
    Node,
    Op,
    SetData,
    Watch,
    ZooKeeper,
    accepted,
    attempted,
)
from inbound.errors import ConsumerIdTakenError, InboundError

log = logging.getLogger(__name__)

#: A larger id node is never sent: ZooKeeper drops the connection above 1 MiB, again with each try.
MAX_ID_BYTES = MAX_TRANSACTION_BYTES


class IdNodeTooLargeError(InboundError):
    """An id node's data is too large; nothing was sent."""


@dataclass
class Membership:
    """Our id node. Controller's thread only.

    The node changes hands only when a process starts. Afterwards, another session in it means that a second live process
    uses our id: we stop for good instead of taking the node back, else the two would evict each other without end. Unless
    that process is provably dead: it was killed while it took the node over, and its request executed after ours.
    """

    zk: ZooKeeper
    paths: GroupPaths
    consumer_id: str
    info: MemberInfo
    #: Our sessions so far. A left-over node of one of them may be replaced.
    sessions: set[int]
    registered: bool = False
    #: Returns whether the process that a node names is provably dead, though its session may live on.
    owner_is_dead: Callable[[MemberInfo], bool] = lambda info: False
    #: URL of the admin port, where that has moved since `info` was written; the next `publish` writes it. Any thread.
    admin: str | None = None
    #: Living sessions of provably dead processes that had our id.
    dead_sessions: set[int] = field(default_factory=set)

    @property
    def path(self) -> str:
        return self.paths.member(self.consumer_id)

    async def register(self) -> bool:
        """Write the id node in the current session, with its earlier seniority.

        Returns False where another session has the node: wait for its end, and register again.

        Raises:
            ConsumerIdTakenError: we were registered, and another live session has the node now.
            IdNodeTooLargeError: the channel lists too many topics.
            TransientError: ZooKeeper did not answer.
        """
        session = self.zk.session_for(f"registration of {self.consumer_id}")
        self.sessions.add(session)
        node = await self.zk.get(self.path)
        if node is not None and node.stat.ephemeral_owner == session:
            await self._keep(node)
            return True
        ops: list[Op] = [Create(self.path, self._encoded(self.info), ephemeral=True)]
        if node is not None:
            if node.stat.ephemeral_owner not in self.sessions:
                if not self._is_of_the_dead(node):
                    if self.registered:
                        raise self._taken(node)
                    return False
                self.dead_sessions.add(node.stat.ephemeral_owner)
            ops.insert(0, Delete(self.path))
        if await attempted(self.zk, ops) is False:
            return False  # another node came, or this one went, between; the caller looks again
        node = await self.zk.get(self.path)
        if node is None or node.stat.ephemeral_owner != self.zk.session_for(f"registration of {self.consumer_id}"):
            return False
        await self._keep(node)
        return True

    async def check(self) -> bool:
        """Return whether the id node is ours; False: register again.

        Raises:
            ConsumerIdTakenError: another live session has it.
        """
        session = self.zk.session_for(f"registration of {self.consumer_id}")
        node = await self.zk.get(self.path)
        if node is None or node.stat.ephemeral_owner in self.sessions - {session}:
            return False
        if node.stat.ephemeral_owner == session:
            return True
        if self._is_of_the_dead(node):
            return False
        raise self._taken(node)

    async def publish(self, topics: tuple[str, ...], subscriber: dict[str, Any] | None) -> None:
        """Write changed topics and subscription into the id node.

        Topics change when a pattern matches new ones.

        Raises:
            IdNodeTooLargeError: the node stays as it was; the group shares the topics that it lists.
        """
        info = replace(self.info, topics=topics, subscriber=subscriber, admin=self.admin or self.info.admin)
        if info == self.info or not self.registered:
            return
        data = self._encoded(info)
        node = await self.zk.get(self.path)
        if node is None or node.stat.ephemeral_owner != self.zk.session_for(f"registration of {self.consumer_id}"):
            return
        if await accepted(self.zk, [SetData(self.path, data, node.stat.version)]):  # else registering again writes it
            self.info = info

    async def leaving(self) -> list[Op]:
        """Stop counting as registered; return the operations that delete our node."""
        node = await self.zk.get(self.path)
        self.registered = False
        ours = node is not None and node.stat.ephemeral_owner == self.zk.session_for(
            f"registration of {self.consumer_id}"
        )
        return [Delete(self.path)] if ours else []

    async def unregister(self) -> None:
        if ops := await self.leaving():
            await accepted(self.zk, ops)  # refused: it is gone already

    async def _keep(self, node: Node) -> None:
        self.registered = True
        if self.info.joined is None:
            # The node's own czxid is the order of creation; written out, it survives a recreation.
            self.info = replace(self.info, joined=node.stat.czxid)
            if not await accepted(self.zk, [SetData(self.path, self.info.encode(), node.stat.version)]):
                self.info = replace(self.info, joined=None)

    def _encoded(self, info: MemberInfo) -> bytes:
        data = info.encode()
        if len(data) > MAX_ID_BYTES:
            raise IdNodeTooLargeError(
                f"{self.path}: {len(info.topics)} topics do not fit into an id node ({len(data)} bytes, at most {MAX_ID_BYTES}); "
                "narrow topics_pattern, or spread the topics over several groups"
            )
        return data

    def _is_of_the_dead(self, node: Node) -> bool:
        try:
            return self.owner_is_dead(decode_member(self.path, node.data))
        except BadNodeError:
            if self.registered:
                return False  # `_taken` reports an unknown program
            raise

    def _taken(self, node: Node) -> ConsumerIdTakenError:
        try:
            info = decode_member(self.path, node.data)
            who = f"process {info.pid} on {info.host}, started {info.started}"
        except BadNodeError:
            who = "an unknown program"
        return ConsumerIdTakenError(
            f"consumer id {self.consumer_id!r} is in use by {who} (session {node.stat.ephemeral_owner:#x} in {self.path}); "
            "this process stops: give each consumer its own consumer_id, or leave it out"
        )


@dataclass(eq=False)
class _Read:
    """The last read of one id node."""

    watch: Watch
    member: Member | None = None  # None: the node is not one of inbound's


class Members:
    """The members of a group.

    Each id node is read again only when its watch has fired. Used by one thread.
    """

    def __init__(self, zk: ZooKeeper, paths: GroupPaths, changed: Callable[[], None]) -> None:
        """`changed` reports that a member joined, left, or changed. Any thread."""
        self._zk = zk
        self._paths = paths
        self._changed = changed
        self._list = Watch(changed)
        self._known: dict[str, _Read] = {}

    async def read(self) -> tuple[Member, ...]:
        """Return the members, in no order.

        A node that is not one of inbound's is left out, and logged: it would count as a member that takes nothing.

        Raises:
            TransientError: no answer.
        """
        names = await self._list.children(self._zk, self._paths.ids) or ()
        known = self._known = {name: self._known.get(name) or _Read(Watch(self._changed)) for name in names}
        for name, read in known.items():
            if not read.watch.stands(self._zk):
                read.member = self._decoded(name, await read.watch.get(self._zk, self._paths.member(name)))
        return tuple(read.member for read in known.values() if read.member is not None)

    def _decoded(self, name: str, node: Node | None) -> Member | None:
        if node is None:
            return None  # deleted since the list was read
        try:
            info = decode_member(self._paths.member(name), node.data)
        except BadNodeError as error:
            log.warning("%s; it is not counted as a member", error)
            return None
        joined = info.joined if info.joined is not None else node.stat.czxid
        return Member(name, joined, info.topics, info.coordinator, info.subscriber)
