"""What kafka-python takes apart for us, with what it lacks: bounds, and an end where a batch cannot be read.

It decompresses whatever comes: 1 MB can become 30 GB, or a record of 30 million headers that are empty. And once a batch could not
be read, `poll` looks for its next record for ever, without a pause. It is told of the classes here by `KafkaPythonClient`, for its
own fetcher alone.
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
from inbound.kafka.decompression import DECODERS, TooLargeError
from inbound.processors.batch import HEADER_BYTES

#: Of all records of a batch together, if the bound in bytes does not make more of them: what an honest producer never comes near.
HEADERS = 1_000_000


class _Decompress(Protocol):
    def __call__(self, codec: int, data: bytes, offset: int, next_offset: int) -> bytes: ...


class BoundedRecords(MemoryRecords):  # type: ignore[misc]
    """The batches of an answer for one partition, each decompressed when it is its turn."""

    __slots__ = ("_headers", "_key", "_left", "_limit")

    def __init__(self, buffer: Any, key: KafkaPartition, limit: int) -> None:
        """`limit` in bytes is for each batch; and once so much has been made of the answer, the rest is fetched again later."""
        super().__init__(buffer)
        self._key = key
        self._limit = self._left = limit
        self._headers = max(HEADERS, limit // HEADER_BYTES)

    def next_batch(self, *args: int) -> Any:
        """Return the next batch; None: there is none, or enough has been made."""
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
        """How many bytes the answer has become so far."""
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
        """So many `headers` the records may have together."""
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
        """Raise UnreadableBatchError where `count` headers more are too many."""
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
    """Return how many headers the record there says that it has; 0 where it is too short to have thousands, or broken."""
    try:
        if not buffer[at] & buffer[at + 1] & 0x80:  # so it has less than 8 KiB
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
    """As brokers before Kafka 4 may have it: a message whose value is the others, compressed."""

    __slots__ = ("_decompress_within",)

    def __init__(self, buffer: Any, magic: int, decompress: _Decompress) -> None:
        super().__init__(buffer, magic)
        self._decompress_within = decompress

    def _decompress(self, key_offset: int) -> bytes:
        if self._magic == 0 and self.compression_type == self.CODEC_LZ4:
            made: bytes = super()._decompress(key_offset)  # says what it takes: the checksum of Kafka 0.8 was another
            return made
        _, value = self._read_key_value(key_offset)
        if value is None:
            raise ValueError("the value of a compressed message is missing")
        last = self._offset  # a message that holds others has the offset of the last one
        return self._decompress_within(self.compression_type, value, last, last + 1)


def beyond(parts: Mapping[KafkaPartition, Any], limit: int) -> set[KafkaPartition]:
    """Return which of these answers are to be thrown away and fetched again, so that the rest is within `limit` bytes.

    `parts` are answers that wait, each with what it has become: their partitions were paused in the midst of one. The largest
    go first; one alone may be as large as it is.
    """
    total = sum(part.bounded.made for part in parts.values())
    found: set[KafkaPartition] = set()
    if total <= limit:  # nearly always, and asked with each poll
        return found
    largest = sorted(parts, key=lambda key: parts[key].bounded.made)
    while total > limit and len(largest) > 1:
        key = largest.pop()
        total -= parts[key].bounded.made
        found.add(key)
    return found


def bounded_parts(fetcher: Fetcher, subscription: Any, limit: int) -> None:
    """Have a consumer's fetcher take answers apart as described here.

    An answer without records leaves the leader epoch of a position alone. kafka-python forgets it with the first fetch that
    finds nothing new: a log that is cut and grows again while a partition stands at its end would be read on as if nothing had
    happened.
    """

    class Part(Fetcher.PartitionRecords):  # type: ignore[misc]
        def __init__(self, fetch_offset: int, tp: KafkaPartition, records: Any, *args: Any, **kwargs: Any) -> None:
            self.bounded = BoundedRecords(records._buffer, tp, limit)
            super().__init__(fetch_offset, tp, self.bounded, *args, **kwargs)
            self.leader_epoch = subscription.assignment[tp].position.leader_epoch  # until a batch names another

        def take(self, n: int | None = None) -> list[Any]:
            try:
                taken: list[Any] = super().take(n)
            except (UnreadableBatchError, MemoryError):
                # That there is no memory is not about the batch: it is fetched again.
                self.drain()
                raise
            except Exception as error:  # what it raises for broken data is of many kinds
                self.drain()
                said = f"{type(error).__name__}: {error}; move the group past it (inbound offsets reset)"
                key: KafkaPartition = self.topic_partition
                raise UnreadableBatchError(key.topic, key.partition, self.next_fetch_offset, said) from error
            return taken

    fetcher.PartitionRecords = Part
