"""The group's members: our own id node, and what the others' say."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from inbound.coordinators.base import Member
from inbound.coordinators.nodes import BadNodeError, MemberInfo, decode_member
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.watch import Watch
from inbound.coordinators.zookeeper import (
    MAX_TRANSACTION_BYTES,
    Create,
    Delete,
    Node,
    Op,
    RefusedError,
    SetData,
    ZooKeeper,
    unavailable,
)
from inbound.errors import ConsumerIdTakenError, InboundError, ZkAmbiguousError

log = logging.getLogger(__name__)

#: A larger id node is never sent: ZooKeeper drops the connection above 1 MiB, again with each try.
MAX_ID_BYTES = MAX_TRANSACTION_BYTES


class IdNodeTooLargeError(InboundError):
    """What an id node is to say does not fit into it; nothing was sent."""


class Registration(Enum):
    """How an attempt to register ended."""

    DONE = "done"
    OCCUPIED = "occupied"  # another session has the id node; wait for it to go, or take over if it is provably dead


@dataclass
class Membership:
    """Our id node. Used from the controller's thread only.

    The node changes hands only when a process starts. Afterwards, another session in it means that a second live
    process uses our id: we stop for good instead of taking it back, else the two would evict each other for ever. Unless
    that process is provably dead: it was killed while it took the node over, and its request executed after ours.
    """

    zk: ZooKeeper
    paths: GroupPaths
    consumer_id: str
    info: MemberInfo
    #: The sessions that were ours. A left-over node of one of them may be replaced.
    sessions: set[int]
    registered: bool = False
    #: Whether the process that a node names is provably dead, though its session may live on.
    owner_is_dead: Callable[[MemberInfo], bool] = lambda info: False
    admin: str | None = None  # URL of the admin port, where that has moved since `info` was written
    #: Sessions of a process that had our id, and is provably dead although its session still lives.
    dead_sessions: set[int] = field(default_factory=set)

    @property
    def path(self) -> str:
        return self.paths.member(self.consumer_id)

    def move_admin(self, url: str) -> None:
        """Write another URL with the next `publish`. Any thread."""
        self.admin = url

    async def register(self) -> Registration:
        """Write the id node in the current session, keeping the seniority of an earlier one.

        Raises:
            ConsumerIdTakenError: we were registered, and another live session has the node now.
            IdNodeTooLargeError: the channel lists too many topics.
            TransientError: ZooKeeper did not answer.
        """
        session = self._session()
        self.sessions.add(session)
        node = await self.zk.get(self.path)
        if node is not None and node.stat.ephemeral_owner == session:
            await self._keep(node)
            return Registration.DONE
        ops: list[Op] = [Create(self.path, self._encoded(self.info), ephemeral=True)]
        if node is not None:
            if node.stat.ephemeral_owner not in self.sessions:
                if not self._is_of_the_dead(node):
                    if self.registered:
                        raise self._taken(node)
                    return Registration.OCCUPIED
                self.dead_sessions.add(node.stat.ephemeral_owner)
            ops.insert(0, Delete(self.path))
        try:
            await self.zk.transaction(ops)
        except RefusedError:
            return Registration.OCCUPIED  # it came, or went, between; the caller looks again
        except ZkAmbiguousError:
            pass  # read back below
        node = await self.zk.get(self.path)
        if node is None or node.stat.ephemeral_owner != self._session():
            return Registration.OCCUPIED
        await self._keep(node)
        return Registration.DONE

    async def check(self) -> bool:
        """Return whether our node is there and ours; False: register again.

        Raises:
            ConsumerIdTakenError: another live session has it.
        """
        session = self._session()
        node = await self.zk.get(self.path)
        if node is None or node.stat.ephemeral_owner in self.sessions - {session}:
            return False
        if node.stat.ephemeral_owner == session:
            return True
        if self._is_of_the_dead(node):
            return False
        raise self._taken(node)

    async def publish(self, topics: tuple[str, ...], subscriber: dict[str, Any] | None) -> None:
        """Say in the id node which topics we read (a pattern can match new ones) and how the subscription goes.

        Only where that has changed.

        Raises:
            IdNodeTooLargeError: it stays as it was; the group shares the topics that it lists.
        """
        info = replace(self.info, topics=topics, subscriber=subscriber, admin=self.admin or self.info.admin)
        if info == self.info or not self.registered:
            return
        data = self._encoded(info)
        node = await self.zk.get(self.path)
        if node is None or node.stat.ephemeral_owner != self._session():
            return
        try:
            await self.zk.transaction([SetData(self.path, data, node.stat.version)])
        except RefusedError:
            return  # the node went; registering again writes it
        self.info = info

    async def leaving(self) -> list[Op]:
        """Return what deletes our id node; nothing if it is not ours. From here on we do not count as registered."""
        node = await self.zk.get(self.path)
        self.registered = False
        ours = node is not None and node.stat.ephemeral_owner == self._session()
        return [Delete(self.path)] if ours else []

    async def unregister(self) -> None:
        """Delete our id node, if it is ours."""
        ops = await self.leaving()
        if ops:
            with suppress(RefusedError):  # gone already
                await self.zk.transaction(ops)

    async def _keep(self, node: Node) -> None:
        self.registered = True
        if self.info.joined is None:
            # The node says by its own czxid when it was made; written out, the order survives a recreation.
            self.info = replace(self.info, joined=node.stat.czxid)
            try:
                await self.zk.transaction([SetData(self.path, self.info.encode(), node.stat.version)])
            except RefusedError:
                self.info = replace(self.info, joined=None)

    def _encoded(self, info: MemberInfo) -> bytes:
        data = info.encode()
        if len(data) > MAX_ID_BYTES:
            raise IdNodeTooLargeError(
                f"{self.path}: {len(info.topics)} topics do not fit into an id node ({len(data)} bytes, at most {MAX_ID_BYTES}); "
                "narrow topics_pattern, or spread the topics over several groups"
            )
        return data

    def _session(self) -> int:
        connection = self.zk.connection
        if connection is None:
            raise unavailable(f"registration of {self.consumer_id}")
        return connection.session.id

    def _is_of_the_dead(self, node: Node) -> bool:
        try:
            return self.owner_is_dead(decode_member(self.path, node.data))
        except BadNodeError:
            if self.registered:
                return False  # `_taken` says whose it is not
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
    """One id node as it was read last."""

    watch: Watch
    member: Member | None = None  # None: it cannot be read as ours


class Members:
    """The members of a group. Each id node is read again only when its watch has fired. Used by one thread."""

    def __init__(self, zk: ZooKeeper, paths: GroupPaths, changed: Callable[[], None]) -> None:
        """`changed` is called, by any thread, when a member comes, goes, or says something else."""
        self._zk = zk
        self._paths = paths
        self._changed = changed
        self._list = Watch(changed)
        self._known: dict[str, _Read] = {}

    async def read(self) -> tuple[Member, ...]:
        """Return the members, in no order.

        A node that cannot be read as ours is left out, loudly: it would count as a member that takes nothing.

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
            return None  # it went since the list was read
        try:
            info = decode_member(self._paths.member(name), node.data)
        except BadNodeError as error:
            log.warning("%s; it is not counted as a member", error)
            return None
        joined = info.joined if info.joined is not None else node.stat.czxid
        return Member(name, joined, info.topics, info.coordinator, info.subscriber)
