"""The group's members: our own id node, and what the others' say."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from inbound.coordinators.base import GroupView, Member
from inbound.coordinators.nodes import BadNodeError, MemberInfo, decode_member, encode_object
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.rights import named
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
    """The data of an id node is too large; nothing was sent."""


@dataclass
class Membership:
    """Our id node. Used from the controller's thread only.

    The node changes hands only when a process starts. Afterwards, another session in it means that a second live
    process uses our id: we stop for good instead of taking it back, else the two would evict each other without end. Unless
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
    #: URL of the admin port, where that has moved since `info` was written; the next `publish` writes it. Any thread.
    admin: str | None = None
    #: Sessions of a process that had our id, and is provably dead although its session still lives.
    dead_sessions: set[int] = field(default_factory=set)

    @property
    def path(self) -> str:
        return self.paths.member(self.consumer_id)

    async def register(self) -> bool:
        """Write the id node in the current session, keeping the seniority of an earlier one.

        Returns False where another session has it: wait for that to end, and register again.

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
            return False  # it came, or went, between; the caller looks again
        node = await self.zk.get(self.path)
        if node is None or node.stat.ephemeral_owner != self.zk.session_for(f"registration of {self.consumer_id}"):
            return False
        await self._keep(node)
        return True

    async def check(self) -> bool:
        """Return whether our node is there and ours; False: register again.

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
        if node is None or node.stat.ephemeral_owner != self.zk.session_for(f"registration of {self.consumer_id}"):
            return
        if await accepted(self.zk, [SetData(self.path, data, node.stat.version)]):  # else registering again writes it
            self.info = info

    async def leaving(self) -> list[Op]:
        """Return what deletes our id node; nothing if it is not ours. From here on we do not count as registered."""
        node = await self.zk.get(self.path)
        self.registered = False
        ours = node is not None and node.stat.ephemeral_owner == self.zk.session_for(
            f"registration of {self.consumer_id}"
        )
        return [Delete(self.path)] if ours else []

    async def unregister(self) -> None:
        """Delete our id node, if it is ours."""
        ops = await self.leaving()
        if ops:
            await accepted(self.zk, ops)  # refused: it is gone already

    async def _keep(self, node: Node) -> None:
        self.registered = True
        if self.info.joined is None:
            # The node says by its own czxid when it was made; written out, the order survives a recreation.
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
    """The members of a group.

    Each id node is read again only when its watch has fired. Used by one thread.
    """

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


#
# Each member says in its id node which generation it runs and why it does not move, if so. The longest-serving one puts
# what follows from that into the group's `subscriber` node. Pure, but for the bytes of that node.

Ready = Literal["True", "False", "Unknown"]

#: So many are named in a message; the others are only counted.
NAMED = 5


@dataclass(frozen=True, kw_only=True)
class SubscriberSaid:
    """What one member says of the subscription in its id node."""

    uid: str
    generation: int | None  # None: the configuration counts none, and members compare digests
    digest: str  # of the options
    stopped: tuple[str, ...] = ()  # why it does not consume, or some of its partitions not
    note: str | None = None  # what people should know although it consumes: the subscriber is down

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it, without what is not said."""
        return {key: value for key, value in asdict(self).items() if value not in (None, ())}


@dataclass(frozen=True, kw_only=True)
class SubscriberStatus:
    """One subscription's condition; names in camel case are Knative's."""

    uid: str
    observedGeneration: int | None
    ready: Ready
    message: str

    def encode(self) -> bytes:
        return encode_object(asdict(self))


def status_of(said: SubscriberSaid, view: GroupView | None, *, connected: bool) -> SubscriberStatus:
    """Return what follows for the subscription that `said` (our own word) is about.

    `view` is the group as last seen, None where it was not seen yet; its `owned` are the partitions that have an owner.
    """
    ready: Ready = "True"
    if not connected:
        ready, message = "Unknown", "ZooKeeper does not answer; what holds is known when it is back"
    elif view is None:
        ready, message = "Unknown", "not known yet: this process is still joining the group"
    elif reasons := _reasons(said, view):
        ready, message = "False", "; ".join(reasons)
    else:
        message = "; ".join(_notes(view.members))
    return SubscriberStatus(uid=said.uid, observedGeneration=said.generation, ready=ready, message=message)


def _reasons(said: SubscriberSaid, view: GroupView) -> list[str]:
    """Return why the group does not consume on all members, all partitions, in the generation that we run."""
    if not view.members:
        return ["the group has no member"]
    reasons = []
    if not sum(view.partitions.values()):
        reasons.append("its topic has no partition that Kafka knows of")
    free = view.free()
    if free:
        total = sum(view.partitions.values())
        reasons.append(f"no owner for {len(free)} of {total} partitions: {named(free, NAMED)}")
    for member in sorted(view.members, key=lambda m: (m.joined, m.consumer_id)):
        reasons += _of_member(said, member)
    return reasons


def _of_member(said: SubscriberSaid, member: Member) -> list[str]:
    theirs = member.subscriber
    if not isinstance(theirs, Mapping) or "uid" not in theirs:
        return [f"member {member.consumer_id} does not say which generation it runs; is it of an older version?"]
    reasons = []
    if theirs["uid"] != said.uid:
        reasons.append(f"member {member.consumer_id} serves the subscriber {theirs['uid']}")
    elif said.generation is not None and theirs.get("generation") != said.generation:
        reasons.append(f"member {member.consumer_id} is at generation {theirs.get('generation')}")
    elif said.generation is None and theirs.get("digest") != said.digest:
        reasons.append(f"member {member.consumer_id} runs other options")
    stopped = theirs.get("stopped") or ()
    return reasons + ([f"member {member.consumer_id}: {named(stopped, NAMED)}"] if stopped else [])


def _notes(members: Collection[Member]) -> list[str]:
    notes = (m.subscriber.get("note") for m in members if m.subscriber is not None)
    return sorted({str(note) for note in notes if note})
