"""Sends batches to sinks, before their commit or after it."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from inbound.errors import BadResponseError, UndecodableError
from inbound.processors.base import Context
from inbound.processors.batch import Batch, BatchResponse, Undecodable, Verb
from inbound.processors.sinks.base import BatchEventSink, EventSink
from inbound.runtime.backoff import Backoff
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    from cloudevents.core.v1.event import CloudEvent


N = TypeVar("N", int, float)

#: A sink, and its name in the configuration.
NamedSink: TypeAlias = tuple[str, BatchEventSink | EventSink]


class SinkDelivery(ABC):
    """Sends batches to open sinks. Calls for one partition never overlap."""

    def __init__(self, sinks: Sequence[NamedSink], undecodable: Literal["fail", "skip"], context: Context) -> None:
        self._sinks = sinks
        self._fail_undecodable = undecodable == "fail"
        self._log = context.log
        self._stopping = context.stopping
        self._clock = context.clock
        #: Records that a sink should have got after their commit and did not, since the start; each sink counts.
        self.not_sent = 0

    @abstractmethod
    def on_next_batch(self, batch: Batch) -> BatchResponse:
        """Send `batch`, now or after its commit, and return the answer."""

    def on_batch_processed(self, batch: Batch) -> None:
        """Called when the commit of `batch` has landed."""

    def on_gone(self, partition: TopicPartition) -> None:
        """Called when `partition` is lost or released."""

    def close(self) -> None:
        """Called after the last batch; the sinks are still open."""

    def _first_refused(self, batch: Batch) -> Undecodable | None:
        """Return the first undecodable record, or warn of those to skip."""
        if all(sink.takes_other_records for _, sink in self._sinks):
            return None
        if self._fail_undecodable:
            return batch.undecodable[0] if batch.undecodable else None
        for record, reason in batch.undecodable:
            where = f"{batch.topic}/{batch.partition}@{record.offset}"
            self._log.warning("%s is no event and is passed over (undecodable: skip): %s", where, reason)
        return None


def undecodable_error(batch: Batch, refused: Undecodable) -> UndecodableError:
    """Return the error for an undecodable record at a batch's beginning."""
    return UndecodableError(
        f"{batch.topic}/{batch.partition}: the record at offset {refused.record.offset} is no event: {refused.reason}. "
        "`undecodable: skip` passes over such records; `on_error` can skip or dead-letter this one"
    )


def smaller(one: N | None, other: N | None) -> N | None:
    """Return the smaller of two bounds; None is no bound."""
    return other if one is None else one if other is None else min(one, other)


def checked(name: str, answer: BatchResponse | None) -> BatchResponse:
    """Return a batch sink's answer; None: all sent. Raises BadResponseError."""
    if answer is None:
        return BatchResponse.advance()
    if not isinstance(answer, BatchResponse):
        raise BadResponseError(f"sink {name}: send must return a BatchResponse or None, got {answer!r}")
    return answer


#: Seconds before a failed event is sent again: as the first wait after a processor's error.
RETRY_WAIT = 1.0


class AtLeastOnce(SinkDelivery):
    """Sends first, then commits; a crash redelivers uncommitted events.

    An event is done when all sinks took it. A sink that fails at an event ends the batch there: the events before it are done,
    the later sinks get only those, and the next read starts at the failed event. If no event was done, the error is raised.
    """

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        taken = _Taken(batch)
        refused = self._first_refused(batch)
        for number, (name, sink) in enumerate(self._sinks):
            if refused and not sink.takes_other_records and refused.record.offset < taken.end:
                if batch.before(refused.record.offset) is None:
                    raise undecodable_error(batch, refused)
                taken.merge(BatchResponse.advance(refused.record.offset))
            if isinstance(sink, EventSink):
                # Only the first sink may stop early: the others must catch up, or it would repeat more.
                self._send_events(name, sink, taken, may_stop=number == 0)
            elif part := batch.before(taken.end):
                answer = checked(name, sink.send(part))
                if answer.verb is Verb.REVERT:
                    return answer
                taken.merge(answer)
        return taken.response()

    def _send_events(self, name: str, sink: EventSink, taken: _Taken, *, may_stop: bool) -> None:
        """Send the open part's events, and narrow it to those sent.

        Raises the sink's error if it fails at the first event.
        """
        batch, end = taken.batch, taken.end
        for sent, (record, event) in enumerate(zip(batch.event_records, batch.events, strict=True)):
            offset = record.offset
            if offset >= end:
                break
            if batch.lost.is_set() or (sent and may_stop and self._stopping.is_set()):
                taken.merge(BatchResponse.advance(offset))
                break
            try:
                sink.send_record(event, record)
            except Exception as error:
                if not sent:
                    raise
                self._report(name, batch, offset, event, error)
                taken.merge(BatchResponse.advance(offset, wait=RETRY_WAIT))
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
    """The part of a batch that all sinks took, with their answer."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self._end: int | None = None  # the smallest answer so far
        self._withheld = False  # a sink wants no commit
        self._within: float | None = None  # or a commit in so many seconds
        self._skip = False
        self._wait = 0.0
        self._max_bytes: int | None = None

    @property
    def end(self) -> int:
        """The offset before which the next sink may take events."""
        return self.batch.next_offset if self._end is None else min(self._end, self.batch.next_offset)

    def merge(self, answer: BatchResponse) -> None:
        """Add a sink's answer: smallest offset, longest wait, smallest read."""
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
        return BatchResponse.advance(
            offset, wait=self._wait, max_bytes=self._max_bytes, skip=self._skip and end > self.batch.next_offset
        )


