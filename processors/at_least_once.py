"""Sending first, the commit after it: what a crash leaves uncommitted is sent again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from inbound.processors.batch import Batch, BatchResponse, Verb
from inbound.processors.delivery import Delivery, checked, smaller, undecodable_error
from inbound.processors.sinks.base import EventSink

if TYPE_CHECKING:
    from cloudevents.core.v1.event import CloudEvent

#: Seconds before a failed event is tried again: as long as the first wait after a processor's error.
RETRY_WAIT = 1.0


class AtLeastOnce(Delivery):
    """An event is done when all sinks took it.

    A sink that fails at an event ends the batch there: what is before it is done, the sinks after it are sent only
    that much, and the next read starts at the failed event. If nothing at all was done the error is raised.
    """

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        taken = _Taken(batch)
        refused = self._first_refused(batch)
        for number, (name, sink) in enumerate(self._sinks):
            if refused and not sink.takes_other_records and refused.record.offset < taken.end:
                if batch.before(refused.record.offset) is None:
                    raise undecodable_error(batch, refused)
                taken.stop_at(refused.record.offset)
            if isinstance(sink, EventSink):
                # Only the first sink may stop early: the others must catch up with it, or it would repeat more.
                self._send_events(name, sink, taken, may_stop=number == 0)
            elif part := batch.before(taken.end):
                answer = checked(name, sink.send(part))
                if answer.verb is Verb.REVERT:
                    return answer
                taken.merge(answer)
        return taken.response()

    def _send_events(self, name: str, sink: EventSink, taken: _Taken, *, may_stop: bool) -> None:
        """Send the events of the part that is still open, one by one, and narrow it to what arrived.

        Raises the sink's error if it stands at the very beginning of the batch.
        """
        batch, end = taken.batch, taken.end
        for sent, (record, event) in enumerate(zip(batch.event_records, batch.events, strict=True)):
            offset = record.offset
            if offset >= end:
                break
            if batch.lost.is_set() or (sent and may_stop and self._stopping.is_set()):
                taken.stop_at(offset)
                break
            try:
                sink.send_record(event, record)
            except Exception as error:
                if not sent:
                    raise
                self._report(name, batch, offset, event, error)
                taken.stop_at(offset, wait=RETRY_WAIT)
                break

    def _report(self, name: str, batch: Batch, offset: int, event: CloudEvent, error: Exception) -> None:
        self._log.error(
            "%s/%d@%d: sink %s did not take event %s: %s: %s; what is before it is done, the next read starts at it "
            "in %.0f s",
            batch.topic,
            batch.partition,
            offset,
            name,
            event.get_id(),
            type(error).__name__,
            error,
            RETRY_WAIT,
            exc_info=self._log.isEnabledFor(logging.DEBUG),
        )


class _Taken:
    """How much of a batch the sinks asked so far have all taken, and what they wish for the next read."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self._end: int | None = None  # the smallest answer yet
        self._withheld = False  # somebody wants no commit
        self._within: float | None = None  # or wants it to come in so many seconds
        self._skip = False
        self._wait = 0.0
        self._max_bytes: int | None = None

    @property
    def end(self) -> int:
        """The offset before which the next sink may take events."""
        return self.batch.next_offset if self._end is None else min(self._end, self.batch.next_offset)

    def stop_at(self, offset: int, wait: float = 0.0) -> None:
        """Note that a sink took what is before `offset`."""
        self.merge(BatchResponse.advance(offset, wait=wait))

    def merge(self, answer: BatchResponse) -> None:
        """Note a sink's answer: the smallest offset counts, the longest wait, the smallest read."""
        took = self.end if answer.offset is None else answer.offset
        self._end = took if self._end is None else min(self._end, took)
        if answer.verb is Verb.NEXT:
            self._withheld |= answer.commit_within is None
            self._within = smaller(self._within, answer.commit_within)
        self._skip |= answer.skip
        self._wait = max(self._wait, answer.wait)
        self._max_bytes = smaller(self._max_bytes, answer.max_bytes)

    def response(self) -> BatchResponse:
        """Return the one answer for all sinks."""
        end = self.batch.next_offset if self._end is None else self._end
        offset = None if end == self.batch.next_offset else end
        if self._withheld or self._within is not None:
            within = None if self._withheld else self._within
            return BatchResponse.next(offset, wait=self._wait, max_bytes=self._max_bytes, commit_within=within)
        skip = self._skip and end > self.batch.next_offset
        return BatchResponse.advance(offset, wait=self._wait, max_bytes=self._max_bytes, skip=skip)
