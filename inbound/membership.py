"""A channel's part in its group: registration, claims, recovery, release. Runs on the controller's thread.

This is the channel's side of the protocol `inbound.controller.consumer.KafkaConsumer`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from inbound.coordinators.base import GroupView, Member, Plan, ZkCoordinator
from inbound.coordinators.members import Membership, Registration, read_members
from inbound.coordinators.nodes import OPEN, MemberInfo
from inbound.coordinators.ownership import Fence
from inbound.coordinators.pauses import PauseReader
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call
from inbound.errors import InboundError, ZkUnavailableError
from inbound.guards import Guards
from inbound.holdings import RETRY, Holdings
from inbound.kafka.base import TopicMeta
from inbound.kafka.reader import Reader
from inbound.notices import Notices
from inbound.partition import Fate, Partition
from inbound.parts import Parts
from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)

#: All held partitions are held against their nodes again after so many seconds, at the next evaluation: less than the
#: shortest sensible `rebalance_interval`, so that each look by timer is a look at everything.
LOOK_AT_ALL = 20.0
#: Who has its share looks so much later, in seconds, when owner nodes come and go: that is for others to act on, and what
#: concerns it (a node of its own that somebody has deleted) can wait so long. While partitions move, every owner node
#: that comes or goes is news to every member; if all looked at once, those who have something to take would wait for them.
PATIENCE = 1.5


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
        self._coordinator = coordinator
        self._reader = reader
        self._join_delay = join_delay
        self._on_join = on_join
        self._owner_is_dead = owner_is_dead
        self.membership = Membership(parts.zk, parts.paths, parts.consumer_id, member, set())
        self.holdings = Holdings(parts, tasks, reader, self.membership.dead_sessions)
        self._tasks = tasks
        #: Whether the last plan left nothing to wish for; and the number of looks at the owners.
        self._content = False
        self._looks = 0
        self._put_off = -1  # the number of the look after which a change was not looked at, at once
        self._asked_ahead: dict[str, Call[list[str] | None]] = {}  # lists of owners that are on their way
        self._guards = Guards(parts.zk, parts.paths, self._changed)
        self._looked_at_all = float("-inf")
        self._looked_with: Mapping[str, TopicMeta] = {}  # what the brokers had said of the topics then
        self._cache: dict[str, Member] = {}
        self.members: tuple[Member, ...] = ()
        self.plan = Plan()
        #: Set by a new session: what was ownerless then is left alone until `_quiet_until`.
        self._quiet_until = 0.0
        self._ownerless_at_join: frozenset[TopicPartition] | None = None
        self._expired_once = False
        self._look_at: float | None = None  # asked for by the evaluation that ran last
        self._joined_session = 0
        self._told_no_share = False
        self._notices = Notices(parts.name)
        self._waiting_for_id = False
        self._pause_reader = PauseReader(
            parts.zk, parts.paths, parts.consumer_id, on_pause=self._pauses_changed, on_rebalance=self._changed
        )

    # -- session -----------------------------------------------------------------------------------------------------

    @property
    def leaving(self) -> bool:
        """Whether the group is being left."""
        return self.holdings.leaving

    @property
    def registered(self) -> bool:
        """Whether our id node stands, as far as we know."""
        return self.membership.registered and not self.leaving

    async def zk_reconnected(self) -> None:
        self._cache.clear()  # its watches went with the connection
        connection = self._parts.zk.connection
        if self.leaving or connection is None:
            return
        await self.holdings.ownership.ensure_group()
        await self._read_pauses()  # here too: nothing is handed out before, and to verify many partitions takes a while
        if connection.session.id != self._joined_session:
            # From here on, and not from the registration: who had to wait for its id has been quiet meanwhile.
            self._joined_session = connection.session.id
            self._quiet_until = self._parts.clock.now() + self._join_delay
            self._ownerless_at_join = None
            self._expired_once = self.membership.registered
        if await self.membership.register(owner_is_dead=self._owner_is_dead) is Registration.OCCUPIED:
            if not self._waiting_for_id:
                log.warning(
                    "channel %s: consumer id %s is still registered by another session; waiting for it to expire",
                    self.name, self._parts.consumer_id,
                )  # fmt: skip
            self._waiting_for_id = True
            raise ZkUnavailableError(f"consumer id {self._parts.consumer_id} is still registered by another session")
        self._waiting_for_id = False
        await self.holdings.recover(self._parts.schedule.held())

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
                self._parts.schedule.refence(partition, Fence(partition.fence.epoch, session, partition.fence.nonce))
        self._parts.committer_wakeup.set()

    @property
    def next_look(self) -> float | None:
        return self._look_at

    # -- beliefs against nodes ---------------------------------------------------------------------------------------

    async def coordinate(self) -> None:
        if self.leaving:
            return
        held = self._parts.schedule.held()
        # All at once: what a member asks one by one waits, on a busy machine, for a turn on the processor at each answer.
        # One connection answers in the order of asking.
        registered, sure, _ = await self._tasks.gather(
            [self.membership.check(), self._guards.all_held(held), self._ask_ahead()], f"look of {self.name}"
        )
        if not registered:
            self._asked_ahead.clear()
            await self.zk_reconnected()
        now, topics = self._parts.clock.now(), self._reader.topics
        recently = now < self._looked_at_all + LOOK_AT_ALL and topics == self._looked_with
        recently = recently and not any(self._reader.is_another(p) for p in held)
        # The guards first, in any case: a watch that is set before the look misses nothing.
        if not (registered and sure and recently):
            await self.holdings.verify()
            self._looked_at_all, self._looked_with = now, topics
        self._parts.committer_wakeup.set()

    async def _ask_ahead(self) -> bool:
        """Ask for what the plan will be made of, and learn the pauses meanwhile."""
        self._content = False  # until it is known again: what the watches tell from here on may be for us
        self._looks += 1
        self._asked_ahead = {t: self._list_owners(t) for t in self._reader.topics}
        await self._read_pauses()
        return True

    # -- planning ----------------------------------------------------------------------------------------------------

    async def calc_rebalance(self) -> Plan | None:
        self._look_at = None
        topics = {name: meta.partitions for name, meta in self._reader.topics.items()}
        if self.leaving or not self._reader.topics_known:
            return Plan() if self.leaving else None
        for topic, count in topics.items():
            await self.holdings.ownership.ensure(topic, count, came_later=topic in self._reader.came_later)
        await self.membership.publish_topics(tuple(sorted({*topics, *(self._parts.config.topics or ())})))
        before = {m.consumer_id for m in self.members}
        self.members = await read_members(self._parts.zk, self._parts.paths, self._cache, self._changed)
        if {m.consumer_id for m in self.members} - before - {self._parts.consumer_id} and before:
            self._on_join()
        owned = await self._owned(topics) - await self._inherited(topics)
        held = self._parts.schedule.held()
        mine = frozenset(p.tp for p in held if p.fate is Fate.KEEP)
        ours = frozenset(p.tp for p in held)
        await self._get_back([p for p in held if p.tp not in owned])
        if not await self.holdings.settle_suspects(owned, ours):
            self._look_again(self._parts.clock.now() + RETRY)
        view = GroupView(self._parts.consumer_id, self.members, topics, owned | ours, mine)
        self.plan = self._coordinator.plan(view)
        if topics:
            self._say_share()
        claimable = tuple(self._claimable(self.plan.take, owned, topics))
        # What its own claims set off is no news to it, if they are all that was missing and all succeed.
        enough = len(mine) + len(claimable) >= self.plan.share > 0
        self._content = enough and not (self.plan.release or self.plan.notices)
        return Plan(claimable, self.plan.release, self.plan.share)

    async def _owned(self, topics: dict[str, int]) -> frozenset[TopicPartition]:
        ahead, self._asked_ahead = self._asked_ahead, {}
        calls = {t: ahead[t] if t in ahead else self._list_owners(t) for t in topics}
        owned = set()
        for topic, call in calls.items():
            names = await call
            if names is None and topic in ahead:  # its folder has been made since
                names = await self._list_owners(topic)
            owned |= {TopicPartition(topic, int(name)) for name in names or () if name.isdigit()}
        return frozenset(owned)

    def _list_owners(self, topic: str) -> Call[list[str] | None]:
        return self._parts.zk.children(self._parts.paths.owners(topic), self._owners_changed)

    async def _get_back(self, missing: Sequence[Partition]) -> None:
        """Recover those of ours that have no owner node: it went after they were verified, or their gate was closed.

        The watches on what we read here, and on the list that did not name them, bring us back if it is not to be had.
        """
        gates = {
            topic: self._parts.zk.get(self._parts.paths.gate(topic), self._changed)
            for topic in {p.tp.topic for p in missing}
        }
        closed = set()
        for topic, call in gates.items():
            gate = await call
            if gate is not None and gate.data != OPEN:
                closed.add(topic)
        passable = [p for p in missing if p.tp.topic not in closed]
        if passable:
            await self.holdings.recover(passable)

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

    async def _read_pauses(self) -> None:
        """Learn what is paused, before anything is claimed or got back: who joins a paused group hands out nothing."""
        parts = self._parts
        doubts = parts.pausing.doubts
        generation, pauses = await self._pause_reader.read()
        if not parts.pausing.learned(generation, pauses, doubts):
            return
        for pause in pauses:
            log.warning("channel %s: %s; partitions are kept, nothing is read", self.name, pause.told(self.name))
        if not pauses:
            log.info("channel %s: no pause is left: reading goes on", self.name)
        parts.reader_wakeup.set()

    def _pauses_changed(self) -> None:
        self._parts.pausing.doubt()  # a watch: any thread
        self._changed()

    def _look_again(self, at: float) -> None:
        self._look_at = at if self._look_at is None else min(self._look_at, at)

    def _owners_changed(self) -> None:
        if self._content:  # a watch: any thread
            self._put_off = self._looks
            self._tasks.spawn(self._look_later(self._looks), f"look of {self.name} at the owners")
        else:
            self._changed()

    async def _look_later(self, looks: int) -> None:
        await self._tasks.sleep(PATIENCE)
        if looks == self._looks:  # else that has been seen meanwhile
            self._changed()

    def _changed(self) -> None:
        self._parts.evaluate()  # a watch: any thread

    def _say_share(self) -> None:
        none = self.plan.share == 0
        if none and not self._told_no_share:
            log.info(
                "channel %s: of the partitions that the group's %d members share, none is for this one; it stands by",
                self.name,
                len(self.members),
            )
        self._told_no_share = none
        again = self._notices.say(self.plan.notices, self._parts.clock.now())
        if again is not None:
            self._look_again(again)

    # -- taking and releasing ----------------------------------------------------------------------------------------

    async def take_partitions(self, partitions: Sequence[TopicPartition]) -> bool:
        taken = await self.holdings.take(partitions)
        if not taken and self._content:
            self._content = False
            if self._put_off == self._looks:  # others were faster, then: what was told meanwhile is for us after all
                self._changed()
        return taken

    async def release_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        for tp in partitions:
            partition = self._parts.schedule.get(tp)
            if partition is not None and partition.fate is Fate.KEEP:
                self.holdings.release(partition)

    async def leave_group(self) -> None:
        """Leave in good order: the id node goes first, or with the owner nodes, so that others take them at once."""
        self.holdings.leaving = True
        connection = self._parts.zk.connection
        if connection is not None and connection.session.id != self._joined_session:
            self.leaving_in(connection.session.id)  # it expired just before
        try:
            id_node = await self.membership.leaving()
        except InboundError as error:
            log.debug("channel %s: %s", self.name, error)
            id_node = []
        await self.holdings.leave(id_node, self._unregister)

    async def _unregister(self) -> None:
        try:
            await self.membership.unregister()
        except InboundError as error:
            log.warning("channel %s: could not take the id node down: %s", self.name, error)
