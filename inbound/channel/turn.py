"""One turn of a partition: its callbacks and at most one batch, from being taken to being passed on.

Written as coroutines, once for both kinds of processors. Where callbacks are plain functions nothing in a turn ever
waits, and a worker's thread runs it from beginning to end (`inbound.channel.worker`). Where they are coroutines, an event loop
has many turns under way at once (`inbound.channel.async_worker`). Between two awaits nobody else touches the partition: it is
running, and this turn has it.
"""

from __future__ import annotations

import logging
import time
from inspect import isawaitable

from inbound.channel.answer import decide
from inbound.channel.buffer import Chunk, Cut, record_size
from inbound.channel.callbacks import Callbacks
from inbound.channel.failure_policy import FailurePolicy
from inbound.channel.out_of_range import OutOfRange, Problem, due_problem
from inbound.channel.outcome import Outcomes, server_of
from inbound.channel.partition import Fate, Partition, Place
from inbound.channel.parts import Parts, Totals
from inbound.channel.reader import Reader
from inbound.channel.schedule import NEVER
from inbound.errors import BadResponseError, LedgerError, PartitionLostError
from inbound.ledger.base import Range
from inbound.processors.batch import Batch, is_offset

log = logging.getLogger(__name__)

#: How long a partition rests when the ledger could not take its `begun`.
LEDGER_RETRY = 1.0
#: How soon a partition that is in doubt is looked at again.
DOUBT_RETRY = 1.0
#: What a turn without a batch took of on_next_batch.
NO_EFFORT = (0.0, 0.0)


