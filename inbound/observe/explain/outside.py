"""Explains a partition without its owner, from ZooKeeper and Kafka alone."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from inbound.controller.reset_offset.command import decode
from inbound.coordinators.base import GroupView, Member
from inbound.coordinators.members import Members
from inbound.coordinators.nodes import (
    OPEN,
    BadNodeError,
    MemberInfo,
    decode_epoch,
    decode_member,
    decode_offset,
)
from inbound.coordinators.paths import CommandPaths, GroupPaths
from inbound.coordinators.pauses import Pause, decode_pause
from inbound.coordinators.rights import described, named, rights_of
from inbound.coordinators.zookeeper import Node, ZooKeeper
from inbound.errors import ZkNodeError
from inbound.observe.explain.facts import Cause, Explanation, duration
from inbound.topic_partition import TopicPartition


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """The nodes of one partition in one group.

    Times are Unix times; None: unknown.
    """

    tp: TopicPartition
    group: str
    channel: str  # the name of the asking channel
    members: tuple[Member, ...] = ()
    infos: Mapping[str, MemberInfo] = field(default_factory=dict)  # id nodes by consumer id
    owner: str | None = None
    owner_since: float | None = None
    owner_registered: bool = True  # the id node of the owner is of the same session
    owned: frozenset[int] = frozenset()  # partitions of the topic that have an owner
    epoch: int | None = None
    claimed_by: str | None = None  # who claimed it last
    claimed_at: float | None = None
    committed: int | None = None
    committed_at: float | None = None
    gate: str | None = None  # the reset that closed it; None: it is open
    gate_since: float | None = None
    gate_step: str | None = None  # of that reset; None: unknown
    pauses: tuple[Pause, ...] = ()
    bad_node: str | None = None  # why a node of it cannot be used

    def as_dict(self) -> dict[str, Any]:
        members = [
            {
                "consumer": name,
                "host": info.host,
                "pid": info.pid,
                "coordinator": described(info.coordinator),
                "admin": info.admin,
            }
            for name, info in self.infos.items()
        ]
        return {
            "members": members,
            "owner": self.owner,
            "owner_since": self.owner_since,
            "epoch": self.epoch,
            "claimed_by": self.claimed_by,
            "claimed_at": self.claimed_at,
            "committed": self.committed,
            "committed_at": self.committed_at,
            "gate": "open" if self.gate is None else self.gate,
            "gate_since": self.gate_since,
            "gate_step": self.gate_step,
            "pauses": [pause.told(self.channel) for pause in self.pauses],
            "bad_node": self.bad_node,
        }


@dataclass(frozen=True, kw_only=True)
class PartitionLog:
    """The partition's log, as Kafka describes it."""

    problem: str | None = None  # Kafka did not answer
    partitions: int | None = None  # of the topic; 0: there is none
    start: int | None = None
    end: int | None = None  # of the readable records


