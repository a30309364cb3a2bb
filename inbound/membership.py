"""A channel's part in its group: registration, claims, recovery, release. Runs on the controller's thread.

This is the channel's side of the protocol `inbound.controller.consumer.KafkaConsumer`.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from inbound.channel.partition import Fate, Partition
from inbound.channel.parts import Parts
from inbound.channel.reader import Reader
from inbound.coordinators.base import GroupView, Member, Plan, ZkCoordinator
from inbound.coordinators.members import IdNodeTooLargeError, Members, Membership, Registration
from inbound.coordinators.nodes import MemberInfo
from inbound.coordinators.pauses import PauseReader
from inbound.coordinators.tasks import Tasks
from inbound.errors import InboundError, TransientError, ZkUnavailableError
from inbound.guards import Guards
from inbound.holdings import RETRY, Holdings
from inbound.kafka.base import TopicMeta
from inbound.notices import Notices
from inbound.owner_lists import OwnerLists
from inbound.resets import Resets, emptied
from inbound.set_aside import SetAside
from inbound.subscriber_report import SubscriberReport
from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)

#: All held partitions are held against their nodes again after so many seconds, at the next evaluation: less than the
#: shortest sensible `rebalance_interval`, so that each timer brings such a look. The evaluation that finds it overdue does
#: not wait for it but puts it off, by `PATIENCE` or some times that: mostly somebody has left, and there is something to
#: be claimed.
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
        session_began: Callable[[], float],
        on_join: Callable[[], None],
        owner_is_dead: Callable[[MemberInfo], bool] = lambda info: False,
    ) -> None:
        self.name = parts.name
        self._parts = parts
        self._coordinator = coordinator
        self._reader = reader
        self.join_delay = join_delay
        self._session_began = session_began
        self._on_join = on_join
        self.membership = Membership(
            parts.zk, parts.paths, parts.consumer_id, member, set(), owner_is_dead=owner_is_dead
        )
        self.holdings = Holdings(parts, tasks, reader, self.membership.dead_sessions)
        self.holdings.why = self._why_claimed
        self.holdings.why_released = self._why_released
        self.resets = Resets(
            settings=parts.settings, zk=parts.zk, paths=parts.paths, journal=parts.journal, books=parts.books,
            schedule=parts.schedule, evaluate=parts.evaluate, tasks=tasks, holdings=self.holdings, changed=self._changed,
        )  # fmt: skip
        #: Who came or left last, for the journal.
        self._change = "after joining the group"
        self._doubted = False
        self._tasks = tasks
        #: Whether the last plan left nothing to wish for, None while that is being found out; the number of looks at the
        #: owners; and the number of the look after which an owner node came or went.
        self._content: bool | None = False
        self._looks = 0
        self._news = -1
        self._guards = Guards(parts.zk, parts.paths, self._changed)
        self._looked_at_all = float("-inf")
        self._look_at_all_from: float | None = None  # overdue, and put off until then
        self._spread = 1 + 4 * (zlib.crc32(parts.consumer_id.encode()) % 100) / 100  # not all members at once
        self._looked_with: Mapping[str, TopicMeta] = {}  # what the brokers had said of the topics then
        self._reading = Members(parts.zk, parts.paths, self._changed)
        self._owners = OwnerLists(parts.zk, parts.paths, self._owners_changed)
        self.members: tuple[Member, ...] = ()
        self.plan = Plan()
        #: Set by a new session: what was ownerless then is left alone until `_quiet_until`.
        self._quiet_until = 0.0
        self._ownerless_at_join: frozenset[TopicPartition] | None = None
        self._expired_once = False
        self._look_at: float | None = None  # asked for by the evaluation that ran last
        self._joined_session = 0
        self._told_no_share = False
        self._told_too_large = ""
        self._notices = Notices(parts.name)
        self.report = SubscriberReport(
            name=parts.name, clock=parts.clock, zk=parts.zk, paths=parts.paths, schedule=parts.schedule,
            pausing=parts.pausing, evaluate=parts.evaluate, look_again=self._look_again,
        )  # fmt: skip
        self._waiting_for_id = False
        self._asked = False  # somebody wants the group to look at its shares
        #: What an operator had us give up.
        self.set_aside = SetAside()
        self._pause_reader = PauseReader(
            parts.zk, parts.paths, parts.consumer_id, on_pause=self._pauses_changed, on_rebalance=self._asked_for
        )

    def move_admin(self, url: str) -> None:
        """Say in the id node from now on that the admin port is at `url`. Any thread."""
        self.membership.move_admin(url)
        self._parts.evaluate()

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
        self.report.view = None
        connection = self._parts.zk.connection
        if self.leaving or connection is None:
            if connection is not None:
                self.leaving_in(connection.session.id)  # this channel, and no other, is leaving
            return
        await self.holdings.ownership.ensure_group()
        await self._read_pauses()  # here too: nothing is handed out before, and to verify many partitions takes a while
        if connection.session.id != self._joined_session:
            # From here on, and not from the registration: who had to wait for its id has been quiet meanwhile.
            # A channel that is added later has been quiet as long as the session is there.
            self._joined_session = connection.session.id
            self._quiet_until = self._session_began() + self.join_delay
            self._ownerless_at_join = None
            self._expired_once = self.membership.registered
            self.resets.new_session()
        if await self.membership.register() is Registration.OCCUPIED:
            if not self._waiting_for_id:
                self._parts.journal.note(
                    "waiting-for-id", f"consumer id {self._parts.consumer_id} is still registered by another session; waiting "
                    "for it to expire", level=logging.WARNING,
                )  # fmt: skip
            self._waiting_for_id = True
            raise ZkUnavailableError(f"consumer id {self._parts.consumer_id} is still registered by another session")
        self._waiting_for_id = False
        await self.holdings.recover(self._parts.schedule.held())

    def suspended(self) -> None:
        self._parts.journal.note(
            "suspended", "the connection to ZooKeeper is gone; batches in hand end, nothing is handed out or committed until "
            "it is back", level=logging.WARNING,
        )  # fmt: skip
        error = ZkUnavailableError(
            f"channel {self.name}: the connection to ZooKeeper is gone; nothing is handed out or committed until it is back"
        )
        for partition in self._parts.schedule.held():

            def on_exception(partition: Partition = partition) -> object:
                return (partition.served_by or self._parts.service.processor).on_exception(partition.tp, error)

            partition.callbacks.append(on_exception)
        self._parts.schedule.hurry_all()

    def in_doubt(self) -> None:
        self._doubted = True
        self._parts.journal.note(
            "in-doubt", "the ZooKeeper session may have expired: nothing is handed out or committed before that is known",
            level=logging.WARNING,
        )  # fmt: skip
        self._parts.schedule.doubt()

    def verified(self) -> None:
        if self._doubted:
            self._doubted = False
            self._parts.journal.note("certain", "ZooKeeper answers again: the session is certain")
        self._parts.schedule.hurry_all()
        self._parts.committer.wakeup.set()

    def leaving_in(self, session: int) -> None:
        self.holdings.commit_in(session)

    @property
    def next_look(self) -> float | None:
        return self._look_at

    # -- beliefs against nodes ---------------------------------------------------------------------------------------

    async def coordinate(self) -> None:
        if self.leaving:
            return
        # What has no owner node behind a closed gate is looked at when that opens: see Resets.
        held = [p for p in self._parts.schedule.held() if not self.resets.waits(p)]
        # All at once: what a member asks one by one waits, on a busy machine, for a turn on the processor at each answer.
        # One connection answers in the order of asking.
        registered, sure, _ = await self._tasks.gather(
            [self.membership.check(), self._guards.all_held(held), self._ask_ahead()], f"look of {self.name}"
        )
        if not registered:
            self._owners.ask(())
            await self.zk_reconnected()
        now, topics = self._parts.clock.now(), self._reader.topics.found
        same = topics == self._looked_with and not any(self._reader.topics.is_another(p) for p in held)
        # The guards first, in any case: a watch that is set before the look misses nothing.
        if self._look_at_all_from is None and now >= self._looked_at_all + LOOK_AT_ALL:
            self._look_at_all_from = now + PATIENCE * self._spread
        overdue = self._look_at_all_from is not None and now >= self._look_at_all_from
        if overdue or not (registered and sure and same):
            await self.holdings.verify()
            self._looked_at_all, self._looked_with, self._look_at_all_from = now, topics, None
        self._parts.committer.wakeup.set()

    async def _ask_ahead(self) -> bool:
        """Ask for what the plan will be made of, and learn the pauses meanwhile."""
        self._content = None
        self._looks += 1
        self._owners.ask(topic for topic in self._reader.topics.found if topic not in self.resets.closed)
        await self._read_pauses()
        await self.resets.look()
        return True

    # -- planning ----------------------------------------------------------------------------------------------------

    async def calc_rebalance(self) -> Plan | None:
        self._look_at = self._look_at_all_from
        topics = {name: meta.partitions for name, meta in self._reader.topics.found.items()}
        if self.leaving or not self._reader.topics.known:
            return Plan() if self.leaving else None
        for topic, count in topics.items():
            await self.holdings.ownership.ensure(topic, count, came_later=topic in self._reader.topics.came_later)
        await self.resets.look(topics)
        closed = self.resets.closed
        said = self.report.said()
        reads = tuple(sorted({*topics, *(self._parts.settings.now.topics or ())}))
        try:
            await self.membership.publish(reads, said.as_dict() if said is not None else None)
        except IdNodeTooLargeError as error:
            if str(error) != self._told_too_large:
                self._told_too_large = str(error)
                self._parts.journal.note(
                    "id-too-large", f"{error}; new topics are not read before that", level=logging.ERROR
                )
        before = {m.consumer_id for m in self.members}
        self.members = await self._reading.read()
        if self._tell_members(before):
            self._on_join()
        inherited = await self._inherited(topics)
        for tp in sorted(inherited):
            if tp.topic in closed:
                await self.holdings.clear_node(tp)
        owned = await self._owners.read([t for t in topics if t not in closed]) - inherited
        missing = [p for p in self._parts.schedule.held() if p.tp.topic not in closed and self._unsure(p, owned)]
        if missing:
            await self.holdings.recover(missing)
        held = self._parts.schedule.held()
        mine = frozenset(p.tp for p in held if p.fate is Fate.KEEP)
        ours = frozenset(p.tp for p in held)
        if not await self.holdings.settle_suspects(owned, ours, closed):
            self._look_again(self._parts.clock.now() + RETRY)
        view = GroupView(self._parts.consumer_id, self.members, topics, owned | ours, mine)
        self.report.view = view
        if (again := self.holdings.backoff.next_try) is not None:
            self._look_again(again)
        aside = self.set_aside.left(self._parts.clock.now(), {m.consumer_id for m in self.members})
        # Nor is there anything to be had behind a closed gate, of what a call of ours still works on, or of what ZooKeeper
        # refuses us for now.
        working = {p.tp for p in self._parts.schedule.abandoned()}
        apart = aside | emptied(closed, topics) | working | (self.holdings.backoff.resting - ours)
        self.plan = self._coordinator.plan(replace(view, owned=view.owned | apart) if apart else view)
        if (due := self.set_aside.due()) is not None:
            self._look_again(due)
        if topics:
            self._say_share()
        claimable = tuple(self._claimable(self.plan.take, owned, topics))
        # What its own claims set off is no news to it, if they are all that was missing and all succeed.
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

    def _unsure(self, partition: Partition, owned: frozenset[TopicPartition]) -> bool:
        """Whether its owner node went after it was verified, or it has none of this session for its gate was closed.

        The gate may have been opened since this look began, and another may have claimed it already: then it is owned.
        """
        connection, session = self._parts.zk.connection, partition.fence.session
        return partition.tp not in owned or (connection is not None and connection.session.id != session)

    def _tell_members(self, before: set[str]) -> bool:
        """Note who came and who left since the last look. Returns whether others came."""
        now, me = {m.consumer_id for m in self.members}, {self._parts.consumer_id}
        came, gone = sorted(now - before - me), sorted(before - now - me)
        if before and gone:
            self._change = f"after {_named(gone)} left"
            self._parts.journal.note("left", f"{_named(gone)} left the group; members now: {len(now)}")
        if before and came:
            self._change = f"after {_named(came)} joined"
            self._parts.journal.note("joined", f"{_named(came)} joined the group; members now: {len(now)}")
        return bool(before and came)

    def _size(self) -> str:
        partitions, members = sum(meta.partitions for meta in self._reader.topics.found.values()), len(self.members)
        return f"{partitions} partitions for {members} member{'' if members == 1 else 's'}"

    def _why_claimed(self) -> str:
        kind = self._coordinator.registration().get("type", "custom")
        return f"{self._change} (share {self.plan.share} of {self._size()}, {kind})"

    def _why_released(self, tp: TopicPartition) -> str:
        if self.leaving:
            return "as this consumer leaves the group"
        if tp.topic in self.resets.closed:
            return f"as reset {self.resets.closed[tp.topic].name} waits for it"
        if tp in self.set_aside.partitions():
            return "as an operator asked for it"
        return f"{self._change} (share {self.plan.share} of {self._size()})"

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
            left_alone = {tp for tp in left_alone if not self.resets.may_hurry(tp)}
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
            parts.journal.note(
                "paused", f"{pause.told(self.name)}; partitions are kept, nothing is read", level=logging.WARNING,
            )  # fmt: skip
        if not pauses:
            parts.journal.note("resumed", "no pause is left: reading goes on")
        parts.schedule.read_soon()

    def _pauses_changed(self) -> None:
        self._parts.pausing.doubt()  # a watch: any thread
        self._changed()

    def _look_again(self, at: float) -> None:
        self._look_at = at if self._look_at is None else min(self._look_at, at)

    def _owners_changed(self) -> None:
        self._news = self._looks  # a watch: any thread. Before the next line, as the plan says first what it has found
        self._hear_news()

    def _hear_news(self) -> None:
        """An owner node has come or gone: look at once, later, or (None) when it is known which."""
        content = self._content
        if content:
            self._tasks.spawn(self._look_later(self._looks), f"look of {self.name} at the owners")
        elif content is not None:
            self._changed()

    async def _look_later(self, looks: int) -> None:
        await self._tasks.sleep(PATIENCE)
        if looks == self._looks:  # else that has been seen meanwhile
            self._changed()

    def _asked_for(self) -> None:
        self._asked = True  # a watch: any thread
        self.set_aside.clear()
        self._changed()

    def _changed(self) -> None:
        self._parts.evaluate()  # a watch: any thread

    def _say_share(self) -> None:
        none = self.plan.share == 0
        if none and not self._told_no_share:
            self._parts.journal.note(
                "no-share",
                f"of the partitions that the group's {len(self.members)} members share, none is for this one; it stands by",
            )
        self._told_no_share = none
        again = self._notices.say(self.plan.notices, self._parts.clock.now())
        if again is not None:
            self._look_again(again)

    # -- taking and releasing ----------------------------------------------------------------------------------------

    async def take_partitions(self, partitions: Sequence[TopicPartition]) -> bool:
        taken = await self.holdings.take(partitions)
        await self.report.write()
        if not taken and self._content:
            self._content = False
            if self._news == self._looks:  # others were faster, then: what was told meanwhile is for us after all
                self._changed()
        return taken

    async def release_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        for tp in partitions:
            partition = self._parts.schedule.get(tp)
            if partition is not None and partition.fate is Fate.KEEP:
                self.holdings.release(partition)

    async def give_up(self, tp: TopicPartition, seconds: float | None) -> bool:
        """Begin to release `tp` in good order, and leave it to others; see `SetAside.add`. Returns whether it was held."""
        partition = self._parts.schedule.get(tp)
        if partition is None or partition.fate is not Fate.KEEP:
            return False
        self.set_aside.add(tp, self._parts.clock.now(), seconds)
        self.holdings.release(partition)
        return True

    async def leave_group(self) -> None:
        """Leave in good order: the id node goes first, or with the owner nodes, so that others take them at once."""
        self.holdings.leaving = True
        try:
            id_node = await self.membership.leaving()
        except InboundError as error:
            log.debug("channel %s: %s", self.name, error)
            id_node = []
        await self.holdings.leave(id_node, self._unregister)
        await self.report.write_last()

    async def clear_up(self) -> None:
        """After the group was left while the session goes on: take away what is still ours, for others wait for it."""
        while True:
            try:
                await self.membership.unregister()
                await self.holdings.clear()
                return
            except TransientError as error:
                log.debug("channel %s: %s", self.name, error)
                await self._tasks.sleep(RETRY)

    async def _unregister(self) -> None:
        try:
            await self.membership.unregister()
        except InboundError as error:
            log.warning("channel %s: could not take the id node down: %s", self.name, error)


def _named(consumers: Sequence[str]) -> str:
    return ", ".join(consumers[:5]) + (f" and {len(consumers) - 5} more" if len(consumers) > 5 else "")
