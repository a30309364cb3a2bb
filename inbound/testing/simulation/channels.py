"""Further channels of simulated processes, each in its own group.

They start, change and stop while everything else happens. A process applies its configuration, of `SimulatedChannel`s, with the
product's own parts (`Reconfiguration`, `RunningChannels`). Each further group has its own judge: see `Further.check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inbound.channel.kafka_channel import InboundKafkaChannel
from inbound.channel.parts import Resources
from inbound.config import ChannelConfig, Config, Loaded
from inbound.config.document import Places
from inbound.coordinators.dynamic import DynamicCoordinator
from inbound.coordinators.nodes import MemberInfo
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import Call
from inbound.errors import ConfigError
from inbound.kafka.base import LogClient
from inbound.ledger.memory import MemoryLedger
from inbound.plan.plan import PlannedChannel
from inbound.process.channels import Running, RunningChannels, open_processor
from inbound.process.reload.changes import ProcessPlan
from inbound.process.reload.reconfiguration import Reconfiguration
from inbound.processors.base import BatchEventProcessor, Context
from inbound.runtime.driver import Part, Wakeup
from inbound.testing.clock import FakeLoop, ManualClock
from inbound.testing.kafka import FakeKafka, FakeLogClient
from inbound.testing.simulation.judge import Judge
from inbound.testing.simulation.observed_processors import observing
from inbound.testing.simulation.plan import Plan as SimulatedPlan
from inbound.testing.simulation.resting_group import RankedMember, wrong_shares
from inbound.testing.world import Consumer
from inbound.testing.zookeeper import FakeEnsemble, FakeZooKeeper
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    from inbound.testing.simulation.stage import Stage

#: The names of the further channels and of their groups.
CHANNELS = ("audit", "billing")
#: The source's part of a configuration: nothing, as it holds only channels.
NONE = Loaded(Config.model_construct(), {}, Places("f"))


@dataclass(frozen=True)
class SimulatedChannel:
    """One channel of a configuration."""

    group: str
    topics: tuple[str, ...]
    #: The version of the processor's options.
    version: int = 0
    #: Records in a batch.
    batch: int = 4
    client: str = "kafka-python"
    #: The version of the Kafka settings: a new one makes a new client.
    kafka: int = 0
    #: Whether the consumer id is fixed; else each new channel gets another one.
    fixed: bool = True
    #: Whether the processor can be opened.
    opens: bool = True


#: The channels by name.
ChannelSpecs = Mapping[str, SimulatedChannel]


def new_spec(plan: SimulatedPlan, group: str) -> SimulatedChannel:
    """Return the specification of a new channel."""
    topics = tuple(topic for topic, _ in plan.setup.topics)
    return SimulatedChannel(group, topics, batch=plan.setup.batch, fixed=bool(plan.seed % 2))


def begun(plan: SimulatedPlan) -> ChannelSpecs:
    """Return the further channels that processes run at first."""
    return {name: new_spec(plan, name) for n, name in enumerate(CHANNELS[: plan.setup.channels]) if plan.seed >> n & 1}


@dataclass(frozen=True)
class FurtherOptions:
    """The options of a further channel's processor."""

    version: int
    opens: bool


@dataclass(eq=False)
class SteppedThreads:
    """A process's threads beside its first channel's; see `scheduler.SteppedProcess`."""

    host: Consumer
    parts: list[Part] = field(default_factory=list)
    wakeups: list[Wakeup] = field(default_factory=list)
    log_clients: list[FakeLogClient] = field(default_factory=list)
    ended: bool = False

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def paused(self) -> bool:
        return self.host.paused

    @property
    def dead(self) -> bool:
        return self.ended or self.host.dead


class Seat:
    """A process's seat in a further group, with or without a channel."""

    def __init__(self, host: Consumer) -> None:
        self.host = host
        self.name = host.name
        self.consumer_id = host.consumer_id
        self.channel: SteppedChannel | None = None  # the newest one
        self.made = 0

    @property
    def dead(self) -> bool:
        return self.host.dead

    @property
    def paused(self) -> bool:
        return self.host.paused

    @property
    def zk(self) -> FakeZooKeeper:
        return self.host.zk

    @property
    def on_truncation(self) -> str:
        return self.host.on_truncation


