"""Records read ahead for one partition, and the batches cut from them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from inbound.processors.batch import Record
from inbound.processors.batch import record_size as record_size


class Chunk(NamedTuple):
    """Consecutive records as the client delivered them."""

    records: Sequence[Record]
    next_offset: int  # where to read on: can lie beyond the last record + 1
    size: int  # decoded bytes of all records together
    start: int = 0  # index of the first record that is left: a slice would copy all others

    def __len__(self) -> int:
        return len(self.records) - self.start


class Cut(NamedTuple):
    """The records of the next batch."""

    records: Sequence[Record]
    next_offset: int
    size: int


class RecordBuffer:
    """Records read ahead: the polling thread adds, the partition's worker takes."""

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        self._lock = threading.Lock()
        self.size = 0  # bytes
        self.records = 0
        #: Counts the jumps of the position. Records read for an earlier position are refused.
        self.generation = 0

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def add(self, chunk: Chunk, generation: int) -> bool:
        """Append records after the last chunk. False: the position has jumped since."""
        with self._lock:
            if generation != self.generation:
                return False
            self._chunks.append(chunk)
            self.size += chunk.size
            self.records += len(chunk)
            return True

    def put_back(self, chunk: Chunk) -> None:
        """Prepend records for redelivery."""
        with self._lock:
            self._chunks.appendleft(chunk)
            self.size += chunk.size
            self.records += len(chunk)

    def jump(self) -> None:
        """Forget everything: the position has jumped."""
        with self._lock:
            self._chunks.clear()
            self.size = self.records = 0
            self.generation += 1

    def cut(self, max_records: int, max_bytes: int) -> Cut | None:
        """Take the next batch within both limits. None: the buffer is empty.

        One record that alone is larger than `max_bytes` is delivered alone.
        """
        with self._lock:
            if not self._chunks:
                return None
            first = self._chunks[0]
            if len(self._chunks) == 1 and not first.start and first.size <= max_bytes and self.records <= max_records:
                self._chunks.popleft()  # the common case: one fetch is one batch
                self.size = self.records = 0
                return Cut(first.records, first.next_offset, first.size)
            records: Sequence[Record] = []
            copy: list[Record] | None = None  # made only for records of several chunks
            size = next_offset = 0
            while self._chunks and len(records) < max_records and (size < max_bytes or not records):
                chunk = self._chunks[0]
                count, part_size = _fitting(chunk, max_records - len(records), max_bytes - size, not records)
                if not count:
                    break
                end = chunk.start + count
                part = chunk.records if count == len(chunk.records) else chunk.records[chunk.start : end]
                if not records:
                    records = part
                else:
                    if copy is None:
                        copy = list(records)
                    copy.extend(part)
                    records = copy
                if end < len(chunk.records):
                    next_offset = chunk.records[end].offset
                    size += part_size
                    self._chunks[0] = Chunk(chunk.records, chunk.next_offset, chunk.size - part_size, end)
                    break
                # The chunk's own size, also where the records of its last part add up to something else.
                next_offset = chunk.next_offset
                size += chunk.size
                self._chunks.popleft()
            if not records:
                return None
            self.size -= size
            self.records -= len(records)
            return Cut(records, next_offset, size)


def _fitting(chunk: Chunk, max_records: int, max_bytes: int, first: bool) -> tuple[int, int]:
    """Return how many of a chunk's records fit, and their bytes.

    At least one where `first`. Where all would fit in bytes, a part's bytes are its share: to measure each record takes
    time.
    """
    if chunk.size <= max_bytes:
        count = min(len(chunk), max_records)
        return count, chunk.size * count // len(chunk)
    count = size = 0
    for one in map(record_size, islice(chunk.records, chunk.start, chunk.start + max_records)):
        if size + one > max_bytes and (count or not first):
            break
        count, size = count + 1, size + one
    return count, size
