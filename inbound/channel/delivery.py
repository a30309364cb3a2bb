"""Delivers one batch of a partition to its processor: cuts it, writes `begun`, calls on_next_batch, passes the answer on.

What a turn does besides, and when it comes to this, is decided in `inbound.channel.turn`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from inspect import isawaitable, iscoroutine

from inbound.channel.answer import decide
from inbound.channel.books import Books
from inbound.channel.buffer import Chunk, Cut, record_size
from inbound.channel.callbacks import Callbacks
from inbound.channel.failure_policy import FailurePolicy, loop_is_gone
from inbound.channel.leader import NO_EFFORT
from inbound.channel.outcome import Outcomes, server_of
from inbound.channel.partition import Fate, Partition, Place
from inbound.channel.reader import Reader
from inbound.channel.schedule import Schedule
from inbound.channel.service import Service
from inbound.channel.settings import Settings
from inbound.clock import Clock
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.errors import BadResponseError, LedgerError, PartitionLostError
from inbound.interpreter import HandedOut
from inbound.journal import Journal
from inbound.ledger.base import Range
from inbound.meters import Meters
from inbound.pausing import Pausing
from inbound.processors.batch import Batch
from inbound.topic_partition import TopicPartition

#: How long a partition rests when the ledger could not take its `begun`.
LEDGER_RETRY = 1.0
#: How soon a partition that is in doubt is looked at again.
DOUBT_RETRY = 1.0


@dataclass(slots=True)
class Consumed:
    """What one partition amounted to in this process, over all the times that it was held."""

    records: int = 0
    batches: int = 0


class Delivery:
    """Delivers batches of running partitions. Called by the turn that has the partition."""

    def __init__(
        self, *, settings: Settings, clock: Clock, zk: ZooKeeper, journal: Journal, meters: Meters, books: Books,
        service: Service, schedule: Schedule, pausing: Pausing, consumed: dict[TopicPartition, Consumed], reader: Reader,
        failures: FailurePolicy, callbacks: Callbacks, outcomes: Outcomes,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._clock = clock
        self._zk = zk
        self._journal = journal
        self._meters = meters
        self._books = books
        self._service = service
        self._schedule = schedule
        self._pausing = pausing
        self._consumed = consumed
        self._reader = reader
        self._failures = failures
        self._callbacks = callbacks
        self._outcomes = outcomes
        self._handed_out = HandedOut()
        self._asynchronous = service.asynchronous

    def room(self, partition: Partition) -> int | None:
        """Ask the processor how many records it takes now; None: any number. 0 also where that fails, and it rests then."""
        committed = partition.committed if partition.committed is not None else partition.position.delivered
        try:
            room: object = server_of(partition).room(partition.tp, committed)
            if iscoroutine(room):
                room.close()
                raise BadResponseError(f"{partition.tp}: room is a coroutine, which nobody waits for; write `def room`")
            if room is not None and (type(room) is not int or room < 0):
                raise BadResponseError(
                    f"{partition.tp}: room returned {room!r}; return how many records the next batch may have, or None"
                )
        except BaseException as error:  # nothing is awaited here: all of it is the processor's
            self._meters.failed(error)
            partition.rest_until = self._failures.room_failed(partition, error)
            return 0
        if room == 0 and partition.taken_back:
            # 1. All the room is taken; 2. the log is cut below that, or the batch fails, and what is finished of it from then on
            # is void; 3. no commit of it can land, so without a batch that says where reading goes on there is never room.
            room = 1
        partition.failure.room_attempts, partition.no_room = 0, room == 0
        return room

    def note_finished(self, partition: Partition) -> None:
        """What the processor finished after it had answered is to be committed now, also when the partition rests."""
        offset = self._schedule.take_finished(partition)
        if offset is not None:
            partition.position.defer_commit(min(offset, partition.position.delivered), self._clock.now())

    def cut(self, partition: Partition, room: int | None) -> Cut | None:
        """Take the next batch out of the buffer, of at most `room` records; None: nothing is there."""
        settings = self._settings.now.reader
        isolated = partition.position.delivered < partition.failure.isolate_until
        max_records = 1 if isolated else settings.max_batch_records
        if room is not None:
            max_records = min(max_records, room)
        limit = min(partition.max_bytes or settings.batch_bytes, settings.max_batch_bytes)
        cut = partition.buffer.cut(max_records, limit)
        if cut is not None:
            partition.max_bytes = None
            if cut.size > settings.max_batch_bytes:
                self._journal.note(
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
        certain = self._zk.certain(partition.fence.session) and self._pausing.allows()
        if partition.fate is Fate.DROP or not certain:
            partition.buffer.put_back(Chunk(cut.records, cut.next_offset, cut.size))
            self._books.note(
                "withheld", tp, batch.epoch, first=batch.first_offset, next=batch.next_offset, records=len(cut.records)
            )
            self.wait_for_certainty(partition)
            return NO_EFFORT
        partition.quiet.idle_since, partition.quiet.idle_told, partition.taken_back = None, False, False
        position.hand_out(batch.first_offset, batch.next_offset, len(cut.records))
        totals.batches += 1
        self._handed_out.add(cut.size)
        totals.records += len(cut.records)
        totals.last_batch_at = wall = self._clock.wall()
        if cut.records:
            self._meters.handed_over(wall, cut.records[0].timestamp)
        consumed = self._consumed.get(tp) or self._consumed.setdefault(tp, Consumed())
        consumed.records += len(cut.records)
        consumed.batches += 1
        held, reason = partition.failure.held, "processor"
        began, cpu = self._clock.now(), self._clock.cpu()
        totals.batch_since = began
        try:
            callback, spans = server_of(partition).on_next_batch, self._service.tracing.spans
            response: object = callback(batch) if spans is None else spans.call(self._service.consumer, batch, callback)
            if self._asynchronous and isawaitable(response):
                response = await response
            outcome = decide(
                tp, response, committed=position.advanced, first=batch.first_offset, position=batch.next_offset
            )
        except BaseException as error:
            if loop_is_gone(error, self._asynchronous):
                raise
            reason = "error"
            self._meters.failed(error)
            batch.records = records  # the processor may have put others there
            outcome = await self._failures.failed(partition, batch, error)
            partition.taken_back |= outcome.position < batch.next_offset  # it may have taken it on before it failed
            if partition.failure.held is not held:
                self._meters.holds.add("record")
        else:
            partition.failure.attempts = 0
            partition.failure.last_error = None
        ended = self._clock.now()
        effort = self._clock.cpu() - cpu, ended - began
        self._meters.batch_seconds.observe(effort[1])
        totals.batch_since = None
        if partition.place is Place.ABANDONED and not self._service.stopping.is_set():  # a reset did not wait for it
            self._schedule.take_untold(tp)
            lost = PartitionLostError(*tp, "given up while its call did not end; its answer counts no more")
            await self._callbacks.guard(partition, "on_exception", lambda: server_of(partition).on_exception(tp, lost))
        position.delivered = batch.next_offset
        self._outcomes.apply(partition, outcome, batch, cut, reason)
        return effort

    def wait_for_certainty(self, partition: Partition) -> None:
        """In doubt: look again soon. (It is hurried when verified, but that may have been just before this.)"""
        self._schedule.put_back(partition, self._clock.now() + DOUBT_RETRY)

    def _begin(self, partition: Partition, batch: Batch, cut: Cut) -> bool:
        """Write `begun`; False if the batch must not be handed out."""
        entry = Range(
            *partition.tp, batch.epoch, batch.first_offset, batch.next_offset, len(batch), partition.position.advanced
        )
        try:
            self._books.ledger.begun(entry)
        except LedgerError as error:
            self._books.trouble(error, "going on" if self._books.degrade else "nothing is handed out")
            if not self._books.degrade:
                partition.buffer.put_back(Chunk(cut.records, cut.next_offset, cut.size))
                self._schedule.put_back(partition, self._clock.now() + LEDGER_RETRY)
                return False
            self._books.unrecorded(partition.tp, batch.epoch)
        else:
            self._books.recorded()
        return True