class SteppedChannel(InboundKafkaChannel):
    """A channel whose parts the scheduler steps, instead of threads."""

    stepped: SteppedThreads
    #: Has the scheduler step the parts.
    begin: Callable[[SteppedThreads], None]

    def start(self) -> None:
        threads, polling = self.stepped, Wakeup()
        self.read_apart(polling.set)
        threads.parts += [self.reader, *self.workers]
        threads.wakeups += [polling]
        threads.wakeups += [self.parts.worker_wakeup for _ in self.workers]
        self.begin(threads)

    def close(self) -> None:
        self.stepped.ended = True
        super().close()


class Further:
    """One further group and its judge; a `witness.Scene`."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage = stage
        self.group = name
        self.paths = GroupPaths(name)
        self.consumers: dict[str, Seat] = {}
        self._runs: list[tuple[str, str, MemoryLedger]] = []
        setup = replace(stage.plan.setup, latest=False)
        self.judge = Judge(self, setup, of=f"{name}: ", witness=stage.make_witness)
        self.judge.trace, self.judge.violations = stage.judge.trace, stage.judge.violations
        self._calm_from = 0.0

    @property
    def clock(self) -> ManualClock:
        return self._stage.world.clock

    @property
    def ensemble(self) -> FakeEnsemble:
        return self._stage.ensemble

    @property
    def kafka(self) -> FakeKafka:
        return self._stage.kafka

    def ledgers(self) -> Iterator[tuple[str, str, MemoryLedger]]:
        """Yield each run's name, consumer id and ledger."""
        yield from self._runs

    def run_of(self, seat: Seat) -> MemoryLedger:
        """Return the ledger of a new channel."""
        ledger = MemoryLedger()
        ledger.on_entries = partial(self._stage.noted, self.judge)
        self._runs.append((f"{seat.name} {seat.made}", seat.consumer_id, ledger))
        return ledger

    # -- when all is well again ------------------------------------------------------------------------------------------

    def storm_over(self) -> None:
        """Begin the calm, in which everything must come to rest."""
        self.judge.calm()
        self._calm_from = self.clock.now()

    def check(self) -> None:
        """Judge that exactly the processes with a channel own the partitions."""
        judge, members = self.judge, self._members()
        reads = {name: topics for name, (seat, topics) in members.items()}
        owners = judge.owners()
        channels = [seat.channel for seat in self.consumers.values() if seat.channel is not None and not seat.dead]
        for tp in self._stage.partitions():
            owner, entitled = owners.get(tp), [name for name, topics in reads.items() if tp.topic in topics]
            if owner is not None and owner not in entitled:
                judge.violated(f"{owner} owns {tp}, and runs no channel that reads it")
            elif owner is None and entitled:
                judge.violated(f"no member owns {tp}, which {', '.join(entitled)} should read")
            elif (
                entitled
                and is_behind(judge, tp, channels)
                and judge.read_at(tp) < max(self._calm_from, self.clock.now() - 1.0)
            ):
                judge.violated(f"read, but not committed to the end: {tp}, which {owner} owns")
        ids = {seat.consumer_id for seat, _ in members.values()}
        strangers = sorted(set(self.ensemble.tree.children(self.paths.ids) or ()) - ids)
        if strangers:
            judge.violated(f"{', '.join(strangers)} is a member, and runs no channel of the group")
        if len(set(reads.values())) == 1:
            self._check_shares(reads)

    def _members(self) -> dict[str, tuple[Seat, tuple[str, ...]]]:
        """Return the processes that run a channel, and each one's configured topics."""
        found = {}
        for name, reloading in self._stage.reloading.items():
            if reloading.host in self._stage.staying():
                for running in reloading.running.all():
                    if running.leaving is None and running.planned.config.group == self.group:
                        found[name] = self.consumers[name], tuple(running.planned.config.topics or ())
        return found

    def _check_shares(self, reads: Mapping[str, tuple[str, ...]]) -> None:
        topics = next(iter(reads.values()))
        counts = {topic: meta.partitions for topic, meta in self.kafka.topics().items() if topic in topics}
        wrong = wrong_shares([RankedMember(name, "dynamic", 0) for name in reads], counts, self.judge.owners())
        if wrong is not None:
            self.judge.violated(f"{wrong}; members {', '.join(reads)}")


