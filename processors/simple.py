"""The `simple` processor: sends every batch to a list of sinks, and commits what all of them took."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from inbound.errors import BadResponseError, UndecodableError
from inbound.processors.base import BatchEventProcessor, Context
from inbound.processors.batch import Batch, BatchResponse, Undecodable, Verb
from inbound.processors.sinks.base import BatchEventSink, EventSink
from inbound.processors.sinks.choice import SinkChoice

if TYPE_CHECKING:
    from cloudevents.core.v1.event import CloudEvent

#: Seconds before a failed event is tried again: as long as the first wait after a processor's error.
RETRY_WAIT = 1.0


class SimpleOptions(BaseModel):
    """When to commit, and where events go."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["every-batch"] = Field(default="every-batch", description="commit after each batch that was sent")
    sinks: tuple[SinkChoice, ...] = Field(min_length=1, description="asked in this order")
    undecodable: Literal["fail", "skip"] = Field(
        default="fail",
        description="a record that is no event, where a sink takes events one by one: an error (see `on_error`), or a "
        "warning and go on",
    )


class SimpleProcessor(BatchEventProcessor):
    """Sends each batch to its sinks in order; an event is done, and committed, when all of them took it.

    A sink that fails at an event ends the batch there: what is before it is committed, the sinks after it are sent only
    that much, and the next read starts at the failed event. Sinks before it get the rest a second time, so put the one
    that fails first most often at the top. If nothing at all was done the error is raised, and `on_error` applies.
    """

    Options = SimpleOptions

    def open(self, context: Context) -> None:
        """Open the sinks; if one fails, those before it are closed again and the error is raised."""
        options: SimpleOptions = context.options
        self._log: logging.Logger = context.log
        self._stopping = context.stopping
        self._fail_undecodable = options.undecodable == "fail"
        self._sinks: list[tuple[str, BatchEventSink | EventSink]] = []
        with ExitStack() as opened:
            for choice in options.sinks:
                sink = choice.make()
                sink.open(replace(context, options=choice.options))
                opened.callback(sink.close)
                self._sinks.append((choice.type, sink))
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Close all sinks, the last one first, also when one of them fails."""
        self._opened.close()

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        taken = _Taken(batch)
        refused = self._refused(batch) if any(isinstance(sink, EventSink) for _, sink in self._sinks) else ()
        for number, (name, sink) in enumerate(self._sinks):
            if isinstance(sink, EventSink):
                # Only the first sink may stop early: the others must catch up with it, or it would repeat more.
                stop = self._stopping if number == 0 else None
                self._send_events(name, sink, taken, refused, stop)
            elif part := taken.part:
                answer = _checked(name, sink.send(part))
                if answer.verb is Verb.REVERT:
                    return answer
                taken.merge(answer)
        return taken.response()

    def _refused(self, batch: Batch) -> Sequence[Undecodable]:
        """Return the records that may not be passed over; where they may, warn of each."""
        if self._fail_undecodable:
            return batch.undecodable
        for record, reason in batch.undecodable:
            where = f"{batch.topic}/{batch.partition}@{record.offset}"
            self._log.warning("%s is no event and is passed over (undecodable: skip): %s", where, reason)
        return ()

    def _send_events(
        self, name: str, sink: EventSink, taken: _Taken, refused: Sequence[Undecodable], stop: threading.Event | None
    ) -> None:
        """Send the events of the part that is still open, one by one, and narrow it to what arrived.

        Raises the sink's error, or UndecodableError, if it stands at the very beginning of the batch.
        """
        batch = taken.batch
        bad = refused[0] if refused and refused[0].record.offset < taken.end else None
        end = bad.record.offset if bad else taken.end
        sent = 0
        for offset, event in zip(batch.event_offsets, batch.events, strict=True):
            if offset >= end:
                break
            if batch.lost.is_set() or (sent and stop and stop.is_set()):
                return taken.stop_at(offset)
            try:
                sink.send(event)
            except Exception as error:
                if not sent:
                    raise
                self._report(name, batch, offset, event, error)
                return taken.stop_at(offset, wait=RETRY_WAIT)
            sent += 1
        if bad:
            if not sent:
                raise _undecodable(batch, bad)
            taken.stop_at(bad.record.offset)
        return None

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
        self._next = False  # somebody wants no commit
        self._skip = False
        self._wait = 0.0
        self._max_bytes: int | None = None

    @property
    def end(self) -> int:
        """The offset before which the next sink may take events."""
        return self.batch.next_offset if self._end is None else min(self._end, self.batch.next_offset)

    @property
    def part(self) -> Batch | None:
        """The batch up to `end`; None if no record is left."""
        batch, end = self.batch, self.end
        if end == batch.next_offset:
            return batch
        records = [record for record in batch.records if record.offset < end]
        if not records:
            return None
        return Batch(batch.topic, batch.partition, batch.first_offset, end, records, batch.epoch, batch.lost)

    def stop_at(self, offset: int, wait: float = 0.0) -> None:
        """Note that a sink took what is before `offset`."""
        self.merge(BatchResponse.advance(offset, wait=wait))

    def merge(self, answer: BatchResponse) -> None:
        """Note a sink's answer: the smallest offset counts, the longest wait, the smallest read."""
        took = self.end if answer.offset is None else answer.offset
        self._end = took if self._end is None else min(self._end, took)
        self._next |= answer.verb is Verb.NEXT
        self._skip |= answer.skip
        self._wait = max(self._wait, answer.wait)
        if answer.max_bytes is not None:
            self._max_bytes = min(self._max_bytes or answer.max_bytes, answer.max_bytes)

    def response(self) -> BatchResponse:
        """Return the one answer for all sinks."""
        end = self.batch.next_offset if self._end is None else self._end
        offset = None if end == self.batch.next_offset else end
        if self._next:
            return BatchResponse.next(offset, wait=self._wait, max_bytes=self._max_bytes)
        skip = self._skip and end > self.batch.next_offset
        return BatchResponse.advance(offset, wait=self._wait, max_bytes=self._max_bytes, skip=skip)


def _undecodable(batch: Batch, bad: Undecodable) -> UndecodableError:
    return UndecodableError(
        f"{batch.topic}/{batch.partition}: the record at offset {bad.record.offset} is no event: {bad.reason}. "
        "`undecodable: skip` passes over such records; `on_error` can skip or dead-letter this one"
    )


def _checked(name: str, answer: BatchResponse | None) -> BatchResponse:
    if answer is None:
        return BatchResponse.advance()
    if not isinstance(answer, BatchResponse):
        raise BadResponseError(f"sink {name}: send must return a BatchResponse or None, got {answer!r}")
    return answer
