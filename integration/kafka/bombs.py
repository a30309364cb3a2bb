"""Batches of a few KiB that become hundreds of MiB: made piece by piece, and sent by the protocol itself, for no producer would."""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import lz4.frame
import snappy
import zstandard
from kafka.record.util import calc_crc32c

from tests.waiting import until

MIB = 2**20
#: Answers of a broker.
NONE, MESSAGE_TOO_LARGE = 0, 10
#: It has heard of the topic, or that it leads the partition, only a moment after the controller's word for it.
_NOT_YET = {3, 6}
_PRODUCE, _VERSION = 0, 7
_XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


def bomb(codec: str, mib: int) -> bytes:
    """Return a batch whose only record has a value of so many MiB, all zeros; of a length that the codec allows."""
    number, compress = _CODECS[codec]
    body = compress(_pieces(mib * MIB))
    covered = struct.pack(">hiqqqhii", number, 0, 1, 1, -1, -1, -1, 1) + body
    return struct.pack(">qiibI", 0, 9 + len(covered), -1, 2, calc_crc32c(covered)) + covered


def publish(servers: str, topic: str, partition: int, batch: bytes) -> int:
    """Have a broker append a batch as it is, as soon as it leads the partition. Returns its error code."""
    answers: list[int] = []

    def answered() -> bool:
        answers.append(_publish_once(servers, topic, partition, batch))
        return answers[-1] not in _NOT_YET

    until(answered, 30, lambda: f"{topic}-{partition} has its leader at {servers}: {answers[-1]}")
    return answers[-1]


def _publish_once(servers: str, topic: str, partition: int, batch: bytes) -> int:
    host, port = servers.split(",")[0].rsplit(":", 1)
    request = struct.pack(">hhi", _PRODUCE, _VERSION, 1) + _text("bomb") + struct.pack(">hhii", -1, -1, 60_000, 1)
    request += _text(topic) + struct.pack(">iii", 1, partition, len(batch)) + batch
    with socket.create_connection((host, int(port)), timeout=120) as client:
        client.sendall(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
        answer = client.recv(length, socket.MSG_WAITALL)
    # Its number, one topic with its name, one partition with its own number: then the error.
    (error,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
    return int(error)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _number(value: int) -> bytes:
    """Return a number in pieces of 7 bits, as records have them."""
    rest, written = (value << 1) ^ (value >> 63), bytearray()
    while rest > 0x7F:
        written.append(0x80 | rest & 0x7F)
        rest >>= 7
    return bytes([*written, rest])


def _pieces(size: int) -> Iterator[bytes]:
    head = b"\0" + _number(0) + _number(0) + _number(-1) + _number(size)
    yield _number(len(head) + size + 1) + head
    zeros = bytes(MIB)
    for at in range(0, size, MIB):
        yield zeros[: size - at]
    yield _number(0)


def _gzip(pieces: Iterable[bytes]) -> bytes:
    made = zlib.compressobj(9, wbits=31)
    return b"".join([*map(made.compress, pieces), made.flush()])


def _zstd(pieces: Iterable[bytes]) -> bytes:
    made = zstandard.ZstdCompressor(level=19).compressobj()
    return b"".join([*map(made.compress, pieces), made.flush()])


def _zstd_sized(pieces: Iterable[bytes]) -> bytes:
    """Say in the frame how large it becomes."""
    made: bytes = zstandard.ZstdCompressor(level=3).compress(b"".join(pieces))
    return made


def _lz4(pieces: Iterable[bytes]) -> bytes:
    made = lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False)
    return b"".join([made.begin(), *map(made.compress, pieces), made.flush()])


def _snappy(pieces: Iterable[bytes]) -> bytes:
    """Write blocks, as the Java library does."""
    blocks = (snappy.compress(piece) for piece in pieces)
    return _XERIAL + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def _snappy_plain(pieces: Iterable[bytes]) -> bytes:
    made: bytes = snappy.compress(b"".join(pieces))
    return made


def _snappy_lie(pieces: Iterable[bytes]) -> bytes:
    """Say that it becomes 4 GiB."""
    made: bytes = snappy.compress(b"x")
    return b"\xff\xff\xff\xff\x0f" + made[1:]


_CODECS: Mapping[str, tuple[int, Callable[[Iterable[bytes]], bytes]]] = {
    "gzip": (1, _gzip),
    "snappy": (2, _snappy),
    "snappy-plain": (2, _snappy_plain),
    "snappy-lie": (2, _snappy_lie),
    "lz4": (3, _lz4),
    "zstd": (4, _zstd),
    "zstd-sized": (4, _zstd_sized),
}