#: After so many failures in a row a sink gets no more of the batch: with an unavailable receiver each event would wait for its
#: own timeout.
GIVE_UP_AFTER = 3
#: Between two batches that a sink gave up.
BACKOFF = Backoff(1.0, 60.0)


class AtMostOnce(SinkDelivery):
    """Commits first, then sends, also before a release: nothing is sent twice.

    Events are not sent if the process crashes in between. Events that a sink does not take are lost for it; they are counted,
    and logged with their offsets. While a sink takes nothing, batches are reverted for 1 s, doubling to 60 s, so that an outage
    costs a batch per wait and not the whole backlog.
    """

    def __init__(self, sinks: Sequence[NamedSink], undecodable: Literal["fail", "skip"], context: Context) -> None:
        super().__init__(sinks, undecodable, context)
        self._promised: dict[TopicPartition, Batch] = {}
        self._lock = threading.Lock()
        self._outages = 0  # batches in a row at which a sink was given up
        self._rest_until = 0.0

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        rest = self._rest_until - self._clock.now()
        if rest > 0:
            return BatchResponse.revert(batch.first_offset, wait=rest)
        part: Batch | None = batch
        refused = self._first_refused(batch)
        if refused:
            part = batch.before(refused.record.offset)
            if part is None:
                raise undecodable_error(batch, refused)
        assert part is not None
        self._promised[_place(batch)] = part
        return BatchResponse.advance(part.next_offset)

    def on_batch_processed(self, batch: Batch) -> None:
        part = self._promised.get(_place(batch))
        if part is None:
            return  # `on_error` gave up a record
        try:
            given_up = [self._send(name, sink, part) for name, sink in self._sinks]
        finally:
            del self._promised[_place(batch)]
        self._note(any(given_up))

    def on_gone(self, partition: TopicPartition) -> None:
        part = self._promised.pop(partition, None)
        if part is not None:
            self._log.warning(
                "%s: offsets %d to %d were not sent: the commit before it was not known to have landed; if it did, they "
                "are lost (no_duplication), else they are sent by the partition's next owner",
                partition,
                part.first_offset,
                part.next_offset - 1,
            )

    def close(self) -> None:
        for partition in list(self._promised):
            self.on_gone(partition)

    def _send(self, name: str, sink: BatchEventSink | EventSink, part: Batch) -> bool:
        """Send a committed part; return whether the sink was given up."""
        if isinstance(sink, EventSink):
            offsets, why, given_up = _send_events(sink, part)
        else:
            offsets, why, given_up = _send_batch(name, sink, part)
        if offsets:
            with self._lock:
                self.not_sent += len(offsets)
                total = self.not_sent
            self._log.error(
                "%s/%d: sink %s did not take %d of %d records, at offsets %s: %s; they are committed and will not be "
                "sent again (no_duplication); %d not sent since the start",
                part.topic,
                part.partition,
                name,
                len(offsets),
                len(part),
                _ranges(offsets),
                why,
                total,
            )
        return given_up

    def _note(self, given_up: bool) -> None:
        with self._lock:
            self._outages = self._outages + 1 if given_up else 0
            self._rest_until = self._clock.now() + BACKOFF.delay(self._outages)


def _send_events(sink: EventSink, part: Batch) -> tuple[list[int], str, bool]:
    """Return unsent offsets, the reason, and whether the sink is given up."""
    missing: list[int] = []
    why, in_a_row = "", 0
    for record, event in zip(part.event_records, part.events, strict=True):
        if in_a_row >= GIVE_UP_AFTER:
            missing.append(record.offset)
            continue
        try:
            sink.send_record(event, record)
            in_a_row = 0
        except BaseException as error:  # also sys.exit(): the lost offsets must be named
            missing.append(record.offset)
            why, in_a_row = f"{type(error).__name__}: {error}", in_a_row + 1
    return missing, why, in_a_row >= GIVE_UP_AFTER


def _send_batch(name: str, sink: BatchEventSink, part: Batch) -> tuple[list[int], str, bool]:
    """Do as `_send_events`, for a sink of batches."""
    offsets = [record.offset for record in part.records] if sink.takes_other_records else list(part.event_offsets)
    try:
        answer = checked(name, sink.send(part))
    except BaseException as error:
        return offsets, f"{type(error).__name__}: {error}", True
    if answer.verb is Verb.REVERT:
        return offsets, "it asked to have the batch again", True
    if answer.offset is None:
        return [], "", False
    missing = [offset for offset in offsets if offset >= answer.offset]
    return missing, f"it asked to have offset {answer.offset} again", False


def _ranges(offsets: Iterable[int]) -> str:
    """Write offsets as `10, 12-15`."""
    found: list[list[int]] = []
    for offset in offsets:
        if found and offset == found[-1][1] + 1:
            found[-1][1] = offset
        else:
            found.append([offset, offset])
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in found)


def _place(batch: Batch) -> TopicPartition:
    return TopicPartition(batch.topic, batch.partition)
