"""Batches as kafka-python parses them, with bounds that it lacks, and an end where a batch cannot be read.

It decompresses every batch: 1 MB can become 30 GB, or a record of 30 million headers that are empty. And once a batch could not
be read, `poll` looks for its next record without end or pause. `KafkaPythonClient` gives the classes here to its own fetcher
alone.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import lz4.frame
import snappy
import zstandard
from kafka.consumer.fetcher import Fetcher
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.legacy_records import LegacyRecordBatch
from kafka.record.memory_records import MemoryRecords
from kafka.record.util import decode_varint
from kafka.structs import TopicPartition as KafkaPartition

from inbound.errors import UnreadableBatchError
from inbound.processors.batch import HEADER_BYTES

#: So many bytes are made at a time.
PIECE = 256 * 1024
#: So many compressed bytes are given to a decoder at a time: the rest is copied, once for each of many small texts in one.
GIVEN = 16 * 1024
_XERIAL = b"\x82SNAPPY\x00"  # then two numbers of four bytes, then blocks, each with its length before it
_XERIAL_HEADER = 16
#: zstd's own bound for what a frame may refer back to; it is reserved when a frame says so.
_WINDOW = 128 * 1024 * 1024

#: Takes compressed data and how many bytes it may become; returns them, or raises TooLargeError.
Decoder = Callable[[bytes, int], bytes]


class TooLargeError(Exception):
    """It would become more than was allowed."""


def gunzip(data: bytes, limit: int) -> bytes:
    """Decompress gzip; several members one after the other are one text.

    Raises:
        TooLargeError: it is more than `limit` bytes.
        zlib.error: it is no gzip.
    """
    made, given = _Made(limit), _Given(data)
    rest = given.next()
    while rest:
        member = zlib.decompressobj(wbits=31)
        while True:
            made.add(piece := member.decompress(rest, PIECE))
            if member.eof:
                break
            rest = member.unconsumed_tail or given.next()
            if not (piece or rest):
                raise zlib.error("the compressed data ends too early")
        given.put_back(len(member.unused_data))
        rest = given.next_text()
    return made.whole()


def unsnappy(data: bytes, limit: int) -> bytes:
    """Decompress snappy, in one block or in those of the Java library. Raises as `gunzip` does."""
    if not data.startswith(_XERIAL):
        return _block(data, limit)
    if len(data) < _XERIAL_HEADER:
        raise ValueError("the compressed data ends too early")
    made, at = _Made(limit), _XERIAL_HEADER
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        if at + 4 + length > len(data):
            raise ValueError("the compressed data ends too early")
        made.add(_block(data[at + 4 : at + 4 + length], limit - made.size))
        at += 4 + length
    return made.whole()


def _block(data: bytes, limit: int) -> bytes:
    """Decompress a block of snappy, which begins with its decompressed length as a varint."""
    length = shift = 0
    for byte in data[:5]:
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if length > limit:
        raise TooLargeError
    block: bytes = snappy.decompress(data)
    return block


def unlz4(data: bytes, limit: int) -> bytes:
    """Decompress LZ4 frames. Raises as `gunzip` does."""
    made, given = _Made(limit), _Given(data)
    while rest := given.next():
        frame = lz4.frame.LZ4FrameDecompressor()
        while not frame.eof:
            piece = frame.decompress(rest, max_length=PIECE)
            made.add(piece)
            rest = given.next() if frame.needs_input and not frame.eof else b""
            if not (piece or rest) and frame.needs_input and not frame.eof:
                raise ValueError("the compressed data ends too early")
        given.put_back(len(frame.unused_data or b""))
    return made.whole()


def unzstd(data: bytes, limit: int) -> bytes:
    """Decompress zstd frames. Raises as `gunzip` does."""
    made = _Made(limit)
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
    with decompressor.stream_reader(io.BytesIO(data), read_across_frames=True) as reader:
        while piece := reader.read(PIECE):
            made.add(piece)
    return made.whole()


class _Given:
    """Compressed data, piece by piece."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def next(self) -> bytes:
        piece = self._data[self._at : self._at + GIVEN]
        self._at += len(piece)
        return piece

    def next_text(self) -> bytes:
        """Return the next piece without the zeros that may fill up what is before it."""
        while piece := self.next():
            if text := piece.lstrip(b"\x00"):
                return text
        return b""

    def put_back(self, count: int) -> None:
        """So many bytes of the last piece belong to what comes next."""
        self._at -= count


class _Made:
    """Collects pieces up to a limit."""

    def __init__(self, limit: int) -> None:
        self.size = 0
        self._limit = limit
        self._pieces: list[bytes] = []

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > self._limit:
            raise TooLargeError
        self._pieces.append(piece)

    def whole(self) -> bytes:
        return b"".join(self._pieces)


DECODERS: Mapping[int, Decoder] = {
    DefaultRecordBatch.CODEC_GZIP: gunzip,
    DefaultRecordBatch.CODEC_SNAPPY: unsnappy,
    DefaultRecordBatch.CODEC_LZ4: unlz4,
    DefaultRecordBatch.CODEC_ZSTD: unzstd,
}


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
    """Return the number of headers that a record announces; 0 if it is too short for thousands, or broken."""
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
            made: bytes = super()._decompress(key_offset)  # raises: the checksum of Kafka 0.8 was another
            return made
        _, value = self._read_key_value(key_offset)
        if value is None:
            raise ValueError("the value of a compressed message is missing")
        last = self._offset  # a message that holds others has the offset of the last one
        return self._decompress_within(self.compression_type, value, last, last + 1)


def beyond(parts: Mapping[KafkaPartition, Any], limit: int) -> set[KafkaPartition]:
    """Return which answers to drop and fetch again, so that the rest is within `limit` bytes.

    `parts` are answers that wait, with their decompressed bytes: their partitions were paused in the midst of one. The largest
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

    class BoundedPart(Fetcher.PartitionRecords):  # type: ignore[misc]
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
            except Exception as error:  # it raises many kinds of errors for broken data
                self.drain()
                said = f"{type(error).__name__}: {error}; move the group past it (inbound offsets reset)"
                key: KafkaPartition = self.topic_partition
                raise UnreadableBatchError(key.topic, key.partition, self.next_fetch_offset, said) from error
            return taken

    fetcher.PartitionRecords = BoundedPart
