"""A whole cluster in one thread on a fake clock.

    world = World()
    world.kafka.create_topic("orders", 6)
    world.join("a", Counting())
    world.run(10)
    assert world.owned() == {"a": {0, 1, 2, 3, 4, 5}}

Consumers are made of the product's own parts, on fakes. Time passes only in `run`, and then jumps from one due time to
the next.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from inbound.channel.committer import Committer
from inbound.channel.failure_policy import DeadLetters
from inbound.channel.kafka_channel import InboundKafkaChannel
from inbound.channel.parts import Resources
from inbound.config import ChannelConfig, ControllerConfig
from inbound.controller.kafka_controller import KafkaController, Timing
from inbound.coordinators.base import ZkCoordinator
from inbound.coordinators.dynamic import DynamicCoordinator
from inbound.coordinators.nodes import MemberInfo, decode_offset
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.tasks import Tasks
from inbound.coordinators.zookeeper import Call
from inbound.errors import InboundError
from inbound.ledger.memory import MemoryLedger
from inbound.mirror.plan import Connect
from inbound.processors.base import BatchEventProcessor, TopicWriter, no_topics
from inbound.processors.batch import Batch, BatchResponse
from inbound.processors.spans import NO_TRACING, Tracing
from inbound.runtime.driver import Part, Wakeup
from inbound.testing.clock import FakeLoop, ManualClock
from inbound.testing.kafka import FakeKafka, FakeLogClient
from inbound.testing.mirror import FakeGroups
from inbound.testing.zookeeper import ANONYMOUS, FakeEnsemble, FakeZooKeeper, Who
from inbound.topic_partition import TopicPartition

GROUP = "group"

#: The delay of a part that wants to continue at once, as work takes time; and the longest wait of any part or server. Seconds.
SHORTEST, LONGEST = 0.01, 0.1


class Recording(BatchEventProcessor):
    """A processor that notes each record and callback; by default it advances."""

    def __init__(self, answer: Callable[[Batch], object] | None = None) -> None:
        self.answer = answer
        self.seen: list[tuple[TopicPartition, int]] = []
        self.calls: list[tuple[Any, ...]] = []
        self.on_batch: Callable[[Batch], None] = lambda batch: None

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        self.on_batch(batch)
        tp = TopicPartition(batch.topic, batch.partition)
        self.seen += [(tp, record.offset) for record in batch.records]
        return BatchResponse.advance() if self.answer is None else self.answer(batch)  # type: ignore[return-value]

    def on_batch_processed(self, batch: Batch) -> None:
        self.calls.append(("processed", batch.partition, batch.next_offset))

    def on_exception(self, partition: TopicPartition, error: Exception) -> BatchResponse | None:
        self.calls.append(("exception", partition.partition, type(error).__name__))
        return None

    def on_stream_termination(self, partition: TopicPartition, next_offset: int) -> BatchResponse | None:
        self.calls.append(("termination", partition.partition, next_offset))
        return None

    def on_idle(self, partition: TopicPartition) -> BatchResponse | None:
        self.calls.append(("idle", partition.partition))
        return None


@dataclass(eq=False)
class Consumer:
    """One consumer process."""

    name: str
    zk: FakeZooKeeper
    tasks: Tasks
    controller: KafkaController
    channel: InboundKafkaChannel
    processor: BatchEventProcessor
    ledger: MemoryLedger
    consumer_id: str
    paused: bool = False  # SIGSTOP
    dead: bool = False
    parts: list[Part] = field(default_factory=list)
    wakeups: list[Wakeup] = field(default_factory=list)  # of the parts, in their order
    log_clients: list[FakeLogClient] = field(default_factory=list)
    connect: Callable[[], FakeLogClient] | None = None  # makes the next of them

    @property
    def on_truncation(self) -> str:
        """Its setting for logs that were truncated below the commit."""
        return self.channel.parts.settings.now.on_truncation

    @property
    def stopping(self) -> bool:
        """Whether it is leaving its group."""
        return self.channel.stopping

    def finish_mirror(self) -> None:
        """Let its mirror send the last offsets soon."""
        self.channel.finish_mirror()

    def spawn(self, work: Coroutine[Call[Any], Any, Any], name: str) -> None:
        """Run a coroutine on the controller's thread."""
        self.tasks.spawn(work, name)

    def leave(self) -> Call[None]:
        """Begin to leave the group."""
        self.channel.stop()
        self.controller.close()
        return self.tasks.spawn(self.channel.leave_group(), "leave")


