"""The partitions that this consumer holds, as ZooKeeper sees it: claimed, verified, recovered, released.

Runs on the controller's thread. What to hold is decided in `inbound.membership`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from inbound.channel.partition import Fate, Partition, Place
from inbound.channel.parts import Parts
from inbound.channel.position import Position, read_to
from inbound.channel.reader import Reader
from inbound.coordinators.claim import Claim, Fence, OtherTopicError, Verdict
from inbound.coordinators.nodes import BadNodeError, ResetNote
from inbound.coordinators.ownership import Ownership
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call, Op, RefusedError
from inbound.errors import InboundError, TransientError, ZkNodeError, ZkUnavailableError
from inbound.partition_backoff import PartitionBackoff
from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)

#: How soon to ask again for an owner node that should be free any moment.
RETRY = 0.25
#: How soon to try again what failed for another reason than a lost connection.
AFTER_ERROR = 5.0
#: Who leaves waits so long for its partitions to drain, in seconds, so that they can be released together.
TOGETHER = 0.1
#: Why a reset is in the ledger, where a command has moved the group's offset.
BY_COMMAND = "offsets reset"
#: Brokers that go on naming a topic that the group knows as deleted are believed after so many seconds.
BELIEVE_AFTER = 60.0


@dataclass
class _Hearsay:
    """A partition whose topic, by name, is another one for the group than the brokers told us; they are asked again."""

    question: int
    since: float
    found: str | None = None  # the id that the group knows
    former: str | None = None  # what the brokers told us, if that is a topic that the group knows as deleted


class Holdings:
    """Carries out claims, checks and releases; `Ownership` has the transactions, `Schedule` the partitions' places."""

    def __init__(self, parts: Parts, tasks: Tasks, reader: Reader, dead_sessions: Collection[int]) -> None:
        self._parts = parts
        self._tasks = tasks
        self._reader = reader
        self._dead_sessions = dead_sessions
        self.ownership = Ownership(parts.zk, parts.settings.now.group, parts.consumer_id)
        #: Set when the group is being left: nothing is claimed any more.
        self.leaving = False
        #: Why partitions are being claimed, and given up, for the journal.
        self.why: Callable[[], str] = lambda: "as it was free"
        self.why_released: Callable[[TopicPartition], str] = lambda tp: "as asked"
        #: Whether a reset may have moved a partition's epoch.
        self.may_be_reset: Callable[[Partition], bool] = lambda partition: False
        #: Gives a partition up that does not come to its end; the text says why that is not waited for any longer.
        self.abandon: Callable[[Partition, str], None] = lambda partition, why: parts.schedule.abandon(partition)
        #: Their owner node may be ours although we do not hold them.
        self._suspects: set[TopicPartition] = set()
        self._releases: dict[Partition, Call[None]] = {}  # those under way
        #: While the group is being left: what drained partitions wait for, and whose owner nodes are gone already.
        self._together: Call[None] | None = None
        self._deleted: frozenset[TopicPartition] = frozenset()
        self.backoff = PartitionBackoff(clock=parts.clock, paths=parts.paths, journal=parts.journal)
        self._hearsay: dict[TopicPartition, _Hearsay] = {}

    # -- beliefs against nodes ---------------------------------------------------------------------------------------

    async def verify(self) -> None:
        """Hold what we believe to hold against the nodes; drop without commit what they give to another."""
        held = [p for p in self._parts.schedule.held() if p.place is not Place.LEAVING and p.fate is not Fate.DROP]
        verdicts = await self._tasks.gather([self._verify_one(p) for p in held], "check")
        again = []
        self._drop_other_topics(held)
        for partition, (verdict, fence) in zip(held, verdicts, strict=True):
            if verdict is Verdict.HELD and fence.session != partition.fence.session:
                self._parts.schedule.refence(partition, fence)
            elif verdict in (Verdict.LOST, Verdict.BROKEN):
                self._drop(partition, verdict)
            elif verdict is Verdict.UNVERIFIED:
                again.append(partition)
        if again:
            await self.recover(again)
        self._parts.committer.wakeup.set()

    async def recover(self, partitions: Sequence[Partition]) -> None:
        """Get owner nodes back in the current session, under the same epochs."""
        connection = self._parts.zk.connection
        if connection is None:
            raise ZkUnavailableError(f"channel {self._parts.name}: no connection to recover its partitions with")
        needy = [p for p in partitions if p.place is not Place.LEAVING and p.fate is not Fate.DROP]
        verdicts = await self._tasks.gather([self._recover_one(p) for p in needy], "recovery")
        recovered = [p for p, verdict in zip(needy, verdicts, strict=True) if verdict is Verdict.HELD]
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
            elif verdict in (Verdict.LOST, Verdict.BROKEN):
                self._drop(partition, verdict)
            elif verdict is Verdict.UNVERIFIED:
                self._parts.evaluate()
        self._parts.schedule.hurry_all()
        self._parts.committer.wakeup.set()

    async def _verify_one(self, partition: Partition, *, recover: bool = False) -> tuple[Verdict, Fence]:
        """Return how a partition stands; what ZooKeeper refuses for its nodes concerns no other one."""
        try:
            verdict, fence = await self.ownership.verify(partition.tp, partition.fence)
            if verdict is Verdict.UNVERIFIED and recover:
                # The server declared the old session expired before it gave us a new one, so no commit of the old one
                # can land any more, and the same epoch is safe to go on with: as it is now, for a commit whose answer
                # was lost may have moved it on.
                verdict, fence = await self.ownership.recover(partition.tp, fence)
        except ZkNodeError as error:
            self.backoff.failed(partition.tp, error)
            return Verdict.REFUSED, partition.fence
        if verdict is Verdict.HELD:
            self.backoff.succeeded(partition.tp)
        return verdict, fence

    async def _recover_one(self, partition: Partition) -> Verdict:
        verdict, fence = await self._verify_one(partition, recover=True)
        if verdict is Verdict.HELD:
            if fence.session != partition.fence.session:
                self._parts.journal.note(
                    "recovered", "got back in a new session under the same epoch: nothing is repeated",
                    partition.tp, epoch=fence.epoch, level=logging.DEBUG,
                )  # fmt: skip
            self._parts.schedule.refence(partition, fence)
        return verdict

    def _drop(self, partition: Partition, verdict: Verdict) -> None:
        if self.may_be_reset(partition):
            why = "a reset has moved its epoch on"
            partition.why_lost = "a reset of the group's offsets has overtaken it; reading begins where that says"
        elif verdict is Verdict.BROKEN:
            why = "its epoch moved on although the owner node is ours"
        else:
            why = "another consumer has claimed it"
        self._parts.journal.note(
            "lost", f"lost: {why}; nothing more of it is committed", partition.tp,
            offset=partition.committed, epoch=partition.fence.epoch, level=logging.WARNING,
        )  # fmt: skip
        self._parts.schedule.doom(partition, Fate.DROP)

    def _drop_other_topics(self, held: Sequence[Partition]) -> None:
        """Drop what was claimed in a topic that is deleted: offsets of the old one mean nothing in the new one.

        Without a commit; the claim that follows sets the offset to 0, and its epoch keeps out whatever is on its way.
        """
        for partition in held:
            tp, hearsay = partition.tp, self._hearsay.get(partition.tp)
            if not self._reader.topics.is_another(partition):
                self._hearsay.pop(tp, None)
            elif hearsay is None:  # one old answer of one broker is not enough
                self._hearsay[tp] = _Hearsay(self._reader.topics.ask(), self._parts.clock.now())
            elif self._reader.topics.answered(hearsay.question):
                del self._hearsay[tp]
                self._parts.journal.note(
                    "recreated", "the topic was deleted and created anew; what was read of the old one is dropped",
                    tp, offset=partition.committed, epoch=partition.fence.epoch, level=logging.WARNING,
                )  # fmt: skip
                partition.why_lost = "the topic was deleted and created anew; the new one is read from its start"
                self._parts.schedule.doom(partition, Fate.DROP)

    async def settle_suspects(
        self, owned: frozenset[TopicPartition], ours: frozenset[TopicPartition], closed: Collection[str] = ()
    ) -> bool:
        """Where an owner node may be ours although we do not hold the partition, look; if it is, claim anew.

        After a claim whose answer was lost, or a drop: nobody else can take such a partition, and we do not read it. Where
        it cannot be claimed, for the gate of its topic is among `closed` or a call of ours still works on it, the node is
        deleted: a reset waits for that, or somebody else for the partition.
        Returns False if one of them could not be had: it counts as owned, so no plan would take it; look again soon.
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
        """Delete an owner node that is ours, or a dead predecessor's, and under which we hold nothing.

        Returns False if that is not certain: look again.
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
        """Claim these. Returns False if any of them could not be had."""
        if partitions:
            self._reader.expect()
        results = await self._tasks.gather([self.claim(tp) for tp in partitions], "claim")
        return all(results)

    async def claim(self, tp: TopicPartition) -> bool:
        """Claim one partition, and begin to read it. Returns whether it is ours now."""
        if self.leaving or not self._parts.schedule.may_claim(tp) or self.backoff.rests(tp):
            return False
        meta = self._reader.topics.found.get(tp.topic)
        topic_id = meta.topic_id if meta is not None else None
        hearsay = self._hearsay.get(tp)
        if hearsay is not None and not self._may_believe(hearsay, topic_id):
            return False
        suspected = tp in self._suspects
        self._suspects.add(tp)
        try:
            claim = await self.ownership.claim(
                tp, self._dead_sessions, topic_id, instead_of=hearsay.found if hearsay is not None else None
            )
        except OtherTopicError as error:
            self._ask_which_topic(tp, error, hearsay)
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
        self._hearsay.pop(tp, None)
        if self._stop_came():
            # The stop came while the claim was on its way. Nobody would release it any more.
            await self.ownership.drop(tp, claim.fence)
            return False
        self._adopt(tp, claim)
        return True

    def _may_believe(self, hearsay: _Hearsay, topic_id: str | None) -> bool:
        """Whether the brokers have answered anew; and, for a topic known as deleted, said so for long enough."""
        if not self._reader.topics.answered(hearsay.question):
            return False
        if topic_id != hearsay.former or self._parts.clock.now() - hearsay.since >= BELIEVE_AFTER:
            return True
        hearsay.question = self._reader.topics.ask()  # a broker that is behind the times
        return False

    def _ask_which_topic(self, tp: TopicPartition, error: OtherTopicError, before: _Hearsay | None) -> None:
        """Ask the brokers again before anything is claimed on what they said before."""
        now = self._parts.clock.now()
        same = before is not None and before.found == error.found
        since = before.since if before is not None and same else now
        former = error.told if error.former else None
        self._hearsay[tp] = _Hearsay(self._reader.topics.ask(), since, error.found, former)
        log.info("%s; asking them again", error)

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
                "recreated", "the topic was deleted and created anew; the group starts at offset 0 of the new one "
                f"(id {claim.topic_id}, before {claim.former}; the commit was {claim.old})", tp,
                offset=0, epoch=claim.fence.epoch, level=logging.WARNING, old=claim.old,
            )  # fmt: skip
            parts.books.note(
                "reset", tp, claim.fence.epoch, old=claim.old, new=0, reason="topic created anew",
                topic_id=claim.topic_id, former=claim.former,
            )  # fmt: skip
        if claim.reset is not None:
            self._tell_reset(partition, claim.reset)
        which = {"topic_id": claim.topic_id} if claim.topic_id is not None else {}
        degrades = {"on_failure": "degrade"} if parts.books.degrade else {}
        parts.books.note(
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
            "claimed", f"claimed, {self.why()}; reading begins {where}", tp,
            offset=claim.offset, epoch=claim.fence.epoch, session=f"{claim.fence.session:#x}",
        )  # fmt: skip
        parts.mirror.claimed(partition, claim.offset)
        parts.adopt(partition)
        self._reader.open(partition)

    def _tell_reset(self, partition: Partition, reset: ResetNote) -> None:
        """Have the processor and the ledger told that somebody has moved the group's offset, before the first batch.

        In the ledger it stands before `claimed`, as it is why the claim begins where it does.
        """
        parts, tp, epoch = self._parts, partition.tp, partition.fence.epoch
        name = reset.command.rpartition("/")[2]
        before = "none" if reset.old is None else reset.old
        parts.journal.note(
            "reset", f"reset {name} has moved the group's offset from {before} to {reset.new}", tp,
            offset=reset.new, epoch=epoch, old=reset.old, command=reset.command,
        )  # fmt: skip
        parts.books.note(
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
        """Start to release a partition, once. Returns what completes when it is out of our hands."""
        running = self._releases.get(partition)
        if running is None:
            self._parts.schedule.doom(partition, Fate.RELEASE)
            running = self._tasks.spawn(self._give_up(partition), f"release of {partition.tp}")
            self._releases[partition] = running
            running.when_done(partial(self._releases.__delitem__, partition))
        return running

    async def _give_up(self, partition: Partition) -> None:
        """Wait until the partition has drained, then delete its owner node; ends when it is out of our hands.

        1. A release is asked for; 2. committer and worker find that the partition is lost, and it is gone; 3. this begins.
        `drained` is done then, and there is nothing left to wait for.
        """
        await partition.drained
        if self._together is not None:
            await self._together
        while partition.place is Place.LEAVING and partition.fate is not Fate.DROP:
            if partition.tp in self._deleted:
                break
            connection = self._parts.zk.connection
            if connection is not None and connection.session.id != partition.fence.session:
                self._parts.mirror.forget(partition)
            try:
                await self.ownership.release(partition.tp, partition.fence, None)
                await self._suspect_if_still_ours(partition.tp)
                break
            except TransientError as error:
                log.debug("%s: %s", partition.tp, error)
                await self._tasks.sleep(RETRY)
            except InboundError as error:
                self._parts.journal.note(
                    "stuck", f"cannot be released: {error}; trying again in {AFTER_ERROR:.0f} s", partition.tp,
                    epoch=partition.fence.epoch, level=logging.ERROR,
                )  # fmt: skip
                await self._tasks.sleep(AFTER_ERROR)
        released = partition.place is Place.LEAVING
        if released:
            self._parts.journal.note(
                "released", f"released, {self.why_released(partition.tp)}; the commit is {partition.committed}", partition.tp,
                offset=partition.committed, epoch=partition.fence.epoch,
            )  # fmt: skip
            self._parts.books.note("released", partition.tp, partition.fence.epoch)
        if partition.place is not Place.ABANDONED:  # else it is gone when its callback has ended
            self._parts.schedule.leave(partition)
        self._parts.evaluate()

    async def free(self, partition: Partition) -> None:
        """Delete the owner node of a partition that was abandoned.

        Raises:
            TransientError: no answer; call it again.
        """
        await self.ownership.release(partition.tp, partition.fence, None)
        await self._suspect_if_still_ours(partition.tp)

    async def _suspect_if_still_ours(self, tp: TopicPartition) -> None:
        """Look whether a release has left an owner node of ours behind: it was refused, for the epoch is another's.

        Somebody outside has moved the epoch (a reset). Nobody else can take such a partition, and we do not hold it.
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
        """Release everything, and carry out `members_part` (the id node's deletion) with the first of it.

        What has drained by then goes in one transaction with the id node. The others see at once all that is to be had,
        each takes its share of it, and nobody looks twice. What takes longer follows as it drains. If that transaction
        does not come about, `otherwise` is awaited, and the partitions are released one by one.
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
        """Commit in `session` what is being released, and was claimed in one that the server has declared over.

        None of the old session's commits is on its way any more, and the epoch alone still fences ours: what has been
        processed is committed, unless another member has claimed it or a reset has moved the epoch.
        """
        for partition in self._parts.schedule.held():
            if partition.fate is Fate.RELEASE and partition.fence.session != session:
                self._parts.mirror.forget(partition)
                self._parts.schedule.refence(partition, replace(partition.fence, session=session))
        self._parts.committer.wakeup.set()

    async def clear(self) -> None:
        """Delete the owner nodes that are still ours after everything was released: a claim's answer was lost.

        Each under its epoch, as the channel may come back in this session, and claim it: see `Ownership.clear`. What ZooKeeper
        refuses us is named, and goes with the session.

        Raises:
            TransientError: ZooKeeper did not answer; call it again.
        """
        known = [TopicPartition(t, p) for t, meta in self._reader.topics.found.items() for p in range(meta.partitions)]
        cleared = await self._tasks.gather([self.clear_node(tp) for tp in known], "removal of owner nodes")
        if any(not sure and not self.backoff.rests(tp) for tp, sure in zip(known, cleared, strict=True)):
            raise ZkUnavailableError(f"channel {self._parts.name}: some owner nodes may still be ours; looking again")

    @property
    def nothing_to_commit(self) -> bool:
        """Whether all that is left to do is to delete owner nodes."""
        return all(p.place is Place.LEAVING for p in self._parts.schedule.held())
