"""The commit first, sending after it: nothing is ever sent twice, and what a crash comes between is not sent at all."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Literal

from inbound.processors.base import Context
from inbound.processors.batch import Batch, BatchResponse, Verb
from inbound.processors.delivery import Delivery, NamedSink, checked, undecodable_error
from inbound.processors.sinks.base import BatchEventSink, EventSink
from inbound.topic_partition import TopicPartition

#: So many failures in a row, and a sink is left alone for the rest of the batch: with a receiver that is away each
#: event would wait for a time-out of its own.
GIVE_UP_AFTER = 3
#: The longest rest, in seconds, between two batches that a sink gave up; the first one is 1 s.
LONGEST_REST = 60.0


class AtMostOnce(Delivery):
    """Answers `advance`, and sends when that commit has landed: also when the partition is about to go.

    What a sink does not take then is lost, for it; that is counted, and logged with its offsets. While a sink takes
    nothing, batches are handed back uncommitted for 1 s, doubling to 60 s, so that an outage costs a batch for each
    rest and not the whole backlog.
    """

    def __init__(self, sinks: Sequence[NamedSink], undecodable: Literal["fail", "skip"], context: Context) -> None:
        super().__init__(sinks, undecodable, context)
        self._promised: dict[TopicPartition, Batch] = {}
        self._lock = threading.Lock()
        self._outages = 0  # batches in a row that a sink gave up
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
            return  # a record that `on_error` gave up
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
        """Send what was committed. Returns True if the sink took nothing more at the end."""
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
            rest = min(LONGEST_REST, 2.0 ** min(self._outages - 1, 6)) if given_up else 0.0
            self._rest_until = self._clock.now() + rest


def _send_events(sink: EventSink, part: Batch) -> tuple[list[int], str, bool]:
    """Return the offsets that the sink did not take, why, and whether it was given up."""
    missing: list[int] = []
    why, in_a_row = "", 0
    for record, event in zip(part.event_records, part.events, strict=True):
        if in_a_row >= GIVE_UP_AFTER:
            missing.append(record.offset)
            continue
        try:
            sink.send_record(event, record)
            in_a_row = 0
        except BaseException as error:  # also sys.exit(): what is lost by it must be named
            missing.append(record.offset)
            why, in_a_row = f"{type(error).__name__}: {error}", in_a_row + 1
    return missing, why, in_a_row >= GIVE_UP_AFTER


def _send_batch(name: str, sink: BatchEventSink, part: Batch) -> tuple[list[int], str, bool]:
    """Return the offsets that the sink did not take, why, and whether it was given up."""
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
