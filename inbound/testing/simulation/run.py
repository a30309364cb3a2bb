"""One simulated run: a plan, carried out on a world, judged at every step."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from inbound.coordinators.base import ZkCoordinator
from inbound.coordinators.nodes import decode_member
from inbound.coordinators.zookeeper import Create, Delete
from inbound.processors.base import BatchEventProcessor
from inbound.testing.simulation.faults import KINDS
from inbound.testing.simulation.judge import Judge
from inbound.testing.simulation.observed import Moody, Observed, Steady
from inbound.testing.simulation.plan import Action, Plan
from inbound.testing.simulation.scheduler import Scheduler
from inbound.testing.simulation.shares import Rights, make, wrong_shares
from inbound.testing.world import Consumer, World
from inbound.topic_partition import TopicPartition

#: A partition is read again so long after the fault's end: the session, and this. Seconds of virtual time.
GRACE = 1.0
#: And so much later everybody has an even share.
BALANCED = 4.0
#: A probe changes what it must within this time.
PROBE = 6.0


@dataclass(frozen=True)
class Outcome:
    """What came of a run."""

    plan: Plan
    violations: tuple[str, ...]
    trace: tuple[tuple[float, str], ...] = field(repr=False)
    steps: int
    handed_out: int
    repeated: int
    error: BaseException | None = field(default=None, repr=False)

    @property
    def failed(self) -> bool:
        return bool(self.violations)


class Run:
    """The world of one run, and the verbs that faults are made of."""

    def __init__(
        self,
        plan: Plan,
        processor: Callable[[], BatchEventProcessor] | None = None,
        coordinator: Callable[[], ZkCoordinator] | None = None,
    ) -> None:
        setup = plan.setup
        self.plan = plan
        self.world = World(seed=plan.seed, session_timeout=setup.session)
        self.kafka, self.ensemble, self.paths = self.world.kafka, self.world.ensemble, self.world.paths
        self.scheduler = Scheduler(self.world, f"{plan.seed} start")
        self.judge = Judge(self.world, latest=setup.latest)
        self.scheduler.halted = lambda: self.over or bool(self.judge.violations) or self.scheduler.failure is not None
        #: Topics that were deleted and created anew: that is noticed when the brokers are asked for topics.
        self.recreated: set[str] = set()
        #: Process: how long its next callback takes.
        self.slow: dict[str, float] = {}
        self._make_processor = processor
        self._make_coordinator = coordinator
        self._traffic = random.Random(f"{plan.seed} traffic")
        self._joined = 0
        self._kinds: dict[str, str] = {}  # process: its coordinator
        self._ends: list[Callable[[], None]] = []
        self.over = False
        self._handed_before = 0
        self._unread: list[TopicPartition] = []
        self._calm_from = 0.0
        for topic, count in setup.topics:
            self.kafka.create_topic(topic, count)
        self.judge.initial_partitions(self.partitions())
        for _ in range(setup.members):
            self.join()

    # -- verbs -----------------------------------------------------------------------------------------------------------

    def partitions(self) -> list[TopicPartition]:
        """Return every partition there is."""
        return [TopicPartition(t, p) for t, meta in self.kafka.topics().items() for p in range(meta.partitions)]

    def partition(self, action: Action) -> TopicPartition:
        """Return the partition that an action is about."""
        everything = self.partitions()
        return everything[action.where % len(everything)]

    def living(self) -> list[Consumer]:
        """Return the processes that have not ended."""
        return [c for c in self.world.consumers.values() if not c.dead]

    def staying(self) -> list[Consumer]:
        """Return those that live, and are not on their way out."""
        return [c for c in self.living() if not c.channel.parts.stopping.is_set()]

    def pick(self, consumers: Sequence[Consumer], action: Action) -> Consumer:
        """Return the process that an action is about."""
        return consumers[action.who % len(consumers)]

    def join(self, *, consumer_id: str | None = None, heir_of: Consumer | None = None) -> Consumer:
        """Start a process; with the id of `heir_of`, which it knows to be dead."""
        self._joined += 1
        # Not in alphabetical order: seniority is what counts.
        name = f"{'mtbxkafzq'[self._joined * (self.plan.seed % 7 + 1) % 9]}{self._joined}"
        setup = self.plan.setup
        topics = [topic for topic, _ in setup.topics]
        twin = next((c.name for c in self.world.consumers.values() if c.consumer_id == consumer_id), None)
        kind = self._kinds[twin] if twin else (*setup.others, *["dynamic"] * self._joined)[self._joined - 1]
        self._kinds[name] = kind
        if self._make_processor is not None:
            inner = self._make_processor()
        else:
            mood = f"{self.plan.seed} {name}"
            inner = Moody(mood, lambda: self.scheduler.calm) if setup.moody else Steady()
        observed = Observed(inner, self.judge, self.scheduler)
        observed.duration = lambda: self.slow.pop(name, 0.0)
        consumer = self.world.join(
            name,
            observed,
            consumer_id=consumer_id,
            coordinator=self._make_coordinator() if self._make_coordinator else make(kind, topics),
            owner_is_dead=lambda info: heir_of is not None and heir_of.dead,
            topics=topics,
            workers=setup.workers,
            auto_offset_reset="latest" if setup.latest else "earliest",
            reader={"max_batch_records": setup.batch},
        )
        observed.consumer = consumer
        self.scheduler.add(consumer)
        self.judge.say(f"{name} starts" + (f" as {consumer_id}" if consumer_id else ""))
        return consumer

    def kill(self, consumer: Consumer) -> None:
        """End a process with SIGKILL."""
        if not consumer.dead:
            self.world.kill(consumer.name)

    def leave(self, consumer: Consumer) -> None:
        """Let a process leave in good order; it takes its time."""
        consumer.channel.parts.stopping.set()
        consumer.controller.close()
        left = consumer.tasks.spawn(consumer.channel.membership.leave_group(), "leave")
        left.when_done(lambda: self.scheduler.at(self.world.clock.now(), lambda: self._end(consumer)))

    def _end(self, consumer: Consumer) -> None:
        if not consumer.dead:
            consumer.dead = True
            consumer.zk.close()
            self.judge.say(f"{consumer.name} has left")

    def expire(self, consumers: Sequence[Consumer]) -> None:
        """Let the servers end these sessions before anybody else hears of it."""
        for consumer in consumers:
            if consumer.zk.session is not None:
                self.judge.forced(consumer.zk.session.id)
        for consumer in consumers:
            self.ensemble.expire_session(consumer.name)

    # -- the run -----------------------------------------------------------------------------------------------------------

    def play(self) -> Outcome:
        """Carry the plan out."""
        clock, plan = self.world.clock, self.plan
        at = clock.now() + 2.0
        for number, action in enumerate(plan.storm):
            at += action.wait
            self.scheduler.at(at, lambda action=action, number=number: self._act(action, number))  # type: ignore[misc]
        self.scheduler.at(clock.now() + 1.0, self._publish)
        self.scheduler.at(at + 0.2, self._storm_over)
        at += 0.2 + plan.setup.session + GRACE
        self.scheduler.at(at, self._check_read)
        at += BALANCED
        self.scheduler.at(at, self._check_balance)
        for probe in plan.probes:
            self.scheduler.at(at + 0.01, lambda probe=probe: self._probe(probe))  # type: ignore[misc]
            at += 0.01 + PROBE
            self.scheduler.at(at, self._check_probe)
        self.scheduler.run(at + 0.1)
        failure = self.scheduler.failure
        if failure is not None:
            where = traceback.extract_tb(failure.__traceback__)[-1]
            self.judge.violated(f"a part failed: {failure!r} at {where.filename.rsplit('/', 1)[-1]}:{where.lineno}")
        for consumer in self.world.consumers.values():
            consumer.tasks.close()
        judge = self.judge
        return Outcome(
            plan,
            tuple(judge.violations),
            tuple(judge.trace),
            self.scheduler.steps,
            judge.handed_out,
            judge.repeated,
            failure,
        )

    def _act(self, action: Action, number: int) -> None:
        self.scheduler.reseed(f"{self.plan.seed} {number} {action}")
        self.scheduler.shuffled = number < self.plan.shuffled
        self._stop_the_fatal()
        if not self.living():
            self.join()
        self.judge.say(
            f"-- {action.kind} (who {action.who}, where {action.where}, size {action.size}, {action.seconds} s)"
        )
        if not self.partitions():
            return  # the only topic is deleted for now, and most actions are about a partition
        end = KINDS[action.kind](self, action)
        if end is not None:
            ending = _Once(end)
            self._ends.append(ending)
            self.scheduler.at(self.world.clock.now() + action.seconds, ending)

    def _publish(self) -> None:
        if self.scheduler.calm:
            return
        if self.partitions():
            tp = self._traffic.choice(self.partitions())
            self.kafka.publish(*tp, [b"x"] * self._traffic.randint(1, 4))
        self.scheduler.at(self.world.clock.now() + self._traffic.random() * 2 * self.plan.setup.traffic, self._publish)

    def _stop_the_fatal(self) -> None:
        for consumer in self.living():
            if consumer.controller.fatal is not None and not consumer.paused:
                self.judge.say(f"{consumer.name} stops: {consumer.controller.fatal}")
                self.kill(consumer)

    def _storm_over(self) -> None:
        for end in self._ends:
            end()
        self.slow.clear()
        self.scheduler.calm = True
        self.judge.calm()
        self._stop_the_fatal()
        seen: set[str] = set()
        for consumer in sorted(self.living(), key=lambda c: not c.channel.membership.registered):
            if consumer.consumer_id in seen:
                self.kill(consumer)
            seen.add(consumer.consumer_id)
        if not any(self._kinds[c.name] == "dynamic" for c in self.staying()):
            self.join()  # somebody who takes what the others leave
        self.judge.say("-- the storm is over")
        self._calm_from = self.world.clock.now()
        for tp in self.partitions():
            self.kafka.publish(*tp, [b"after the storm"])
            known = not self.plan.setup.latest or self.judge.commit_of(tp) is not None
            if known and tp.topic not in self.recreated:
                self._unread.append(tp)

    def _check_read(self) -> None:
        if any(c.controller.fatal for c in self.living()):
            return  # of two with one id, the one that came back too late: it takes whoever restarts it to go on
        unread = [str(tp) for tp in self._unread if self.judge.read_at(tp) < self._calm_from and self._is_behind(tp)]
        if unread:
            self.judge.violated(
                f"not read {self.plan.setup.session + GRACE} s after the last fault's end: {', '.join(unread)}"
            )

    def _check_balance(self) -> None:
        fatal = [c.name for c in self.living() if c.controller.fatal is not None]
        if fatal:
            if not any(action.kind == "double" for action in self.plan.storm):
                self.judge.violated(f"{', '.join(fatal)} stopped for good: {self.world.fatal(fatal[0])}")
            self.over = True
            return
        recently = self.world.clock.now() - GRACE  # there can be a lot to catch up with
        behind = [str(tp) for tp in self.partitions() if self._is_behind(tp) and self.judge.read_at(tp) < recently]
        if behind:
            self.judge.violated(f"read, but not committed to the end: {', '.join(behind)}")
        self._check_shares()
        self._settled()

    def _is_behind(self, tp: TopicPartition) -> bool:
        limits = self.kafka.log_range(tp)
        return limits is None or self.judge.commit_of(tp) != limits.end

    def _check_shares(self) -> None:
        members: list[Rights] = []
        for consumer in self.staying() if self._make_coordinator is None else ():
            node = self.ensemble.tree.get(self.paths.member(consumer.consumer_id))
            if node is None:
                self.judge.violated(f"{consumer.name} lives, and is no member")
                return
            joined = decode_member(consumer.consumer_id, node.data).joined or node.stat.czxid
            members.append(Rights(consumer.name, self._kinds[consumer.name], joined))
        counts = {topic: meta.partitions for topic, meta in self.kafka.topics().items()}
        wrong = wrong_shares(members, counts, self.judge.owners())
        if wrong is not None:
            self.judge.violated(f"{wrong}; members {', '.join(f'{m.name} ({m.kind})' for m in members)}")

    def _counts(self) -> dict[str, int]:
        owners = list(self.judge.owners().values())
        return {c.name: owners.count(c.name) for c in self.staying()}

    # -- probes ------------------------------------------------------------------------------------------------------------

    def _settled(self) -> None:
        self._owners, self._epochs = self.judge.owners(), self.judge.epochs()
        self._must_move: Callable[[], tuple[int, set[str]]] = lambda: (0, set())

    def _probe(self, probe: str) -> None:
        """Do one thing to a group at rest. It must move only what it has to."""
        self.scheduler.reseed(f"{self.plan.seed} probe {probe}")
        self.judge.say(f"-- probe: {probe}")
        self._settled()
        members = self.staying()
        if probe == "join" and len(members) < MOST_PROBED:
            joiner = self.join()
            self._must_move = lambda: (self._counts()[joiner.name], {joiner.name})
        elif probe == "leave" and len(members) > 1:
            leaver = members[self.plan.seed % len(members)]
            owned = self._counts()[leaver.name]
            self.leave(leaver)
            self._must_move = lambda: (owned, {c.name for c in self.staying()})
        elif probe == "blink":
            for consumer in members:
                self.ensemble.disconnect(consumer.name)
        elif probe == "outage":
            self.ensemble.down()
            self.scheduler.at(self.world.clock.now() + 1.5, self.ensemble.up)
        elif probe == "expire all":
            self.expire(members)
        elif probe == "pause":
            self._pause()

    def _pause(self) -> None:
        """Pause the group; what is published meanwhile is read when it goes on, and not before."""
        now, path = self.world.clock.now(), self.paths.pause("operator")
        self.ensemble.tree.transaction([Create(path)], session=0)

        def publish() -> None:
            self._handed_before = self.judge.handed_out
            for tp in self.partitions():
                self.kafka.publish(*tp, [b"while paused"])

        def go_on() -> None:
            if self.judge.handed_out != self._handed_before:
                self.judge.violated("something was handed out in a paused group")
            self.ensemble.tree.transaction([Delete(path)], session=0)

        self.scheduler.at(now + 1.5, publish)
        self.scheduler.at(now + 3.5, go_on)

    def _check_probe(self) -> None:
        behind = [str(tp) for tp in self.partitions() if self._is_behind(tp)]
        if behind:
            self.judge.violated(f"not committed to the end after a probe: {', '.join(behind)}")
        after = self.judge.owners()
        moved = {tp for tp, owner in after.items() if self._owners.get(tp) != owner}
        touched = {tp for tp, epoch in self.judge.epochs().items() if self._epochs.get(tp) != epoch}
        expected, receivers = self._must_move()
        # Where rights differ, how few moves would do is no simple sum.
        judged = not (self.plan.setup.others and expected) and self._make_coordinator is None
        wrong = [str(tp) for tp in moved if after[tp] not in receivers]
        if judged and (len(moved) != expected or wrong or touched != moved):
            self.judge.violated(
                f"{len(moved)} partitions moved and {len(touched)} were claimed instead of {expected}"
                + (f"; {', '.join(wrong)} should have stayed" if wrong else "")
            )
        self._check_shares()
        self._settled()


#: A probe lets nobody join a group of this size.
MOST_PROBED = 6


class _Once:
    """Ends a fault, once: when its time is over or when the storm is, whichever is first."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end: Callable[[], None] | None = end

    def __call__(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            end()


def play(
    plan: Plan,
    processor: Callable[[], BatchEventProcessor] | None = None,
    coordinator: Callable[[], ZkCoordinator] | None = None,
) -> Outcome:
    """Carry a plan out on a world of its own."""
    return Run(plan, processor, coordinator).play()
