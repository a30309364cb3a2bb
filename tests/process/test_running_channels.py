"""Channels that come and go while the process, its session and its other channels go on. On the fake world."""

from __future__ import annotations

import gc
import json
import random
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from inbound import Batch, BatchResponse, Context
from inbound.channel.kafka_channel import InboundKafkaChannel
from inbound.channel.parts import Resources
from inbound.config import ChannelConfig, Config, Loaded
from inbound.config.document import Places
from inbound.coordinators.dynamic import DynamicCoordinator
from inbound.coordinators.nodes import MemberInfo
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.subscriber_status import SubscriberStatus
from inbound.coordinators.zookeeper import Call, Create, Delete, Op
from inbound.errors import ConfigError
from inbound.ledger.memory import MemoryLedger
from inbound.plan.plan import PlannedChannel
from inbound.plan.subscriptions import SubscriberRef
from inbound.process.channels import Running, RunningChannels
from inbound.process.reload.changes import ProcessPlan
from inbound.process.reload.reconfiguration import Reconfiguration
from inbound.runtime.driver import Wakeup
from inbound.testing.world import Consumer, Recording, World

NONE = Loaded(Config.model_construct(), {}, Places("f"))


class Posting(Recording):
    """A processor whose options can change; it writes them beside each record."""

    Options = None

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[Any, int]] = []
        self.options: Any = None

    def open(self, context: Context) -> None:
        if context.options == "cannot be opened":
            raise ValueError("no such file")
        self.options = context.options

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        self.taken += [(self.options, record.offset) for record in batch.records]
        return super().on_next_batch(batch)

    def reconfigure(self, options: object, generation: int | None) -> None:
        if options == "cannot be used":
            raise ConfigError("no such file")
        self.options = options


class Stepped(InboundKafkaChannel):
    """A channel whose parts the world steps, instead of threads."""

    consumer: Consumer

    def start(self) -> None:
        polling = Wakeup()
        self.read_apart(polling.set)
        self.consumer.parts += [self.reader, *self.workers]
        self.consumer.wakeups += [polling, self.parts.worker_wakeup]


@dataclass
class Stage:
    """A process with a channel of the group `group`, and subscriptions that follow what `want` says."""

    world: World
    consumer: Consumer
    channels: RunningChannels = field(init=False)
    reconfiguration: Reconfiguration = field(init=False)
    _wanted: list[dict[str, PlannedChannel] | ConfigError] = field(default_factory=list)

    def __post_init__(self) -> None:
        consumer, clock = self.consumer, self.world.clock
        self.channels = RunningChannels(self._make, clock)
        self._plans: dict[str, PlannedChannel] = {}
        begun = ProcessPlan(NONE.config, {})
        self.reconfiguration = Reconfiguration(
            self, lambda _: ProcessPlan(NONE.config, self._plans), begun, self.channels, clock
        )
        consumer.parts.append(self.reconfiguration)

    def want(self, **groups: tuple[Any, int]) -> None:
        """Ask for these subscriptions: name, then options and generation."""
        self._wanted.append({name: self._planned(name, *what) for name, what in groups.items()})

    def break_it(self) -> None:
        """Let the configuration be one that cannot be used."""
        self._wanted.append(ConfigError("f:1: no good"))

    def nodes(self, name: str) -> dict[str, str]:
        """Return who owns what, and who is there, of a subscription's group."""
        paths = GroupPaths(name)
        found = {**self.world.nodes(paths.owners("orders")), **self.world.nodes(paths.ids)}
        return {path.removeprefix(paths.root): data.decode()[:1] for path, data in found.items() if path != paths.ids}

    def status(self, name: str) -> SubscriberStatus:
        """Return what stands in the group's node."""
        path = GroupPaths(name).subscriber
        node = json.loads(self.world.nodes(f"/consumers/{name}")[path])
        return SubscriberStatus(**{key: value for key, value in node.items() if key != "v"})

    def taken(self, name: str) -> list[tuple[Any, int]]:
        """Return what all processors of the subscription were handed, with the options of that moment."""
        return [one for processor in self.processors[name] for one in processor.taken]

    processors: dict[str, list[Posting]] = field(default_factory=dict)

    unsettled = False

    def again(self) -> None:
        """There is no more to say."""

    def folders(self) -> set[Path]:
        """It is in none."""
        return set()

    def changed(self) -> Loaded | None:
        """Say what was asked for next."""
        if not self._wanted:
            return None
        found = self._wanted.pop(0)
        if isinstance(found, ConfigError):
            raise found
        self._plans = found
        return NONE

    def _planned(self, name: str, options: Any, generation: int, topic: str = "orders") -> PlannedChannel:
        settings = {"topics": [topic], "group": name, "processor": {"type": "dispatch"}, "workers": 1}
        config = ChannelConfig.model_validate(settings)
        ref = SubscriberRef(f"u-{name}", generation, "d")
        return PlannedChannel(config, Posting, "", options, DynamicCoordinator(), ref)

    def _make(self, name: str, planned: PlannedChannel) -> Running:
        consumer = self.consumer
        resources = Resources(
            clock=self.world.clock,
            controller=consumer.controller,
            wake_controller=lambda: None,
            committer=consumer.channel.parts.committer,
            connect=self.world.kafka.client,
            ledger=MemoryLedger(),
        )
        member = MemberInfo(host="h", pid=1, started="s", topics=("orders",))
        processor = Posting()
        self.processors.setdefault(name, []).append(processor)
        channel = Stepped(
            name, planned.config, consumer.name, processor, planned.coordinator, member, planned.options, resources
        )
        channel.consumer = consumer
        return Running(planned, channel, consumer.controller)


