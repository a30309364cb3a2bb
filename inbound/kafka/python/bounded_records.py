"""Bounds the batches that kafka-python parses, and reports unreadable ones.

kafka-python decompresses every batch: 1 MB can become 30 GB, or a record of 30 million empty headers. And after an unreadable
batch, `poll` looks for its next record without end or pause. `KafkaPythonClient` gives these classes to its own fetcher alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kafka.consumer.fetcher import Fetcher
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.legacy_records import LegacyRecordBatch
from kafka.record.memory_records import MemoryRecords
from kafka.record.util import decode_varint
from kafka.structs import TopicPartition as KafkaPartition

from inbound.errors import UnreadableBatchError
from inbound.kafka.python.decompression import DECODERS, TooLargeError
from inbound.processors.batch import HEADER_BYTES

#: The most headers of a batch, unless its bound in bytes allows more: no honest producer comes near it.
HEADERS = 1_000_000


class _Decompress(Protocol):
    def __call__(self, codec: int, data: bytes, offset: int, next_offset: int) -> bytes: ...


class BoundedRecords(MemoryRecords):  # type: ignore[misc]
    """The batches of one partition's answer, decompressed one by one."""

    __slots__ = ("_headers", "_key", "_left", "_limit")

    def __init__(self, buffer: Any, key: KafkaPartition, limit: int) -> None:
        """`limit` bounds each decompressed batch, in bytes.

        After as many bytes of the whole answer the rest is fetched again later.
        """
        super().__init__(buffer)
        self._key = key
        self._limit = self._left = limit
        self._headers = max(HEADERS, limit // HEADER_BYTES)

    def next_batch(self, *args: int) -> Any:
        """Return the next batch; None at the end or the limit."""
        if self._left <= 0:
            return None
        batch = super().next_batch(*args)
        if batch is None:
            return None
        if batch.magic >= 2:
            return _Batch(batch._buffer, self._decompressed, self._headers, self._key)
        if not batch.compression_type:
            return batch
        return _LegacyBatch(batch._buffer, batch.magic, self._decompressed)

    @property
    def made(self) -> int:
        """The decompressed bytes of the answer so far."""
        return self._limit - self._left

    def _decompressed(self, codec: int, data: bytes, offset: int, next_offset: int) -> bytes:
        try:
            made = DECODERS[codec](data, self._limit)
        except TooLargeError:
            key, size = self._key, len(data)
            raise UnreadableBatchError.too_large(
                key.topic, key.partition, offset, next_offset, size, self._limit
            ) from None
        self._left -= len(made)
        return made


class _Batch(DefaultRecordBatch):  # type: ignore[misc]
    __slots__ = ("_decompress_within", "_headers_left", "_key", "_most_headers")

    def __init__(self, buffer: Any, decompress: _Decompress, headers: int, key: KafkaPartition) -> None:
        """`headers` is the most that the records may have together."""
        super().__init__(buffer)
        self._decompress_within = decompress
        self._headers_left = self._most_headers = headers
        self._key = key

    def __next__(self) -> Any:
        batch: Any = self
        self._bear(self.base_offset, _announced(batch._buffer, batch._pos))
        record = super().__next__()
        count = len(record.headers)
        self._bear(record.offset, count)
        self._headers_left -= count
        return record

    next = __next__

    def _bear(self, offset: int, count: int) -> None:
        """Raise UnreadableBatchError if `count` more headers are too many."""
        if count > self._headers_left:
            key = self._key
            raise UnreadableBatchError.too_many_headers(
                key.topic, key.partition, offset, self.next_offset, self._most_headers
            )

    def _maybe_uncompress(self) -> None:
        batch: Any = self
        if self.compression_type and not batch._decompressed:
            data = bytes(memoryview(batch._buffer)[batch._pos :])
            batch._buffer = bytearray(
                self._decompress_within(self.compression_type, data, self.base_offset, self.next_offset)
            )
            batch._pos, batch._decompressed = 0, True


def _announced(buffer: Any, at: int) -> int:
    """Return a record's announced number of headers; 0 if short or broken.

    A short record has too few to matter.
    """
    try:
        if not buffer[at] & buffer[at + 1] & 0x80:  # it is shorter than 8 KiB
            return 0
        for _ in range(4):  # its length, attributes, time, offset
            _, at = decode_varint(buffer, at)
        for _ in range(2):  # key and value
            length, at = decode_varint(buffer, at)
            at += max(0, length)
        return int(decode_varint(buffer, at)[0])
    except (IndexError, ValueError):
        return 0


class _LegacyBatch(LegacyRecordBatch):  # type: ignore[misc]
    """A message whose value is other messages, from before Kafka 4."""

    __slots__ = ("_decompress_within",)

    def __init__(self, buffer: Any, magic: int, decompress: _Decompress) -> None:
        super().__init__(buffer, magic)
        self._decompress_within = decompress

    def _decompress(self, key_offset: int) -> bytes:
        if self._magic == 0 and self.compression_type == self.CODEC_LZ4:
            made: bytes = super()._decompress(key_offset)  # raises: Kafka 0.8 had another checksum
            return made
        _, value = self._read_key_value(key_offset)
        if value is None:
            raise ValueError("the value of a compressed message is missing")
        last = self._offset  # a message with others has the offset of the last one
        return self._decompress_within(self.compression_type, value, last, last + 1)


def beyond(parts: Mapping[KafkaPartition, Any], limit: int) -> set[KafkaPartition]:
    """Return the answers to drop, so that the others fit `limit` bytes.

    `parts` are the answers of partitions that were paused within one. The largest are dropped first; a single one may be
    larger than the limit. Dropped ones are fetched again.
    """
    total = sum(part.bounded.made for part in parts.values())
    found: set[KafkaPartition] = set()
    if total <= limit:  # nearly always, and each poll asks
        return found
    largest = sorted(parts, key=lambda key: parts[key].bounded.made)
    while total > limit and len(largest) > 1:
        key = largest.pop()
        total -= parts[key].bounded.made
        found.add(key)
    return found


def bounded_parts(fetcher: Fetcher, subscription: Any, limit: int) -> None:
    """Let a consumer's fetcher parse answers with the bounds of this file.

    And an answer without records keeps the leader epoch of the position. kafka-python forgets it with the first empty fetch: a
    log that is cut and grows again while its partition is read to the end would be read on as if nothing had happened.
    """

    class BoundedPart(Fetcher.PartitionRecords):  # type: ignore[misc]
        def __init__(self, fetch_offset: int, tp: KafkaPartition, records: Any, *args: Any, **kwargs: Any) -> None:
            self.bounded = BoundedRecords(records._buffer, tp, limit)
            super().__init__(fetch_offset, tp, self.bounded, *args, **kwargs)
            self.leader_epoch = subscription.assignment[tp].position.leader_epoch  # until a batch names another

        def take(self, n: int | None = None) -> list[Any]:
            try:
                taken: list[Any] = super().take(n)
            except (UnreadableBatchError, MemoryError):
                # A lack of memory is not the batch's fault: it is fetched again.
                self.drain()
                raise
            except Exception as error:  # broken data raises many kinds of errors
                self.drain()
                said = f"{type(error).__name__}: {error}; move the group past it (inbound offsets reset)"
                key: KafkaPartition = self.topic_partition
                raise UnreadableBatchError(key.topic, key.partition, self.next_fetch_offset, said) from error
            return taken

    fetcher.PartitionRecords = BoundedPart
