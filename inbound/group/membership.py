"""A channel's part in its group: registration, claims, recovery, release."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from inbound.coordinators.base import GroupView, Member, Plan, ZkCoordinator
from inbound.coordinators.members import IdNodeTooLargeError, Members, Membership
from inbound.coordinators.nodes import MemberInfo
from inbound.coordinators.pauses import PauseReader
from inbound.coordinators.tasks import Tasks
from inbound.errors import InboundError, TransientError, ZkUnavailableError
from inbound.group.claims import RETRY, Claims
from inbound.group.group_journal import GroupJournal
from inbound.group.node_watches import EpochWatches, OwnerLists
from inbound.group.partition_backoff import ReleaseCooldown
from inbound.group.parts import MemberParts, Reading
from inbound.group.reset_participant import ResetParticipant
from inbound.group.subscriber_report import SubscriberReport
from inbound.kafka.base import TopicMeta
from inbound.partition.partition import Fate, Partition
from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)

#: Seconds after which the next evaluation checks all held partitions against their nodes again: less than the shortest
#: sensible `rebalance_interval`, so that each timer brings such a check. The evaluation that finds it overdue puts it off,
#: by `PATIENCE` or a few times that: mostly a member has left, and there are partitions to claim.
LOOK_AT_ALL = 20.0
#: Seconds by which a member that has its share looks later at owner nodes that come and go. They are for other members to
#: act on, and its own concern (an owner node of its own that was deleted) can wait so long. While partitions move, every
#: change of an owner node notifies every member; if all looked at once, members with partitions to claim would wait.
PATIENCE = 1.5


class GroupMembership:
    """The channel's side of `inbound.controller.kafka_controller.KafkaConsumer`.

    That protocol says when each method is called, on the controller's thread, and its duties.
    """

    def __init__(
        self,
        parts: MemberParts,
        tasks: Tasks,
        coordinator: ZkCoordinator,
        reading: Reading,
        member: MemberInfo,
        *,
        join_delay: float,
        session_began: Callable[[], float],
        on_join: Callable[[], None],
        abandon: Callable[[Partition, str], None],
        owner_is_dead: Callable[[MemberInfo], bool] = lambda info: False,
    ) -> None:
        """Take `on_join`, called when another member has joined.

        `abandon` gives up a partition that did not drain in time; its text says why it is not waited for any longer.
        """
        self.name = parts.name
        self._parts = parts
        self._coordinator = coordinator
        self._topics = reading.topics
        self.join_delay = join_delay
        self._session_began = session_began
        self._on_join = on_join
        self.membership = Membership(
            parts.zk, parts.paths, parts.consumer_id, member, set(), owner_is_dead=owner_is_dead
        )
        kind = str(coordinator.registration().get("type", "custom"))
        self._group_journal = GroupJournal(parts, kind, reading.topics)
        self.claims = Claims(
            parts,
            tasks,
            reading,
            self.membership.dead_sessions,
            why=self._group_journal.why_claimed,
            why_released=self._why_released,
            may_be_reset=lambda partition: self.resets.may_have_moved(partition),
        )
        self.resets = ResetParticipant(parts, tasks, self.claims, changed=self._changed, abandon=abandon)
        self.backoff = self.claims.backoff
        self._doubted = False
        self._tasks = tasks
        #: Whether the last plan gave this member its whole share, None while it is made; the number of looks at the
        #: owners; and the number of the look after which an owner node came or went.
        self._content: bool | None = False
        self._looks = 0
        self._news = -1
        self._epoch_watches = EpochWatches(parts.zk, parts.paths, self._changed)
        self._looked_at_all = float("-inf")
        self._look_at_all_from: float | None = None  # overdue, and put off until then
        self._spread = 1 + 4 * (zlib.crc32(parts.consumer_id.encode()) % 100) / 100  # not all members at once
        self._looked_with: Mapping[str, TopicMeta] = {}  # the topics as the brokers listed them then
        self._reading = Members(parts.zk, parts.paths, self._changed)
        self._owners = OwnerLists(parts.zk, parts.paths, self._owners_changed)
        self.members: tuple[Member, ...] = ()
        self.plan = Plan()
        #: Set by a new session: partitions ownerless then are left alone until `_quiet_until`.
        self._quiet_until = 0.0
        self._ownerless_at_join: frozenset[TopicPartition] | None = None
        self._expired_once = False
        self._look_at: float | None = None  # asked for by the evaluation that ran last
        self._joined_session = 0
        self.report = SubscriberReport(parts, self._look_again)
        self._waiting_for_id = False
        self._asked = False  # an operator has asked for a rebalance
        self.release_cooldown = ReleaseCooldown()
        self._pause_reader = PauseReader(
            parts.zk, parts.paths, parts.consumer_id, on_pause=self._pauses_changed, on_rebalance=self._asked_for
        )

    def move_admin(self, url: str) -> None:
        """Write the admin port's new URL to the id node. Any thread."""
        self.membership.admin = url
        self._parts.evaluate()

    # -- session -----------------------------------------------------------------------------------------------------

    @property
    def leaving(self) -> bool:
        """Whether the group is being left."""
        return self.claims.leaving

    @property
    def registered(self) -> bool:
        """Whether our id node exists, as far as we know."""
        return self.membership.registered and not self.leaving

    async def zk_reconnected(self) -> None:
        self.report.view = None
        connection = self._parts.zk.connection
        if self.leaving or connection is None:
            if connection is not None:
                self.leaving_in(connection.session.id)  # this channel, and no other, is leaving
            return
        await self.claims.ownership.ensure_group()
        await self._read_pauses()  # here too: nothing is delivered before, and to verify many partitions takes a while
        if connection.session.id != self._joined_session:
            # From here on, and not from the registration: a member that waited for its id has been quiet since.
            # A channel that is added later has been quiet as long as the session is there.
            self._joined_session = connection.session.id
            self._quiet_until = self._session_began() + self.join_delay
            self._ownerless_at_join = None
            self._expired_once = self.membership.registered
            self.resets.new_session()
        if not await self.membership.register():
            if not self._waiting_for_id:
                self._parts.journal.note(
                    "waiting-for-id", f"consumer id {self._parts.consumer_id} is still registered by another session; waiting "
                    "for it to expire", level=logging.WARNING,
                )  # fmt: skip
            self._waiting_for_id = True
            raise ZkUnavailableError(f"consumer id {self._parts.consumer_id} is still registered by another session")
        self._waiting_for_id = False
        await self.claims.recover(self._parts.schedule.held())

    def suspended(self) -> None:
        self._parts.journal.note(
            "suspended", "the connection to ZooKeeper is gone; batches in hand end, nothing is delivered or committed until "
            "it is back", level=logging.WARNING,
        )  # fmt: skip
        error = ZkUnavailableError(
            f"channel {self.name}: the connection to ZooKeeper is gone; nothing is delivered or committed until it is back"
        )
        for partition in self._parts.schedule.held():

            def on_exception(partition: Partition = partition) -> object:
                return (partition.served_by or self._parts.service.processor).on_exception(partition.tp, error)

            partition.callbacks.append(on_exception)
        self._parts.schedule.hurry_all()

    def in_doubt(self) -> None:
        self._doubted = True
        self._parts.journal.note(
            "in-doubt", "the ZooKeeper session may have expired: nothing is delivered or committed before that is known",
            level=logging.WARNING,
        )  # fmt: skip
        self._parts.schedule.doubt()

    def verified(self) -> None:
        if self._doubted:
            self._doubted = False
            self._parts.journal.note("certain", "ZooKeeper answers again: the session is certain")
        self._parts.schedule.hurry_all()
        self._parts.wake_committer()

    def leaving_in(self, session: int) -> None:
        self.claims.commit_in(session)

    @property
    def next_look(self) -> float | None:
        return self._look_at

    # -- beliefs against nodes ---------------------------------------------------------------------------------------

    async def coordinate(self) -> None:
        if self.leaving:
            return
        # A partition without an owner node waits for its closed gate to open: see ResetParticipant.
        held = [p for p in self._parts.schedule.held() if not self.resets.waits(p)]
        # All at once: on a busy machine, sequential requests wait for a turn on the processor at each answer.
        # One connection answers in the order of the requests.
        registered, sure, _ = await self._tasks.gather(
            [self.membership.check(), self._epoch_watches.all_held(held), self._ask_ahead()], f"look of {self.name}"
        )
        if not registered:
            self._owners.ask(())
            await self.zk_reconnected()
        now, topics = self._parts.clock.now(), self._topics.found
        same = topics == self._looked_with and not any(self._topics.is_another(p) for p in held)
        # The watches come first, in any case: a watch that is set before the look misses nothing.
        if self._look_at_all_from is None and now >= self._looked_at_all + LOOK_AT_ALL:
            self._look_at_all_from = now + PATIENCE * self._spread
        overdue = self._look_at_all_from is not None and now >= self._look_at_all_from
        if overdue or not (registered and sure and same):
            await self.claims.verify()
            self._looked_at_all, self._looked_with, self._look_at_all_from = now, topics, None
        self._parts.wake_committer()

    async def _ask_ahead(self) -> bool:
        """Send the plan's requests, and read the pauses in the same time."""
        self._content = None
        self._looks += 1
        self._owners.ask(topic for topic in self._topics.found if topic not in self.resets.closed)
        await self._read_pauses()
        await self.resets.look()
        return True

    # -- planning ----------------------------------------------------------------------------------------------------

    async def calc_rebalance(self) -> Plan | None:
        self._look_at = self._look_at_all_from
        topics = {name: meta.partitions for name, meta in self._topics.found.items()}
        if self.leaving or not self._topics.known:
            return Plan() if self.leaving else None
        for topic, count in topics.items():
            await self.claims.ownership.ensure(topic, count, came_later=topic in self._topics.came_later)
        await self.resets.look(topics)
        closed = self.resets.closed
        said = self.report.said()
        reads = tuple(sorted({*topics, *(self._parts.settings.now.topics or ())}))
        try:
            await self.membership.publish(reads, said.as_dict() if said is not None else None)
        except IdNodeTooLargeError as error:
            self._group_journal.id_node_too_large(str(error))
        self.members = await self._reading.read()
        if self._group_journal.members({m.consumer_id for m in self.members}):
            self._on_join()
        inherited = await self._inherited(topics)
        for tp in sorted(inherited):
            if tp.topic in closed:
                await self.claims.clear_node(tp)
        owned = await self._owners.read([t for t in topics if t not in closed]) - inherited
        # Their owner nodes went after they were verified; or they have none of this session, as their gate was closed. It may
        # have been opened since this look began, and another member may have claimed them already: then they are owned.
        connection = self._parts.zk.connection
        missing = [
            p
            for p in self._parts.schedule.held()
            if p.tp.topic not in closed
            and (p.tp not in owned or (connection is not None and connection.session.id != p.fence.session))
        ]
        if missing:
            await self.claims.recover(missing)
        held = self._parts.schedule.held()
        mine = frozenset(p.tp for p in held if p.fate is Fate.KEEP)
        ours = frozenset(p.tp for p in held)
        if not await self.claims.settle_suspects(owned, ours, closed):
            self._look_again(self._parts.clock.now() + RETRY)
        view = GroupView(self._parts.consumer_id, self.members, topics, owned | ours, mine)
        self.report.view = view
        if (again := self.backoff.next_try) is not None:
            self._look_again(again)
        aside = self.release_cooldown.left(self._parts.clock.now(), {m.consumer_id for m in self.members})
        # Nor is a partition free behind a closed gate, while a call of ours still works on it, or while ZooKeeper refuses it.
        behind_gates = {TopicPartition(t, p) for t in closed for p in range(topics.get(t, 0))}
        working = {p.tp for p in self._parts.schedule.abandoned()}
        apart = aside | behind_gates | working | (self.backoff.resting - ours)
        self.plan = self._coordinator.plan(replace(view, owned=view.owned | apart) if apart else view)
        if (due := self.release_cooldown.due()) is not None:
            self._look_again(due)
        if (due := self._group_journal.plan(self.plan, self._parts.clock.now(), tell=bool(topics))) is not None:
            self._look_again(due)
        claimable = tuple(self._claimable(self.plan.take, owned, topics))
        # Changes by its own claims are not acted on, if they complete its share and all succeed.
        enough = len(mine) + len(claimable) >= self.plan.share > 0
        self._content = enough and not (self.plan.release or self.plan.notices)
        asked, self._asked = self._asked, False
        self._parts.meters.rebalances.looked(
            self._parts.clock.now(), session=self._joined_session, members={m.consumer_id for m in self.members},
            topics=topics, asked=asked, news=self._news >= self._looks - 1,
            moving=bool(claimable or self.plan.release), content=enough,
        )  # fmt: skip
        if self._news == self._looks:
            self._hear_news()
        if not claimable:  # else when that is done
            await self.report.write()
        return Plan(claimable, self.plan.release, self.plan.share)

    def _why_released(self, tp: TopicPartition) -> str:
        if self.leaving:
            return "as this consumer leaves the group"
        if tp.topic in self.resets.closed:
            return f"as reset {self.resets.closed[tp.topic].name} waits for it"
        if tp in self.release_cooldown.partitions():
            return "as an operator asked for it"
        return self._group_journal.why_released()

    async def _inherited(self, topics: dict[str, int]) -> frozenset[TopicPartition]:
        """Return partitions owned by our dead predecessor, whose id we took over."""
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
        """Leave out partitions that a new session must not claim yet.

        After an outage of ZooKeeper the first member to be back would else claim everything, and no other could recover
        its partitions. A process that has just started may claim at once the partitions that had owners when it joined:
        they are released for it, or their owners have died since. A member with an expired session waits in any case.
        """
        everything = frozenset(TopicPartition(t, p) for t, count in topics.items() for p in range(count))
        if self._ownerless_at_join is None:
            inherits = bool(self.membership.dead_sessions)
            self._ownerless_at_join = frozenset() if inherits else everything - owned
        if self._parts.clock.now() < self._quiet_until:
            # Decided here and not by the clock later: the quiet time may end while this evaluation runs.
            left_alone = set(wanted) if self._expired_once else self._ownerless_at_join.intersection(wanted)
            left_alone = {tp for tp in left_alone if not self.resets.may_hurry(tp)}
            if left_alone:
                self._look_again(self._quiet_until)
            wanted = [tp for tp in wanted if tp not in left_alone]
        return [tp for tp in wanted if self._parts.schedule.may_claim(tp)]

    async def _read_pauses(self) -> None:
        """Read the pauses before any partition is claimed or recovered.

        A member that joins a paused group delivers nothing.
        """
        parts = self._parts
        doubts = parts.pause_state.doubts
        generation, pauses = await self._pause_reader.read()
        if not parts.pause_state.learned(generation, pauses, doubts):
            return
        for pause in pauses:
            parts.journal.note(
                "paused", f"{pause.told(self.name)}; partitions are kept, nothing is read", level=logging.WARNING,
            )  # fmt: skip
        if not pauses:
            parts.journal.note("resumed", "no pause is left: reading goes on")
        parts.schedule.read_soon()

    def _pauses_changed(self) -> None:
        self._parts.pause_state.doubt()  # a watch: any thread
        self._changed()

    def _look_again(self, at: float) -> None:
        self._look_at = at if self._look_at is None else min(self._look_at, at)

    def _owners_changed(self) -> None:
        self._news = self._looks  # a watch: any thread. Before the next line: the plan first says its findings
        self._hear_news()

    def _hear_news(self) -> None:
        content = self._content
        if content:
            self._tasks.spawn(self._look_later(self._looks), f"look of {self.name} at the owners")
        elif content is not None:
            self._changed()

    async def _look_later(self, looks: int) -> None:
        await self._tasks.sleep(PATIENCE)
        if looks == self._looks:  # else a later look has seen it
            self._changed()

    def _asked_for(self) -> None:
        self._asked = True  # a watch: any thread
        self.release_cooldown.clear()
        self._changed()

    def _changed(self) -> None:
        self._parts.evaluate()  # a watch: any thread

    # -- taking and releasing ----------------------------------------------------------------------------------------

    async def take_partitions(self, partitions: Sequence[TopicPartition]) -> bool:
        taken = await self.claims.take(partitions)
        await self.report.write()
        if not taken and self._content:
            self._content = False
            if self._news == self._looks:  # others were faster: the change concerns this member after all
                self._changed()
        return taken

    async def release_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        for tp in partitions:
            partition = self._parts.schedule.get(tp)
            if partition is not None and partition.fate is Fate.KEEP:
                self.claims.release(partition)

    async def give_up(self, tp: TopicPartition, seconds: float | None) -> bool:
        """Begin to release `tp` gracefully, and leave it to other members.

        Returns whether it was held; see `ReleaseCooldown.add`.
        """
        partition = self._parts.schedule.get(tp)
        if partition is None or partition.fate is not Fate.KEEP:
            return False
        self.release_cooldown.add(tp, self._parts.clock.now(), seconds)
        self.claims.release(partition)
        return True

    async def leave_group(self) -> None:
        """Leave the group gracefully.

        The id node goes first, or with the owner nodes, so that other members claim them at once.
        """
        self.claims.leaving = True
        try:
            id_node = await self.membership.leaving()
        except InboundError as error:
            log.debug("channel %s: %s", self.name, error)
            id_node = []
        await self.claims.leave(id_node, self._unregister)
        await self.report.write_last()

    async def clear_up(self) -> None:
        """Delete our nodes after the group was left: other members wait."""
        while True:
            try:
                await self.membership.unregister()
                await self.claims.clear()
                return
            except TransientError as error:
                log.debug("channel %s: %s", self.name, error)
                await self._tasks.sleep(RETRY)

    async def _unregister(self) -> None:
        try:
            await self.membership.unregister()
        except InboundError as error:
            log.warning("channel %s: could not take the id node down: %s", self.name, error)
