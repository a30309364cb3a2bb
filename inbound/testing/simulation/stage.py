"""The group of a simulated run, and the verbs of its faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any
from zlib import crc32

from inbound.controller.reset_offset import ResetController
from inbound.coordinators.base import ZkCoordinator
from inbound.coordinators.nodes import MemberInfo, decode_member
from inbound.coordinators.zookeeper import MAX_TRANSACTION_BYTES, Call, Op
from inbound.errors import BrokerUnavailableError
from inbound.ledger.memory import Recorded
from inbound.mirror.mirror import LAST
from inbound.partition.partition import Partition, Place
from inbound.processors.base import BatchEventProcessor, no_topics
from inbound.processors.batch import Record
from inbound.testing.clock import FakeLoop
from inbound.testing.kafka import ID_FORMS, FakeKafka
from inbound.testing.simulation.channels import CHANNELS, Further, Reloading, begun, is_behind
from inbound.testing.simulation.judge import Judge
from inbound.testing.simulation.mirrors import Mirrors
from inbound.testing.simulation.observed_processors import observing
from inbound.testing.simulation.operators import ResetOperator
from inbound.testing.simulation.plan import Action, Plan
from inbound.testing.simulation.played_processors import Database, Moody, MoodyLater, Owning, OwningLater, Steady
from inbound.testing.simulation.resting_group import RankedMember, make, wrong_shares
from inbound.testing.simulation.scheduler import Scheduler, make_preemptible
from inbound.testing.simulation.subscribers import Heard, Receivers
from inbound.testing.simulation.witness import Witness
from inbound.testing.topic_logs import FakeTopicLogs
from inbound.testing.world import GROUP, Consumer, World
from inbound.topic_partition import TopicPartition

#: Where processors give records up, one in this many always fails; and their policies after a record failed alone once.
POISONED = 13
ON_ERROR = {
    "skip": {"max_attempts": 1, "then": "skip"},
    "dead-letter": {"max_attempts": 1, "then": "dead-letter", "dead_letter_topic": "dead"},
}
#: How many parts of a process may watch one node (for members, gates or owners); each reset may add one.
MOST_WATCHES = 2
#: Seconds without a record after which moody processors are asked what to do.
IDLE = 2.0
#: States of a partition when a fault happens to it.
STATES = (
    "unowned", "starting", "idle", "due", "uncommitted", "resting", "paused", "held", "problem", "in a callback", "settling",
    "leaving",
)  # fmt: skip


def _state(partition: Partition, now: float) -> str:
    if partition.place is Place.RUNNING:
        return "in a callback"
    if partition.place is not Place.SCHEDULED:
        return str(partition.place.value)
    of_scheduled = {
        "held": partition.failure.held is not None,
        "problem": partition.problem is not None,
        "paused": partition.quiet.paused_since is not None,
        "resting": partition.rest_until > now,
        "uncommitted": partition.position.delivered != partition.committed,
        "due": bool(partition.buffer),
    }
    return next((state for state, so in of_scheduled.items() if so), "idle")


def _letters_take(consumer: Consumer, seconds: float) -> None:
    wakeup: Any = consumer.channel.parts.worker_wakeup  # of a loop, if its processor is of coroutines
    if isinstance(getattr(wakeup, "loop", None), FakeLoop):
        wakeup.loop.executor_takes = seconds


class Stage:
    """A world with its judge and scheduler; `run` plays on it."""

    def __init__(
        self,
        plan: Plan,
        processor: Callable[[], BatchEventProcessor] | None = None,
        coordinator: Callable[[], ZkCoordinator] | None = None,
        witness: Callable[[FakeKafka], Witness] = Witness,
    ) -> None:
        setup = plan.setup
        self.plan = plan
        self.world = World(seed=plan.seed, session_timeout=setup.session)
        self.kafka, self.ensemble, self.paths = self.world.kafka, self.world.ensemble, self.world.paths
        self.make_witness = witness
        self.judge = Judge(self.world, setup, witness=witness)
        self.scheduler = Scheduler(
            self.world, f"{plan.seed} start", lambda: bool(self.judge.violations), preempted=setup.preempted
        )
        #: Topics that were recreated, and partitions that were added: processes notice that when the brokers are
        #: asked for topics, which is every few seconds.
        self.recreated: set[str] = set()
        self.added: set[TopicPartition] = set()
        #: Process: how long its next callback takes.
        self.slow: dict[str, float] = {}
        #: The logs that resets ask about, and the operators who have asked for resets.
        self.logs = FakeTopicLogs(self.kafka)
        self.operators: list[ResetOperator] = []
        self.asked = 0
        self.largest = 0 if setup.chunked else MAX_TRANSACTION_BYTES  # of a transaction that could be several
        #: The subscriber and other receivers of events.
        self.receivers = Receivers(self) if setup.dispatch is not None else None
        #: The Kafka groups that offsets are mirrored to.
        self.mirrors = Mirrors(self) if setup.mirror else None
        #: Groups of further channels, by name; the configuration of new processes, and what each process runs.
        self.further = {name: Further(self, name) for name in CHANNELS[: setup.channels]}
        self.configuration = begun(plan)
        #: Where processors keep results and offsets, by group.
        judges = {GROUP: self.judge, **{name: group.judge for name, group in self.further.items()}}
        self.databases = {name: Database(judge, self.kafka) for name, judge in judges.items()}
        self.reloading: dict[str, Reloading] = {}
        self.dead_letters_fail = False
        #: What ends the faults that go on.
        self.ends: list[Callable[[], None]] = []
        self._make_processor = processor
        self.make_coordinator = coordinator
        self._joined = 0
        self._heirs: dict[str, str] = {}  # process: the consumer id that it takes over from a dead process
        self.kinds: dict[str, str] = {}  # process: its coordinator
        self.controllers: dict[str, ResetController] = {}  # process: what carries resets out there
        self.kafka.id_forms = ID_FORMS  # each process reads with another client than the one before
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
        """Return those that live, and are not leaving."""
        return [c for c in self.living() if not c.stopping]

    def pick(self, consumers: Sequence[Consumer], action: Action) -> Consumer:
        """Return the process that an action is about."""
        return consumers[action.who % len(consumers)]

    def join(self, *, consumer_id: str | None = None, heir_of: Consumer | None = None) -> Consumer:
        """Start a process; `heir_of`: a dead one whose id it takes over."""
        self._joined += 1
        # Not in alphabetical order: seniority is what counts.
        name = f"{'mtbxkafzq'[self._joined * (self.plan.seed % 7 + 1) % 9]}{self._joined}"
        setup = self.plan.setup
        if heir_of is not None:
            self._heirs[name] = heir_of.consumer_id
        topics = [topic for topic, _ in setup.topics]
        twin = next((c.name for c in self.world.consumers.values() if c.consumer_id == consumer_id), None)
        kind = self.kinds[twin] if twin else (*setup.others, *["dynamic"] * self._joined)[self._joined - 1]
        self.kinds[name] = kind
        inner = self.processor(name)
        observed = observing(type(inner))(inner, self.judge, self.scheduler)
        observed.duration = self.durations(name)
        consumer = self.world.join(
            name,
            observed,
            consumer_id=consumer_id,
            coordinator=self.make_coordinator() if self.make_coordinator else make(kind, topics),
            owner_is_dead=self.owner_is_dead(name),
            topics=topics,
            workers=setup.workers,
            leads=setup.leads,
            auto_offset_reset="latest" if setup.latest else "earliest",
            on_truncation=setup.on_truncation,
            shutdown_timeout=setup.patience,
            reader={"max_batch_records": setup.batch},
            max_uncommitted_records=setup.window,
            dead_letters=partial(self.dead_letter, self.judge),
            degrade=setup.degrade,
            options=self.receivers.options if self.receivers is not None else None,
            connect_mirror=self.mirrors.connect(name) if self.mirrors is not None else None,
            open_topic=self.receivers.open_topic if self.receivers is not None else no_topics,
            **self.settings,
        )
        observed.consumer = consumer
        consumer.channel.parts.committer.interval = setup.interval
        consumer.ledger.on_entries = partial(self.noted, self.judge)
        if setup.later and not self.scheduler.calm:
            _letters_take(consumer, setup.letters_take)
        if setup.resets:
            self._carry_out_resets(consumer)
        self.scheduler.add(consumer)
        if setup.preempted:
            make_preemptible(consumer, lambda: self.scheduler.preempt(consumer))
        self.judge.say(f"{name} starts" + (f" as {consumer_id}" if consumer_id else ""))
        if self.further:
            self.reloading[name] = Reloading(self, consumer, self.configuration)
        return consumer

    def be_calm(self) -> None:
        """Let callbacks take no time from now on."""
        self.slow.clear()
        self.scheduler.calm = True
        for consumer in self.living() if self.plan.setup.later else ():
            _letters_take(consumer, 0.0)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of each channel."""
        setup = self.plan.setup
        settings: dict[str, Any] = {"on_error": ON_ERROR[setup.gives_up]} if setup.gives_up else {}
        if self.mirrors is not None:
            settings["offsets"] = {"mirror": "kafka"}
        return settings | ({"idle_time": IDLE} if setup.moody else {})

    def durations(self, name: str) -> Callable[[], float]:
        """Return a function of the duration of a processor's next callback."""
        work = Random(f"{self.plan.seed} {name} work")
        process = name.partition(" ")[0]
        return lambda: self.slow.pop(process, 0.0) or work.random() * self.plan.setup.work

    def owner_is_dead(self, name: str) -> Callable[[MemberInfo], bool]:
        """Return a function that tells whether a predecessor is provably dead."""
        return lambda info: name in self._heirs and self._all_dead(name, self._heirs[name])

    def processor(self, name: str) -> BatchEventProcessor:
        """Return a new processor."""
        if self._make_processor is not None:
            return self._make_processor()
        setup = self.plan.setup
        if self.receivers is not None:
            return Heard(self.receivers, lambda: self.world.consumers[name])
        if setup.owns:
            database = self.databases[name.partition(" ")[2] or GROUP]
            owning = OwningLater if setup.later else Owning
            return owning(f"{self.plan.seed} {name}", database, lambda: self.scheduler.calm)
        if not setup.moody:
            return Steady()
        kind = MoodyLater if setup.later else Moody
        return kind(
            f"{self.plan.seed} {name}", lambda: self.scheduler.calm, end=self.kafka.end, poisoned=self._poisoned
        )

    def noted(self, judge: Judge, entries: Sequence[Recorded], recorded: bool) -> None:
        """Tell the witness which lines a ledger has recorded, or refused."""
        if recorded:
            judge.witness.wrote(entries)
        else:
            judge.witness.refused(entries, degrade=self.plan.setup.degrade)

    def _poisoned(self, offset: int) -> bool:
        return bool(self.plan.setup.gives_up) and crc32(f"{self.plan.seed} {offset}".encode()) % POISONED == 0

    def dead_letter(self, judge: Judge, topic: str, partition: int, records: Sequence[Record], why: str) -> None:
        """Take the records that the judge's group gives up."""
        self.check_dead_letters()
        for record in records:
            judge.dead_lettered(TopicPartition(topic, partition), record.offset)

    def check_dead_letters(self) -> None:
        """Raise BrokerUnavailableError if the dead-letter topic does not answer."""
        if self.dead_letters_fail:
            raise BrokerUnavailableError("the dead-letter topic does not answer")

    def _all_dead(self, heir: str, consumer_id: str) -> bool:
        others = [c for c in self.world.consumers.values() if c.consumer_id == consumer_id and c.name != heir]
        return all(c.dead for c in others)

    def _carry_out_resets(self, consumer: Consumer) -> None:
        """Do what `inbound.process.zookeeper.coordination` does in a real process."""
        resets = ResetController(
            consumer.zk, consumer.tasks, self.logs, name=consumer.name, groups=lambda: [GROUP], largest=self.largest
        )
        self.controllers[consumer.name] = resets
        on_change = consumer.zk.on_change

        def changed() -> None:
            resets.look()
            on_change()

        consumer.zk.on_change = changed
        consumer.spawn(resets.run(), "resets of offsets")

    def kill(self, consumer: Consumer) -> None:
        """End a process with SIGKILL."""
        if not consumer.dead:
            self.world.kill(consumer.name)

    def leave(self, consumer: Consumer) -> None:
        """Let a process leave gracefully; it takes its time."""
        further = self.reloading.get(consumer.name)
        if further is not None:
            further.stop()
        if consumer.name in self.controllers:
            self.controllers[consumer.name].close()
        leaving = [consumer.leave()]
        if further is not None:
            leaving += further.leave()
        for call in leaving:
            call.when_done(lambda: self._left(consumer, leaving))
        self.scheduler.at_next(self.plan.setup.patience, lambda: self._leave_behind(consumer, leaving))

    def _leave_behind(self, consumer: Consumer, leaving: Sequence[Call[None]]) -> None:
        """End a process whose callbacks have outlasted the shutdown timeout."""
        if consumer.paused:
            self.scheduler.at_next(0.5, lambda: self._leave_behind(consumer, leaving))
        elif not (consumer.dead or all(call.done for call in leaving)):
            further = self.reloading.get(consumer.name)
            for channel in [consumer.channel, *(further.running.channels if further is not None else ())]:
                channel.abandon()
            self._end(consumer)

    def _left(self, consumer: Consumer, leaving: Sequence[Call[None]]) -> None:
        if all(call.done for call in leaving):
            soon = LAST if self.mirrors is not None else 0.0
            consumer.finish_mirror()
            self.scheduler.at_next(soon, lambda: self._end(consumer))

    def _end(self, consumer: Consumer) -> None:
        if not consumer.dead:
            consumer.dead = True
            if consumer.name in self.reloading:
                self.reloading[consumer.name].end()
            consumer.zk.close()
            self.judge.say(f"{consumer.name} has left")

    def lasts(self, end: Callable[[], None] | None, seconds: float) -> None:
        """End a fault after so many seconds, or with the storm."""
        if end is not None:
            self.ends.append(end)
            self.scheduler.at_next(seconds, end)

    def write_by_hand(self, *ops: Op) -> None:
        """Write nodes as an operator, or a tool that is no member."""
        self.ensemble.tree.transaction(ops, session=0)

    def expire(self, consumers: Sequence[Consumer | ResetOperator]) -> None:
        """Let the servers end these sessions before anyone notices."""
        for consumer in consumers:
            if consumer.zk.session is not None:
                for judge in self.judges():
                    judge.forced(consumer.zk.session.id)
        for consumer in consumers:
            self.ensemble.expire_session(consumer.name)

    def group(self, action: Action) -> Stage | Further:
        """Return the group of an action, with its nodes and judge."""
        groups: list[Stage | Further] = [self, *self.further.values()]
        return groups[action.size % len(groups)]

    def judges(self) -> list[Judge]:
        """Return the judge of each group."""
        return [self.judge, *(group.judge for group in self.further.values())]

    def stop_the_fatal(self) -> None:
        """End the processes that must stop, as they would themselves."""
        for consumer in self.living():
            if consumer.controller.fatal is not None and not consumer.paused:
                self.judge.say(f"{consumer.name} stops: {consumer.controller.fatal}")
                self.kill(consumer)

    # -- state and checks ------------------------------------------------------------------------------------------------

    def is_behind(self, tp: TopicPartition) -> bool:
        """Return whether a partition still has records to commit."""
        return is_behind(self.judge, tp, [consumer.channel for consumer in self.living()])

    def states(self) -> Iterator[str]:
        """Yield the state of each partition, one of `STATES`."""
        held = [p for c in self.living() for p in c.channel.parts.schedule.held()]
        yield from (_state(partition, self.world.clock.now()) for partition in held)
        yield from ("unowned" for tp in self.partitions() if self.judge.owners().get(tp) is None)

    def stalled(self) -> list[str]:
        """Return lagging partitions without a delivery in the last second."""
        recently = self.world.clock.now() - 1.0  # there can be a lot to catch up with
        return [str(tp) for tp in self.partitions() if self.is_behind(tp) and self.judge.read_at(tp) < recently]

    def counts(self) -> dict[str, int]:
        """Return how many partitions each process owns."""
        owners = list(self.judge.owners().values())
        return {c.name: owners.count(c.name) for c in self.staying()}

    def check_watches(self) -> None:
        """Judge the number of callbacks: a broken connection calls all at once."""
        for consumer in self.living():
            wire = consumer.zk.wire
            for (what, path), count in (wire.watches if wire is not None else {}).items():
                if path.startswith(f"{self.paths.root}/") and count > MOST_WATCHES + self.asked:
                    self.judge.violated(f"{consumer.name} has {count} callbacks on the {what} of {path}")

    def check_shares(self) -> None:
        """Judge each member's share of the partitions."""
        members: list[RankedMember] = []
        for consumer in self.staying() if self.make_coordinator is None else ():
            node = self.ensemble.tree.get(self.paths.member(consumer.consumer_id))
            if node is None:
                self.judge.violated(f"{consumer.name} lives, and is no member")
                return
            joined = decode_member(consumer.consumer_id, node.data).joined or node.stat.czxid
            members.append(RankedMember(consumer.name, self.kinds[consumer.name], joined))
        counts = {topic: meta.partitions for topic, meta in self.kafka.topics().items()}
        wrong = wrong_shares(members, counts, self.judge.owners())
        if wrong is not None:
            self.judge.violated(f"{wrong}; members {', '.join(f'{m.name} ({m.kind})' for m in members)}")
