"""Claim, recover, release: the transactions that change who owns a partition.

Reads are hints; only transactions decide. A node is *ours* if its `ephemeralOwner` is our session, never because the consumer
id matches. A partition is *held* while its owner node is ours and its epoch has the version that our claim got: that
version is the fence of every commit.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from inbound.coordinators.nodes import (
    OPEN,
    BadNodeError,
    EpochInfo,
    RecreationNote,
    ResetNote,
    TopicInfo,
    decode_epoch,
    decode_offset,
    decode_topic,
    encode_offset,
    same_topic,
)
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import (
    MAX_TRANSACTION_OPS,
    Call,
    Check,
    Create,
    Delete,
    Node,
    Op,
    RefusedError,
    SetData,
    ZooKeeper,
    accepted,
    unavailable,
)
from inbound.errors import TransientError, ZkAmbiguousError
from inbound.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Fence:
    """The epoch and session of our claim, which every commit checks.

    The nonce tells our epoch from one of the same number in a node that was deleted and that we recreated.
    """

    epoch: int
    session: int
    nonce: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Claim:
    """A successful claim."""

    fence: Fence
    offset: int | None  # the group's commit; None where there is none yet
    added_later: bool = False  # to the topic, after the group had begun: the partition starts at its smallest offset
    topic_id: str | None = None  # of the topic that the offset is about
    #: The topic was deleted and recreated: this claim, or one before it after which nothing was committed, has set the
    #: offset to 0. `old` is the offset before.
    recreated: bool = False
    old: int | None = None
    former: str | None = None  # the id of the deleted topic
    #: The brokers' id, if it cannot be compared with `topic_id`: the offset may be about another topic.
    unclear: str | None = None
    reset: ResetNote | None = None  # the reset that moved the offset, if nothing was committed since
    info: EpochInfo | None = field(default=None, compare=False)  # the epoch node's data


class OtherTopicError(TransientError):
    """The group's offset is about another topic of this name.

    Either the topic was deleted and recreated, or (`former`) the claimant does not know that yet. Old metadata is no
    ground for a claim: ask the brokers again, and claim with `instead_of`.
    """

    def __init__(self, tp: TopicPartition, *, found: str, told: str | None, former: bool) -> None:
        super().__init__(f"{tp}: the group's offset is about topic {found}, the brokers last named {told}")
        self.found = found
        self.told = told
        self.former = former


class ClaimCheck(Enum):
    """An evaluation's finding about a partition that we hold, or wanted."""

    HELD = "held"  # ours, under our epoch
    UNVERIFIED = "unverified"  # neither confirmed nor refuted; look again
    CLOSED = "closed"  # the gate is closed; look again when it opens
    LOST = "lost"  # another member's epoch
    BROKEN = "broken"  # our node, but not our epoch: drop it and claim again
    REFUSED = "refused"  # ZooKeeper refuses a node of it, as for access rights; look again later


def current(fence: Fence, path: str, epoch: Node | None) -> Fence | None:
    """Return `fence` with the node's version if the epoch is ours.

    The nonce decides: the number alone repeats in a node that was deleted and recreated, and moves on when we write our own
    claim again (see `docs/decisions/0014-late-requests.md`). An older version with our nonce is an old view.
    """
    if epoch is None:
        return None
    if not fence.nonce:
        return fence if epoch.stat.version == fence.epoch else None
    try:
        info = decode_epoch(path, epoch.data)
    except BadNodeError:
        return None
    if info is None or info.nonce != fence.nonce:
        return None
    return replace(fence, epoch=max(fence.epoch, epoch.stat.version))


log = logging.getLogger(__name__)

_nonces = itertools.count()


