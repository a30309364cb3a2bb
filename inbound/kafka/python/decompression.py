"""Decompresses gzip, snappy, LZ4 and zstd up to a limit.

Each decoder returns the decompressed bytes. It raises TooLargeError if they are more than `limit`, and an error of its own
kind, or ValueError, if the data is broken.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Mapping

import lz4.frame
import snappy
import zstandard
from kafka.record.default_records import DefaultRecordBatch

#: Bytes that a decoder makes at a time.
PIECE = 256 * 1024
#: Compressed bytes that a decoder gets at a time: it copies the rest, once for each of many small members in one.
GIVEN = 16 * 1024
_XERIAL = b"\x82SNAPPY\x00"  # then two numbers of four bytes, then blocks, each with its length before it
_XERIAL_HEADER = 16
#: zstd's own bound for how far a frame may refer back; a frame makes zstd reserve it.
_WINDOW = 128 * 1024 * 1024


class TooLargeError(Exception):
    """The decompressed data is larger than the limit."""


def gunzip(data: bytes, limit: int) -> bytes:
    """Decompress the members of gzip, one after the other."""
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
    """Decompress snappy, as one block or in the Java library's frames."""
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
    """Decompress a block, which begins with its decompressed length as varint."""
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
    """Decompress LZ4 frames."""
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
    """Decompress zstd frames."""
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
        """Return the next piece, without the zeros that pad the member before."""
        while piece := self.next():
            if text := piece.lstrip(b"\x00"):
                return text
        return b""

    def put_back(self, count: int) -> None:
        """Return the last `count` bytes of the last piece to the data."""
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


#: The decoders by Kafka's codec number; each gets the data and the limit in bytes.
DECODERS: Mapping[int, Callable[[bytes, int], bytes]] = {
    DefaultRecordBatch.CODEC_GZIP: gunzip,
    DefaultRecordBatch.CODEC_SNAPPY: unsnappy,
    DefaultRecordBatch.CODEC_LZ4: unlz4,
    DefaultRecordBatch.CODEC_ZSTD: unzstd,
}
