"""InboundKafkaChannel: the parts of one channel, put together."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from inbound.channel.commit import Pending
from inbound.channel.parts import Parts, Resources
from inbound.channel.reader import Reader
from inbound.channel.status import channel_status
from inbound.channel.turn import Turns
from inbound.channel.worker import Worker
from inbound.config import ChannelConfig
from inbound.coordinators.base import ZkCoordinator
from inbound.coordinators.nodes import MemberInfo
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.rights import described
from inbound.coordinators.zookeeper import Call
from inbound.errors import LedgerError
from inbound.group.membership import GroupMembership
from inbound.group.parts import PauseState, Reading
from inbound.mirror.mirror import Mirror
from inbound.observe.status.status import ChannelStatus, ResetStatus, ThreadStatus
from inbound.partition.journal import Journal
from inbound.partition.ledger_notes import LedgerNotes
from inbound.partition.meters import Meters
from inbound.partition.partition import Handle, Partition, Place
from inbound.partition.schedule import Schedule
from inbound.partition.service import Service, Settings
from inbound.processors.base import BatchEventProcessor, Context, is_async
from inbound.processors.batch import Batch
from inbound.processors.spans import ConsumerName
from inbound.runtime.driver import Driver, Wakeup
from inbound.runtime.text import describe
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    from inbound.channel.async_worker import AsyncWorker, LoopWakeup
    from inbound.channel.shared import Shared

log = logging.getLogger(__name__)

#: Why a partition without a running callback has not drained, by its place.
_STUCK = {
    Place.LEAVING: "its owner node could not be deleted; it goes when the session expires",
    Place.SCHEDULED: "no worker was free for its last callback",
    Place.RUNNING: "its callback did not end in time",
}


class InboundKafkaChannel:
    """Reads topics with one client, and delivers batches to one processor.

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
        resources: Resources,
    ) -> None:
        self.name = name
        self._resources = resources
        self.tasks = resources.controller.tasks  # they run on its controller's thread
        self._options = options
        self._coordinator = coordinator
        self._shared = resources.shared if type(processor).shares_loop else None
        loop = _loop_wakeup(resources, self._shared) if is_async(type(processor)) else None
        workers = Wakeup(config.workers + 1) if loop is None else loop
        # An event loop runs any number of turns at a time.
        most = config.workers if loop is None else sys.maxsize
        schedule = Schedule(resources.clock, workers.set, most, self._evaluate)
        clock, zk, paths = resources.clock, resources.controller.zk, GroupPaths(config.group)
        journal, meters = Journal(name, config.group, clock.wall), Meters()
        ledger_notes = LedgerNotes(resources.ledger, journal, meters, clock, degrade=resources.degrade)
        mirror = Mirror(
            config, name=name, clock=clock, zk=zk, schedule=schedule, journal=journal, connect=resources.connect_mirror
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
            ledger_notes=ledger_notes,
            service=Service(
                processor, ConsumerName(config.group, consumer_id), journal, resources.tracing, processor.own_topics(options)
            ),
            schedule=schedule,
            pause_state=PauseState(zk, schedule),
            mirror=mirror,
            worker_wakeup=workers,
            committer=resources.committer,
            evaluate=self._evaluate,
            wake_committer=resources.committer.wakeup.set,
        )  # fmt: skip
        self.reader = Reader(self.parts, resources.connect, self._evaluate)
        self._turns = Turns(self.parts, self.reader, resources.dead_letters)
        self._event_loop = loop.worker(self.parts, self._turns) if loop is not None else None
        self.workers: list[Worker | AsyncWorker] = (
            [self._event_loop]
            if self._event_loop
            else [Worker(self.parts, self.reader, self._turns) for _ in range(config.workers + 1)]
        )
        self._helper: list[Driver] = []  # polls beside an event loop, which must not wait for a client
        self._polling = Wakeup()
        if loop is not None:
            shared = self._shared
            self.read_apart(self._polling.set if shared is None else partial(shared.reading.wake, self.reader))
        self._worker_number = len(self.workers)
        #: Replaced processors; each is closed when it serves no partition any more.
        self._former: list[BatchEventProcessor] = []
        self._not_sent_by_former = 0
        self.membership = GroupMembership(
            self.parts,
            self.tasks,
            coordinator,
            Reading(topics=self.reader.topics, expect=self.reader.expect, open=self.reader.open),
            member,
            join_delay=resources.controller.timing.join_delay,
            session_began=lambda: resources.controller.session_began,
            on_join=lambda: resources.controller.postpone_release(self.membership),
            abandon=self._abandon_one,
            owner_is_dead=resources.owner_is_dead,
        )
        self.drivers: list[Driver] = []
        #: Set when it leaves its group although the process goes on.
        self.removed = False
        self.opened = False  # the processor is open; read by any thread

    def read_apart(self, wake: Callable[[], None]) -> None:
        """Have another thread step `reader`, and no worker poll.

        `wake` wakes that thread. Called before the parts' first step.
        """
        self.parts.schedule.read_apart(wake)
        if self._event_loop is None:
            del self.workers[self.parts.settings.now.workers :]

    def _evaluate(self) -> None:
        self._resources.controller.evaluate(self.membership)
        self._resources.wake_controller()

    # -- life --------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the processor. Raises what its `open` raises."""
        parts = self.parts
        processor, context = parts.service.processor, self._make_context(self._options)
        self._context = context
        self._complete(lambda: processor.open(context))
        self.opened = True

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
            open_topic=self._resources.open_topic,
            tracing=self._resources.tracing,
        )

    def _commit(self, batch: Batch, offset: int) -> None:
        if isinstance(batch.claim, Handle):  # else it was made by hand
            partition = batch.claim.partition
            mark = self.parts.schedule.finish(batch.claim, offset)
            if mark is not None:
                self.parts.committer.submit(Pending(self.parts, partition, mark))

    def _complete(self, callback: Callable[[], object]) -> None:
        """Run `open` or `close` to its end, on a running event loop.

        Without one, in this thread.
        """
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

    def join(self) -> None:
        """Join the group."""
        self._resources.controller.add(self.membership)
        self._resources.wake_controller()

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
            helper = Driver(f"{self.name}-reader", self.reader, self._polling, parts.clock)
            self._helper = [helper]
            helper.start()
        for driver in self.drivers:
            driver.start()
        parts.mirror.start()

    # -- changes while it runs: by one thread, not the parts' --------------------------------------------------------------

    def exchange(self, processor: BatchEventProcessor, options: object) -> None:
        """Replace the processor by another one of its class.

        Each partition changes between two batches: the old processor gets its on_stream_termination, and is closed by
        `clear_up` after its last callback. An error of the new one's `open` comes through, and changes nothing.
        """
        parts, context = self.parts, self._make_context(options)
        self._complete(lambda: processor.open(context))
        self._former.append(parts.service.processor)
        parts.service.processor, self._context, self._options = processor, context, options
        parts.schedule.serve_with(processor)

    def configure(self, config: ChannelConfig) -> None:
        """Apply a configuration that differs only in reloadable keys and `workers`."""
        self.parts.settings.now = config
        self._context.shutdown_timeout = config.shutdown_timeout
        self.parts.mirror.configure(config.offsets)
        if self.drivers:  # else the simulator steps the parts
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
        if not self.drivers:  # the simulator steps the workers that there are
            return
        wakeup.waiters = max(count, at_work)
        for driver in [d for d in self.drivers if not d.stopping][count:]:
            driver.stop()
        for _ in range(count - at_work):
            worker = Worker(self.parts, self.reader, self._turns)
            driver = Driver(
                f"{self.name}-worker-{self._worker_number}", worker, wakeup, self.parts.clock, worker.let_go_at
            )
            self._worker_number += 1
            self.workers = [*self.workers, worker]
            self.drivers = [*self.drivers, driver]
            driver.start()

    def try_again(self) -> None:
        """Read held partitions once more: the cause may have been corrected."""
        for partition in self.held():
            partition.callbacks.append(partition.try_again)
        self.parts.schedule.hurry_all()
        self.parts.schedule.read_soon()

    def clear_up(self) -> bool:
        """Close replaced processors, and forget ended workers. Returns whether some remain."""
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
            self.parts.worker_wakeup.set_all()  # an ended worker may have taken another one's wakeup
        return bool(self._former) or any(driver.stopping for driver in self.drivers)

    def report(self) -> None:
        """Refresh the subscription's report, if there is one. Controller's thread."""
        report = self.membership.report
        if report.serves is not None and self.opened:
            report.refresh(self.parts.service.said("status"))

    def abandon(self) -> None:
        """Abandon undrained partitions without a commit. The log shows their stacks."""
        self._abandon(self.held())

    def _abandon_one(self, partition: Partition, why: str) -> None:
        self._abandon([partition], f" {why}")

    def _abandon(self, partitions: Sequence[Partition], why: str = "") -> None:
        parts = self.parts
        stacks = {
            partition: stack
            for worker, driver in zip(self.workers, self.drivers, strict=False)
            for partition, stack in worker.stacks(driver.stack).items()
        }
        for partition in partitions:
            where = _STUCK.get(partition.place, "its last commit could not be written")
            if partition in stacks:
                where = f"its callback did not end in time; it is at:\n{stacks[partition]}"
            parts.journal.note(
                "abandoned", f"abandoned after shutdown_timeout ({parts.settings.now.shutdown_timeout:.0f} s){why}; offsets from "
                f"{partition.committed} on are read again elsewhere: {where}", partition.tp,
                offset=partition.committed, epoch=partition.fence.epoch, level=logging.ERROR,
            )  # fmt: skip
            parts.schedule.abandon(partition)
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
        parts.committer.forget(parts)
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
            parts.ledger_notes.close()
        except LedgerError as error:
            log.error("channel %s: its ledger lacks the mark of a clean end: %s", self.name, error)

    def _end_turns(self, worker: AsyncWorker) -> bool:
        """End the turns on the event loop. Returns False on timeout."""
        if self._shared is not None:
            self._shared.loop.remove(worker)
            return not self._loop_runs or worker.cancel_turns_there()
        if self._loop_runs:
            return False
        worker.cancel_turns()
        return True

    def _close_processors(self) -> None:
        if self.opened:
            for processor in (*self._former, self.parts.service.processor):
                self._close_processor(processor)

    def _close_processor(self, processor: BatchEventProcessor) -> None:
        try:
            self._complete(processor.close)
        except Exception as error:
            log.error("channel %s: the processor's close failed: %s", self.name, describe(error))
            log.debug("channel %s: where it failed", self.name, exc_info=True)

    # -- for operators and `inbound explain` -------------------------------------------------------------------------

    async def leave_group(self) -> None:
        """Leave the group gracefully. Controller's thread."""
        await self.membership.leave_group()

    async def clear_up_group(self) -> None:
        """Delete our remaining nodes after leaving the group. Controller's thread."""
        await self.membership.clear_up()

    def give_up(self, tp: TopicPartition, seconds: float | None) -> Call[bool]:
        """Begin to release `tp`, and leave it to others. Any thread.

        Returns whether it was held; see `ReleaseCooldown.add`.
        """
        return self.tasks.spawn(self.membership.give_up(tp, seconds), f"release of {tp}")

    def has_held(self, tp: TopicPartition) -> bool:
        """Whether it holds `tp`, or its journal knows `tp`. Any thread."""
        return self.parts.schedule.get(tp) is not None or bool(self.parts.journal.of(tp))

    @property
    def stopping(self) -> bool:
        """Whether the channel ends. Any thread."""
        return self.parts.service.stops

    def stop(self) -> None:
        """Have the processor's waits return: the channel ends. Any thread."""
        self.parts.service.stop()

    def finish_mirror(self) -> None:
        """Have the mirror send its last offsets soon. Any thread."""
        self.parts.mirror.finish()

    def held(self) -> list[Partition]:
        """Return the partitions that are not gone. Any thread."""
        return self.parts.schedule.held()

    def note(self, kind: str, text: str, tp: TopicPartition | None = None, **facts: Any) -> None:
        """Keep and log an event; see `Journal.note`. Any thread."""
        self.parts.journal.note(kind, text, tp, **facts)

    def bad_node(self, tp: TopicPartition) -> str | None:
        """Return why a partition's nodes are unusable; None: usable. Any thread."""
        return self.membership.backoff.problem(tp)

    def resets(self) -> list[ResetStatus]:
        """Return the resets that stall partitions. Any thread."""
        return self.membership.resets.status()

    def peek(self, partitions: Collection[TopicPartition]) -> None:
        """Find out soon whether these have unfetched records. Any thread."""
        self.reader.watching.ask(partitions)
        self.parts.schedule.read_soon()

    # -- status ------------------------------------------------------------------------------------------------------

    def status(self) -> ChannelStatus:
        """Return a snapshot. Any thread."""
        processors = (*self._former, self.parts.service.processor)
        return channel_status(
            self.parts,
            self.membership,
            self.reader,
            coordinator=described(self._coordinator.registration()),
            not_sent=self._not_sent_by_former + sum(p.not_sent for p in processors) if self.opened else None,
            removed=self.removed,
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


def _loop_wakeup(resources: Resources, shared: Shared | None) -> LoopWakeup:
    if shared is not None:
        return shared.loop.wakeup_of_one()
    from inbound.channel.async_worker import LoopWakeup
    from inbound.channel.shared import new_event_loop

    return LoopWakeup((resources.new_loop or new_event_loop)())
