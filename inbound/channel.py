"""InboundKafkaChannel: the parts of one channel, put together."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from inbound.clock import Clock
from inbound.committer import Committer
from inbound.config import ChannelConfig
from inbound.controller.kafka_controller import KafkaController
from inbound.coordinators.base import ZkCoordinator
from inbound.coordinators.nodes import MemberInfo
from inbound.coordinators.parameters import described
from inbound.coordinators.paths import GroupPaths
from inbound.driver import Driver, Wakeup
from inbound.failures import DeadLetters, FailurePolicy, describe
from inbound.kafka.base import LogClient
from inbound.kafka.reader import Reader
from inbound.ledger.base import Ledger
from inbound.membership import GroupMembership
from inbound.partition import Fate, Partition, Place
from inbound.parts import Parts
from inbound.processors.base import BatchEventProcessor, Context
from inbound.schedule import Schedule
from inbound.status import ChannelStatus, PartitionStatus, ThreadStatus
from inbound.worker import Worker

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Outside:
    """What a channel gets from outside; every piece can be a fake."""

    clock: Clock
    controller: KafkaController
    wake_controller: Callable[[], None]
    connect: Callable[[], LogClient]  # makes the Kafka client; raises BrokerUnavailableError while there is no broker
    ledger: Ledger
    degrade: bool = False
    dead_letters: DeadLetters | None = None
    owner_is_dead: Callable[[MemberInfo], bool] = lambda info: False


class InboundKafkaChannel:
    """One channel: topics of one group, read by one client, handed to one processor by several workers.

    `open` and `close` are called by the owner's thread. In between every part runs on its own driver's thread, or is
    stepped by the simulator.
    """

    def __init__(
        self,
        name: str,
        config: ChannelConfig,
        consumer_id: str,
        processor: BatchEventProcessor,
        coordinator: ZkCoordinator,
        member: MemberInfo,
        options: object,
        outside: Outside,
    ) -> None:
        self.name = name
        self._outside = outside
        self._options = options
        self._coordinator = coordinator
        workers = Wakeup(config.workers)
        schedule = Schedule(outside.clock, workers.set)
        self.parts = Parts(
            name=name,
            config=config,
            consumer_id=consumer_id,
            clock=outside.clock,
            zk=outside.controller.zk,
            ledger=outside.ledger,
            degrade=outside.degrade,
            processor=processor,
            paths=GroupPaths(config.group),
            schedule=schedule,
            worker_wakeup=workers,
            reader_wakeup=Wakeup(),
            committer_wakeup=Wakeup(),
            evaluate=self._evaluate,
        )
        self.committer = Committer(self.parts)
        self.reader = Reader(self.parts, self.committer, outside.connect, self._evaluate)
        failures = FailurePolicy(self.parts, outside.dead_letters)
        self.workers = [Worker(self.parts, self.reader, self.committer, failures) for _ in range(config.workers)]
        self.membership = GroupMembership(
            self.parts,
            outside.controller.tasks,
            coordinator,
            self.reader,
            member,
            join_delay=outside.controller.timing.join_delay,
            on_join=lambda: outside.controller.postpone_release(self.membership),
            owner_is_dead=outside.owner_is_dead,
        )
        outside.controller.add(self.membership)
        self.drivers: list[Driver] = []
        self._opened = False

    def _evaluate(self) -> None:
        self._outside.controller.evaluate(self.membership)
        self._outside.wake_controller()

    # -- life --------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the processor; whatever it raises comes through, for it cannot do its work."""
        parts = self.parts
        parts.processor.open(
            Context(
                channel=self.name,
                group=parts.config.group,
                consumer_id=parts.consumer_id,
                options=self._options,
                stopping=parts.stopping,
                log=logging.getLogger(f"inbound.processor.{self.name}"),
            )
        )
        self._opened = True

    def start(self) -> None:
        """Start a thread for each part."""
        parts = self.parts
        active: list[tuple[str, Reader | Committer | Worker, Wakeup]] = [
            ("reader", self.reader, parts.reader_wakeup),
            ("committer", self.committer, parts.committer_wakeup),
            *((f"worker-{i}", worker, parts.worker_wakeup) for i, worker in enumerate(self.workers)),
        ]
        self.drivers = [Driver(f"{self.name}-{role}", part, wakeup, parts.clock) for role, part, wakeup in active]
        for driver in self.drivers:
            driver.start()

    def connection_changed(self) -> None:
        """ZooKeeper came or went. Any thread."""
        self.parts.committer_wakeup.set()

    def abandon(self) -> None:
        """Give up whatever has not drained: not committed, and where it hangs is logged."""
        stacks = {
            worker.serving: driver.stack()
            for worker, driver in zip(self.workers, self.drivers[2:], strict=False)
            if worker.serving is not None
        }
        for partition in self.parts.schedule.held():
            if partition in stacks:
                why = f"its callback did not end in time; it is at:\n{stacks[partition]}"
            elif partition.place is Place.LEAVING:
                why = "its owner node could not be deleted; it goes when the session expires"
            else:
                why = "its last commit could not be written"
            log.error(
                "%s: abandoned after shutdown_timeout (%.0f s); offsets from %s on are read again elsewhere: %s",
                partition.tp,
                self.parts.config.shutdown_timeout,
                partition.committed,
                why,
            )
            self.parts.schedule.abandon(partition)

    def close(self) -> None:
        """Stop the threads, close the client, the processor and the ledger."""
        parts = self.parts
        for driver in self.drivers:
            driver.stop()
        busy = {
            driver for worker, driver in zip(self.workers, self.drivers[2:], strict=False) if worker.serving is not None
        }
        for driver in self.drivers:
            if driver not in busy:
                driver.join(5.0)
        self.reader.close()
        if self._opened:
            try:
                parts.processor.close()
            except Exception as error:
                log.error("channel %s: the processor's close failed: %s", self.name, describe(error))
                log.debug("channel %s: where it failed", self.name, exc_info=True)
        parts.ledger.close()

    # -- status ------------------------------------------------------------------------------------------------------

    def status(self) -> ChannelStatus:
        """Return a snapshot. Any thread."""
        parts, membership = self.parts, self.membership
        held = sorted(parts.schedule.held(), key=lambda p: p.tp)
        totals = dict(parts.totals)
        return ChannelStatus(
            name=self.name,
            group=parts.config.group,
            consumer_id=parts.consumer_id,
            coordinator=described(self._coordinator.registration()),
            registered=membership.registered,
            topics={name: meta.partitions for name, meta in self.reader.topics.items()},
            members=sorted(m.consumer_id for m in membership.members),
            share=membership.plan.share,
            notices=list(membership.plan.notices),
            partitions=[self._partition_status(p) for p in held],
            abandoned=sorted(str(p.tp) for p in parts.schedule.abandoned()),
            records_total=sum(t.records for t in totals.values()),
            batches_total=sum(t.batches for t in totals.values()),
            commits_total=self.committer.commits,
            commits_waiting=self.committer.waiting,
            commits_fenced_total=self.committer.fenced,
            zk_transactions_total=self.committer.transactions,
            consumed={str(tp): t.records for tp, t in sorted(totals.items())},
            kafka_problem=self.reader.problem,
            ledger_problem=parts.ledger_problem,
            provable=not parts.not_provable,
            paused=list(parts.pausing.pauses),
        )

    def _partition_status(self, partition: Partition) -> PartitionStatus:
        return PartitionStatus(
            topic=partition.tp.topic,
            partition=partition.tp.partition,
            place=partition.place.value,
            leaving=partition.fate is not Fate.KEEP,
            epoch=partition.fence.epoch,
            position=partition.position,
            committed=partition.committed,
            high_watermark=partition.high_watermark,
            lag=partition.lag,
            buffered_bytes=partition.buffer.size,
            records_total=partition.records_total,
            batches_total=partition.batches_total,
            commits_total=partition.commits_total,
            attempts=partition.attempts,
            held=partition.held,
            last_error=partition.last_error,
            last_batch_at=partition.last_batch_at,
            in_doubt=not self.parts.zk.certain(partition.fence.session),
            paused=self.parts.schedule.paused,
        )

    def threads(self) -> list[ThreadStatus]:
        """Return the state of the channel's threads."""
        now = self.parts.clock.now()
        serving = {id(d): w.serving is not None for w, d in zip(self.workers, self.drivers[2:], strict=False)}
        return [
            ThreadStatus(
                name=driver.name,
                alive=driver.thread.is_alive(),
                last_step_age=max(0.0, now - driver.last_step),
                failures=driver.failures,
                in_callback=serving.get(id(driver), False),
            )
            for driver in self.drivers
        ]
