"""One attempt at one unit: delivers batches and writes marks.

One loop replaces a channel's reader, worker and committer: the partition has no other owner, and a mark takes the place of
the commit. The meaning of answers (`decide`), the failure policy and the cut of batches are the channel's own.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from inbound.channel.failure_policy import DeadLetters, FailurePolicy
from inbound.channel.processor_session import ProcessorSession
from inbound.channel.response import Decision, decide
from inbound.clock import Clock
from inbound.config import ChannelConfig
from inbound.coordinators.ownership import Fence
from inbound.errors import BadResponseError
from inbound.ledger.base import Done, Ledger, Range
from inbound.partition.buffer import Chunk, Cut
from inbound.partition.journal import Journal
from inbound.partition.partition import Partition
from inbound.partition.position import Position
from inbound.partition.service import Settings
from inbound.processors.base import BatchEventProcessor, gives_starts, has_room, is_async
from inbound.processors.batch import Batch
from inbound.runtime.text import describe
from inbound.spark.replay.feed import UnitRecords, after
from inbound.spark.replay.plan import Unit
from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)

_ALL = 2**62


@dataclass(eq=False)
class ReplayParts:
    """The parts of an attempt; its failure policy's `Served` and `Notes`, too."""

    clock: Clock
    config: ChannelConfig
    processor: BatchEventProcessor
    ledger: Ledger
    journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        self.journal = Journal("replay", self.config.group, self.clock.wall)

    @property
    def asynchronous(self) -> bool:
        return is_async(type(self.processor))

    def note(self, kind: str, tp: TopicPartition, epoch: int, **facts: Any) -> None:
        """Record an event, or raise LedgerError, which ends the attempt."""
        self.ledger.note(kind, **tp._asdict(), epoch=epoch, **facts)


class Waker:
    """Wakes the attempt when the processor finishes records. `set`: any thread."""

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop | None) -> None:
        self._clock = clock
        self._loop = loop
        self._woken = threading.Event()
        self._woken_async = asyncio.Event()

    def set(self) -> None:
        self._woken.set()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken_async.set)

    async def wait(self, seconds: float | None) -> None:
        """Wait until woken, at most `seconds`; coroutines go on."""
        if self._loop is None:
            self._clock.wait(self._woken, seconds)
        else:
            try:
                await asyncio.wait_for(self._woken_async.wait(), seconds)
            except TimeoutError:
                pass
        self._woken.clear()
        self._woken_async.clear()