async def read_nodes(zk: ZooKeeper, tp: TopicPartition, group: str, channel: str) -> Nodes:
    """Read the nodes of a partition.

    Raises:
        TransientError: it does not answer.
    """
    paths = GroupPaths(group)
    members = await Members(zk, paths, lambda: None).read()
    infos: dict[str, MemberInfo] = {}
    sessions = {}
    for member in sorted(members, key=lambda m: (m.joined, m.consumer_id)):
        path = paths.member(member.consumer_id)
        node = await zk.get(path)
        if node is not None:
            sessions[member.consumer_id] = node.stat.ephemeral_owner
            with suppress(BadNodeError):  # the members' own problem
                infos[member.consumer_id] = decode_member(path, node.data)
    own: list[Node | None] = []
    bad_node = None
    for path_of in (paths.owner, paths.epoch, paths.offset):
        try:
            own.append(await zk.get(path_of(*tp)))
        except ZkNodeError as error:
            own.append(None)
            bad_node = str(error)
    owner, epoch, offset = own
    gate = await zk.get(paths.gate(tp.topic))
    owned = await zk.children(paths.owners(tp.topic)) or []
    pauses = []
    for pause in await zk.children(paths.pauses) or []:
        node = await zk.get(f"{paths.pauses}/{pause}")
        pauses.append(decode_pause(pause, node.data if node is not None else b""))
    name = owner.data.decode(errors="replace") if owner is not None else None
    closed_by = gate.data.decode(errors="replace") if gate is not None and gate.data != OPEN else None
    claim = committed = None
    with suppress(BadNodeError):  # the next claim overwrites it
        claim = decode_epoch(paths.epoch(*tp), epoch.data) if epoch is not None else None
    try:
        committed = decode_offset(paths.offset(*tp), offset.data) if offset is not None else None
    except BadNodeError as error:
        bad_node = str(error)
    return Nodes(
        tp=tp,
        group=group,
        channel=channel,
        members=members,
        infos=infos,
        owner=name,
        owner_since=(owner.stat.ctime or None) if owner is not None else None,
        owner_registered=owner is None or sessions.get(name or "") == owner.stat.ephemeral_owner,
        owned=frozenset(int(child) for child in owned if child.isdigit()),
        epoch=epoch.stat.version if epoch is not None else None,
        claimed_by=claim.consumer if claim is not None else None,
        claimed_at=(epoch.stat.mtime or None) if epoch is not None and claim is not None else None,
        committed=committed,
        committed_at=(offset.stat.mtime or None) if offset is not None and committed is not None else None,
        gate=closed_by,
        gate_since=(gate.stat.mtime or None) if gate is not None else None,
        gate_step=await _step(zk, closed_by) if closed_by is not None else None,
        pauses=tuple(pauses),
        bad_node=bad_node,
    )


def explain_outside(nodes: Nodes, log: PartitionLog, now: float, silent: str | None = None) -> Explanation | None:
    """Return why no member reads the partition. Pure.

    None: its owner reads it; ask the owner. `silent` is why the owner does not answer; None: it answers, or was not asked.
    """
    p, count = nodes.tp.partition, log.partitions
    if nodes.gate is not None:
        return _reset(nodes, now, silent)
    if count == 0:
        return Explanation(
            Cause.TOPIC_MISSING, "the topic does not exist on these brokers", "create it, or correct its name"
        )
    if count is not None and p >= count:
        return Explanation(
            Cause.NO_PARTITION, f"the topic has {count} partitions, 0 to {count - 1}", "correct the partition's number"
        )
    if nodes.bad_node is not None and (nodes.owner is None or silent is not None):
        return Explanation(
            Cause.BAD_NODE,
            f"a node of it cannot be used: {nodes.bad_node}",
            "write the next offset to read into the offset node as decimal text, or give the consumers' user all rights to the "
            "partition's nodes; members try again at least once a minute",
        )
    if nodes.owner is not None:
        return _silent_owner(nodes, now, silent) if silent is not None else None
    if not nodes.members:
        return Explanation(
            Cause.NO_MEMBER,
            f"group {nodes.group} has no consumer, so it is not read",
            "start one (`inbound run`); if one runs, look whether it reaches this ZooKeeper (zookeeper.hosts, chroot)",
            evidence=_last_owner(nodes, now),
        )
    none_allowed = _none_allowed(nodes, count if count is not None else max(nodes.owned | {p}) + 1)
    if none_allowed is not None:
        return none_allowed
    if log.problem is not None:
        return Explanation(
            Cause.BROKER_AWAY,
            f"it has no owner, and Kafka does not answer: {log.problem}",
            "bring the brokers back: members claim what they know of",
        )
    return Explanation(
        Cause.BEING_CLAIMED,
        f"it has no owner at this moment; one of {named(sorted(m.consumer_id for m in nodes.members), 5)} takes it",
        "ask again in some seconds; if it stays so, look at the logs of these",
        evidence=_last_owner(nodes, now),
    )


# -- inside ----------------------------------------------------------------------------------------------------------


