"""What happens when a processor fails, or a position is not in the log."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Sequence

from inbound.errors import BadResponseError, OffsetOutOfRangeError, ProcessorError
from inbound.partition import Partition, Place
from inbound.parts import Parts
from inbound.processors.batch import Batch, Record
from inbound.settle import Outcome, decide, retry_wait

log = logging.getLogger(__name__)

#: Sends records of (topic, partition) to the dead-letter topic, with the reason; raises if it cannot.
DeadLetters = Callable[[str, int, Sequence[Record], str], None]


def describe(error: BaseException) -> str:
    """Return one line: what was raised, and where in the user's code."""
    try:
        said = str(error)
    except Exception as failure:  # an error whose own text fails must not hide what happened
        said = f"(its text failed: {type(failure).__name__})"
    text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, BadResponseError) or not frames:
        return text
    return f"{text} (at {frames[-1].filename}:{frames[-1].lineno})"


class FailurePolicy:
    """The channel's `on_error`, and its answer to positions outside the log. Called by workers."""

    def __init__(self, parts: Parts, dead_letters: DeadLetters | None) -> None:
        self._parts = parts
        self._dead_letters = dead_letters

    def failed(self, partition: Partition, batch: Batch, error: BaseException) -> Outcome:
        """Return what to do after on_next_batch failed on `batch`: what on_exception says, else `on_error`."""
        if partition.place is Place.ABANDONED:
            return Outcome(batch.first_offset, None)  # nobody waits for it any more
        partition.attempts += 1
        partition.last_error = describe(error)
        if not isinstance(error, Exception):  # sys.exit() in a processor, say: its end, not ours
            error = ProcessorError(f"{partition.tp}: {partition.last_error}")
        answer = self._ask(partition, batch, error)
        if answer is not None:
            log.warning("%s: on_next_batch failed at offsets %s; on_exception answered", *_where(batch, partition))
            partition.attempts = 0
            return answer
        limit = self._parts.config.on_error.max_attempts
        if limit and partition.attempts >= limit:
            if len(batch) > 1:
                # Find the record to blame: the batch again, one record at a time, each with attempts of its own. So an
                # outage of what the processor needs gives up nothing but what fails while others succeed or time passes.
                partition.isolate_until = batch.next_offset
                log.error(
                    "%s: on_next_batch failed %d times on offsets %d to %d (%s); handing them out one by one",
                    partition.tp, partition.attempts, batch.first_offset, batch.next_offset - 1, partition.last_error,
                )  # fmt: skip
                partition.attempts = 0
                return Outcome(batch.first_offset, None, reverted_from=batch.next_offset)
            return self._give_up(partition, batch)
        wait = retry_wait(partition.attempts)
        log.error(
            "%s: on_next_batch failed on offsets %d to %d, attempt %d%s: %s; not committed, tried again in %.0f s",
            partition.tp, batch.first_offset, batch.next_offset - 1, partition.attempts,
            f" of {limit}" if limit else "", partition.last_error, wait,
        )  # fmt: skip
        log.debug("%s: where it failed", partition.tp, exc_info=error)
        return Outcome(batch.first_offset, None, reverted_from=batch.next_offset, wait=wait)

    def out_of_range(self, partition: Partition, error: OffsetOutOfRangeError) -> int | None:
        """Return where to read on when the position is not in the log; None: nowhere, the partition is held."""
        if error.offset < error.start:
            log.error(
                "%s: offsets %d to %d are lost to retention: the log starts at %d; reading on there. "
                "Raise the topic's retention, or add consumers", partition.tp, error.offset, error.start - 1, error.start,
            )  # fmt: skip
            self._parts.note("retention", partition.tp, partition.fence.epoch, first=error.offset, next=error.start)
            return error.start
        choice = self._parts.config.on_truncation
        if choice == "hold":
            partition.held = (
                f"the commit {error.offset} is beyond the log's end {error.end}: the log was truncated. Set on_truncation "
                "to earliest or latest, or move the offset, and restart"
            )
            log.error("%s: held: %s", partition.tp, partition.held)
            return None
        target = error.start if choice == "earliest" else error.end
        log.error(
            "%s: the commit %d is beyond the log's end %d; reading on at %d (on_truncation: %s)",
            partition.tp, error.offset, error.end, target, choice,
        )  # fmt: skip
        self._parts.note("revert", partition.tp, partition.fence.epoch, from_=error.offset, to=target)
        return target

    # -- inside ------------------------------------------------------------------------------------------------------

    def _ask(self, partition: Partition, batch: Batch, error: Exception) -> Outcome | None:
        try:
            response = self._parts.processor.on_exception(partition.tp, error)
            if response is None:
                return None
            return decide(
                partition.tp, response, committed=partition.committed, first=batch.first_offset,
                position=batch.next_offset, callback="on_exception",
            )  # fmt: skip
        except BaseException as failure:
            log.error("%s: on_exception failed: %s; taking the default", partition.tp, describe(failure))
            return None

    def _give_up(self, partition: Partition, batch: Batch) -> Outcome:
        """One record fails for good: do with it what `on_error.then` says."""
        then = self._parts.config.on_error.then
        offset = batch.records[0].offset
        why = partition.last_error or "unknown"
        if then == "hold":
            partition.held = (
                f"on_next_batch fails on the record at offset {offset}: {why}. Correct the processor and restart, or set "
                "on_error.then to skip or dead-letter"
            )
            log.error("%s: held: %s", partition.tp, partition.held)
            return Outcome(batch.first_offset, None, reverted_from=batch.next_offset)
        if then == "dead-letter" and self._dead_letters is not None:
            try:
                self._dead_letters(batch.topic, batch.partition, batch.records, why)
            except Exception as error:
                wait = retry_wait(partition.attempts)
                log.error(
                    "%s: offset %d could not be sent to the dead-letter topic: %s; tried again in %.0f s",
                    partition.tp, offset, describe(error), wait,
                )  # fmt: skip
                return Outcome(batch.first_offset, None, reverted_from=batch.next_offset, wait=wait)
        log.error("%s: the record at offset %d is given up (%s): %s", partition.tp, offset, then, why)
        self._parts.note(
            "skip",
            partition.tp,
            partition.fence.epoch,
            from_=batch.first_offset,
            to=batch.next_offset,
            reason=f"{then}: {why}",
        )
        partition.attempts = 0
        return Outcome(batch.next_offset, batch.next_offset)


def _where(batch: Batch, partition: Partition) -> tuple[object, str]:
    return partition.tp, f"{batch.first_offset} to {batch.next_offset - 1} ({partition.last_error})"
