"""Calls the processor of a running partition: batches, and other callbacks.

`inbound.channel.turn` decides which of them is due.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from inbound.channel.failure_policy import FailurePolicy
from inbound.channel.outcome import Outcomes, server_of
from inbound.channel.parts import Consumed, Parts
from inbound.channel.processor_session import ProcessorSession
from inbound.channel.reader import Reader
from inbound.channel.response import Decision, decide
from inbound.errors import BadResponseError, PartitionLostError
from inbound.ledger.base import Range
from inbound.partition.buffer import Chunk, Cut, record_size
from inbound.partition.leader import NO_EFFORT
from inbound.partition.partition import Fate, Partition, Place
from inbound.processors.batch import Batch
from inbound.runtime.interpreter import DeliveredBytes
from inbound.runtime.text import describe

log = logging.getLogger(__name__)

#: Seconds until the next try after the ledger could not take a `begun`.
LEDGER_RETRY = 1.0
#: Seconds until the next look at a partition whose ownership is in doubt.
DOUBT_RETRY = 1.0


class Delivery:
    """Delivers batches of running partitions, and runs the other callbacks.

    Called by the turn that has the partition.
    """

    def __init__(
        self, parts: Parts, reader: Reader, session: ProcessorSession, failures: FailurePolicy, outcomes: Outcomes
    ) -> None:
        self._parts = parts
        self._clock = parts.clock
        self._schedule = parts.schedule
        self._reader = reader
        self._session = session
        self._failures = failures
        self._outcomes = outcomes
        self._delivered = DeliveredBytes()
        self._stopping = parts.service.stopping

    def room(self, partition: Partition) -> int | None:
        """Ask the processor how many records it takes; None: any number.

        0 also after a failure, with a backoff.
        """
        committed = partition.committed if partition.committed is not None else partition.position.delivered
        try:
            room = self._session.room(server_of(partition), partition.tp, committed)
        except BaseException as error:  # nothing is awaited here: all of it is the processor's
            self._parts.meters.failed(error)
            partition.rest_until = self._failures.room_failed(partition, error)
            return 0
        if room == 0 and partition.taken_back:
            # 1. All the room is taken; 2. the log is cut below that, or the batch fails, and later answers for it are void;
            # 3. no commit of it can land, so without a batch that shows the new position there is never room.
            room = 1
        partition.failure.room_attempts, partition.no_room = 0, room == 0
        return room

    def note_finished(self, partition: Partition) -> None:
        """Commit records that were finished after their answer, even during a backoff."""
        offset = self._schedule.take_finished(partition)
        if offset is not None:
            partition.position.defer_commit(min(offset, partition.position.delivered), self._clock.now())

    def cut(self, partition: Partition, room: int | None) -> Cut | None:
        """Take the next batch of at most `room` records; None: no records."""
        settings = self._parts.settings.now.reader
        isolated = partition.position.delivered < partition.failure.isolate_until
        max_records = 1 if isolated else settings.max_batch_records
        if room is not None:
            max_records = min(max_records, room)
        limit = min(partition.max_bytes or settings.batch_bytes, settings.max_batch_bytes)
        cut = partition.buffer.cut(max_records, limit)
        if cut is not None:
            partition.max_bytes = None
            if cut.size > settings.max_batch_bytes:
                self._parts.journal.note(
                    "large", f"the record at offset {cut.records[0].offset} has {record_size(cut.records[0])} bytes, more than "
                    f"max_batch_bytes ({settings.max_batch_bytes}); it is delivered alone", partition.tp,
                    offset=cut.records[0].offset, epoch=partition.fence.epoch, level=logging.WARNING,
                )  # fmt: skip
            self._reader.taken(partition)
        return cut

    async def deliver(self, partition: Partition, cut: Cut) -> tuple[float, float]:
        """Deliver a batch, and pass the partition on.

        Returns:
            CPU seconds of this thread, and seconds passed, inside on_next_batch.
        """
        position, totals = partition.position, partition.totals
        tp, records = partition.tp, cut.records
        if type(records) is list:  # what a processor takes out of one would be lost
            records = tuple(records)
        batch = Batch(*tp, position.delivered, cut.next_offset, records, partition.fence.epoch, claim=partition.handle)
        if not self._begin(partition, batch, cut):
            return NO_EFFORT
        partition.batch = batch
        # Right before the call, by this thread, by the clock: a flag that another thread sets would be stale when a
        # stopped process goes on after its session has expired.
        certain = self._parts.zk.certain(partition.fence.session) and self._parts.pause_state.allows()
        if partition.fate is Fate.DROP or not certain:
            partition.buffer.put_back(Chunk(cut.records, cut.next_offset, cut.size))
            self._parts.ledger_notes.note(
                "withheld", tp, batch.epoch, first=batch.first_offset, next=batch.next_offset, records=len(cut.records)
            )
            self.wait_for_certainty(partition)
            return NO_EFFORT
        partition.quiet.idle_since, partition.quiet.idle_told, partition.taken_back = None, False, False
        position.deliver(batch.first_offset, batch.next_offset, len(cut.records))
        totals.batches += 1
        self._delivered.add(cut.size)
        totals.records += len(cut.records)
        totals.last_batch_at = wall = self._clock.wall()
        if cut.records:
            self._parts.meters.delivered(wall, cut.records[0].timestamp)
        consumed = self._parts.consumed.get(tp) or self._parts.consumed.setdefault(tp, Consumed())
        consumed.records += len(cut.records)
        consumed.batches += 1
        held, reason = partition.failure.held, "processor"
        began, cpu = self._clock.now(), self._clock.cpu()
        totals.batch_since = began
        try:
            callback, spans = server_of(partition).on_next_batch, self._parts.service.tracing.spans
            if spans is not None:
                callback = partial(spans.call, self._parts.service.consumer, callback=callback)
            outcome = await self._session.on_next_batch(callback, tp, batch, position.advanced)
        except BaseException as error:
            if self._session.loop_is_gone(error):
                raise
            reason = "error"
            self._parts.meters.failed(error)
            batch.records = records  # the processor may have put others there
            outcome = await self._failures.failed(partition, batch, error)
            partition.taken_back |= outcome.position < batch.next_offset  # it may have taken it on before it failed
            if partition.failure.held is not held:
                self._parts.meters.holds.add("record")
        else:
            partition.failure.attempts = 0
            partition.failure.last_error = None
        ended = self._clock.now()
        effort = self._clock.cpu() - cpu, ended - began
        self._parts.meters.batch_seconds.observe(effort[1])
        totals.batch_since = None
        if partition.place is Place.ABANDONED and not self._stopping.is_set():  # a reset did not wait for it
            self._schedule.take_untold(tp)
            lost = PartitionLostError(*tp, "given up while its call did not end; its answer counts no more")
            await self.tell(partition, lost)
        position.delivered = batch.next_offset
        self._outcomes.apply(partition, outcome, batch, cut, reason)
        return effort

    def wait_for_certainty(self, partition: Partition) -> None:
        """Retry soon: ownership is in doubt.

        A verification hurries the partition, but may have come just before this.
        """
        self._schedule.put_back(partition, self._clock.now() + DOUBT_RETRY)

    def _begin(self, partition: Partition, batch: Batch, cut: Cut) -> bool:
        """Write `begun`; False if the batch must not be delivered."""
        entry = Range(
            *partition.tp, batch.epoch, batch.first_offset, batch.next_offset, len(batch), partition.position.advanced
        )
        if self._parts.ledger_notes.begun(entry):
            return True
        partition.buffer.put_back(Chunk(cut.records, cut.next_offset, cut.size))
        self._schedule.put_back(partition, self._clock.now() + LEDGER_RETRY)
        return False

    # -- other callbacks ----------------------------------------------------------------------------------------------

    async def run_waiting(self, partition: Partition) -> None:
        """Run the callbacks that wait until the partition is with a worker."""
        while partition.callbacks:
            callback = partition.callbacks.popleft()
            function = getattr(callback, "func", callback)  # of a partial
            await self.guard(partition, getattr(function, "__name__", "callback"), callback)

    async def guard(self, partition: Partition, name: str, callback: Callable[[], object]) -> object:
        """Run a callback that may fail without effect: its error is logged.

        Returns its answer, None if it failed.
        """
        partition.totals.other_call = name, self._parts.clock.now()
        try:
            return await self._session.call(callback)
        except BaseException as error:
            if self._session.loop_is_gone(error):
                raise
            self._failed(partition, name, error)
            return None
        finally:
            partition.totals.other_call = None

    async def tell(self, partition: Partition, error: Exception) -> None:
        """Call on_exception, with an answer that decides nothing."""
        await self.guard(partition, "on_exception", lambda: server_of(partition).on_exception(partition.tp, error))

    async def answer(self, partition: Partition, name: str, callback: Callable[[], object]) -> Decision | None:
        """Run a callback, and return its BatchResponse's outcome; None: no response."""
        response = await self.guard(partition, name, callback)
        if response is None:
            return None
        advanced = partition.position.advanced
        floor = advanced if advanced is not None else partition.position.delivered
        try:
            return decide(
                partition.tp, response, committed=advanced, first=min(floor, partition.position.delivered),
                position=partition.position.delivered, callback=name,
            )  # fmt: skip
        except BadResponseError as error:
            self._failed(partition, name, error)
            return None

    def _failed(self, partition: Partition, name: str, error: BaseException) -> None:
        self._parts.meters.failed(error)
        partition.failure.last_error = describe(error)
        self._parts.journal.note(
            "callback-failed", f"{name} failed: {partition.failure.last_error}; the partition goes on", partition.tp,
            offset=partition.position.delivered, epoch=partition.fence.epoch, level=logging.ERROR,
        )  # fmt: skip
        log.debug("%s: where it failed", partition.tp, exc_info=error)