def _reset(nodes: Nodes, now: float, silent: str | None) -> Explanation:
    since = now - nodes.gate_since if nodes.gate_since is not None else None
    if not (nodes.gate or "").startswith(f"{CommandPaths.RESETS}/"):
        return Explanation(
            Cause.BAD_NODE,
            f"the gate of its topic holds {(nodes.gate or '')[:60]!r}, which is no reset: no member may take it, and none opens it",
            f"write `open` into {GroupPaths(nodes.group).gate(nodes.tp.topic)}",
            since,
        )
    lasts = f" for {duration(since)}" if since is not None else ""
    far = f", it is {nodes.gate_step}" if nodes.gate_step is not None else ""
    text = f"a reset has closed the gate{lasts} ({nodes.gate}{far}): no member may take it before that is done"
    todo = "wait for the reset to end; another process leads it on if its leader dies"
    if nodes.owner is not None:
        text += f"; it waits for {nodes.owner} to give it up"
        if silent is not None:
            text += f", which does not answer ({silent})"
            todo = "end that process: the reset goes on when its session has expired"
    return Explanation(Cause.RESET, text, todo, since)


async def _step(zk: ZooKeeper, command: str) -> str | None:
    if not command.startswith(f"{CommandPaths.RESETS}/"):
        return None  # written by hand
    node = await zk.get(command)
    if node is None:
        return "gone: the next leader of resets opens the gate"
    try:
        return decode(command, node).state.value
    except BadNodeError:
        return None


def _silent_owner(nodes: Nodes, now: float, silent: str | None) -> Explanation:
    info = nodes.infos.get(nodes.owner or "")
    where = f"pid {info.pid} on {info.host}" if info is not None else "whose id node is gone"
    if not nodes.owner_registered:
        return Explanation(
            Cause.OWNER_SILENT,
            f"its owner {nodes.owner} has lost its registration: the owner node is of a session that has not expired yet",
            "wait for the session to expire (zookeeper.session_timeout); another member then takes it",
        )
    pauses = [pause.told(nodes.channel) for pause in nodes.pauses if pause.concerns(nodes.owner or "")]
    return Explanation(
        Cause.OWNER_SILENT,
        f"its owner {nodes.owner} ({where}) keeps its ZooKeeper session and does not answer: {silent}",
        "look at that process: stopped, overloaded, or its admin port is not to be reached from here (admin.listen). If it "
        "hangs, end it: another member takes the partition at once",
        evidence=tuple(pauses),
    )


def _none_allowed(nodes: Nodes, count: int) -> Explanation | None:
    tp = nodes.tp
    readers = [m for m in nodes.members if tp.topic in m.topics]
    names = named(sorted(m.consumer_id for m in nodes.members), 5)
    if not readers:
        return Explanation(
            Cause.NONE_ALLOWED,
            f"no member of the group reads this topic ({names})",
            "add the topic to `topics` of a channel of this group",
        )
    rights = rights_of(GroupView("", nodes.members, {tp.topic: count}, frozenset(), frozenset()))[tp.topic]
    if tp in rights.listed or rights.sharers:
        return None
    if sum(free.partition not in nodes.owned for free in rights.unreserved()) > rights.left:
        return None  # a fixed-count member has less than its count: it takes one of them
    kinds = "; ".join(
        f"{m.consumer_id}: {described(m.coordinator)}" for m in sorted(readers, key=lambda m: m.consumer_id)[:5]
    )
    return Explanation(
        Cause.NONE_ALLOWED,
        f"no member may take it: the coordinators of the group leave {rights.left} partition(s) of the topic out ({kinds})",
        "raise a `count`, list the partition in `coordinator.partitions`, or start a dynamic member",
    )


def _last_owner(nodes: Nodes, now: float) -> tuple[str, ...]:
    if nodes.claimed_by is None or nodes.claimed_at is None:
        return ("no member has claimed it yet",)
    return (f"claimed last by {nodes.claimed_by}, {duration(now - nodes.claimed_at)} ago",)
