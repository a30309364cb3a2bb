"""Claims, verifies, recovers and releases partitions by their nodes in ZooKeeper.

Runs on the controller's thread. `inbound.group.membership` decides which partitions to hold.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from inbound.coordinators.nodes import BadNodeError, ResetNote
from inbound.coordinators.ownership import Claim, ClaimCheck, Fence, OtherTopicError, Ownership
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call, Op, RefusedError
from inbound.errors import InboundError, PartitionLostError, TransientError, ZkNodeError, ZkUnavailableError
from inbound.group.partition_backoff import PartitionBackoff
from inbound.group.parts import MemberParts, Reading
from inbound.group.topic_identity import TopicIdentity
from inbound.kafka.base import read_to
from inbound.partition.partition import Fate, Partition, Place
from inbound.partition.position import Position
from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)

#: Seconds until the next claim of a partition whose owner node should be free any moment.
RETRY = 0.25
#: Seconds until the next try after a failure other than a lost connection.
AFTER_ERROR = 5.0
#: Seconds that a leaving member waits for its partitions to drain, to release them together.
TOGETHER = 0.1
#: The reason of a reset in the ledger, where a command has moved the group's offset.
BY_COMMAND = "offsets reset"


class Claims:
    """Claims, checks and releases partitions by their nodes in ZooKeeper.

    `Ownership` has the transactions, `Schedule` the partitions' places.
    """

    def __init__(
        self,
        parts: MemberParts,
        tasks: Tasks,
        reading: Reading,
        dead_sessions: Collection[int],
        *,
        why: Callable[[], str],
        why_released: Callable[[TopicPartition], str],
        may_be_reset: Callable[[Partition], bool],
    ) -> None:
        """Take `why` and `why_released`, which explain a move in the journal.

        `may_be_reset`: whether a reset may have moved a partition's epoch.
        """
        self._parts = parts
        self._tasks = tasks
        self._reading = reading
        self._dead_sessions = dead_sessions
        self._why = why
        self._why_released = why_released
        self._may_be_reset = may_be_reset
        self.ownership = Ownership(parts.zk, parts.settings.now.group, parts.consumer_id)
        #: Set when the group is being left: nothing is claimed any more.
        self.leaving = False
        #: Partitions whose owner node may be ours although we do not hold them.
        self._suspects: set[TopicPartition] = set()
        self._releases: dict[Partition, Call[None]] = {}  # in progress
        #: While the group is being left: drained partitions wait for it, and for these the owner nodes are gone already.
        self._together: Call[None] | None = None
        self._deleted: frozenset[TopicPartition] = frozenset()
        self.backoff = PartitionBackoff(parts)
        self._identity = TopicIdentity(reading.topics, parts.clock)

    # -- beliefs against nodes ---------------------------------------------------------------------------------------

    async def verify(self) -> None:
        """Check held partitions against their nodes in ZooKeeper.

        A partition that another member owns is dropped without a commit.
        """
        held = [p for p in self._parts.schedule.held() if p.place is not Place.LEAVING and p.fate is not Fate.DROP]
        verdicts = await self._tasks.gather([self._verify_one(p) for p in held], "check")
        again = []
        for partition in self._identity.recreated(held):
            # Without a commit: the claim that follows sets the offset to 0, and its epoch fences commits in flight.
            self._parts.journal.note(
                "recreated", "the topic was deleted and recreated; what was read of the old one is dropped",
                partition.tp, offset=partition.committed, epoch=partition.fence.epoch, level=logging.WARNING,
            )  # fmt: skip
            partition.why_lost = "the topic was deleted and recreated; the new one is read from its start"
            self._parts.schedule.doom(partition, Fate.DROP)
        for partition, (verdict, fence) in zip(held, verdicts, strict=True):
            if verdict is ClaimCheck.HELD and fence.session != partition.fence.session:
                self._parts.schedule.refence(partition, fence)
            elif verdict in (ClaimCheck.LOST, ClaimCheck.BROKEN):
                self._drop(partition, verdict)
            elif verdict is ClaimCheck.UNVERIFIED:
                again.append(partition)
        if again:
            await self.recover(again)
        self._parts.wake_committer()

    async def recover(self, partitions: Sequence[Partition]) -> None:
        """Recreate owner nodes in the current session, under the same epochs."""
        connection = self._parts.zk.connection
        if connection is None:
            raise ZkUnavailableError(f"channel {self._parts.name}: no connection to recover its partitions with")
        needy = [p for p in partitions if p.place is not Place.LEAVING and p.fate is not Fate.DROP]
        verdicts = await self._tasks.gather([self._recover_one(p) for p in needy], "recovery")
        recovered = [p for p, verdict in zip(needy, verdicts, strict=True) if verdict is ClaimCheck.HELD]
        if recovered:
            self._parts.journal.note(
                "verified",
                f"{len(recovered)} partitions verified in session {connection.session.id:#x}",
                partitions=len(recovered),
            )
        for partition, verdict in zip(needy, verdicts, strict=True):
            if partition.drained.done:
                # 1. The recovery is sent; 2. the partition drains, and its release finds no owner node to delete; 3. the
                # recovery creates one. No partition is held under it.
                self._suspects.add(partition.tp)
                self._parts.evaluate()
            elif verdict in (ClaimCheck.LOST, ClaimCheck.BROKEN):
                self._drop(partition, verdict)
            elif verdict is ClaimCheck.UNVERIFIED:
                self._parts.evaluate()
        self._parts.schedule.hurry_all()
        self._parts.wake_committer()

    async def _verify_one(self, partition: Partition, *, recover: bool = False) -> tuple[ClaimCheck, Fence]:
        try:
            verdict, fence = await self.ownership.verify(partition.tp, partition.fence)
            if verdict is ClaimCheck.UNVERIFIED and recover:
                # The server declared the old session expired before it gave us a new one, so no commit of the old one
                # can land any more, and the same epoch is safe to keep: as it is now, because a commit whose answer
                # was lost may have moved it on.
                verdict, fence = await self.ownership.recover(partition.tp, fence)
        except ZkNodeError as error:
            self.backoff.failed(partition.tp, error)
            return ClaimCheck.REFUSED, partition.fence
        if verdict is ClaimCheck.HELD:
            self.backoff.succeeded(partition.tp)
        return verdict, fence

    async def _recover_one(self, partition: Partition) -> ClaimCheck:
        verdict, fence = await self._verify_one(partition, recover=True)
        if verdict is ClaimCheck.HELD:
            if fence.session != partition.fence.session:
                self._parts.journal.note(
                    "recovered", "got back in a new session under the same epoch: nothing is repeated",
                    partition.tp, epoch=fence.epoch, level=logging.DEBUG,
                )  # fmt: skip
            self._parts.schedule.refence(partition, fence)
        return verdict

    def _drop(self, partition: Partition, verdict: ClaimCheck) -> None:
        if self._may_be_reset(partition):
            why = "a reset has moved its epoch on"
            partition.why_lost = "a reset of the group's offsets has overtaken it; reading begins where that says"
        elif verdict is ClaimCheck.BROKEN:
            why = "its epoch moved on although the owner node is ours"
        else:
            why = "another consumer has claimed it"
        self._parts.journal.note(
            "lost", f"lost: {why}; nothing more of it is committed", partition.tp,
            offset=partition.committed, epoch=partition.fence.epoch, level=logging.WARNING,
        )  # fmt: skip
        self._parts.schedule.doom(partition, Fate.DROP)

    async def settle_suspects(
        self, owned: frozenset[TopicPartition], ours: frozenset[TopicPartition], closed: Collection[str] = ()
    ) -> bool:
        """Claim partitions again whose owner node may be ours without a claim.

        After a claim whose answer was lost, or a drop: no other member can claim such a partition, and we do not read
        it. If it cannot be claimed, because the gate of its topic is among `closed` or a call of ours still works on
        it, the node is deleted: a reset waits for that, or another member waits for the partition.

        Returns False if one of them could not be claimed or cleared: it counts as owned, so no plan would take it; look
        again soon.
        """
        settled = True
        self._suspects |= self._parts.schedule.take_dropped()
        connection = self._parts.zk.connection
        found = sorted(self._suspects - ours - self.backoff.resting)
        idle = [tp for tp in found if tp.topic in closed or (tp in owned and not self._parts.schedule.may_claim(tp))]
        for cleared in await self._tasks.gather([self.clear_node(tp) for tp in idle], "removal of owner nodes"):
            settled &= cleared
        wanted = [tp for tp in found if tp in owned and tp not in idle]
        if wanted and connection is not None:
            nodes = [(tp, self._parts.zk.get(self._parts.paths.owner(*tp))) for tp in wanted]
            for tp, asked in nodes:
                try:
                    node = await asked
                except ZkNodeError as error:
                    self.backoff.failed(tp, error)
                    continue
                if node is not None and node.stat.ephemeral_owner == connection.session.id:
                    settled &= await self.claim(tp)
        self._suspects -= {p.tp for p in self._parts.schedule.held()}
        return settled

    async def clear_node(self, tp: TopicPartition) -> bool:
        """Delete an owner node of ours, or of a dead predecessor.

        We hold no partition under it. Returns False if the deletion is not certain: look again.
        """
        try:
            await self.ownership.clear(tp, self._dead_sessions)
        except (RefusedError, TransientError) as error:
            log.debug("%s: %s", tp, error)
            return False
        except ZkNodeError as error:
            self.backoff.failed(tp, error)
            return False
        self._suspects.discard(tp)
        return True

    # -- taking and releasing ----------------------------------------------------------------------------------------

    async def take(self, partitions: Sequence[TopicPartition]) -> bool:
        """Claim partitions. Returns False if any claim failed."""
        if partitions:
            self._reading.expect()
        results = await self._tasks.gather([self.claim(tp) for tp in partitions], "claim")
        return all(results)

    async def claim(self, tp: TopicPartition) -> bool:
        """Claim one partition, and begin to read it. Returns whether it succeeded."""
        if self.leaving or not self._parts.schedule.may_claim(tp) or self.backoff.rests(tp):
            return False
        meta = self._reading.topics.found.get(tp.topic)
        topic_id = meta.topic_id if meta is not None else None
        if not self._identity.may_claim(tp, topic_id):
            return False
        suspected = tp in self._suspects
        self._suspects.add(tp)
        try:
            claim = await self.ownership.claim(
                tp, self._dead_sessions, topic_id, instead_of=self._identity.instead_of(tp)
            )
        except OtherTopicError as error:
            self._identity.contradicted(tp, error)
            return False
        except (BadNodeError, ZkNodeError) as error:
            self.backoff.failed(tp, error)
            return False
        except TransientError as error:
            log.debug("%s: %s", tp, error)
            return False
        if claim is None:
            if not suspected:  # not free, or refused: nothing that we sent for it can land any more
                self._suspects.discard(tp)
            return False
        self._suspects.discard(tp)
        self.backoff.succeeded(tp)
        self._identity.agreed(tp)
        if self._stop_came():
            # The stop came while the claim was in flight. Nothing would release it any more.
            await self.ownership.release(tp, claim.fence, None)
            return False
        self._adopt(tp, claim)
        return True

    def _stop_came(self) -> bool:
        return self.leaving

    def _adopt(self, tp: TopicPartition, claim: Claim) -> None:
        parts = self._parts
        read = read_to(claim.offset, claim.info.leader_epoch if claim.info is not None else None)
        position = Position(claim.offset, read=read)
        partition = Partition(tp, claim.fence, position, claim.added_later, claim.topic_id, claim.unclear, claim.info)
        partition.position.placed = claim.recreated  # what a processor keeps beside its results is of the deleted topic
        if claim.recreated:
            parts.journal.note(
                "recreated", "the topic was deleted and recreated; the group starts at offset 0 of the new one "
                f"(id {claim.topic_id}, before {claim.former}; the commit was {claim.old})", tp,
                offset=0, epoch=claim.fence.epoch, level=logging.WARNING, old=claim.old,
            )  # fmt: skip
            parts.ledger_notes.note(
                "reset", tp, claim.fence.epoch, old=claim.old, new=0, reason="topic created anew",
                topic_id=claim.topic_id, former=claim.former,
            )  # fmt: skip
        if claim.reset is not None:
            self._tell_reset(partition, claim.reset)
        which = {"topic_id": claim.topic_id} if claim.topic_id is not None else {}
        degrades = {"on_failure": "degrade"} if parts.ledger_notes.degrade else {}
        parts.ledger_notes.note(
            "claimed",
            tp,
            claim.fence.epoch,
            position=claim.offset,
            session=claim.fence.session,
            window=parts.settings.now.max_uncommitted_records,
            **which,
            **degrades,
        )
        where = "where the group has no commit yet" if claim.offset is None else f"at the commit {claim.offset}"
        parts.journal.note(
            "claimed", f"claimed, {self._why()}; reading begins {where}", tp,
            offset=claim.offset, epoch=claim.fence.epoch, session=f"{claim.fence.session:#x}",
        )  # fmt: skip
        parts.mirror.claimed(partition, claim.offset)
        if parts.schedule.take_untold(tp) is parts.service.processor:  # else another processor has taken over since
            # A reset did not wait for the last claim's commit, and no callback ran in which the processor could learn of it:
            # its results of that claim are void.
            error = PartitionLostError(*tp, "given up before its last commit was written; this is another claim of it")
            partition.callbacks.appendleft(
                lambda: (partition.served_by or parts.service.processor).on_exception(tp, error)
            )
        parts.schedule.adopt(partition)
        self._reading.open(partition)

    def _tell_reset(self, partition: Partition, reset: ResetNote) -> None:
        """Note in the ledger that a reset moved the group's offset.

        `on_reset` is called before the first batch. The note precedes `claimed`, as it explains where the claim begins.
        """
        parts, tp, epoch = self._parts, partition.tp, partition.fence.epoch
        name = reset.command.rpartition("/")[2]
        before = "none" if reset.old is None else reset.old
        parts.journal.note(
            "reset", f"reset {name} has moved the group's offset from {before} to {reset.new}", tp,
            offset=reset.new, epoch=epoch, old=reset.old, command=reset.command,
        )  # fmt: skip
        parts.ledger_notes.note(
            "reset",
            tp,
            epoch,
            old=reset.old,
            new=reset.new,
            reason=BY_COMMAND,
            command=reset.command,
            since=reset.since,
        )

        def on_reset() -> object:
            return (partition.served_by or parts.service.processor).on_reset(tp, reset.old, reset.new)

        partition.callbacks.append(on_reset)

    def release(self, partition: Partition) -> Call[None]:
        """Begin to release a partition, once. The call completes with the release."""
        running = self._releases.get(partition)
        if running is None:
            self._parts.schedule.doom(partition, Fate.RELEASE)
            running = self._tasks.spawn(self._give_up(partition), f"release of {partition.tp}")
            self._releases[partition] = running
            running.when_done(partial(self._releases.__delitem__, partition))
        return running

    async def _give_up(self, partition: Partition) -> None:
        """Delete the owner node of a partition once it has drained.

        1. A release is asked for; 2. committer and worker find that the partition is lost, and it is gone; 3. this
        begins. `drained` is done then, and there is nothing left to wait for.
        """
        await partition.drained
        if self._together is not None:
            await self._together
        await self._delete_owner(
            partition, lambda: partition.place is Place.LEAVING and partition.fate is not Fate.DROP
        )
        released = partition.place is Place.LEAVING
        if released:
            self._parts.journal.note(
                "released", f"released, {self._why_released(partition.tp)}; the commit is {partition.committed}", partition.tp,
                offset=partition.committed, epoch=partition.fence.epoch,
            )  # fmt: skip
            self._parts.ledger_notes.note("released", partition.tp, partition.fence.epoch)
        if partition.place is not Place.ABANDONED:  # else it is gone when its callback has ended
            self._parts.schedule.leave(partition)
        self._parts.evaluate()

    async def release_abandoned(self, partition: Partition) -> None:
        """Release an abandoned partition without a commit, trying until it succeeds."""
        await self._delete_owner(partition, lambda: True)
        self._parts.ledger_notes.note("released", partition.tp, partition.fence.epoch, abandoned=True)
        self._parts.evaluate()

    async def _delete_owner(self, partition: Partition, is_due: Callable[[], bool]) -> None:
        """Delete a released partition's owner node. Tries again while `is_due()`."""
        while is_due() and partition.tp not in self._deleted:
            connection = self._parts.zk.connection
            if connection is not None and connection.session.id != partition.fence.session:
                self._parts.mirror.forget(partition)
            try:
                await self.ownership.release(partition.tp, partition.fence, None)
                await self._suspect_if_still_ours(partition.tp)
                return
            except TransientError as error:
                log.debug("%s: %s", partition.tp, error)
                await self._tasks.sleep(RETRY)
            except InboundError as error:
                self._parts.journal.note(
                    "stuck", f"cannot be released: {error}; trying again in {AFTER_ERROR:.0f} s", partition.tp,
                    epoch=partition.fence.epoch, level=logging.ERROR,
                )  # fmt: skip
                await self._tasks.sleep(AFTER_ERROR)

    async def _suspect_if_still_ours(self, tp: TopicPartition) -> None:
        """Find out whether a refused release left an owner node of ours.

        A reset has moved the epoch. No other member can claim such a partition, and we do not hold it.
        """
        connection = self._parts.zk.connection
        if self.leaving or connection is None:
            return  # the node goes with the session
        node = await self._parts.zk.get(self._parts.paths.owner(*tp))
        if node is not None and node.stat.ephemeral_owner == connection.session.id:
            self._suspects.add(tp)

    async def leave(
        self, members_part: Sequence[Op], otherwise: Callable[[], Coroutine[Call[Any], None, None]]
    ) -> None:
        """Release everything. The first transaction carries `members_part`, the id node's deletion.

        Drained partitions go in one transaction with the id node. So the other members see all free partitions at once,
        each claims its share, and none looks twice. A partition that takes longer follows when it has drained. If that
        transaction fails, `otherwise` is awaited, and the partitions are released one by one.
        """
        held = [p for p in self._parts.schedule.held() if p.fate is not Fate.DROP]
        self.leaving = True
        together: Call[None] = Call("the others that leave")
        self._together = together
        releases = [self.release(p) for p in held]
        connection = self._parts.zk.connection
        if connection is not None:
            self.commit_in(connection.session.id)  # the last one expired, and nothing is recovered any more
        try:
            soon = self._parts.clock.now() + TOGETHER
            while not all(p.drained.done for p in held) and self._parts.clock.now() < soon:
                await self._tasks.sleep(TOGETHER / 10)
            ready = [p for p in held if p.place is Place.LEAVING and p.fate is Fate.RELEASE]
            try:
                self._deleted = await self.ownership.release_all([(p.tp, p.fence) for p in ready], members_part)
            except InboundError as error:
                log.debug("channel %s: releasing one by one: %s", self._parts.name, error)
                await otherwise()
        finally:
            together.succeed(None)
        for release in releases:
            await release

    def commit_in(self, session: int) -> None:
        """Commit in `session` for released partitions of an expired session.

        No commit of the old session is in flight any more, and the epoch alone still fences ours: processed records are
        committed, unless another member has claimed the partition or a reset has moved the epoch.
        """
        for partition in self._parts.schedule.held():
            if partition.fate is Fate.RELEASE and partition.fence.session != session:
                self._parts.mirror.forget(partition)
                self._parts.schedule.refence(partition, replace(partition.fence, session=session))
        self._parts.wake_committer()

    async def clear(self) -> None:
        """Delete owner nodes that are still ours after all releases.

        A claim's answer was lost. Each is deleted under its epoch, as the channel may come back in this session and
        claim it: see `Ownership.clear`. A node that ZooKeeper refuses is logged, and goes with the session.

        Raises:
            TransientError: ZooKeeper did not answer; call it again.
        """
        known = [TopicPartition(t, p) for t, meta in self._reading.topics.found.items() for p in range(meta.partitions)]
        cleared = await self._tasks.gather([self.clear_node(tp) for tp in known], "removal of owner nodes")
        if any(not sure and not self.backoff.rests(tp) for tp, sure in zip(known, cleared, strict=True)):
            raise ZkUnavailableError(f"channel {self._parts.name}: some owner nodes may still be ours; looking again")

    @property
    def nothing_to_commit(self) -> bool:
        """Whether only owner nodes are left to delete."""
        return all(p.place is Place.LEAVING for p in self._parts.schedule.held())