class Ownership:
    """One consumer's transactions in one group. Controller's thread only."""

    def __init__(self, zk: ZooKeeper, group: str, consumer_id: str) -> None:
        self.zk = zk
        self.paths = GroupPaths(group)
        self.consumer_id = consumer_id
        self._group_ready_in: int | None = None  # the session in which the group's folders were there
        #: The session of an unanswered recovery: while it lives, the recovery may execute at any time.
        self._unanswered: dict[TopicPartition, int] = {}
        self._asking: dict[str, Call[Node | None]] = {}
        self._known: dict[str, tuple[TopicInfo, int]] = {}  # topic: its node, and the number of complete partitions

    async def ensure_group(self) -> None:
        """Create the group's folders, once in each session.

        A group without members may be deleted with all its nodes: so the folders may be gone when our session was.
        """
        connection = self.zk.connection
        session = connection.session.id if connection is not None else None
        if self._group_ready_in is not None and self._group_ready_in == session:
            return
        if self._group_ready_in is None or await self.zk.get(self.paths.ids) is None:
            self._known.clear()
            await self._ensure_paths(self.paths.group_parents())
        self._group_ready_in = session

    async def ensure(self, topic: str, partitions: int, *, came_later: bool = False) -> None:
        """Create a topic's parents, gate, epochs and offsets, but no owners.

        `came_later`: the group saw the topic's creation, so it begins at the smallest offset of all its partitions.

        Raises:
            TransientError: ZooKeeper did not answer; created nodes stay, and the next call goes on.
        """
        info, ready = self._known.get(topic, (None, 0))
        if info is not None and ready >= partitions:
            return
        paths = self.paths
        await self.ensure_group()
        await self._ensure_paths(paths.topic_parents(topic))
        await self._create_if_absent(Create(paths.gate(topic), OPEN))
        # One creator decides what "the topic as the group first saw it" was; all others read it.
        await self._create_if_absent(Create(paths.epochs(topic), TopicInfo(0 if came_later else partitions).encode()))
        node = await self.zk.get(paths.epochs(topic))
        info = decode_topic(paths.epochs(topic), node.data if node else b"")
        for parent, child in ((paths.epochs(topic), paths.epoch), (paths.offsets(topic), paths.offset)):
            present = set(await self.zk.children(parent) or ())
            missing = [Create(child(topic, p)) for p in range(partitions) if str(p) not in present]
            for start in range(0, len(missing), MAX_TRANSACTION_OPS):
                await self._create_all(missing[start : start + MAX_TRANSACTION_OPS])
        self._known[topic] = (info, partitions)

    async def claim(
        self,
        tp: TopicPartition,
        dead_sessions: Collection[int] = (),
        topic_id: str | None = None,
        *,
        instead_of: str | None = None,
    ) -> Claim | None:
        """Claim an ownerless partition; return None if it is not free.

        A partition whose owner node is a left-over of ours is free, too. `topic_id` is the topic's id from the brokers, None
        where they have none. Where the group's offset is about another id, the topic was deleted and recreated: then the
        claim sets the offset to 0, in the same transaction, so it happens once, for all claimants. It does so only in place
        of the id `instead_of`, which was found before the brokers were asked again: an earlier answer could be older than
        the group's knowledge. Where the two ids cannot be compared, the claim changes neither id nor offset, and says so
        (`Claim.unclear`).

        The offset is read after the claim and in the same session: read before, another owner could still commit and
        release between the two, and its records would be repeated. An owner node of one of `dead_sessions` (of a
        process that is provably dead) is replaced; if that node is another session's by now, its claim has raised the epoch
        and ours is refused.

        Raises:
            OtherTopicError: the group's offset is about neither `topic_id` nor `instead_of`.
            TransientError: no usable answer; the next evaluation finds out whether the partition is ours.
            BadNodeError: a node cannot be read.
        """
        session = self.zk.session_for(f"claim of {tp}")
        epoch_path, owner_path, offset_path = self.paths.epoch(*tp), self.paths.owner(*tp), self.paths.offset(*tp)
        gate, member, epoch, owner = await self._look(tp)
        if gate is None or gate.data != OPEN or member is None:
            return None
        if epoch is None or (owner is not None and owner.stat.ephemeral_owner not in {session, *dead_sessions}):
            return None
        before = self._before(epoch_path, epoch)
        nonce = f"{os.urandom(8).hex()}-{next(_nonces)}"
        leader_epoch = await self._leader_epoch(tp, before, fresh=not epoch.data)
        notes = before if await self._stands_at(tp, before.noted_offset) else before.without_notes()
        mine = replace(notes, consumer=self.consumer_id, session=session, nonce=nonce, leader_epoch=leader_epoch)
        unclear = None
        if mine.topic_id is not None and topic_id is not None and same_topic(mine.topic_id, topic_id) is None:
            unclear, topic_id = topic_id, None
        info = mine.of_topic(topic_id)
        recreated = mine.topic_id is not None and mine.topic_id != info.topic_id
        if mine.topic_id is not None and recreated and mine.topic_id != instead_of:
            former = topic_id is not None and mine.knows_as_former(topic_id)
            raise OtherTopicError(tp, found=mine.topic_id, told=topic_id, former=former)
        old = await self.zk.get(offset_path) if recreated else None
        if recreated:
            note = RecreationNote(self._overwritten(offset_path, old))
            info = replace(info, leader_epoch=0, reset=None, recreated=note)
        ops: list[Op] = [
            Check(self.paths.gate(tp.topic), gate.stat.version),
            SetData(epoch_path, info.encode(), epoch.stat.version),
            *([Delete(owner_path)] if owner is not None else []),
            Create(owner_path, self.consumer_id.encode(), ephemeral=True),
        ]
        if recreated:
            ops.append((Create if old is None else SetData)(offset_path, encode_offset(0)))
        try:
            await self.zk.transaction(ops)
        except RefusedError as refused:
            self._look_for_missing(tp.topic, refused)
            return None
        except ZkAmbiguousError:
            landed = await self.zk.get(epoch_path)
            if landed is None or decode_epoch(epoch_path, landed.data) != info:
                raise  # not yet: it may execute as long as the session lives
        node = await self.zk.get(offset_path)
        if self.zk.session_for(f"claim of {tp}") != session:
            raise unavailable(f"claim of {tp}")  # the session changed between: the owner node went with it
        offset = decode_offset(offset_path, node.data if node else b"")
        known, _ = self._known.get(tp.topic, (TopicInfo(1 << 31), 0))
        fence = Fence(epoch.stat.version + 1, session, info.nonce)
        self._unanswered.pop(tp, None)  # it checks an epoch that is over now
        told = info if info.noted_offset == offset else info.without_notes()
        recreation, former_id = told.recreated, next(iter(info.former), None)
        return Claim(
            fence, offset, tp.partition >= known.partitions, info.topic_id, recreation is not None,
            recreation.old if recreation else None, former_id if recreation else None, unclear, told.reset, info,
        )  # fmt: skip

    async def recover(self, tp: TopicPartition, fence: Fence) -> tuple[ClaimCheck, Fence]:
        """Recreate the owner node in a new session, under the same epoch.

        So nothing is lost or repeated. Call it only once the server has declared the fence's session expired: while that
        session may live, its in-flight commit could land after a newer one of ours under the same epoch.
        """
        session = self.zk.session_for(f"recovery of {tp}")
        gate = await self.zk.get(self.paths.gate(tp.topic))
        if gate is None:
            self._missing(tp.topic, self.paths.gate(tp.topic))
            return ClaimCheck.UNVERIFIED, fence
        if gate.data != OPEN:
            return ClaimCheck.CLOSED, fence
        ops: list[Op] = [
            Check(self.paths.gate(tp.topic), gate.stat.version),
            Check(self.paths.epoch(*tp), fence.epoch),
            Create(self.paths.owner(*tp), self.consumer_id.encode(), ephemeral=True),
        ]
        call = self.zk.transaction(ops)
        try:
            await call
        except (RefusedError, ZkAmbiguousError) as error:
            if isinstance(error, RefusedError):
                self._look_for_missing(tp.topic, error)
            elif call.sent_in is not None:
                self._unanswered[tp] = call.sent_in
            # Refused is not lost: the node may be our own, from an attempt whose answer did not come.
            return await self.verify(tp, replace(fence, session=session))
        return ClaimCheck.HELD, replace(fence, session=session)

    async def verify(self, tp: TopicPartition, fence: Fence) -> tuple[ClaimCheck, Fence]:
        """Find out whether a partition is held under `fence`."""
        session = self.zk.session_for(f"check of {tp}")
        gate, member, epoch, owner = await self._look(tp)
        now = current(fence, self.paths.epoch(*tp), epoch)
        if now is None:
            ours = owner is not None and owner.stat.ephemeral_owner == session
            return (ClaimCheck.BROKEN if ours else ClaimCheck.LOST), fence
        if owner is None:
            closed = gate is not None and gate.data != OPEN
            return (ClaimCheck.CLOSED if closed else ClaimCheck.UNVERIFIED), replace(now, session=fence.session)
        if owner.stat.ephemeral_owner != session or member is None:
            return ClaimCheck.UNVERIFIED, fence  # the node of an ending session, or a server that lags
        return ClaimCheck.HELD, replace(now, session=session)

    async def release(self, tp: TopicPartition, fence: Fence, offset: int | None) -> int | None:
        """Release a partition, and commit `offset` if given, in one transaction.

        The transaction checks the epoch and not the owner node's version: a recreated node starts at version 0 again, and a
        late second attempt would delete another member's.

        Returns:
            The transaction id (mzxid) of the commit, where one was asked for and has landed; else None.

        Raises:
            TransientError: no answer; ask again, with the same offset.
        """
        self.zk.session_for(f"release of {tp}")
        guard = await self._guard_of_release(tp, fence)
        if guard is None:
            return None  # not ours any more
        ops: list[Op] = [guard]
        if offset is not None:
            ops.append(SetData(self.paths.offset(*tp), encode_offset(offset)))
        ops.append(Delete(self.paths.owner(*tp)))
        try:
            stats = await self.zk.transaction(ops)
        except RefusedError as refused:
            if refused.op is guard and isinstance(guard, SetData):
                raise TransientError(f"release of {tp}: {refused}; what was read before was old") from None
            if isinstance(refused.op, Delete) and offset is not None:
                # No owner node although the epoch is ours: it went with an old session. Commit alone.
                return await self._commit_alone(tp, fence, offset)
            return None  # not ours any more
        self._unanswered.pop(tp, None)
        stat = stats[1] if offset is not None else None
        return stat.mzxid if stat else None

    async def release_all(
        self, partitions: Sequence[tuple[TopicPartition, Fence]], first: Sequence[Op]
    ) -> frozenset[TopicPartition]:
        """Release as many partitions as fit into one transaction, without commits.

        The transaction begins with `first`. Returns the released partitions; release the others one by one.

        Raises:
            RefusedError: one of them is not ours any more, or `first` is refused: nothing was done.
            TransientError: no answer: the partitions may be released.
        """
        wanted = [(tp, fence) for tp, fence in partitions if tp not in self._unanswered]
        ops: list[Op] = list(first)
        for tp, fence in wanted[: (MAX_TRANSACTION_OPS - len(ops)) // 2]:
            ops += [Check(self.paths.epoch(*tp), fence.epoch), Delete(self.paths.owner(*tp))]
        if ops:
            await self.zk.transaction(ops)
        return frozenset(tp for tp, _ in wanted[: (MAX_TRANSACTION_OPS - len(first)) // 2])

    async def _guard_of_release(self, tp: TopicPartition, fence: Fence) -> Op | None:
        """Return the release's check of the epoch; None if that is another's.

        After a recovery without an answer the release moves the epoch instead. Else that recovery could still execute after
        this release, and leave an owner node of ours under which nothing is held.
        """
        path = self.paths.epoch(*tp)
        if self._unanswered.get(tp) != self.zk.session_for(f"release of {tp}"):
            return Check(path, fence.epoch)
        epoch = await self.zk.get(path)
        if epoch is None or current(fence, path, epoch) is None:
            return None
        return SetData(path, epoch.data, epoch.stat.version)

    async def clear(self, tp: TopicPartition, dead_sessions: Collection[int] = ()) -> None:
        """Delete an owner node without a held partition, which blocks claims.

        The node is ours, or of one of `dead_sessions`. The transaction checks the epoch: executed late, it would else delete
        the node of our next claim. It raises the epoch where an unanswered request could still execute: a commit of the
        dead process, or our own recovery.

        Raises:
            RefusedError: the epoch moved, or the node went, just now; look again.
            TransientError: no answer; ask again.
        """
        session = self.zk.session_for(f"removal of the owner node of {tp}")
        epoch_path, owner_path = self.paths.epoch(*tp), self.paths.owner(*tp)
        # The owner last: an owner node of ours then was not claimed under a later epoch than the checked one.
        asked = self.zk.get(epoch_path), self.zk.get(owner_path)
        epoch, owner = [await call for call in asked]
        if epoch is None or owner is None or owner.stat.ephemeral_owner not in {session, *dead_sessions}:
            return
        version = epoch.stat.version
        certain = owner.stat.ephemeral_owner == session and self._unanswered.get(tp) != session
        guard: Op = Check(epoch_path, version) if certain else SetData(epoch_path, epoch.data, version)
        await self.zk.transaction([guard, Delete(owner_path)])

    # -- inside ------------------------------------------------------------------------------------------------------

    async def _look(self, tp: TopicPartition) -> tuple[Node | None, Node | None, Node | None, Node | None]:
        """Read gate, our id node, epoch and owner, in this order.

        That is one round trip. The owner last: read before the epoch, it could be a node that our own successor has already
        replaced, and the old process would evict the new one.
        """
        paths = self.paths
        calls = [
            self._get_once(paths.gate(tp.topic)),
            self._get_once(paths.member(self.consumer_id)),
            self.zk.get(paths.epoch(*tp)),
            self.zk.get(paths.owner(*tp)),
        ]
        gate, member, epoch, owner = [await call for call in calls]
        for node, path in ((gate, paths.gate(tp.topic)), (epoch, paths.epoch(*tp))):
            if node is None:
                self._missing(tp.topic, path)
        return gate, member, epoch, owner

    def _get_once(self, path: str) -> Call[Node | None]:
        """Read a node that all partitions share, with one request in flight."""
        call = self._asking.get(path)
        if call is None or call.done:
            call = self._asking[path] = self.zk.get(path)
        return call

    def _look_for_missing(self, topic: str, refused: RefusedError) -> None:
        if refused.reason == "NoNode":
            self._missing(topic, refused.op.path)

    def _missing(self, topic: str, path: str) -> None:
        """Have the next `ensure` recreate deleted nodes."""
        if self._known.pop(topic, None) is not None:
            log.error(
                "%s is gone, or its parent: it was deleted. It is made again; the partitions concerned are claimed "
                "again and go on at their last commit. Delete no nodes of a group that has members",
                path,
            )

    def _overwritten(self, path: str, old: Node | None) -> int | None:
        """Return the offset in a node, if it has a valid one."""
        try:
            return decode_offset(path, old.data) if old is not None else None
        except BadNodeError as error:
            log.warning("%s; it was of a topic that is deleted, and is overwritten", error)
            return None

    def _before(self, path: str, epoch: Node) -> EpochInfo:
        """Return the epoch node's data, or empty data if it is unreadable."""
        try:
            return decode_epoch(path, epoch.data) or EpochInfo("", 0, "")
        except BadNodeError as error:
            log.warning("%s; claimed all the same; the claim overwrites its content", error)
            return EpochInfo("", 0, "")

    async def _leader_epoch(self, tp: TopicPartition, before: EpochInfo, *, fresh: bool) -> int | None:
        """Return `EpochInfo.leader_epoch` for a claim; 0 before the first commit.

        0 is right for a log that never lost its leader, and spares its first commit to move the epoch.
        """
        node = await self.zk.get(self.paths.offset(*tp)) if fresh else None
        return 0 if fresh and (node is None or not node.data.strip()) else before.leader_epoch

    async def _stands_at(self, tp: TopicPartition, offset: int | None) -> bool:
        """Return whether the group's offset is `offset`, as a hint.

        A commit may land before our claim.
        """
        if offset is None:
            return False
        path = self.paths.offset(*tp)
        node = await self.zk.get(path)
        return node is not None and decode_offset(path, node.data) == offset

    async def _commit_alone(self, tp: TopicPartition, fence: Fence, offset: int) -> int | None:
        path = self.paths.offset(*tp)
        try:
            stats = await self.zk.transaction(
                [Check(self.paths.epoch(*tp), fence.epoch), SetData(path, encode_offset(offset))]
            )
        except RefusedError:
            return None
        return stats[1].mzxid if stats[1] else None

    async def _ensure_paths(self, paths: list[str]) -> None:
        for path in paths:
            if await self.zk.get(path) is None:
                await self._create_if_absent(Create(path))

    async def _create_if_absent(self, op: Create) -> None:
        try:
            await self.zk.transaction([op])
        except RefusedError as refused:
            if refused.reason != "NodeExists":
                raise

    async def _create_all(self, ops: list[Create]) -> None:
        """Create all of `ops`, one by one if other members do, too."""
        if not await accepted(self.zk, ops):
            for op in ops:
                await self._create_if_absent(op)
