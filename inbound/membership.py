"""A channel's part in its group: registration, claims, recovery, release. Runs on the controller's thread.

This is the channel's side of the protocol `inbound.controller.consumer.KafkaConsumer`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from inbound.coordinators.base import GroupView, Member, Plan, ZkCoordinator
from inbound.coordinators.members import Membership, Registration, read_members
from inbound.coordinators.nodes import BadNodeError, MemberInfo
from inbound.coordinators.ownership import Claim, Fence, Ownership, Verdict
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call
from inbound.errors import InboundError, TransientError, ZkUnavailableError
from inbound.kafka.reader import Reader
from inbound.partition import Fate, Partition, Place
from inbound.parts import Parts
from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)

#: How soon to ask again for an owner node that should be free any moment.
RETRY = 0.25
#: How soon to try again what failed for another reason than a lost connection.
AFTER_ERROR = 5.0


class GroupMembership:
    """See `inbound.controller.consumer.KafkaConsumer` for when each method is called, and what it must do."""

    def __init__(
        self,
        parts: Parts,
        tasks: Tasks,
        coordinator: ZkCoordinator,
        reader: Reader,
        member: MemberInfo,
        *,
        join_delay: float,
        on_join: Callable[[], None],
        owner_is_dead: Callable[[MemberInfo], bool] = lambda info: False,
    ) -> None:
        self.name = parts.name
        self._parts = parts
        self._tasks = tasks
        self._coordinator = coordinator
        self._reader = reader
        self._join_delay = join_delay
        self._on_join = on_join
        self._owner_is_dead = owner_is_dead
        self.ownership = Ownership(parts.zk, parts.config.group, parts.consumer_id)
        self.membership = Membership(parts.zk, parts.paths, parts.consumer_id, member, set())
        self._cache: dict[str, Member] = {}
        self.members: tuple[Member, ...] = ()
        self.plan = Plan()
        self.leaving = False
        #: Their owner node may be ours although we do not hold them.
        self._suspects: set[TopicPartition] = set()
        self._releases: dict[TopicPartition, Call[None]] = {}
        #: Set by a new session: what was ownerless then is left alone until `_quiet_until`.
        self._quiet_until = 0.0
        self._ownerless_at_join: frozenset[TopicPartition] | None = None
        self._expired_once = False
        self._look_at: float | None = None  # asked for by the evaluation that ran last
        #: Partitions whose nodes cannot be read, and when to look at them again.
        self._unreadable: dict[TopicPartition, float] = {}
        self._joined_session = 0
        self._told_no_share = False
        self._waiting_for_id = False

    # -- session -----------------------------------------------------------------------------------------------------

    @property
    def registered(self) -> bool:
        """Whether our id node stands, as far as we know."""
        return self.membership.registered and not self.leaving

    async def zk_reconnected(self) -> None:
        self._cache.clear()  # its watches went with the connection
        connection = self._parts.zk.connection
        if self.leaving or connection is None:
            return
        await self.ownership.ensure_group()
        had_registered = self.membership.registered
        if await self.membership.register(owner_is_dead=self._owner_is_dead) is Registration.OCCUPIED:
            if not self._waiting_for_id:
                log.warning(
                    "channel %s: consumer id %s is still registered by another session; waiting for it to expire",
                    self.name, self._parts.consumer_id,
                )  # fmt: skip
            self._waiting_for_id = True
            raise ZkUnavailableError(f"consumer id {self._parts.consumer_id} is still registered by another session")
        self._waiting_for_id = False
        if connection.session.id != self._joined_session:
            self._joined_session = connection.session.id
            self._quiet_until = self._parts.clock.now() + self._join_delay
            self._ownerless_at_join = None
            self._expired_once = had_registered
        await self._recover(self._parts.schedule.held())

    def suspended(self) -> None:
        error = ZkUnavailableError(
            f"channel {self.name}: the connection to ZooKeeper is gone; nothing is handed out or committed until it is back"
        )
        for partition in self._parts.schedule.held():
            tp = partition.tp

            def on_exception(tp: TopicPartition = tp) -> object:
                return self._parts.processor.on_exception(tp, error)

            partition.callbacks.append(on_exception)
        self._parts.schedule.hurry_all()

    def in_doubt(self) -> None:
        self._parts.schedule.doubt()

    def verified(self) -> None:
        self._parts.schedule.hurry_all()
        self._parts.committer_wakeup.set()

    def leaving_in(self, session: int) -> None:
        # The old session was declared over, so none of its commits is on its way any more, and the epoch alone still
        # fences ours: what has been processed can be committed, unless somebody has claimed meanwhile.
        for partition in self._parts.schedule.held():
            if partition.fate is Fate.RELEASE:
                self._parts.schedule.refence(partition, Fence(partition.fence.epoch, session))
        self._parts.committer_wakeup.set()

    @property
    def next_look(self) -> float | None:
        return self._look_at

    # -- beliefs against nodes ---------------------------------------------------------------------------------------

    async def coordinate(self) -> None:
        if self.leaving:
            return
        if not await self.membership.check():
            await self.zk_reconnected()
        held = [p for p in self._parts.schedule.held() if p.place is not Place.LEAVING and p.fate is not Fate.DROP]
        verdicts = await self._tasks.gather([self.ownership.verify(p.tp, p.fence) for p in held], "check")
        again = []
        for partition, (verdict, fence) in zip(held, verdicts, strict=True):
            if verdict is Verdict.HELD and fence.session != partition.fence.session:
                self._parts.schedule.refence(partition, fence)
            elif verdict in (Verdict.LOST, Verdict.BROKEN):
                self._drop(partition, verdict)
            elif verdict is Verdict.UNVERIFIED:
                again.append(partition)
        if again:
            await self._recover(again)
        self._parts.committer_wakeup.set()

    async def _recover(self, partitions: Sequence[Partition]) -> None:
        """Get owner nodes back in the current session, under the same epochs."""
        connection = self._parts.zk.connection
        if connection is None:
            raise ZkUnavailableError(f"channel {self.name}: no connection to recover its partitions with")
        needy = [p for p in partitions if p.place is not Place.LEAVING and p.fate is not Fate.DROP]
        verdicts = await self._tasks.gather([self._recover_one(p) for p in needy], "recovery")
        recovered = [p for p, verdict in zip(needy, verdicts, strict=True) if verdict is Verdict.HELD]
        if recovered:
            log.info(
                "channel %s: %d partitions verified in session %#x", self.name, len(recovered), connection.session.id
            )
        for partition, verdict in zip(needy, verdicts, strict=True):
            if verdict in (Verdict.LOST, Verdict.BROKEN):
                self._drop(partition, verdict)
            elif verdict is Verdict.UNVERIFIED:
                self._parts.evaluate()
        self._parts.schedule.hurry_all()
        self._parts.committer_wakeup.set()

    async def _recover_one(self, partition: Partition) -> Verdict:
        verdict, fence = await self.ownership.verify(partition.tp, partition.fence)
        if verdict is Verdict.UNVERIFIED:
            # The server declared the old session expired before it gave us a new one, so no commit of the old one can
            # land any more, and the same epoch is safe to go on with.
            verdict, fence = await self.ownership.recover(partition.tp, partition.fence)
        if verdict is Verdict.HELD:
            self._parts.schedule.refence(partition, fence)
        return verdict

    def _drop(self, partition: Partition, verdict: Verdict) -> None:
        log.warning(
            "%s: lost: %s; nothing more of it is committed", partition.tp,
            "its epoch moved on although the owner node is ours" if verdict is Verdict.BROKEN
            else "another consumer has claimed it",
        )  # fmt: skip
        self._parts.schedule.doom(partition, Fate.DROP)

    # -- planning ----------------------------------------------------------------------------------------------------

    async def calc_rebalance(self) -> Plan | None:
        self._look_at = None
        topics = {name: meta.partitions for name, meta in self._reader.topics.items()}
        if self.leaving or not topics:
            return Plan() if self.leaving else None
        for topic, count in topics.items():
            await self.ownership.ensure(topic, count)
        await self.membership.publish_topics(tuple(sorted(topics)))
        before = {m.consumer_id for m in self.members}
        self.members = await read_members(self._parts.zk, self._parts.paths, self._cache, self._changed)
        if {m.consumer_id for m in self.members} - before - {self._parts.consumer_id} and before:
            self._on_join()
        owned = await self._owned(topics) - await self._inherited(topics)
        held = self._parts.schedule.held()
        mine = frozenset(p.tp for p in held if p.fate is Fate.KEEP)
        ours = frozenset(p.tp for p in held)
        await self._settle_suspects(owned, ours)
        view = GroupView(self._parts.consumer_id, self.members, topics, owned | ours, mine)
        self.plan = self._coordinator.plan(view)
        self._say_share()
        return Plan(tuple(self._claimable(self.plan.take, owned, topics)), self.plan.release, self.plan.share)

    async def _owned(self, topics: dict[str, int]) -> frozenset[TopicPartition]:
        calls = {t: self._parts.zk.children(self._parts.paths.owners(t), self._changed) for t in topics}
        owned = set()
        for topic, call in calls.items():
            owned |= {TopicPartition(topic, int(name)) for name in await call or () if name.isdigit()}
        return frozenset(owned)

    async def _inherited(self, topics: dict[str, int]) -> frozenset[TopicPartition]:
        """Partitions whose owner node is of the dead process that we took the id over from: ours to claim at once."""
        dead = self.membership.dead_sessions
        if not dead:
            return frozenset()
        everything = [TopicPartition(t, p) for t, count in topics.items() for p in range(count)]
        nodes = {tp: self._parts.zk.get(self._parts.paths.owner(*tp)) for tp in everything}
        inherited = set()
        for tp, call in nodes.items():
            node = await call
            if node is not None and node.stat.ephemeral_owner in dead:
                inherited.add(tp)
        if not inherited:
            dead.clear()
        return frozenset(inherited)

    def _claimable(
        self, wanted: Sequence[TopicPartition], owned: frozenset[TopicPartition], topics: dict[str, int]
    ) -> list[TopicPartition]:
        """Leave out what a consumer that came with a new session must not touch yet.

        After an outage of ZooKeeper the first to be back would else claim everything, and nobody could recover what it
        held. A process that has just started may take at once what it saw owned when it came: that is given up for it,
        or its owner has died since. Who comes back with an expired session waits in any case.
        """
        everything = frozenset(TopicPartition(t, p) for t, count in topics.items() for p in range(count))
        if self._ownerless_at_join is None:
            inherits = bool(self.membership.dead_sessions)
            self._ownerless_at_join = frozenset() if inherits else everything - owned
        if self._parts.clock.now() < self._quiet_until:
            # Asked for here and not judged by the clock later: the quiet time may end while this evaluation runs.
            left_alone = set(wanted) if self._expired_once else self._ownerless_at_join.intersection(wanted)
            if left_alone:
                self._look_again(self._quiet_until)
            wanted = [tp for tp in wanted if tp not in left_alone]
        return [tp for tp in wanted if self._parts.schedule.may_claim(tp)]

    def _look_again(self, at: float) -> None:
        self._look_at = at if self._look_at is None else min(self._look_at, at)

    async def _settle_suspects(self, owned: frozenset[TopicPartition], ours: frozenset[TopicPartition]) -> None:
        """Where an owner node may be ours although we do not hold the partition, look; if it is, claim anew.

        After a claim whose answer was lost, or a drop: nobody else can take such a partition, and we do not read it.
        """
        self._suspects |= self._parts.schedule.take_dropped()
        connection = self._parts.zk.connection
        for tp in sorted(self._suspects - ours):
            if tp not in owned or connection is None or not self._parts.schedule.may_claim(tp):
                continue
            node = await self._parts.zk.get(self._parts.paths.owner(*tp))
            if node is None or node.stat.ephemeral_owner != connection.session.id:
                continue
            if not await self._claim(tp):
                self._look_again(self._parts.clock.now() + RETRY)  # it counts as owned: no plan would take it
        self._suspects -= {p.tp for p in self._parts.schedule.held()}

    def _changed(self) -> None:
        self._parts.evaluate()  # a watch: any thread

    def _say_share(self) -> None:
        none = self.plan.share == 0
        if none and not self._told_no_share:
            log.info(
                "channel %s: %d members share fewer partitions; this one stands by with none",
                self.name,
                len(self.members),
            )
        self._told_no_share = none

    # -- taking and releasing ----------------------------------------------------------------------------------------

    async def take_partitions(self, partitions: Sequence[TopicPartition]) -> bool:
        results = await self._tasks.gather([self._claim(tp) for tp in partitions], "claim")
        taken = [tp for tp, done in zip(partitions, results, strict=True) if done]
        if taken:
            log.info("channel %s: took %s", self.name, _listed(taken))
        return len(taken) == len(partitions)

    async def _claim(self, tp: TopicPartition) -> bool:
        now = self._parts.clock.now()
        if self.leaving or not self._parts.schedule.may_claim(tp) or self._unreadable.get(tp, now) > now:
            return False
        self._suspects.add(tp)
        try:
            claim = await self.ownership.claim(tp, self.membership.dead_sessions)
        except BadNodeError as error:
            log.error("%s: claimed, but cannot be read: %s; looking again in %.0f s", tp, error, AFTER_ERROR)
            self._unreadable[tp] = now + AFTER_ERROR
            return False
        except TransientError as error:
            log.debug("%s: %s", tp, error)
            return False
        if claim is None:
            # Refused: whatever we sent for it cannot land any more, unless the answer before this one was lost.
            return False
        self._suspects.discard(tp)
        if self._stop_came():
            # The stop came while the claim was on its way. Nobody would release it any more.
            await self.ownership.drop(tp, claim.fence)
            return False
        self._adopt(tp, claim)
        return True

    def _stop_came(self) -> bool:
        return self.leaving

    def _adopt(self, tp: TopicPartition, claim: Claim) -> None:
        parts = self._parts
        partition = Partition(tp, claim.fence, claim.offset, claim.added_later)
        parts.note("claimed", tp, claim.fence.epoch, position=claim.offset, session=claim.fence.session)
        parts.schedule.adopt(partition)
        self._reader.open(partition)

    async def release_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        for tp in partitions:
            partition = self._parts.schedule.get(tp)
            if partition is not None and partition.fate is Fate.KEEP:
                self._begin_release(partition)

    def _begin_release(self, partition: Partition) -> Call[None]:
        """Start to release a partition, once. Returns what completes when it is out of our hands."""
        running = self._releases.get(partition.tp)
        if running is None or running.done:
            running = self._releases[partition.tp] = self._tasks.spawn(
                self._release(partition), f"release of {partition.tp}"
            )
        return running

    async def _release(self, partition: Partition) -> None:
        """Let the partition drain, then delete its owner node; ends when it is out of our hands."""
        drained: Call[None] = Call(f"drain of {partition.tp}")
        partition.on_given_up = lambda: drained.succeed(None)
        self._parts.schedule.doom(partition, Fate.RELEASE)
        await drained
        while partition.place is Place.LEAVING and partition.fate is not Fate.DROP:
            try:
                await self.ownership.release(partition.tp, partition.fence, None)
                break
            except TransientError as error:
                log.debug("%s: %s", partition.tp, error)
                await self._tasks.sleep(RETRY)
            except InboundError as error:
                log.error("%s: cannot be released: %s; trying again in %.0f s", partition.tp, error, AFTER_ERROR)
                await self._tasks.sleep(AFTER_ERROR)
        released = partition.place is Place.LEAVING
        if released:
            log.info("channel %s: released %s", self.name, partition.tp)
            self._parts.note("released", partition.tp, partition.fence.epoch)
        self._parts.schedule.leave(partition)
        self._parts.evaluate()

    @property
    def nothing_to_commit(self) -> bool:
        """Whether all that is left to do is to delete owner nodes."""
        return all(p.place is Place.LEAVING for p in self._parts.schedule.held())

    async def leave_group(self) -> None:
        """Leave in good order: the id node first, so that others take what we release as soon as we release it."""
        self.leaving = True
        try:
            await self.membership.unregister()
        except InboundError as error:
            log.warning("channel %s: could not take the id node down: %s", self.name, error)
        held = self._parts.schedule.held()
        releases = [self._begin_release(p) for p in held if p.fate is not Fate.DROP]
        connection = self._parts.zk.connection
        if connection is not None and connection.session.id != self._joined_session:
            self.leaving_in(connection.session.id)  # it expired just before
        for release in releases:
            await release


def _listed(partitions: Sequence[TopicPartition]) -> str:
    text = ", ".join(map(str, sorted(partitions)[:20]))
    return text if len(partitions) <= 20 else f"{text} and {len(partitions) - 20} more"