class Turns:
    """Serves partitions. Knows nothing of a single turn, so any number of them may be under way."""

    def __init__(self, parts: Parts, reader: Reader, failures: FailurePolicy) -> None:
        self._parts = parts
        self._reader = reader
        self._failures = failures
        self._callbacks = Callbacks(parts)
        self._outcomes = Outcomes(parts, reader)
        self._out_of_range = OutOfRange(parts, reader, failures)
        self._asynchronous = parts.asynchronous
        self._gives_starts = parts.gives_starts
        self._has_room = parts.has_room

    async def serve(self, partition: Partition) -> tuple[float, float]:
        """Serve a partition that was taken, for one turn, and pass it on.

        Returns:
            CPU seconds of this thread, and seconds passed, inside on_next_batch.
        """
        parts = self._parts
        room: int | None = None
        landed = partition.window.landed_order
        if partition.served_by is None:
            partition.served_by = parts.processor
        if partition.fate is Fate.DROP:
            if not partition.window.settled:  # each commit is refused, or has landed: that is told before
                parts.schedule.settle(partition)
                return NO_EFFORT
            await self._tell_lost(partition)
            return NO_EFFORT
        if partition.callbacks:
            await self._callbacks.run_waiting(partition)
        if partition.finished is not None:
            self._note_finished(partition)
        if partition.fate is Fate.RELEASE:
            if partition.window.settled:
                await self._terminate(partition)
            else:
                parts.schedule.settle(partition)
        elif partition.served_by is not parts.processor and not await self._hand_over(partition):
            pass  # it comes back when what the one before wants committed is
        elif partition.unclear is not None:
            if partition.held is None:
                self._failures.hold_unclear(partition, partition.unclear)
                parts.meters.holds.add("topic")
            parts.schedule.put_back(partition, NEVER)
        elif partition.deferred is not None and partition.commit_due <= parts.clock.now():
            self._commit_deferred(partition)
        elif (parts.schedule.paused or partition.paused_since is not None) and await self._is_paused(partition):
            parts.schedule.put_back(partition, NEVER)
        elif (problem := due_problem(partition)) is not None:
            await self._face_problem(partition, problem)
        elif partition.held is not None:
            parts.schedule.put_back(partition, NEVER)
        elif not (parts.zk.certain(partition.fence.session) and parts.pausing.allows()):
            self._wait_for_certainty(partition)
        elif parts.clock.now() < partition.rest_until:
            parts.schedule.put_back(partition, partition.rest_until)
        elif self._gives_starts and not partition.placed:
            await self._place(partition)
        elif partition.buffer and not partition.window.is_open(limit := self._outcomes.limit(partition)):
            parts.schedule.settle(partition, within=limit)
        elif self._has_room and partition.buffer and (room := self._room(partition)) == 0:
            if partition.rest_until > parts.clock.now():  # it failed
                parts.schedule.put_back(partition, partition.rest_until)
            else:
                parts.schedule.await_commit(partition, landed)  # news of the reader make it due, too
        elif (cut := self._cut(partition, room)) is not None:
            return await self._hand_out(partition, cut)
        else:
            await self._idle(partition)
        return NO_EFFORT

    def rescue(self, partition: Partition) -> None:
        """Pass a partition on whose turn has raised, or was cancelled: it must not vanish with the turn."""
        if partition.place is Place.RUNNING:
            partition.last_error = "internal error, see the log"
            partition.buffer.jump()  # what had been taken out of it is read again
            self._reader.jump(partition)
        if partition.place in (Place.RUNNING, Place.ABANDONED):
            self._parts.schedule.put_back(partition, self._parts.clock.now() + 1.0)

    async def _hand_over(self, partition: Partition) -> bool:
        """Let the channel's processor of now serve the partition. Returns False if the turn has passed it on for that.

        The one before hears what it would hear at a release, and what it does not have committed then is read again.
        """
        parts = self._parts
        if not partition.window.settled:
            parts.schedule.settle(partition)
            return False
        if not partition.handing_over and self._has_begun(partition):
            commit = await self._last_commit(partition)
            partition.handing_over = True
            if partition.place is Place.ABANDONED or partition.fate is not Fate.KEEP:
                if commit is not None:
                    partition.defer_commit(commit, parts.clock.now())
                parts.schedule.put_back(partition, parts.clock.now())
                return False
            if commit is not None:
                self._outcomes.commit(partition, commit)
                parts.schedule.settle(partition)
                return False
        partition.handing_over = False
        partition.served_by = parts.processor
        self._begin_anew(partition)
        return True

    def _begin_anew(self, partition: Partition) -> None:
        """Forget what the processor before had to do with a partition, and read on from the commit."""
        partition.placed = False
        partition.attempts, partition.isolate_until, partition.rest_until = 0, 0, 0.0
        partition.held = partition.held_cause = partition.last_error = None
        partition.idle_since, partition.idle_told = None, False
        partition.paused_since = None  # the new one is told, too
        partition.take_deferred()
        self._parts.schedule.void_handle(partition)  # what the one before finishes from now on is read again
        if partition.committed is not None and partition.position != partition.committed:
            self._parts.note(
                "revert", partition.tp, partition.fence.epoch, from_=partition.position, to=partition.committed,
                reason="successor",
            )  # fmt: skip
        if self._gives_starts:  # it is asked next, and says where to begin
            partition.reopened = True
            partition.buffer.jump()
            partition.problem = None
        elif partition.committed is not None and partition.position != partition.committed:
            partition.position = partition.committed
            partition.window.go_back(partition.position)
            partition.buffer.jump()
            partition.problem = None
            self._reader.jump(partition)

    # -- batches -----------------------------------------------------------------------------------------------------

    def _room(self, partition: Partition) -> int | None:
        committed = partition.committed if partition.committed is not None else partition.position
        try:
            room: object = server_of(partition).room(partition.tp, committed)
            if room is not None and (type(room) is not int or room < 0):
                raise BadResponseError(
                    f"{partition.tp}: room returned {room!r}; return how many records the next batch may have, or None"
                )
        except GeneratorExit:
            raise
        except BaseException as error:
            self._parts.meters.failed(error)
            partition.rest_until = self._failures.room_failed(partition, error)
            return 0
        partition.no_room = room == 0
        return room

    def _note_finished(self, partition: Partition) -> None:
        """What the processor finished after it had answered is to be committed now, also when the partition rests."""
        offset = self._parts.schedule.take_finished(partition)
        if offset is not None and offset <= partition.position:  # else reading was moved back since
            partition.defer_commit(offset, self._parts.clock.now())

    def _cut(self, partition: Partition, room: int | None) -> Cut | None:
        settings = self._parts.config.reader
        max_records = 1 if partition.position < partition.isolate_until else settings.max_batch_records
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
            if self._reader.some_paused:
                self._parts.schedule.read_soon()  # there is room again
        return cut

    async def _hand_out(self, partition: Partition, cut: Cut) -> tuple[float, float]:
        parts = self._parts
        tp, records = partition.tp, cut.records
        if type(records) is list:  # what a processor takes out of one would be lost
            records = tuple(records)
        batch = Batch(*tp, partition.position, cut.next_offset, records, partition.fence.epoch, claim=partition.handle)
        if not self._begin(partition, batch, cut):
            return NO_EFFORT
        partition.batch = batch
        # Right before the call, by this thread, by the clock: a flag that another thread sets would be stale when a
        # stopped process goes on after its session has expired.
        certain = parts.zk.certain(partition.fence.session) and parts.pausing.allows()
        if partition.fate is Fate.DROP or not certain:
            partition.buffer.put_back(Chunk(cut.records, cut.next_offset, cut.size))
            parts.note(
                "withheld", tp, batch.epoch, first=batch.first_offset, next=batch.next_offset, records=len(cut.records)
            )
            self._wait_for_certainty(partition)
            return NO_EFFORT
        partition.idle_since, partition.idle_told = None, False
        partition.window.hand_out(batch.first_offset, batch.next_offset, len(cut.records))
        partition.batches_total += 1
        partition.records_total += len(cut.records)
        partition.last_batch_at = wall = parts.clock.wall()
        if cut.records:
            parts.meters.handed_over(wall, cut.records[0].timestamp)
        totals = parts.totals.get(tp) or parts.totals.setdefault(tp, Totals())
        totals.records += len(cut.records)
        totals.batches += 1
        held, reason = partition.held, "processor"
        began, cpu = parts.clock.now(), time.thread_time()
        partition.batch_since = began
        try:
            callback, spans = server_of(partition).on_next_batch, parts.tracing.spans
            response: object = callback(batch) if spans is None else spans.call(parts.consumer, batch, callback)
            if self._asynchronous and isawaitable(response):
                response = await response
            outcome = decide(
                tp, response, committed=partition.window.advanced, first=batch.first_offset, position=batch.next_offset
            )
        except GeneratorExit:
            raise  # the loop itself is gone
        except BaseException as error:
            reason = "error"
            parts.meters.failed(error)
            batch.records = records  # the processor may have put others there
            outcome = await self._failures.failed(partition, batch, error)
            if partition.held is not held:
                parts.meters.holds.add("record")
        else:
            partition.attempts = 0
            partition.last_error = None
        ended = parts.clock.now()
        effort = time.thread_time() - cpu, ended - began
        parts.meters.batch_seconds.observe(effort[1])
        partition.batch_since = None
        if partition.place is Place.ABANDONED and not parts.stopping.is_set():  # a reset did not wait for it
            lost = PartitionLostError(*tp, "given up while its call did not end; its answer counts no more")
            await self._callbacks.guard(partition, "on_exception", lambda: server_of(partition).on_exception(tp, lost))
        partition.position = batch.next_offset
        self._outcomes.apply(partition, outcome, batch, cut, reason)
        return effort

    def _wait_for_certainty(self, partition: Partition) -> None:
        """In doubt: look again soon. (It is hurried when verified, but that may have been just before this.)"""
        self._parts.schedule.put_back(partition, self._parts.clock.now() + DOUBT_RETRY)

    def _begin(self, partition: Partition, batch: Batch, cut: Cut) -> bool:
        """Write `begun`; False if the batch must not be handed out."""
        parts = self._parts
        entry = Range(
            *partition.tp, batch.epoch, batch.first_offset, batch.next_offset, len(batch), partition.window.advanced
        )
        try:
            parts.ledger.begun(entry)
        except LedgerError as error:
            parts.ledger_trouble(error, "going on" if parts.degrade else "nothing is handed out")
            if not parts.degrade:
                partition.buffer.put_back(Chunk(cut.records, cut.next_offset, cut.size))
                parts.schedule.put_back(partition, parts.clock.now() + LEDGER_RETRY)
                return False
            parts.unrecorded(partition.tp, batch.epoch)
        else:
            parts.recorded()
        return True

    def _commit_deferred(self, partition: Partition) -> None:
        """Commit what `next` with `commit_within` left uncommitted: its time has come."""
        offset = partition.take_deferred()
        if offset is not None:
            self._outcomes.commit(partition, offset)
        self._parts.schedule.put_back(partition, self._parts.clock.now())

    # -- other turns -------------------------------------------------------------------------------------------------

    async def _place(self, partition: Partition) -> None:
        """Ask the processor where this claim begins. The reader holds its answer against the log, and goes on there."""
        parts = self._parts
        partition.other_call = "on_claim", parts.clock.now()
        try:
            answer: object = server_of(partition).on_claim(partition.tp, partition.committed)
            if self._asynchronous and isawaitable(answer):
                answer = await answer
            if answer is not None and not is_offset(answer):
                raise BadResponseError(
                    f"{partition.tp}: on_claim returned {answer!r}; return the offset to read first, an integer of at "
                    "least 0, or None to go on at the group's commit"
                )
        except GeneratorExit:
            raise
        except BaseException as error:
            parts.meters.failed(error)
            partition.rest_until = self._failures.claim_failed(partition, error)
            if partition.held is not None:
                parts.meters.holds.add("on_claim")
            parts.schedule.put_back(partition, partition.rest_until)
            return
        finally:
            partition.other_call = None
        partition.attempts, partition.last_error = 0, None
        if parts.schedule.to_reader(partition):
            partition.given_start, partition.placed = answer, True
            self._reader.open(partition)

    async def _is_paused(self, partition: Partition) -> bool:
        """Whether the channel is paused; the processor is told once when that begins and once when it ends."""
        parts = self._parts
        paused, since, now = parts.schedule.paused, partition.paused_since, parts.clock.now()
        if paused and since is None:
            partition.paused_since = now
            await self._callbacks.guard(partition, "on_pause", lambda: server_of(partition).on_pause(partition.tp))
        elif not paused and since is not None:
            partition.paused_since = None
            if partition.idle_since is not None:
                partition.idle_since += now - since  # nobody waited for records meanwhile
            await self._callbacks.guard(partition, "on_resume", lambda: server_of(partition).on_resume(partition.tp))
        return paused

    async def _idle(self, partition: Partition) -> None:
        parts = self._parts
        now = parts.clock.now()
        if partition.idle_since is None:
            partition.idle_since = now
        if partition.idle_told or not self._has_begun(partition):
            parts.schedule.await_records(partition, NEVER)
            return
        due = partition.idle_since + parts.config.idle_time
        if now < due:
            parts.schedule.await_records(partition, due)
            return
        partition.idle_told = True
        outcome = await self._callbacks.answer(partition, "on_idle", lambda: server_of(partition).on_idle(partition.tp))
        if outcome is None:
            parts.schedule.await_records(partition, NEVER)
        else:
            self._outcomes.apply(partition, outcome, None, None)

    async def _terminate(self, partition: Partition) -> None:
        """Tell the processor that the partition goes, commit what it says, and pass it on for release."""
        parts = self._parts
        if not self._has_begun(partition):
            parts.schedule.give_up(partition)
            return
        # Who was told that it goes, to another processor, is not told again.
        commit = partition.take_deferred() if partition.handing_over else await self._last_commit(partition)
        if commit is None:
            parts.schedule.give_up(partition)
        else:
            self._outcomes.commit(partition, commit)
            parts.schedule.settle(partition, last=True)

    def _has_begun(self, partition: Partition) -> bool:
        """Whether a batch can have been handed out: not before the log has been found to hold what on_claim gave.

        Before, the position is where nothing leads to: an answer about it would commit what nobody was handed.
        """
        return not self._gives_starts or (partition.placed and partition.given_start is None)

    async def _last_commit(self, partition: Partition) -> int | None:
        """Tell the processor that the partition goes. Returns what is to be committed now; None: nothing.

        1. The turn finds no callback that waits; 2. the last commit lands; 3. the turn finds that all has settled. The
        processor is told of that commit first.
        """
        await self._callbacks.run_waiting(partition)
        outcome = await self._callbacks.answer(
            partition,
            "on_stream_termination",
            lambda: server_of(partition).on_stream_termination(partition.tp, partition.position),
        )
        commit = partition.take_deferred()
        if outcome is None:
            return commit
        self._outcomes.note(partition, outcome)
        return outcome.commit

    async def _tell_lost(self, partition: Partition) -> None:
        parts = self._parts
        await self._callbacks.run_waiting(partition)  # a commit that landed before is told all the same
        error = PartitionLostError(*partition.tp, f"lost: {partition.why_lost}")
        await self._callbacks.guard(
            partition, "on_exception", lambda: server_of(partition).on_exception(partition.tp, error)
        )
        parts.note("lost", partition.tp, partition.fence.epoch)
        parts.schedule.leave(partition)
        parts.evaluate()

    async def _face_problem(self, partition: Partition, error: Problem) -> None:
        # An offset in its answer is ignored: the log decides.
        await self._callbacks.guard(
            partition, "on_exception", lambda: server_of(partition).on_exception(partition.tp, error)
        )
        self._out_of_range.face(partition, error)
