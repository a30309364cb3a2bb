"""Batches of records decompressed within a bound: a few KiB can stand for gigabytes, and brokers pass them on.

Each codec of Kafka's, piece by piece: what it would become is not to be had from the data, or is the word of whoever sent it.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Mapping

import lz4.frame
import snappy
import zstandard
from kafka.record.default_records import DefaultRecordBatch

#: So many bytes are made at a time.
PIECE = 256 * 1024
#: So many compressed bytes are given to a decoder at a time: what it leaves is copied, by each of many small texts in one.
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
    """Return what gzip has compressed; several members one after the other are one text.

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
    """Return what snappy has compressed, as one block or in those of the Java library. Raises as `gunzip` does."""
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
    """Return a block of snappy, which begins with how long it becomes: a number in pieces of 7 bits, the lowest first."""
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
    """Return what LZ4 has compressed, in frames. Raises as `gunzip` does."""
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
    """Return what zstd has compressed, in frames. Raises as `gunzip` does."""
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