@pytest.fixture
def stage() -> Stage:
    """One process, for long enough in its session, with ten records in its one partition."""
    world = World(seed=random.Random(1).randrange(99))
    world.kafka.create_topic("orders", 1)
    consumer = world.join("a")
    stage = Stage(world, consumer)
    publish(world, 10)
    world.run(5)
    return stage


def publish(world: World, count: int) -> None:
    world.kafka.publish("orders", 0, [b"x"] * count)


SERVED = {"/owners/orders/0": "a", "/ids/a": "{"}


def test_one_that_is_added_reads_within_two_seconds(stage: Stage) -> None:
    """The quiet time of a new session is over for long: no claim waits for it again."""
    stage.want(s=("one", 1))
    stage.world.run(2)

    assert (stage.nodes("s"), stage.taken("s")) == (SERVED, [("one", n) for n in range(10)])
    assert stage.status("s") == SubscriberStatus(uid="u-s", observedGeneration=1, ready="True", message="")


def test_one_that_is_edited_keeps_its_partitions(stage: Stage) -> None:
    """Later deliveries go by the new options; nothing is claimed again."""
    stage.want(s=("one", 1))
    stage.world.run(2)
    epochs = stage.world.nodes(GroupPaths("s").epochs("orders"))

    stage.want(s=("two", 2))
    stage.world.run(1)
    publish(stage.world, 2)
    stage.world.run(1)

    assert stage.taken("s") == [*(("one", n) for n in range(10)), ("two", 10), ("two", 11)]
    assert (stage.world.nodes(GroupPaths("s").epochs("orders")), len(stage.processors["s"])) == (epochs, 1)
    assert stage.status("s").observedGeneration == 2


def test_one_that_is_removed_leaves_nothing_behind_and_goes_on_where_it_was(stage: Stage) -> None:
    """Neither its id nor its partitions stay, although the session does; added again, it repeats nothing."""
    stage.want(s=("one", 1))
    stage.world.run(2)
    stage.want()
    stage.world.run(2)
    assert (stage.nodes("s"), stage.channels.channels) == ({}, [])
    assert stage.status("s").message == "the group has no member"

    publish(stage.world, 2)
    stage.want(s=("again", 1))
    stage.world.run(2)
    assert stage.taken("s") == [*(("one", n) for n in range(10)), ("again", 10), ("again", 11)]


def test_the_removal_of_an_owner_node_that_executes_late_hits_no_later_claim(stage: Stage) -> None:
    """A claim without an answer has left a node; its removal gets stuck, and arrives when the channel has come back."""
    stage.want(s=("one", 1))
    stage.world.run(2)
    zk, paths, ensemble = stage.consumer.zk, GroupPaths("s"), stage.world.ensemble
    owner = paths.owner("orders", 0)
    stage.want()
    stage.world.run_until(lambda: ensemble.tree.get(owner) is None, within=2)
    assert zk.session is not None
    ensemble.tree.transaction([Create(owner, b"a", ephemeral=True)], session=zk.session.id)
    send = zk.transaction

    def transaction(ops: Sequence[Op]) -> Call[Any]:
        call = send(ops)
        if any(isinstance(op, Delete) and op.path == owner for op in ops):
            zk.transaction = send  # type: ignore[method-assign]
            ensemble.disconnect("a", late=True)
        return call

    zk.transaction = transaction  # type: ignore[method-assign]
    stage.world.run(3)
    stage.want(s=("again", 1))
    stage.world.run(3)
    late = [thing for thing in ensemble.pending if thing.kind == "late"]
    for thing in late:
        ensemble.step(thing)
    assert (len(late), ensemble.tree.get(owner) is not None, stage.nodes("s")) == (1, True, SERVED)