class UnitRun:
    """Replays the rest of one unit; `run` once, by one thread."""

    def __init__(
        self,
        parts: ReplayParts,
        unit: Unit,
        start: int,
        attempt: int,
        source: UnitRecords,
        dead_letters: DeadLetters | None = None,
        reading: Executor | None = None,
    ) -> None:
        """`start` is the mark; `reading` reads records where callbacks are coroutines."""
        self._parts = parts
        self._clock, self._processor, self._ledger = parts.clock, parts.processor, parts.ledger
        self._unit = unit
        self._source = source
        self._reading = reading
        self._session = ProcessorSession(asynchronous=parts.asynchronous)
        self._failures = FailurePolicy(
            settings=Settings(parts.config), clock=parts.clock, session=self._session, service=parts, ledger_notes=parts,
            journal=parts.journal, dead_letters=dead_letters,
        )  # fmt: skip
        self._has_room = has_room(type(parts.processor))
        self._tells_processed = type(parts.processor).on_batch_processed is not BatchEventProcessor.on_batch_processed
        loop = asyncio.get_running_loop() if self._session.asynchronous else None
        self._waker = Waker(parts.clock, loop)
        self._partition = Partition(unit.tp, Fence(attempt, 0), Position(start, delivered=start))
        self._ended = False  # all records are read
        self._handed = start  # the end of the last batch
        #: Delivered records since the mark, oldest first: a revert needs no Kafka.
        self._kept: deque[tuple[int, Chunk]] = deque()  # each with its batch's first offset
        self._kept_bytes = 0
        self._lock = threading.Lock()

    @property
    def mark(self) -> int:
        """Return the first offset that is not done."""
        committed = self._partition.committed
        return self._unit.first if committed is None else committed

    def advance(self, batch: Batch, offset: int) -> None:
        """Finish a batch's records, for `Context.advance`. Any thread."""
        if batch.claim is self._partition:
            with self._lock:
                self._partition.position.finished = max(offset, self._partition.position.finished or 0)
            self._waker.set()

    async def run(self) -> str | None:
        """Deliver the unit; return why the partition is held, if so.

        Raises:
            LedgerError: a mark cannot be written.
            BrokerUnavailableError: reverted records cannot be read again.
        """
        partition = self._partition
        await self._place()
        while partition.failure.held is None:
            wait = self._due()
            if wait != 0.0:
                await self._waker.wait(wait)
                continue
            if not await self._fill():
                if not (self._has_room and self.mark < partition.position.delivered and await self._finishing()):
                    break
                continue
            room = self._session.room(self._processor, partition.tp, self.mark) if self._has_room else None
            if room == 0:
                if partition.position.finished is None:
                    await self._waker.wait(self._until_commit())
                continue
            cut = self._cut(room)
            if cut is not None:
                await self._deliver(cut)
        await self._terminate()
        return partition.failure.held

    # -- before a batch ------------------------------------------------------------------------------------------------

    async def _place(self) -> None:
        """Skip to the processor's own offset, within mark and end."""
        partition = self._partition
        while gives_starts(type(self._processor)) and not partition.position.placed and partition.failure.held is None:
            try:
                offset = await self._session.on_claim(self._processor, partition.tp, self.mark)
            except (GeneratorExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                due = self._failures.claim_failed(partition, error)
                if partition.failure.held is None:
                    await self._waker.wait(due - self._clock.now())
                continue
            partition.position.placed, partition.failure.attempts = True, 0
            if offset is not None and offset > self.mark:
                target = min(offset, self._unit.next)
                self._note("skip", from_=self.mark, to=target, reason="on_claim")
                await self._commit(target, None)
                partition.position.delivered = self._handed = target
                self._source.jump(target)

    def _due(self) -> float:
        """Write the marks that are due; return the partition's backoff, in seconds."""
        partition, now = self._partition, self._clock.now()
        self._take_finished(now)
        if partition.position.deferred is not None and partition.position.commit_due <= now:
            offset = partition.position.take_deferred()
            if offset is not None:
                self._mark(offset, partition.position.delivered)
        if now < partition.rest_until:
            return min(partition.rest_until, partition.position.commit_due) - now
        return 0.0

    def _take_finished(self, due: float) -> None:
        """Defer the commit of finished records to `due`."""
        position = self._partition.position
        with self._lock:
            finished, position.finished = position.finished, None
        if finished is not None and finished <= position.delivered:
            position.defer_commit(finished, due)

    def _until_commit(self) -> float | None:
        due = self._partition.position.commit_due
        return None if due == float("inf") else max(0.0, due - self._clock.now())

    async def _finishing(self) -> bool:
        """Wait for finished records; False: there are none within `idle_time`."""
        until_commit = self._until_commit()
        if self._partition.position.finished is None:
            await self._waker.wait(self._parts.config.idle_time if until_commit is None else until_commit)
        return self._partition.position.finished is not None or until_commit is not None

    async def _fill(self) -> bool:
        """Read a batch's worth into memory; False: nothing is left."""
        settings, buffer = self._parts.config.reader, self._partition.buffer
        while not self._ended and (buffer.records < settings.max_batch_records and buffer.size < settings.batch_bytes):
            if self._reading is None:
                chunk = self._source.next_chunk()
            else:
                chunk = await asyncio.get_running_loop().run_in_executor(self._reading, self._source.next_chunk)
            if chunk is None:
                self._ended = True
            else:
                buffer.add(chunk, buffer.generation)
        return bool(buffer)

    def _cut(self, room: int | None) -> Cut | None:
        partition, settings = self._partition, self._parts.config.reader
        records = 1 if partition.position.delivered < partition.failure.isolate_until else settings.max_batch_records
        if room is not None:
            records = min(records, room)
        limit = min(partition.max_bytes or settings.batch_bytes, settings.max_batch_bytes)
        partition.max_bytes = None
        return partition.buffer.cut(records, limit)

    # -- a batch -------------------------------------------------------------------------------------------------------

    async def _deliver(self, cut: Cut) -> None:
        partition, parts, records = self._partition, self._parts, tuple(cut.records)
        batch = Batch(
            *partition.tp,
            partition.position.delivered,
            cut.next_offset,
            records,
            partition.fence.epoch,
            claim=partition,
        )
        parts.ledger.begun(Range(*partition.tp, batch.epoch, batch.first_offset, batch.next_offset, len(batch)))
        self._keep(batch.first_offset, Chunk(cut.records, cut.next_offset, cut.size))
        try:
            outcome = await self._session.on_next_batch(
                parts.processor.on_next_batch, partition.tp, batch, partition.committed
            )
            if outcome.position < self._unit.first:
                raise BadResponseError(
                    f"{partition.tp}: the answer goes back to offset {outcome.position}, before the replay, which begins at "
                    f"{self._unit.first}; begin the replay there (--from-offset {outcome.position})"
                )
        except (GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            batch.records = records  # the processor may have put others there
            outcome = await self._failures.failed(partition, batch, error)
        else:
            partition.failure.attempts, partition.failure.last_error = 0, None
        partition.position.delivered = self._handed = batch.next_offset
        await self._apply(outcome, batch)

    async def _apply(self, outcome: Decision, batch: Batch) -> None:
        partition, now = self._partition, self._clock.now()
        self._tell(outcome)
        self._move_to(max(self._unit.first, min(outcome.position, self._unit.next)))
        if outcome.max_bytes is not None:
            partition.max_bytes = outcome.max_bytes
        partition.rest_until = now + outcome.wait if outcome.wait else 0.0
        if partition.position.deferred is not None:
            partition.position.limit_deferred(outcome.position)
        if outcome.commit_within is not None:
            partition.position.defer_commit(partition.position.delivered, now + outcome.commit_within)
        if outcome.commit is not None:
            partition.position.take_deferred()
            await self._commit(min(outcome.commit, self._unit.next), batch)

    def _move_to(self, target: int) -> None:
        """Go on at `target`, with records from memory or from Kafka."""
        partition = self._partition
        if target == partition.position.delivered:
            return
        back = target < partition.position.delivered
        partition.position.delivered = target
        if not back:
            rest = partition.buffer.cut(_ALL, _ALL)
            if rest is not None:
                chunk = after(Chunk(rest.records, rest.next_offset, rest.size), target)
                if len(chunk.records):
                    partition.buffer.put_back(chunk)
                    return
            self._source.jump(target)
            return
        in_memory = bool(self._kept) and self._kept[0][0] <= target
        while self._kept and self._kept[-1][1].next_offset > target:
            _, chunk = self._kept.pop()
            self._kept_bytes -= chunk.size
            if in_memory and len((part := after(chunk, target)).records):
                partition.buffer.put_back(part)
        if not in_memory:
            partition.failure.isolate_until = 0
            partition.buffer.jump()
            self._source.jump(target)
            self._ended = False

    # -- marks ---------------------------------------------------------------------------------------------------------

    async def _commit(self, offset: int, batch: Batch | None) -> None:
        self._mark(offset, self._partition.position.delivered if batch is None else batch.next_offset)
        if batch is not None and self._tells_processed:
            await self._guard("on_batch_processed", lambda: self._processor.on_batch_processed(batch))

    def _mark(self, offset: int, end: int) -> None:
        """Write durably that the records before `offset` are done."""
        partition = self._partition
        self._ledger.done([Done(*partition.tp, partition.fence.epoch, self.mark, end, offset)])
        partition.position.land(partition.position.advance(offset))
        while self._kept and self._kept[0][1].next_offset <= offset:
            self._kept_bytes -= self._kept.popleft()[1].size

    async def _terminate(self) -> None:
        """End the unit: mark the processor's answer, and a trailing gap."""
        partition = self._partition
        through = partition.failure.held is None
        if through:
            partition.position.delivered = self._unit.next
        answer: Any = await self._guard(
            "on_stream_termination",
            lambda: self._processor.on_stream_termination(partition.tp, partition.position.delivered),
        )
        self._take_finished(0.0)
        commit = partition.position.take_deferred()
        if answer is not None:
            try:
                outcome = decide(
                    partition.tp, answer, committed=partition.committed, first=self.mark, position=partition.position.delivered,
                    callback="on_stream_termination",
                )  # fmt: skip
                commit = outcome.commit
                self._tell(outcome)
            except BadResponseError as error:
                log.error("%s: %s", partition.tp, error)
        if commit is not None and commit > self.mark:
            self._mark(min(commit, self._unit.next), partition.position.delivered)
        if through and self._handed <= self.mark < self._unit.next:
            self._mark(
                self._unit.next, self._unit.next
            )  # the log lacks these: transactions' markers, compacted records

    # -- small ---------------------------------------------------------------------------------------------------------

    def _keep(self, first: int, chunk: Chunk) -> None:
        self._kept.append((first, chunk))
        self._kept_bytes += chunk.size
        while len(self._kept) > 1 and self._kept_bytes > self._parts.config.reader.prefetch_bytes:
            self._kept_bytes -= self._kept.popleft()[1].size

    def _tell(self, outcome: Decision) -> None:
        if outcome.skipped is not None:
            self._note("skip", from_=outcome.skipped[0], to=outcome.skipped[1], reason="processor")
        elif outcome.reverted_from is not None:
            self._note("revert", from_=outcome.reverted_from, to=outcome.position)

    def _note(self, kind: str, **facts: Any) -> None:
        self._parts.note(kind, self._partition.tp, self._partition.fence.epoch, **facts)

    async def _guard(self, name: str, callback: Callable[[], object]) -> object:
        """Run a callback, and log its failure, which changes nothing."""
        try:
            return await self._session.call(callback)
        except (GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            log.error("%s: %s failed: %s; the partition goes on", self._partition.tp, name, describe(error))
            return None
