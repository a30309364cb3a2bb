"""Records read ahead for one partition, and how batches are cut from them."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from inbound.processors.batch import Record


class Chunk(NamedTuple):
    """Consecutive records as the client delivered them."""

    records: Sequence[Record]
    next_offset: int  # where to read on: can lie beyond the last record + 1
    size: int  # decoded bytes of all records together


class Cut(NamedTuple):
    """A batch-to-be."""

    records: Sequence[Record]
    next_offset: int
    size: int


def record_size(record: Record) -> int:
    """Return the decoded bytes of a record: key, value and headers."""
    size = len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers or ():
        size += len(name) + len(value or b"")
    return size


class RecordBuffer:
    """Filled by the reader's thread, emptied by whichever worker has the partition."""

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        self._lock = threading.Lock()
        self.size = 0  # bytes
        #: Counts the jumps of the position. What was read for an earlier one is refused, whenever it arrives.
        self.generation = 0

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def add(self, chunk: Chunk, generation: int) -> bool:
        """Append what was read after the last chunk; False if it was read for a position that is not wanted any more."""
        with self._lock:
            if generation != self.generation:
                return False
            self._chunks.append(chunk)
            self.size += chunk.size
            return True

    def put_back(self, chunk: Chunk) -> None:
        """Prepend records that are to be handed out again."""
        with self._lock:
            self._chunks.appendleft(chunk)
            self.size += chunk.size

    def jump(self) -> None:
        """Forget everything: the position has jumped."""
        with self._lock:
            self._chunks.clear()
            self.size = 0
            self.generation += 1

    def cut(self, max_records: int, max_bytes: int) -> Cut | None:
        """Take the next batch: at least one record, at most `max_records` and `max_bytes`; None if there is nothing.

        One record that alone is larger than `max_bytes` is delivered alone.
        """
        with self._lock:
            records: Sequence[Record] = []
            copy: list[Record] | None = None  # the common case is one fetch, one batch, and nothing copied
            size = next_offset = 0
            while self._chunks and len(records) < max_records and (size < max_bytes or not records):
                chunk = self._chunks[0]
                if len(records) + len(chunk.records) <= max_records and size + chunk.size <= max_bytes:
                    part, part_size, rest = chunk.records, chunk.size, None
                else:
                    count, part_size = _fitting(
                        chunk.records, max_records - len(records), max_bytes - size, not records
                    )
                    if not count:
                        break
                    part, rest = chunk.records[:count], chunk.records[count:]
                if not records:
                    records = part
                else:
                    if copy is None:
                        copy = list(records)
                    copy.extend(part)
                    records = copy
                if rest:
                    next_offset = rest[0].offset
                    size += part_size
                    self._chunks[0] = Chunk(rest, chunk.next_offset, chunk.size - part_size)
                    break
                # What the chunk was counted with, also where the records of its last part add up to something else.
                next_offset = chunk.next_offset
                size += chunk.size
                self._chunks.popleft()
            if not records:
                return None
            self.size -= size
            return Cut(records, next_offset, size)


def _fitting(records: Sequence[Record], max_records: int, max_bytes: int, first: bool) -> tuple[int, int]:
    """Return how many leading records fit, and their bytes; at least one where `first`."""
    sizes = list(accumulate(map(record_size, records[:max_records])))
    count = bisect_right(sizes, max_bytes)
    if count == 0 and first and sizes:
        count = 1
    return count, sizes[count - 1] if count else 0