def test_one_that_is_removed_is_forgotten_by_the_watches_on_nodes_that_never_change(stage: Stage) -> None:
    """Else each edit that exchanges a channel would keep all that the old one had read, for as long as the session lives."""
    stage.want(s=("one", 1))
    stage.world.run(2)
    channel = weakref.ref(stage.channels.channels[0])

    stage.want()
    stage.world.run(2)
    for ours in (stage.processors, stage.consumer.parts, stage.consumer.wakeups):
        ours.clear()
    gc.unfreeze()  # what this stage still knew when it was closed
    gc.collect()
    assert channel() is None


def test_two_that_leave_at_once_do_not_leave_it_to_each_other_to_say_so(stage: Stage) -> None:
    """Each has last seen the other there; who goes last looks again, and reports that it is not served."""
    other = Stage(stage.world, stage.world.join("b"))
    stage.world.run(5)
    stage.want(s=("one", 1))
    other.want(s=("one", 1))
    stage.world.run(2)
    assert stage.status("s").message == ""

    stage.want()
    other.want()
    stage.world.run(2)
    assert (stage.nodes("s"), stage.status("s").message) == ({}, "the group has no member")


def test_the_others_notice_nothing(stage: Stage) -> None:
    """Their epochs, their session and their records are what they would be without."""
    before = stage.world.nodes(stage.world.paths.epochs("orders"))
    for wanted in ({"s": ("one", 1)}, {"s": ("two", 2), "t": ("one", 1)}, {"t": ("one", 1)}, {}):
        stage.want(**wanted)
        stage.world.run(2)
        publish(stage.world, 1)
    stage.world.run(2)

    assert stage.world.nodes(stage.world.paths.epochs("orders")) == before
    assert stage.consumer.controller.sessions == 1
    assert [offset for _, offset in stage.consumer.processor.seen] == list(range(14))  # type: ignore[attr-defined]


def test_one_that_leaves_while_zookeeper_is_away_has_left_when_it_is_back(stage: Stage) -> None:
    """Nothing of it stays in the session, which goes on for the others; delivered records are committed."""
    stage.want(s=("one", 1))
    stage.world.run(2)
    stage.world.ensemble.down()
    stage.want()
    stage.world.run(3)
    assert stage.channels.leaving().keys() == {"s"}

    stage.world.ensemble.up()
    stage.world.run(5)
    assert (stage.nodes("s"), stage.channels.channels) == ({}, [])


def test_one_that_leaves_while_the_session_expires_commits_what_it_has_done(stage: Stage) -> None:
    """The old session is over for good, so its epoch alone keeps others out: nothing is repeated."""
    stage.want(s=("one", 1))
    stage.world.run(2)

    def zookeeper_goes(batch: Batch) -> None:
        stage.world.ensemble.cut_off("a")
        stage.want()

    stage.processors["s"][0].on_batch = zookeeper_goes
    publish(stage.world, 3)
    stage.world.run(15)
    assert [p.committed for p in stage.channels.channels[0].parts.schedule.held()] == [10]
    stage.world.ensemble.heal("a")
    stage.world.run(10)
    assert (stage.channels.channels, stage.consumer.controller.sessions) == ([], 2)

    stage.want(s=("again", 1))
    stage.world.run(5)
    assert [offset for _, offset in stage.taken("s")] == list(range(13))


@pytest.mark.parametrize("before", [None, "one"])
def test_one_step_that_fails_takes_the_whole_edit_back(stage: Stage, before: str | None) -> None:
    """An addition, or an edit, of which the processor cannot use the options; until it is corrected."""
    if before is not None:
        stage.want(s=(before, 1))
        stage.world.run(2)
    stage.want(s=("cannot be used" if before else "cannot be opened", 2), t=("one", 1))
    stage.world.run(3)
    assert "no such file" in str(stage.reconfiguration.problem)
    assert (stage.nodes("s"), stage.nodes("t")) == (SERVED if before else {}, {})

    stage.want(s=("good", 3), t=("one", 1))
    stage.world.run(3)
    assert (stage.nodes("s"), stage.nodes("t"), stage.reconfiguration.problem) == (SERVED, SERVED, None)
