"""The reaction to a processor's failures: retries, isolation, `on_error`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from inbound.channel.processor_session import ProcessorSession
from inbound.channel.response import Decision, decide
from inbound.clock import Clock
from inbound.errors import ProcessorError
from inbound.partition.journal import Journal
from inbound.partition.partition import Partition, Place
from inbound.partition.schedule import NEVER
from inbound.partition.service import Settings
from inbound.processors.base import BatchEventProcessor
from inbound.processors.batch import Batch, Record
from inbound.runtime.backoff import Backoff
from inbound.runtime.text import describe
from inbound.topic_partition import TopicPartition

log = logging.getLogger(__name__)

RETRY = Backoff(1.0, 60.0)

#: Sends records of (topic, partition) to the dead-letter topic, with the reason; raises if it cannot.
DeadLetters = Callable[[str, int, Sequence[Record], str], None]


class Served(Protocol):
    """What has the processor: `inbound.partition.service.Service`, or a replay's own."""

    @property
    def processor(self) -> BatchEventProcessor: ...


class Notes(Protocol):
    """Ledger entries: `inbound.partition.ledger_notes.LedgerNotes`, or a replay's own."""

    def note(self, kind: str, tp: TopicPartition, epoch: int, **facts: Any) -> None: ...


class FailurePolicy:
    """The channel's reaction to failures of its processor. Called by workers."""

    def __init__(
        self, *, settings: Settings, clock: Clock, session: ProcessorSession, service: Served, ledger_notes: Notes,
        journal: Journal, dead_letters: DeadLetters | None,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._clock = clock
        self._session = session
        self._service = service
        self._ledger_notes = ledger_notes
        self._journal = journal
        self._dead_letters = dead_letters

    async def failed(self, partition: Partition, batch: Batch, error: BaseException) -> Decision:
        """Return the outcome of a failed batch: on_exception's answer, else `on_error`'s."""
        failure = partition.failure
        if _abandoned(partition):
            return Decision(batch.first_offset, None)  # given up: its answer is not used any more
        failure.attempts += 1
        failure.last_error = describe(error)
        first = batch.records[0].offset
        failure.failing = (first, first + 1) if len(batch) == 1 else (batch.first_offset, batch.next_offset)
        if not isinstance(error, Exception):  # sys.exit() in a processor, say: its end, not ours
            error = ProcessorError(f"{partition.tp}: {failure.last_error}")
        answer = await self._ask(partition, batch, error)
        if _abandoned(partition):  # while it was asked: nothing is given up or sent for it any more
            return Decision(batch.first_offset, None)
        if answer is not None:
            self._say(
                partition, "failed", batch.first_offset, logging.WARNING,
                f"on_next_batch failed at offsets {batch.first_offset} to {batch.next_offset - 1} ({failure.last_error}); "
                "on_exception answered",
            )  # fmt: skip
            failure.attempts = 0
            return answer
        limit = self._settings.now.on_error.max_attempts
        if limit and failure.attempts >= limit:
            if len(batch) > 1:
                # Find the record to blame: redeliver the batch, one record at a time, each with its own attempts. So an
                # outage of the processor's backend gives up only records that fail while others succeed or time passes.
                failure.isolate_until = batch.next_offset
                self._say(
                    partition, "isolating", batch.first_offset, logging.ERROR,
                    f"on_next_batch failed {failure.attempts} times on offsets {batch.first_offset} to "
                    f"{batch.next_offset - 1} ({failure.last_error}); delivering them one by one",
                )  # fmt: skip
                failure.attempts = 0
                return Decision(batch.first_offset, None, reverted_from=batch.next_offset)
            return await self._give_up(partition, batch)
        wait = RETRY.delay(failure.attempts)
        self._say(
            partition, "failed", batch.first_offset, logging.ERROR,
            f"on_next_batch failed on offsets {batch.first_offset} to {batch.next_offset - 1}, attempt {failure.attempts}"
            f"{f' of {limit}' if limit else ''}: {failure.last_error}; not committed, tried again in {wait:.0f} s",
        )  # fmt: skip
        log.debug("%s: where it failed", partition.tp, exc_info=error)
        return Decision(batch.first_offset, None, reverted_from=batch.next_offset, wait=wait)

    def claim_failed(self, partition: Partition, error: BaseException) -> float:
        """Return when to call on_claim again. Infinity: the partition is held."""
        failure = partition.failure
        if _abandoned(partition):
            return NEVER
        failure.attempts, failure.failing = failure.attempts + 1, None
        failure.last_error = describe(error)
        limit = self._settings.now.on_error.max_attempts
        if limit and failure.attempts >= limit:
            failure.held = (
                f"on_claim failed {failure.attempts} times: {failure.last_error}. Nothing is read before it says where "
                "to begin: correct the processor and restart"
            )
            self.hold(partition, "processor-fails", partition.committed)
            return NEVER
        wait = RETRY.delay(failure.attempts)
        self._say(
            partition, "on-claim-failed", partition.committed, logging.ERROR,
            f"on_claim failed, attempt {failure.attempts}{f' of {limit}' if limit else ''}: {failure.last_error}; "
            f"nothing is read, asked again in {wait:.0f} s",
        )  # fmt: skip
        log.debug("%s: where it failed", partition.tp, exc_info=error)
        return self._clock.now() + wait

    def room_failed(self, partition: Partition, error: BaseException) -> float:
        """Return the clock time to ask again after `room` failed."""
        failure = partition.failure
        failure.room_attempts, failure.failing = failure.room_attempts + 1, None
        failure.last_error = describe(error)
        wait = RETRY.delay(failure.room_attempts)
        self._say(
            partition, "failed", partition.position.delivered, logging.ERROR,
            f"room failed, attempt {failure.room_attempts}: {failure.last_error}; nothing is delivered, asked again in "
            f"{wait:.0f} s",
        )  # fmt: skip
        return self._clock.now() + wait

    def hold_unclear(self, partition: Partition, told: str) -> None:
        """Hold a partition whose commit may belong to another topic."""
        partition.failure.held = (
            f"the commit {partition.committed} is about topic id {partition.topic_id}, the brokers name {told}: whether that "
            "is one topic cannot be told. Say where to go on with `inbound offsets reset --group "
            f"{self._settings.now.group} --topic {partition.tp.topic}:{partition.tp.partition}`: at {partition.committed} if "
            "it is, at the earliest offset if the topic was recreated"
        )
        self.hold(partition, "out-of-range", partition.committed)

    # -- inside ------------------------------------------------------------------------------------------------------

    async def _ask(self, partition: Partition, batch: Batch, error: Exception) -> Decision | None:
        try:
            processor = partition.served_by or self._service.processor
            response = await self._session.call(lambda: processor.on_exception(partition.tp, error))
            if response is None:
                return None
            return decide(
                partition.tp, response, committed=partition.position.advanced, first=batch.first_offset,
                position=batch.next_offset, callback="on_exception",
            )  # fmt: skip
        except BaseException as failure:
            if self._session.loop_is_gone(failure):
                raise
            self._say(
                partition, "callback-failed", batch.first_offset, logging.ERROR,
                f"on_exception failed: {describe(failure)}; taking the default",
            )  # fmt: skip
            return None

    async def _give_up(self, partition: Partition, batch: Batch) -> Decision:
        """Apply `on_error.then` to a record that fails for good."""
        failure = partition.failure
        then = self._settings.now.on_error.then
        offset = batch.records[0].offset
        why = failure.last_error or "unknown"
        if then == "hold":
            failure.held = (
                f"on_next_batch fails on the record at offset {offset}: {why}. Correct the processor and restart, or set "
                "on_error.then to skip or dead-letter"
            )
            self.hold(partition, "poison-event", offset)
            return Decision(batch.first_offset, None, reverted_from=batch.next_offset)
        if then == "dead-letter" and self._dead_letters is not None:
            problem = None
            try:
                send = partial(self._dead_letters, batch.topic, batch.partition, batch.records, why)
                if self._session.asynchronous:  # it waits for a broker, and the loop's other partitions need not
                    import asyncio

                    await asyncio.get_running_loop().run_in_executor(None, send)
                else:
                    send()
            except GeneratorExit:
                raise  # the loop itself is gone
            except BaseException as error:  # also that it was cancelled: given up, or by the processor
                problem = describe(error)
            if _abandoned(partition):
                return Decision(batch.first_offset, None)  # sent or not: the next claim reads the record again
            if problem is not None:
                wait = RETRY.delay(failure.attempts)
                failure.dead_letter_problem = f"offset {offset} could not be sent to the dead-letter topic: {problem}"
                self._say(
                    partition, "dead-letter-failed", offset, logging.ERROR,
                    f"{failure.dead_letter_problem}; tried again in {wait:.0f} s",
                )  # fmt: skip
                return Decision(batch.first_offset, None, reverted_from=batch.next_offset, wait=wait)
        self._say(
            partition, "dead-lettered" if then == "dead-letter" else "skipped", offset, logging.ERROR,
            f"the record at offset {offset} is given up ({then}): {why}",
        )  # fmt: skip
        self._ledger_notes.note(
            "skip",
            partition.tp,
            partition.fence.epoch,
            from_=batch.first_offset,
            to=batch.next_offset,
            reason=f"{then}: {why}",
        )
        failure.attempts, failure.dead_letter_problem = 0, None
        return Decision(batch.next_offset, _commit_after(partition, batch))

    def hold(self, partition: Partition, cause: str, offset: int | None) -> None:
        """Hold a partition: it is not read before an operator acts."""
        partition.failure.held_cause = cause
        self._say(partition, "held", offset, logging.ERROR, f"held: {partition.failure.held}", cause=cause)

    def _say(self, partition: Partition, kind: str, offset: int | None, level: int, text: str, **facts: Any) -> None:
        self._journal.note(kind, text, partition.tp, offset=offset, epoch=partition.fence.epoch, level=level, **facts)


def _commit_after(partition: Partition, batch: Batch) -> int | None:
    """Return the commit for a skipped batch; None: a later one.

    1. The processor answers `next` for records that it collects; 2. the record behind that is given up; 3. the process
    dies. Were the given-up record committed, so would be the collected ones, and they are only in the memory of the
    dead process.
    """
    advanced = partition.position.advanced
    if advanced is None:
        return batch.next_offset
    agreed = max(advanced, partition.position.deferred or 0)  # the processor lets records before it be committed
    if agreed < batch.first_offset or batch.next_offset <= advanced:
        return None
    return batch.next_offset


def _abandoned(partition: Partition) -> bool:
    """Whether a partition was given up: checked after each await."""
    return partition.place is Place.ABANDONED