def is_behind(judge: Judge, tp: TopicPartition, channels: Iterable[InboundKafkaChannel]) -> bool:
    """Return whether a channel of the group still has records to commit."""
    limits = judge.world.kafka.log_range(tp)
    if limits is None:
        return True
    if judge.commit_of(tp) == limits.end or judge.has_given_up(tp, limits.end):
        return False
    if not judge.cuts.may_hold(tp):
        return True
    # The log was cut below the position: the owner may read nothing before an operator acts.
    held = [channel.parts.schedule.get(tp) for channel in channels]
    return not any(partition is not None and partition.failure.held is not None for partition in held)


class Reloading:
    """The configuration of one process: its source, its watch, its channels."""

    unsettled = False
    watching = True

    def __init__(self, stage: Stage, host: Consumer, begun: ChannelSpecs) -> None:
        self._stage = stage
        self.host = host
        #: The processor's class, one for each group: another class would be another channel.
        self._class_for = cache(self._watched)
        self._news: ChannelSpecs | ConfigError | None = None
        self._told: ChannelSpecs = begun
        #: The configurations that can be started, in order; and whether a later one cannot, or hid the last of them.
        self._good = [begun]
        self._broken = False
        clock, wakeup = stage.world.clock, Wakeup()
        self.running = RunningChannels(self._make, clock, collect=lambda: None)
        plan = self._plan(NONE)
        self.reconfiguration = Reconfiguration(
            self, self._plan, plan, self.running, clock, watch=lambda hurry: self, wakeup=wakeup
        )
        for name, planned in plan.channels.items():
            open_processor(self.running.make(name, planned).channel)
        for channel in self.running.channels:
            channel.join()
            channel.start()
        self._threads = SteppedThreads(host, [self.reconfiguration], [wakeup])
        stage.scheduler.add(self._threads)

    @property
    def wanted(self) -> ChannelSpecs:
        """The last configuration that can be started."""
        return self._good[-1]

    def tell(self, specs: ChannelSpecs) -> None:
        """Write these specifications to the files."""
        self._broken = not all(spec.opens for spec in specs.values())
        if not self._broken:
            self._good.append(specs)
        self._news = specs
        self.reconfiguration.hurry()

    def break_it(self) -> None:
        """Write an unusable configuration; the previous one may never be read."""
        self._broken |= isinstance(self._news, dict)
        self._news = ConfigError("f:1: no good")
        self.reconfiguration.hurry()

    def stop(self) -> None:
        """Begin to end the process."""
        self._threads.ended = True
        for running in self.running.all():
            running.channel.parts.service.stopping.set()

    def leave(self) -> list[Call[None]]:
        """Let each channel leave its group, after `stop`."""
        spawn = self.host.tasks.spawn
        return [
            running.leaving or spawn(running.channel.membership.leave_group(), f"leaving of {running.channel.name}")
            for running in self.running.all()
        ]

    def end(self) -> None:
        """Close the channels, which have left."""
        for running in self.running.all():
            running.close()

    def check(self) -> str | None:
        """Return a difference between running and configured channels; None without one."""
        status, running = self.reconfiguration.status(), self.running.all()
        if status.under_way or any(one.leaving is not None for one in running):
            return f"{self.host.name} is not done with its configuration: {status.last_steps}, {status.problem}"
        runs = {one.channel.name: _spec_of(one.channel) for one in running}
        # A configuration that cannot be started is rolled back to the running one.
        right = [{name: _running(spec) for name, spec in specs.items()} for specs in self._good]
        if not self._broken:
            right = right[-1:]
        return None if runs in right else f"{self.host.name} runs {runs} instead of {right[-1]}"

    # -- the source, and the watch -----------------------------------------------------------------------------------------

    def changed(self) -> Loaded | None:
        """Return the configuration if it has changed."""
        news, self._news = self._news, None
        if isinstance(news, ConfigError):
            raise news
        if news is None:
            return None
        self._told = news
        return NONE

    def again(self) -> None:
        """Nothing to repeat."""

    def folders(self) -> set[Path]:
        """Return no folders."""
        return set()

    def follow(self, folders: set[Path]) -> None:
        """Nothing to follow."""

    def close(self) -> None:
        """Nothing to close."""

    # -- making ------------------------------------------------------------------------------------------------------------

    def _plan(self, loaded: Loaded) -> ProcessPlan:
        channels = {name: self._planned(spec) for name, spec in self._told.items()}
        return ProcessPlan(loaded.config, channels, digest=str(self._told))

    def _planned(self, spec: SimulatedChannel) -> PlannedChannel:
        setup = self._stage.plan.setup
        values: dict[str, Any] = {
            "topics": list(spec.topics),
            "group": spec.group,
            "processor": {"type": "simple"},
            "workers": setup.workers,
            "reader": {"max_batch_records": spec.batch, "client": spec.client},
            "on_truncation": setup.on_truncation,
            "max_uncommitted_records": setup.window,
            **self._stage.settings,
        }
        if spec.fixed:
            values["consumer_id"] = self.host.consumer_id
        config, options = ChannelConfig.model_validate(values), FurtherOptions(spec.version, spec.opens)
        return PlannedChannel(
            config,
            self._class_for(self._stage.further[spec.group]),
            "",
            options,
            DynamicCoordinator(),
            kafka=spec.kafka,
        )

    def _watched(self, group: Further) -> type[BatchEventProcessor]:
        stage, host = self._stage, self.host
        label = f"{host.name} {group.group}"
        durations = stage.durations(label)

        class Watched(observing(type(stage.processor(label)))):  # type: ignore[misc]
            """A watched processor that shows its options."""

            options: FurtherOptions | None = None

            def __init__(self) -> None:
                super().__init__(stage.processor(label), group.judge, stage.scheduler)
                self.consumer = group.consumers[host.name]
                self.duration = durations

            def open(self, context: Context) -> None:
                if not context.options.opens:
                    raise ValueError("it cannot be opened")
                self.options = context.options
                super().open(context)

        return Watched

    def _make(self, name: str, planned: PlannedChannel) -> Running:
        stage, host, group = self._stage, self.host, self._stage.further[planned.config.group]
        seat = group.consumers.setdefault(host.name, Seat(host))
        if seat.channel is not None and not seat.channel.stepped.ended:
            group.judge.violated(f"{host.name} makes another channel of a group that it has not left yet")
        seat.made += 1
        seat.consumer_id = planned.config.consumer_id or f"{host.name}-{seat.made}"
        threads = SteppedThreads(host)

        def connect() -> LogClient:
            threads.log_clients.append(stage.kafka.client())
            return threads.log_clients[-1]

        resources = Resources(
            clock=stage.world.clock,
            controller=host.controller,
            wake_controller=host.wakeups[0].set,
            committer=host.channel.parts.committer,
            connect=connect,
            ledger=group.run_of(seat),
            dead_letters=partial(stage.dead_letter, group.judge),
            owner_is_dead=stage.owner_is_dead(host.name),
            new_loop=lambda: FakeLoop(stage.world.clock),
        )
        member = MemberInfo(
            host="host", pid=1, started="2026-01-01T00:00:00Z", topics=planned.config.topics,
            coordinator=planned.registration(),
        )  # fmt: skip
        seat.channel = channel = SteppedChannel(
            name, planned.config, seat.consumer_id, planned.processor(), planned.coordinator, member, planned.options,
            resources,
        )  # fmt: skip
        channel.stepped, channel.begin = threads, stage.scheduler.add
        return Running(planned, channel, self.host.controller, connect=lambda planned: connect)


def _running(spec: SimulatedChannel) -> tuple[object, ...]:
    return spec.group, spec.topics, spec.batch, spec.client, spec.version


def _spec_of(channel: InboundKafkaChannel) -> tuple[object, ...]:
    """Return `_running` of a live channel."""
    config, processor = channel.parts.settings.now, channel.parts.service.processor
    version = getattr(getattr(processor, "options", None), "version", None)
    return config.group, tuple(config.topics or ()), config.reader.max_batch_records, config.reader.client, version