class World:
    """One group's consumers, a ZooKeeper ensemble and a Kafka cluster."""

    def __init__(self, *, seed: int = 0, session_timeout: float = 10.0, timing: Timing | None = None) -> None:
        self.clock = ManualClock()
        self.ensemble = FakeEnsemble(self.clock, seed)
        self.kafka = FakeKafka()
        self.groups = FakeGroups(self.clock)  # the Kafka groups that offsets are mirrored to
        self.consumers: dict[str, Consumer] = {}
        self.group = GROUP
        self.paths = GroupPaths(GROUP)
        self.tracing: Tracing = NO_TRACING  # of consumers that join from now on
        self._session_timeout = session_timeout
        self._timing = timing or Timing()
        self._rng = random.Random(seed)

    # -- consumers ---------------------------------------------------------------------------------------------------

    def join(
        self,
        name: str,
        processor: BatchEventProcessor | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        consumer_id: str | None = None,
        coordinator: ZkCoordinator | None = None,
        dead_letters: DeadLetters | None = None,
        open_topic: Callable[[str], TopicWriter] = no_topics,
        connect_mirror: Connect | None = None,
        owner_is_dead: Callable[[MemberInfo], bool] = lambda info: False,
        degrade: bool = False,
        who: Who = ANONYMOUS,
        leads: bool = False,
        **settings: Any,
    ) -> Consumer:
        """Start a consumer process.

        `settings` are fields of ChannelConfig; the process logs in to ZooKeeper as `who`.
        With `leads` its workers poll, as in production; else its reader is a separate part, which a test can step.
        `name` is the process's own, for the methods here; its consumer id is the same unless `consumer_id` is given.
        `options` are the processor's, as a configuration has them. Raises pydantic's ValidationError if its `Options`
        model refuses them.
        """
        processor = processor or Recording()
        filled = dict(options or {}) if processor.Options is None else processor.Options.model_validate(options or {})
        topics = {} if "topics_pattern" in settings else {"topics": ["orders"]}
        values: dict[str, Any] = {**topics, "group": GROUP, "processor": {"type": "simple"}, "workers": 1}
        config = ChannelConfig.model_validate({**values, **settings})
        zk = self.ensemble.client(name, self._session_timeout, who)
        wakeup = Wakeup()
        tasks = Tasks(self.clock, wakeup.set)
        controller = KafkaController(zk, tasks, self.clock, self._timing, random.Random(self._rng.random()))
        ledger = MemoryLedger()
        committer = Committer(zk, self.clock, ControllerConfig().commit_interval)
        log_clients: list[FakeLogClient] = []

        def connect() -> FakeLogClient:
            log_clients.append(self.kafka.client())
            log_clients[-1].max_decompressed_bytes = channel.parts.settings.now.reader.max_decompressed_bytes
            return log_clients[-1]

        coordinator = coordinator or DynamicCoordinator()
        member = MemberInfo(
            host="host", pid=1, started="2026-01-01T00:00:00Z", topics=config.topics,
            coordinator=coordinator.registration(),
        )  # fmt: skip
        resources = Resources(
            clock=self.clock,
            controller=controller,
            wake_controller=wakeup.set,
            committer=committer,
            connect=connect,
            ledger=ledger,
            degrade=degrade,
            dead_letters=dead_letters,
            open_topic=open_topic,
            owner_is_dead=owner_is_dead,
            connect_mirror=connect_mirror or self.groups.connect,
            new_loop=lambda: FakeLoop(self.clock),
            tracing=self.tracing,
        )
        channel = InboundKafkaChannel(
            "orders", config, consumer_id or name, processor, coordinator, member, filled, resources
        )
        consumer = Consumer(name, zk, tasks, controller, channel, processor, ledger, consumer_id or name)
        parts, polling = channel.parts, Wakeup()
        consumer.log_clients, consumer.connect = log_clients, connect
        consumer.parts, consumer.wakeups = [controller, committer], [wakeup, committer.wakeup]
        if not leads or parts.service.asynchronous:
            channel.read_apart(polling.set)
            consumer.parts.insert(1, channel.reader)
            consumer.wakeups.insert(1, polling)
        consumer.parts += channel.workers
        consumer.wakeups += [parts.worker_wakeup for _ in channel.workers]
        if config.offsets.mirror != "none":
            consumer.parts.append(parts.mirror)
            consumer.wakeups.append(parts.mirror.wakeup)

        def connection_changed() -> None:
            wakeup.set()
            committer.wakeup.set()

        zk.on_change = connection_changed
        channel.open()
        channel.join()
        self.consumers[name] = consumer
        return consumer

    def leave(self, name: str, *, within: float = 30.0) -> None:
        """Stop a consumer gracefully."""
        consumer = self.consumers[name]
        call = consumer.leave()
        self.run_until(lambda: call.done, within=within)
        mirror = consumer.channel.parts.mirror
        mirror.finish()
        self.run_until(lambda: mirror.finished, within=within)
        mirror.close()
        consumer.dead = True
        consumer.zk.close()

    def kill(self, name: str) -> None:
        """SIGKILL: no goodbye; the session lives on until it expires."""
        self.consumers[name].dead = True
        self.ensemble.freeze(name)

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        self.consumers[name].paused = True
        self.ensemble.freeze(name)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self.consumers[name].paused = False
        self.ensemble.thaw(name)

    # -- time --------------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Let virtual time pass, and every part do what is due."""
        self.run_until(lambda: False, within=seconds, complain=False)

    def run_until(self, condition: Callable[[], bool], *, within: float, complain: bool = True) -> None:
        """Let time pass until `condition` holds.

        Raises AssertionError: it does not within `within` seconds of virtual time.
        """
        end = self.clock.now() + within
        while not condition():
            if self.clock.now() >= end:
                if complain:
                    raise AssertionError(f"did not come about within {within} s of virtual time: {self.owned()}")
                return
            due = self._step_all()
            if not self.ensemble.deliver():
                now = self.clock.now()
                self.clock.advance(max(SHORTEST, min(due, end, now + LONGEST) - now))
                self.ensemble.tick()

    def _step_all(self) -> float:
        due = float("inf")
        for consumer in list(self.consumers.values()):
            if consumer.dead or consumer.paused:
                continue
            for part in consumer.parts:
                next_step = part.run_once()
                if next_step is not None:
                    due = min(due, next_step)
        return due

    # -- what tests assert -------------------------------------------------------------------------------------------

    def owned(self) -> dict[str, set[int]]:
        """Return each consumer's partitions of `orders`, as the owner nodes say."""
        result: dict[str, set[int]] = {name: set() for name, c in self.consumers.items() if not c.dead}
        for path, data in self.nodes(self.paths.owners("orders")).items():
            result.setdefault(data.decode(), set()).add(int(path.rsplit("/", 1)[1]))
        return result

    def commits(self, topic: str = "orders") -> dict[int, int | None]:
        """Return the group's offsets, as the nodes say."""
        nodes = self.nodes(self.paths.offsets(topic))
        return {int(path.rsplit("/", 1)[1]): decode_offset(path, data) for path, data in sorted(nodes.items())}

    def nodes(self, parent: str) -> Mapping[str, bytes]:
        """Return the children of `parent` with their data."""
        return self.ensemble.subtree(parent)

    def ledgers(self) -> Iterator[tuple[str, str, MemoryLedger]]:
        """Yield each process's name, consumer id and ledger."""
        for consumer in self.consumers.values():
            yield consumer.name, consumer.consumer_id, consumer.ledger

    def fatal(self, name: str) -> InboundError | None:
        """Return the error that a consumer must stop for, if any."""
        return self.consumers[name].controller.fatal
