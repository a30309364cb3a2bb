"""The working part of a channel: takes a partition that is due, serves it for one turn, puts it back.

Several threads run it at once, each with a partition of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from inbound.buffer import Chunk, Cut, record_size
from inbound.committer import Committer, Pending
from inbound.errors import LedgerError, OffsetOutOfRangeError, PartitionLostError
from inbound.failures import FailurePolicy, describe
from inbound.kafka.reader import Reader
from inbound.ledger.base import Range
from inbound.partition import Fate, Partition, Place
from inbound.parts import Parts, Totals
from inbound.processors.batch import Batch
from inbound.schedule import NEVER
from inbound.settle import Outcome, decide

log = logging.getLogger(__name__)

#: How long a partition rests when the ledger could not take its `begun`.
LEDGER_RETRY = 1.0
#: How soon a partition that is in doubt is looked at again.
DOUBT_RETRY = 1.0


class Worker:
    """Serves partitions: see `inbound.driver.Part`."""

    def __init__(self, parts: Parts, reader: Reader, committer: Committer, failures: FailurePolicy) -> None:
        self._parts = parts
        self._reader = reader
        self._committer = committer
        self._failures = failures
        #: The partition that is being served; None between turns. For status and for the log at a shutdown.
        self.serving: Partition | None = None
        self._cpu = self._elapsed = 0.0  # of this turn's on_next_batch, in seconds

    def run_once(self) -> float | None:
        """Serve one due partition for one turn: its callbacks, and at most one batch."""
        partition, due = self._parts.schedule.take_due(self)
        if partition is None:
            return due
        self.serving = partition
        self._cpu = self._elapsed = 0.0
        try:
            self._serve(partition)
        except Exception:
            # Not the processor (its errors are dealt with below): ours. The partition must not vanish with it.
            if partition.place is Place.RUNNING:
                partition.last_error = "internal error, see the log"
                partition.buffer.jump()  # what had been taken out of it is read again
                self._reader.jump(partition)
                self._parts.schedule.put_back(partition, self._parts.clock.now() + 1.0)
            raise
        finally:
            self.serving = None
            self._parts.schedule.end_turn(self, self._cpu, self._elapsed)
        return self._parts.clock.now()

    def _serve(self, partition: Partition) -> None:
        parts = self._parts
        if partition.fate is Fate.DROP:
            self._tell_lost(partition)
            return
        self._run_callbacks(partition)
        if partition.fate is Fate.RELEASE:
            self._terminate(partition)
        elif self._is_paused(partition):
            parts.schedule.put_back(partition, NEVER)
        elif partition.problem is not None and not partition.buffer:  # what was read before it comes first
            self._out_of_range(partition)
        elif partition.held is not None:
            parts.schedule.put_back(partition, NEVER)
        elif not (parts.zk.certain(partition.fence.session) and parts.pausing.allows()):
            self._wait_for_certainty(partition)
        elif parts.clock.now() < partition.rest_until:
            parts.schedule.put_back(partition, partition.rest_until)
        elif (cut := self._cut(partition)) is not None:
            self._hand_out(partition, cut)
        else:
            self._idle(partition)

    # -- batches -----------------------------------------------------------------------------------------------------

    def _cut(self, partition: Partition) -> Cut | None:
        settings = self._parts.config.reader
        max_records = 1 if partition.position < partition.isolate_until else settings.max_batch_records
        limit = min(partition.max_bytes or settings.batch_bytes, settings.max_batch_bytes)
        cut = partition.buffer.cut(max_records, limit)
        if cut is not None:
            partition.max_bytes = None
            if cut.size > settings.max_batch_bytes:
                log.warning(
                    "%s: the record at offset %d has %d bytes, more than max_batch_bytes (%d); it is delivered alone",
                    partition.tp, cut.records[0].offset, record_size(cut.records[0]), settings.max_batch_bytes,
                )  # fmt: skip
            self._parts.reader_wakeup.set()  # there is room again
        return cut

    def _hand_out(self, partition: Partition, cut: Cut) -> None:
        parts = self._parts
        tp = partition.tp
        batch = Batch(*tp, partition.position, cut.next_offset, cut.records, partition.fence.epoch)
        if not self._begin(partition, batch, cut):
            return
        partition.batch = batch
        # Right before the call, by this thread, by the clock: a flag that another thread sets would be stale when a
        # stopped process goes on after its session has expired.
        certain = parts.zk.certain(partition.fence.session) and parts.pausing.allows()
        if partition.fate is Fate.DROP or not certain:
            partition.buffer.put_back(Chunk(cut.records, cut.next_offset, cut.size))
            self._wait_for_certainty(partition)
            return
        partition.idle_since, partition.idle_told = None, False
        partition.batches_total += 1
        partition.records_total += len(cut.records)
        partition.last_batch_at = parts.clock.wall()
        totals = parts.totals.setdefault(tp, Totals())
        totals.records += len(cut.records)
        totals.batches += 1
        began, cpu = parts.clock.now(), time.thread_time()
        try:
            response = parts.processor.on_next_batch(batch)
            outcome = decide(
                tp, response, committed=partition.committed, first=batch.first_offset, position=batch.next_offset
            )
        except BaseException as error:
            outcome = self._failures.failed(partition, batch, error)
        else:
            partition.attempts = 0
            partition.last_error = None
        self._cpu, self._elapsed = time.thread_time() - cpu, parts.clock.now() - began
        partition.position = batch.next_offset
        self._apply(partition, outcome, batch, cut)

    def _wait_for_certainty(self, partition: Partition) -> None:
        """In doubt: look again soon. (It is hurried when verified, but that may have been just before this.)"""
        self._parts.schedule.put_back(partition, self._parts.clock.now() + DOUBT_RETRY)

    def _begin(self, partition: Partition, batch: Batch, cut: Cut) -> bool:
        """Write `begun`; False if the batch must not be handed out."""
        parts = self._parts
        entry = Range(*partition.tp, batch.epoch, batch.first_offset, batch.next_offset, len(batch))
        try:
            parts.ledger.begun(entry)
        except LedgerError as error:
            if parts.ledger_problem is None:
                log.error("%s: %s; %s", partition.tp, error, "going on" if parts.degrade else "nothing is handed out")
            parts.ledger_problem = str(error)
            if not parts.degrade:
                partition.buffer.put_back(Chunk(cut.records, cut.next_offset, cut.size))
                parts.schedule.put_back(partition, parts.clock.now() + LEDGER_RETRY)
                return False
            parts.not_provable = True
        else:
            parts.ledger_problem = None
        return True

    def _apply(self, partition: Partition, outcome: Outcome, batch: Batch | None, cut: Cut | None) -> None:
        """Carry an outcome out, and pass the partition on."""
        parts = self._parts
        if partition.place is Place.ABANDONED:
            parts.schedule.put_back(partition, NEVER)  # its callback has ended; the answer comes too late
            return
        self._move_to(partition, outcome, batch, cut)
        if outcome.max_bytes is not None:
            partition.max_bytes = outcome.max_bytes
        partition.rest_until = parts.clock.now() + outcome.wait if outcome.wait else 0.0
        self._note(partition, outcome)
        if outcome.commit is None:
            parts.schedule.put_back(partition, partition.rest_until or parts.clock.now())
        elif parts.schedule.to_committer(partition):
            self._committer.submit(Pending(partition, partition.fence, outcome.commit, batch))

    def _move_to(self, partition: Partition, outcome: Outcome, batch: Batch | None, cut: Cut | None) -> None:
        target = outcome.position
        if target == partition.position:
            return
        partition.position = target
        if batch is not None and cut is not None and batch.first_offset <= target < batch.next_offset:
            # Still in memory: hand it out again without asking Kafka.
            rest = [record for record in cut.records if record.offset >= target]
            if rest:
                partition.buffer.put_back(Chunk(rest, cut.next_offset, sum(map(record_size, rest))))
            else:
                partition.position = batch.next_offset  # only offsets without records are left of it
            return
        partition.isolate_until = 0
        partition.buffer.jump()
        partition.problem = None  # it was about the position before the jump
        self._reader.jump(partition)

    def _note(self, partition: Partition, outcome: Outcome) -> None:
        epoch = partition.fence.epoch
        if outcome.skipped is not None:
            low, high = outcome.skipped
            self._parts.note("skip", partition.tp, epoch, from_=low, to=high, reason="processor")
        elif outcome.reverted_from is not None:
            self._parts.note("revert", partition.tp, epoch, from_=outcome.reverted_from, to=outcome.position)

    # -- other turns -------------------------------------------------------------------------------------------------

    def _run_callbacks(self, partition: Partition) -> None:
        while partition.callbacks:
            callback = partition.callbacks.popleft()
            self._guard(partition, callback)

    def _guard(self, partition: Partition, callback: Callable[[], object]) -> object:
        """Run a callback whose failure changes nothing but must be seen. Returns its answer, None if it failed."""
        try:
            return callback()
        except BaseException as error:
            partition.last_error = describe(error)
            name = getattr(callback, "__name__", "callback")
            log.error("%s: %s failed: %s; the partition goes on", partition.tp, name, describe(error))
            log.debug("%s: where it failed", partition.tp, exc_info=True)
            return None

    def _answer(self, partition: Partition, callback: Callable[[], object]) -> Outcome | None:
        """Run a callback that may answer with a BatchResponse; None: it gave none, or none that can be used."""

        def ask() -> Outcome | None:
            response = callback()
            if response is None:
                return None
            floor = partition.committed if partition.committed is not None else partition.position
            return decide(
                partition.tp, response, committed=partition.committed, first=floor, position=partition.position,
                callback=getattr(callback, "__name__", "callback"),
            )  # fmt: skip

        ask.__name__ = getattr(callback, "__name__", "callback")
        outcome = self._guard(partition, ask)
        return outcome if isinstance(outcome, Outcome) else None

    def _is_paused(self, partition: Partition) -> bool:
        """Whether the channel is paused; the processor is told once when that begins and once when it ends."""
        parts = self._parts
        paused, since, now = parts.schedule.paused, partition.paused_since, parts.clock.now()
        if paused and since is None:
            partition.paused_since = now

            def on_pause() -> None:
                parts.processor.on_pause(partition.tp)

            self._guard(partition, on_pause)
        elif not paused and since is not None:
            partition.paused_since = None
            if partition.idle_since is not None:
                partition.idle_since += now - since  # nobody waited for records meanwhile

            def on_resume() -> None:
                parts.processor.on_resume(partition.tp)

            self._guard(partition, on_resume)
        return paused

    def _idle(self, partition: Partition) -> None:
        parts = self._parts
        now = parts.clock.now()
        if partition.idle_since is None:
            partition.idle_since = now
        if partition.idle_told:
            parts.schedule.await_records(partition, NEVER)
            return
        due = partition.idle_since + parts.config.idle_time
        if now < due:
            parts.schedule.await_records(partition, due)
            return
        partition.idle_told = True

        def on_idle() -> object:
            return parts.processor.on_idle(partition.tp)

        outcome = self._answer(partition, on_idle)
        if outcome is None:
            parts.schedule.await_records(partition, NEVER)
        else:
            self._apply(partition, outcome, None, None)

    def _terminate(self, partition: Partition) -> None:
        """Tell the processor that the partition goes, commit what it says, and pass it on for release."""
        parts = self._parts

        def on_stream_termination() -> object:
            return parts.processor.on_stream_termination(partition.tp, partition.position)

        outcome = self._answer(partition, on_stream_termination)
        if outcome is not None:
            self._note(partition, outcome)
        if outcome is None or outcome.commit is None:
            parts.schedule.give_up(partition)
        elif parts.schedule.to_committer(partition, last=True):
            self._committer.submit(Pending(partition, partition.fence, outcome.commit))

    def _tell_lost(self, partition: Partition) -> None:
        parts = self._parts
        self._run_callbacks(partition)  # a commit that landed before is told all the same
        error = PartitionLostError(*partition.tp, f"lost: {partition.why_lost}")

        def on_exception() -> object:
            return parts.processor.on_exception(partition.tp, error)

        self._guard(partition, on_exception)
        parts.note("lost", partition.tp, partition.fence.epoch)
        parts.schedule.leave(partition)
        parts.evaluate()

    def _out_of_range(self, partition: Partition) -> None:
        error = partition.problem
        assert isinstance(error, OffsetOutOfRangeError), error
        parts = self._parts

        def on_exception() -> object:
            return parts.processor.on_exception(partition.tp, error)

        self._guard(partition, on_exception)  # an offset in its answer is ignored: the log decides
        target = self._failures.out_of_range(partition, error)
        if target is None:
            partition.problem = None
            parts.schedule.put_back(partition, NEVER)
            return
        partition.position = target
        partition.isolate_until = 0
        partition.committed = min(partition.committed, target) if partition.committed is not None else None
        partition.buffer.jump()
        self._reader.jump(partition)
        # Not earlier: the reader would go on at the old position meanwhile, and find the same problem again.
        partition.problem = None
        parts.schedule.await_records(partition, NEVER)
