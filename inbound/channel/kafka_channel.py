"""InboundKafkaChannel: the parts of one channel, put together."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING

from inbound.channel.books import Books
from inbound.channel.commit import ChannelCommits, Pending
from inbound.channel.committer import Committer
from inbound.channel.composition import reader_of, turns_of
from inbound.channel.failure_policy import DeadLetters, describe
from inbound.channel.partition import Handle, Partition, Place
from inbound.channel.partition_status import partition_status
from inbound.channel.parts import Parts
from inbound.channel.schedule import Schedule
from inbound.channel.service import Service
from inbound.channel.settings import Settings
from inbound.channel.worker import Worker
from inbound.clock import Clock
from inbound.config import ChannelConfig
from inbound.controller.kafka_controller import KafkaController
from inbound.coordinators.base import ZkCoordinator
from inbound.coordinators.nodes import MemberInfo
from inbound.coordinators.parameters import described
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.tasks import Tasks
from inbound.driver import Driver, Wakeup
from inbound.errors import LedgerError
from inbound.journal import Journal
from inbound.kafka.base import LogClient
from inbound.kafka.mirror_base import Connect
from inbound.ledger.base import Ledger
from inbound.membership import GroupMembership
from inbound.meters import Meters
from inbound.mirroring import Mirror
from inbound.pausing import Pausing
from inbound.processors.base import BatchEventProcessor, Context, TopicWriter, is_async, no_topics, paces
from inbound.processors.batch import Batch
from inbound.processors.spans import NO_TRACING, Consumer, Tracing
from inbound.status import ChannelStatus, ThreadStatus

if TYPE_CHECKING:
    import asyncio

    from inbound.channel.async_worker import AsyncWorker, LoopWakeup
    from inbound.channel.shared import Shared

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Outside:
    """What a channel gets from outside; every piece can be a fake."""

    clock: Clock
    controller: KafkaController
    wake_controller: Callable[[], None]
    committer: Committer  # of the controller's connection
    connect: Callable[[], LogClient]  # makes the Kafka client; raises BrokerUnavailableError while there is no broker
    ledger: Ledger
    degrade: bool = False
    dead_letters: DeadLetters | None = None
    open_topic: Callable[[str], TopicWriter] = no_topics  # makes what the processor publishes with
    owner_is_dead: Callable[[MemberInfo], bool] = lambda info: False
    connect_mirror: Connect | None = None  # makes the client that offsets are mirrored with
    new_loop: Callable[[], asyncio.AbstractEventLoop] | None = None  # for an asynchronous processor; None: a real one
    shared: Shared | None = None  # what it stands on with others whose processors hold up no event loop
    tracing: Tracing = NO_TRACING


class InboundKafkaChannel:
    """One channel: topics of one group, read by one client, handed to one processor by several workers, or by one event loop.

    `open` and `close` are called by the owner's thread. In between every worker runs on its own driver's thread, or is
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
        self._shared = outside.shared if type(processor).shares_loop else None
        loop = _loop_wakeup(outside, self._shared) if is_async(type(processor)) else None
        workers = Wakeup(config.workers + 1) if loop is None else loop
        # On an event loop any number of turns are under way at a time.
        schedule = Schedule(outside.clock, workers.set, config.workers if loop is None else sys.maxsize)
        clock, zk, paths = outside.clock, outside.controller.zk, GroupPaths(config.group)
        journal, meters = Journal(name, config.group, clock.wall), Meters()
        books = Books(outside.ledger, journal, meters, clock, degrade=outside.degrade)
        mirror = Mirror(
            config, name=name, clock=clock, zk=zk, schedule=schedule, journal=journal, connect=outside.connect_mirror
        )
        self.parts = Parts(
            name=name,
            settings=Settings(config),
            consumer_id=consumer_id,
            clock=clock,
            zk=zk,
            paths=paths,
            journal=journal,
            meters=meters,
            books=books,
            service=Service(
                processor, Consumer(config.group, consumer_id), journal, outside.tracing, processor.own_topics(options)
            ),
            schedule=schedule,
            pausing=Pausing(zk, schedule),
            mirror=mirror,
            worker_wakeup=workers,
            committer=outside.committer,
            commits=ChannelCommits(
                paths=paths, books=books, schedule=schedule, mirror=mirror, meters=meters, journal=journal,
                evaluate=self._evaluate,
            ),
            evaluate=self._evaluate,
        )  # fmt: skip
        self.reader = reader_of(self.parts, outside.connect, self._evaluate)
        self._turns = turns_of(self.parts, self.reader, outside.dead_letters)
        self._event_loop = loop.worker(clock, schedule, self._turns) if loop is not None else None
        self.workers: list[Worker | AsyncWorker] = (
            [self._event_loop] if self._event_loop else [self._make_worker() for _ in range(config.workers + 1)]
        )
        self._helper: list[Driver] = []  # polls, where the workers do not: an event loop must not wait for a client
        self._polling = Wakeup()
        if loop is not None:
            shared = self._shared
            self.read_apart(self._polling.set if shared is None else partial(shared.reading.wake, self.reader))
        self._worker_number = len(self.workers)
        #: Processors that others have taken the place of; they are closed when no partition is with them any more.
        self._former: list[BatchEventProcessor] = []
        self._not_sent_by_former = 0
        self.membership = GroupMembership(
            self.parts,
            outside.controller.tasks,
            coordinator,
            self.reader,
            member,
            join_delay=outside.controller.timing.join_delay,
            session_began=lambda: outside.controller.session_began,
            on_join=lambda: outside.controller.postpone_release(self.membership),
            owner_is_dead=outside.owner_is_dead,
        )
        self.membership.holdings.abandon = self._abandon_one
        schedule.on_abandoned_end = self._evaluate
        self.drivers: list[Driver] = []
        #: Set when it leaves its group although the process goes on.
        self.removed = False
        self._opened = False

    def _make_worker(self) -> Worker:
        return Worker(clock=self.parts.clock, schedule=self.parts.schedule, reader=self.reader, turns=self._turns)

    def read_apart(self, wake: Callable[[], None]) -> None:
        """Have somebody else step `reader`, who is woken by that; no worker polls. Before the parts' first step."""
        self.parts.schedule.read_apart(wake)
        if self._event_loop is None:
            del self.workers[self.parts.settings.now.workers :]

    def _evaluate(self) -> None:
        self._outside.controller.evaluate(self.membership)
        self._outside.wake_controller()

    @property
    def opened(self) -> bool:
        """Whether the processor is open. Any thread."""
        return self._opened

    # -- life --------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the processor; whatever it raises comes through, for it cannot do its work."""
        parts = self.parts
        context = self._context = self._make_context(self._options)
        self._complete(lambda: parts.service.processor.open(context))
        self._opened = True

    def _make_context(self, options: object) -> Context:
        parts = self.parts
        return Context(
            channel=self.name,
            group=parts.settings.now.group,
            consumer_id=parts.consumer_id,
            options=options,
            stopping=parts.service.stopping,
            log=logging.getLogger(f"inbound.processor.{self.name}"),
            clock=parts.clock,
            shutdown_timeout=parts.settings.now.shutdown_timeout,
            commit=self._commit,
            open_topic=self._outside.open_topic,
            tracing=self._outside.tracing,
        )

    def _commit(self, batch: Batch, offset: int) -> None:
        if isinstance(batch.claim, Handle):  # else it was made by hand
            partition = batch.claim.partition
            mark = self.parts.schedule.finish(batch.claim, offset)
            if mark is not None:
                self.parts.committer.submit(Pending(self.parts.commits, partition, mark))

    def _complete(self, callback: Callable[[], object]) -> None:
        """Run `open` or `close` to its end: on the event loop, where there is one and it runs, else in this thread."""
        loop = self._event_loop
        if loop is not None and self._loop_runs:
            loop.run_there(callback)
            return
        result = callback()
        if loop is not None and isawaitable(result):
            loop.complete(result)

    @property
    def _loop_runs(self) -> bool:
        """Whether a thread runs the event loop."""
        if self._shared is not None:
            return self._shared.loop.running
        return any(driver.thread.is_alive() for driver in self.drivers)

    @property
    def tasks(self) -> Tasks:
        """What runs on its controller's thread."""
        return self._outside.controller.tasks

    def join(self) -> None:
        """Take part in the group from now on."""
        self._outside.controller.add(self.membership)
        self._outside.wake_controller()

    def start(self) -> None:
        """Start a thread for each part."""
        parts = self.parts
        if self._shared is not None:
            assert self._event_loop is not None
            self._shared.add(self._event_loop, self.reader)
            parts.mirror.start()
            return
        role = "worker-{}" if self._event_loop is None else "event-loop"
        self.drivers = [
            Driver(f"{self.name}-{role.format(i)}", worker, parts.worker_wakeup, parts.clock, worker.let_go_at)
            for i, worker in enumerate(self.workers)
        ]
        if self._event_loop is not None:
            self._helper = [Driver(f"{self.name}-reader", self.reader, self._polling, parts.clock)]
            self._helper[0].start()
        for driver in self.drivers:
            driver.start()
        parts.mirror.start()

    # -- changes while it runs: by one thread, not the parts' --------------------------------------------------------------

    def exchange(self, processor: BatchEventProcessor, options: object) -> None:
        """Let another processor of the same class take over, partition by partition, each between two batches.

        The one before hears on_stream_termination of each, and is closed by `clear_up` after its last callback. Whatever
        `open` of the new one raises comes through, and nothing has changed.
        """
        parts, context = self.parts, self._make_context(options)
        self._complete(lambda: processor.open(context))
        self._former.append(parts.service.processor)
        parts.service.processor, self._context, self._options = processor, context, options
        parts.schedule.serve_with(processor)

    def configure(self, config: ChannelConfig) -> None:
        """Go by another configuration, of which only the keys differ that parts look at each time, and `workers`."""
        self.parts.settings.now = config
        self._context.shutdown_timeout = config.shutdown_timeout
        self.parts.mirror.configure(config.offsets)
        if self.drivers:  # else somebody steps the parts
            self.parts.mirror.start()
        if self._event_loop is None:
            self._set_workers(config.workers)

    def _set_workers(self, count: int) -> None:
        self.parts.schedule.set_workers(count)
        count += 1  # one polls while all others are busy
        retiring = [d for d in self.drivers if d.stopping]
        at_work = len(self.workers) - len(retiring)
        if count == at_work:
            return
        wakeup = self.parts.worker_wakeup
        if not self.drivers:  # whoever steps the parts has the workers that it has
            return
        wakeup.waiters = max(count, at_work)
        for driver in [d for d in self.drivers if not d.stopping][count:]:
            driver.stop()
        for _ in range(count - at_work):
            worker = self._make_worker()
            driver = Driver(
                f"{self.name}-worker-{self._worker_number}", worker, wakeup, self.parts.clock, worker.let_go_at
            )
            self._worker_number += 1
            self.workers = [*self.workers, worker]
            self.drivers = [*self.drivers, driver]
            driver.start()

    def try_again(self) -> None:
        """Read what is held once more: what holds it may have been corrected."""
        for partition in self.parts.schedule.held():
            partition.callbacks.append(partition.try_again)
        self.parts.schedule.hurry_all()
        self.parts.schedule.read_soon()

    def clear_up(self) -> bool:
        """Close processors that others have taken the place of, and forget workers that have ended.

        Returns whether some are still at work.
        """
        for processor in list(self._former):
            if not self.parts.schedule.served_by(processor):
                self._former.remove(processor)
                self._not_sent_by_former += processor.not_sent
                self._close_processor(processor)
        pairs = list(zip(self.workers, self.drivers, strict=False))
        ended = [driver for _, driver in pairs if driver.stopping and not driver.thread.is_alive()]
        if ended and not self.removed:
            for worker, driver in pairs:
                if driver in ended:
                    self.parts.schedule.retire(worker)
            self.workers = [worker for worker, driver in pairs if driver not in ended]
            self.drivers = [driver for driver in self.drivers if driver not in ended]
            self.parts.worker_wakeup.waiters = len(self.workers)
            self.parts.worker_wakeup.set_all()  # what they were woken for last may have been meant for another one
        return bool(self._former) or any(driver.stopping for driver in self.drivers)

    def report(self) -> None:
        """Look at how the subscription does that this channel serves, if it does. Controller's thread."""
        report = self.membership.report
        if report.serves is not None and self._opened:
            report.refresh(self.parts.service.said("status"))

    def abandon(self) -> None:
        """Give up whatever has not drained: not committed, and where it hangs is logged."""
        stacks = self._stacks()
        for partition in self.parts.schedule.held():
            self._abandon(partition, "", stacks.get(partition))

    def _abandon_one(self, partition: Partition, why: str) -> None:
        self._abandon(partition, f" {why}", self._stacks().get(partition))

    def _stacks(self) -> dict[Partition, str]:
        return {
            partition: stack
            for worker, driver in zip(self.workers, self.drivers, strict=False)
            for partition, stack in worker.stacks(driver.stack).items()
        }

    def _abandon(self, partition: Partition, why: str, stack: str | None) -> None:
        if stack is not None:
            where = f"its callback did not end in time; it is at:\n{stack}"
        elif partition.place is Place.LEAVING:
            where = "its owner node could not be deleted; it goes when the session expires"
        elif partition.place is Place.SCHEDULED:
            where = "no worker was free for its last callback"
        elif partition.place is Place.RUNNING:
            where = "its callback did not end in time"
        else:
            where = "its last commit could not be written"
        self.parts.journal.note(
            "abandoned", f"abandoned after shutdown_timeout ({self.parts.settings.now.shutdown_timeout:.0f} s){why}; offsets from "
            f"{partition.committed} on are read again elsewhere: {where}", partition.tp,
            offset=partition.committed, epoch=partition.fence.epoch, level=logging.ERROR,
        )  # fmt: skip
        self.parts.schedule.abandon(partition)
        if self._event_loop is not None:
            self._event_loop.abandon(partition)

    def close(self) -> None:
        """Stop the threads, close the client, the processor and the ledger."""
        parts = self.parts
        for driver in (*self.drivers, *self._helper):
            driver.stop()
        busy = {driver for worker, driver in zip(self.workers, self.drivers, strict=False) if worker.in_callback}
        for driver in (*self.drivers, *self._helper):
            if driver not in busy:
                driver.join(5.0)
        if self._shared is not None:
            self._shared.reading.remove(self.reader)
        self.reader.close()
        parts.committer.forget(parts.commits)
        parts.mirror.close()
        if self._event_loop is None:
            self._close_processors()
        elif not self._end_turns(self._event_loop):
            log.error("channel %s: the processor is not closed: a callback holds up its event loop", self.name)
        else:
            self._close_processors()
            if self._shared is None:
                self._event_loop.close()
        try:
            parts.books.ledger.close()
        except LedgerError as error:
            log.error("channel %s: its ledger lacks the mark of a clean end: %s", self.name, error)

    def _end_turns(self, worker: AsyncWorker) -> bool:
        """End what is under way on the event loop. Returns False where that does not come about in time."""
        if self._shared is not None:
            self._shared.loop.remove(worker)
            return not self._loop_runs or worker.cancel_turns_there()
        if self._loop_runs:
            return False
        worker.cancel_turns()
        return True

    def _close_processors(self) -> None:
        if self._opened:
            for processor in (*self._former, self.parts.service.processor):
                self._close_processor(processor)

    def _close_processor(self, processor: BatchEventProcessor) -> None:
        try:
            self._complete(processor.close)
        except Exception as error:
            log.error("channel %s: the processor's close failed: %s", self.name, describe(error))
            log.debug("channel %s: where it failed", self.name, exc_info=True)

    def _not_sent(self) -> int:
        return self._not_sent_by_former + sum(p.not_sent for p in (*self._former, self.parts.service.processor))

    # -- status ------------------------------------------------------------------------------------------------------

    def status(self) -> ChannelStatus:
        """Return a snapshot. Any thread."""
        parts, membership = self.parts, self.membership
        held = sorted(parts.schedule.held(), key=lambda p: p.tp)
        totals = dict(parts.consumed)
        return ChannelStatus(
            name=self.name,
            group=parts.settings.now.group,
            consumer_id=parts.consumer_id,
            coordinator=described(self._coordinator.registration()),
            registered=membership.registered,
            topics={name: meta.partitions for name, meta in self.reader.topics.found.items()},
            members=sorted(m.consumer_id for m in membership.members),
            share=membership.plan.share,
            notices=list(membership.plan.notices),
            bad_nodes=membership.holdings.backoff.problems(),
            partitions=[partition_status(p, parts) for p in held],
            abandoned=sorted(str(p.tp) for p in parts.schedule.abandoned()),
            records_total=sum(t.records for t in totals.values()),
            batches_total=sum(t.batches for t in totals.values()),
            commits_total=parts.commits.landed,
            commits_waiting=parts.committer.waiting(parts.commits),
            commits_fenced_total=parts.commits.fenced,
            not_sent_total=self._not_sent() if self._opened else 0,
            processor=dict(parts.service.said("status")) if self._opened else {},
            max_read_rate=parts.service.processor.max_read_rate if self._opened else None,
            paced=paces(type(parts.service.processor)),
            left_to_others=[str(tp) for tp in membership.set_aside.partitions()],
            zk_transactions_total=parts.commits.transactions,
            consumed={str(tp): t.records for tp, t in sorted(totals.items())},
            kafka_problem=self.reader.problem,
            ledger_problem=parts.books.problem,
            provable=not parts.books.not_provable,
            paused=list(parts.pausing.pauses),
            resets=membership.resets.status(),
            subscriber=membership.report.status(),
            removed=self.removed,
            buffer_limit_bytes=parts.settings.now.reader.prefetch_bytes,
            meters=parts.meters.status(),
            ledger=parts.books.ledger.status(),
            mirror=parts.mirror.status(),
            brokers=self.reader.brokers(),
        )

    def threads(self) -> list[ThreadStatus]:
        """Return the state of the channel's threads."""
        now = self.parts.clock.now()
        serving = {id(d): w.in_callback for w, d in zip(self.workers, self.drivers, strict=False)}
        return [
            ThreadStatus.of(driver, now, in_callback=serving.get(id(driver), False))
            for driver in (*self.drivers, *self._helper, *self.parts.mirror.drivers)
        ]


# An event loop takes longer to import than all of inbound, and most processors are plain code.


def _loop_wakeup(outside: Outside, shared: Shared | None) -> LoopWakeup:
    if shared is not None:
        return shared.loop.wakeup_of_one()
    from inbound.channel.async_worker import LoopWakeup
    from inbound.channel.event_loop import new_event_loop

    return LoopWakeup((outside.new_loop or new_event_loop)())
