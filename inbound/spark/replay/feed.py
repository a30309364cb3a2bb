"""The records of a unit: Spark's, and Kafka's where a processor reverts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from inbound.errors import BrokerUnavailableError, OffsetOutOfRangeError, SparkError
from inbound.kafka.base import LogClient
from inbound.partition.buffer import Chunk
from inbound.processors.batch import PlainRecord, record_size
from inbound.spark.replay.plan import Unit

#: Yields the records of a unit from the first offset up to but without the second.
Reread = Callable[[int, int], Iterator[Chunk]]
#: Kafka's time to answer when offsets are read again. Seconds.
SILENCE = 30.0


class UnitRecords:
    """A unit's records in order, from any offset on. One thread."""

    def __init__(self, chunks: Iterator[Chunk], unit: Unit, start: int, reread: Reread) -> None:
        """`chunks` begin at `start` or before it, and end with the unit."""
        self._chunks = chunks
        self._unit = unit
        self._reread = reread
        self._again: Iterator[Chunk] | None = None
        self._from = start  # earlier records are passed over
        self._brought = start  # Spark has delivered the earlier records

    def next_chunk(self) -> Chunk | None:
        """Return the next records, or None at the unit's end. Blocks."""
        while True:
            if self._again is not None:
                chunk = next(self._again, None)
                if chunk is None:
                    self._again, self._from = None, max(self._from, self._brought)
                    continue
            else:
                chunk = next(self._chunks, None)
                if chunk is None:
                    return None
                self._brought = chunk.next_offset
            chunk = after(chunk, self._from)
            if len(chunk.records):
                return chunk

    def jump(self, offset: int) -> None:
        """Go on at `offset`, and read delivered records from Kafka again."""
        self._from = offset
        self._again = self._reread(offset, self._brought) if offset < self._brought else None


def after(chunk: Chunk, offset: int) -> Chunk:
    """Return the part of a chunk that begins at `offset`."""
    if not len(chunk.records) or chunk.records[0].offset >= offset:
        return chunk
    records = [record for record in chunk.records if record.offset >= offset]
    return Chunk(records, chunk.next_offset, sum(map(record_size, records)))


def from_arrow(batches: Iterator[Any], unit: Unit) -> Iterator[Chunk]:
    """Yield Spark's scan of one unit as chunks.

    Raises:
        SparkError: the records are not of this unit, or not in the order of offsets.
    """
    last = -1
    for batch in batches:
        if not batch.num_rows:
            continue
        offsets = batch.column("offset").to_numpy()
        topics, partitions = batch.column("topic"), batch.column("partition").to_numpy()
        whole = (
            (partitions == unit.partition).all()
            and topics[0].as_py() == topics[-1].as_py() == unit.topic
            and int(offsets[0]) > last
            and (offsets[1:] > offsets[:-1]).all()
            and int(offsets[-1]) < unit.next
        )
        if not whole:
            raise SparkError(
                f"{unit.tp}: Spark did not deliver offsets {unit.first} to {unit.next - 1} in order (at {int(offsets[0])} "
                f"after {last}); nothing out of order is replayed. Leave out --conf settings that repartition"
            )
        last = int(offsets[-1])
        yield Chunk(_records(batch, offsets), last + 1, _size(batch))


def from_kafka(connect: Callable[[], LogClient], unit: Unit, first: int, end: int) -> Iterator[Chunk]:
    """Yield the records from `first` to `end` (excluded), with a new client.

    Raises:
        BrokerUnavailableError: Kafka is unavailable.
        OffsetOutOfRangeError: the records are not in the log any more.
        UnreadableBatchError: the records are broken, or too large when they are decompressed.
    """
    with closing(connect()) as client:
        client.read({unit.tp: first})
        position, heard = first, time.monotonic()
        while position < end:
            poll = client.poll(0.5)
            if unit.tp in poll.out_of_range:
                raise OffsetOutOfRangeError(*unit.tp, position, *client.log_ranges([unit.tp]).get(unit.tp, (end, end)))
            if unit.tp in poll.unreadable:
                raise poll.unreadable[unit.tp]
            fetched = poll.fetched.get(unit.tp)
            if fetched is None:
                if time.monotonic() - heard > SILENCE:
                    why = poll.failed.get(unit.tp, "nothing came")
                    raise BrokerUnavailableError(f"{unit.tp}: offset {position} could not be read again: {why}")
                continue
            position, heard = fetched.next_offset, time.monotonic()
            records = [record for record in fetched.records if record.offset < end]
            if records:
                yield Chunk(records, min(position, end), sum(map(record_size, records)))


def _records(batch: Any, offsets: Any) -> list[PlainRecord]:
    columns = [
        offsets.tolist(),
        (batch.column("timestamp").cast("int64").to_numpy() // 1000).tolist(),
        batch.column("key").to_pylist(),
        batch.column("value").to_pylist(),
    ]
    headers = _headers(batch.column("headers"))
    if headers is not None:
        columns.append(headers)
    return list(map(PlainRecord, *columns))


def _headers(column: Any) -> list[Any] | None:
    """Return each record's headers as pairs; None: there are none."""
    pairs = column.flatten()
    if not len(pairs):
        return None
    flat = list(zip(pairs.field("key").to_pylist(), pairs.field("value").to_pylist(), strict=True))
    found, at = [], 0
    for length in column.value_lengths().to_pylist():
        found.append(tuple(flat[at : at + (length or 0)]))
        at += length or 0
    return found


def _size(batch: Any) -> int:
    """Return the size of all keys, values and headers, in bytes."""
    import pyarrow.compute as pc

    pairs = batch.column("headers").flatten()
    columns = [batch.column("key"), batch.column("value"), pairs.field("key"), pairs.field("value")]
    return sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in columns)
