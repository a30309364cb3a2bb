"""Batches that become too large, or are broken, on their way through kafka-python: read within a bound, or refused."""

from __future__ import annotations

import gzip
from types import SimpleNamespace
from typing import Any

import kafka.codec
import pytest
from kafka.record.memory_records import MemoryRecordsBuilder
from kafka.structs import TopicPartition

from inbound.errors import UnreadableBatchError
from inbound.kafka.python.bounded_records import beyond, bounded_parts
from inbound.kafka.python.client import _total_size
from inbound.kafka.python.decompression import DECODERS, TooLargeError
from inbound.processors.batch import record_size

TP = TopicPartition("orders", 0)
KIB, MIB = 1024, 1024 * 1024
ENCODERS = {
    1: kafka.codec.gzip_encode, 2: kafka.codec.snappy_encode, 3: kafka.codec.lz4_encode, 4: kafka.codec.zstd_encode,
}  # fmt: skip
CODECS = pytest.mark.parametrize("codec", ENCODERS, ids=["gzip", "snappy", "lz4", "zstd"])


def batch(*values: bytes, codec: int = 1, magic: int = 2, headers: int = 0) -> bytes:
    """Return a batch of records as a broker has it, each with so many headers of nothing."""
    made = MemoryRecordsBuilder(magic, codec, 1 << 30)
    for value in values:
        made.append(None, None, value, [("", b"")] * headers)
    made.close()
    return bytes(made.buffer())


def part(*batches: bytes, limit: int = 64 * KIB) -> Any:
    """Return what kafka-python takes records of an answer from."""
    fetcher = SimpleNamespace(PartitionRecords=None)
    position = SimpleNamespace(leader_epoch=-1)
    bounded_parts(fetcher, SimpleNamespace(assignment={TP: SimpleNamespace(position=position)}), limit)
    return fetcher.PartitionRecords(0, TP, SimpleNamespace(_buffer=b"".join(batches)))


@pytest.mark.parametrize(
    ("codec", "magic"), [(codec, magic) for magic in (1, 2) for codec in (1, 2, 3, 4)[: magic + 2]]
)
def test_a_batch_within_the_bound_is_read_as_ever(codec: int, magic: int) -> None:
    """Of both formats that there are; zstd came after the first."""
    values = [b"%d " % number * 100 for number in range(20)]

    taken = part(batch(*values, codec=codec, magic=magic)).take(100)

    assert [record.value for record in taken] == values


@CODECS
def test_a_batch_beyond_the_bound_is_not_read(codec: int) -> None:
    """It is never decompressed beyond the bound."""
    bomb = part(batch(b"\0" * 1024 * KIB, codec=codec))

    with pytest.raises(UnreadableBatchError) as error:
        bomb.take(100)

    assert str(error.value).startswith("orders/0: the batch of records at offset 0 cannot be read: ")
    assert "become more than 65536 (reader.max_decompressed_bytes) when they are decompressed; raise that, or" in str(
        error.value
    )


@pytest.mark.parametrize("magic", [1, 2])
def test_the_error_says_where_to_go_on_behind_such_a_batch(magic: int) -> None:
    """Its first offset does not say: at the one behind that the same batch is read, and held, again."""
    made = batch(*[b"\0" * 40 * KIB] * 3, magic=magic)
    bomb = part(made if magic == 2 else (2).to_bytes(8, "big") + made[8:])  # a broker has the last one's offset there

    with pytest.raises(UnreadableBatchError, match=r"move the group past it, to 3 \(inbound offsets reset\)"):
        bomb.take(100)


def test_that_there_is_no_memory_is_not_said_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error does not advise to move past it; the answer is over, and is fetched again."""

    def fails(data: bytes, limit: int) -> bytes:
        raise MemoryError

    monkeypatch.setitem(DECODERS, 1, fails)
    answer = part(batch(b"\0" * KIB))

    with pytest.raises(MemoryError):
        answer.take(100)
    assert not answer


def test_what_stands_before_such_a_batch_is_read_and_what_stands_behind_it_waits() -> None:
    """The error comes with the next look, and ends this answer: else kafka-python looks for its next record without end."""
    answer = part(batch(b"a"), batch(b"\0" * 1024 * KIB), batch(b"b"))

    first = [record.value for record in answer.take(100)]
    with pytest.raises(UnreadableBatchError):
        answer.take(100)

    assert (first, bool(answer)) == ([b"a"], False)


def test_an_answer_of_many_batches_is_read_up_to_the_bound() -> None:
    """A thousand small batches can become as much as one large one: the rest is fetched again, from where this one ended."""
    answer = part(*[batch(b"\0" * 40 * KIB) for _ in range(10)])

    taken = answer.take(100)

    assert (len(taken), bool(answer), answer.next_fetch_offset) == (2, False, 1)


@pytest.mark.parametrize(("headers", "taken"), [(400, 2), (1000, 1), (1001, 0), (20_000, 0)])
@pytest.mark.parametrize("codec", [0, 4], ids=["plain", "zstd"])
def test_headers_are_counted_however_short_they_are(
    monkeypatch: pytest.MonkeyPatch, codec: int, headers: int, taken: int
) -> None:
    """276 bytes can be a record of three million, which take 190 MiB, and nothing by their own bytes."""
    monkeypatch.setattr("inbound.kafka.python.bounded_records.HEADERS", 1000)
    monkeypatch.setattr("inbound.kafka.python.bounded_records.HEADER_BYTES", MIB)
    answer = part(batch(b"a", b"b", b"c", codec=codec, headers=headers), limit=MIB)
    read = answer.take(100) if taken else []

    with pytest.raises(UnreadableBatchError, match="its records have more than 1000 headers; see who publishes that"):
        answer.take(100)

    assert (len(read), bool(answer)) == (taken, False)


def test_a_batch_of_too_many_headers_says_where_to_go_on_and_is_not_fetched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is the same the next time; and at the record behind, the same batch is met again."""
    monkeypatch.setattr("inbound.kafka.python.bounded_records.HEADERS", 1000)
    answer = part(batch(b"a", b"b", b"c", headers=1001), limit=64 * 1000)

    with pytest.raises(UnreadableBatchError) as error:
        answer.take(100)

    assert ("move the group past it, to 3 (inbound offsets reset)" in str(error.value), error.value.broken) == (
        True,
        False,
    )


def test_a_record_of_many_headers_is_as_large_as_what_they_take() -> None:
    """Else a thousand of them were read ahead, 32 MiB each, and counted as nothing."""
    (record,) = part(batch(b"x", headers=10_016)).take(100)

    assert (record_size(record), _total_size([record])) == (640_001, 640_001)


@pytest.mark.parametrize(
    "broken",
    [b"", b"\x1f\x8b\x08", gzip.compress(b"x" * 1000)[:-20], b"no gzip at all"],
    ids=["nothing", "torn head", "torn end", "no gzip"],
)
def test_broken_data_is_reported_as_broken(broken: bytes) -> None:
    """For any exception of a library: it is about this partition, and over."""
    head = batch(b"a", codec=0)[:61]
    made = bytearray(head + broken)
    made[8:12] = (len(made) - 12).to_bytes(4, "big")
    made[22] |= 1  # gzip
    answer = part(bytes(made))
    answer.check_crcs = False

    with pytest.raises(UnreadableBatchError, match="orders/0: the batch of records at offset 0 cannot be read"):
        answer.take(100)

    assert not answer


@CODECS
@pytest.mark.parametrize("size", [0, 1, 300 * KIB, 1000 * KIB])
def test_each_codec_gives_back_what_was_compressed(codec: int, size: int) -> None:
    """And not a byte more than it may."""
    plain = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    data = ENCODERS[codec](plain)

    assert DECODERS[codec](data, size) == plain
    if size:
        with pytest.raises(TooLargeError):
            DECODERS[codec](data, size - 1)


def test_answers_of_paused_partitions_are_bounded_together() -> None:
    """What has become the most is fetched again; one alone is kept, however large."""
    waiting = {}
    for number, size in enumerate((10, 40, 20, 30)):
        one = waiting[TopicPartition("orders", number)] = part(batch(b"\0" * size * KIB, b""))
        one.take(1)

    assert [sorted(key.partition for key in beyond(waiting, limit * KIB)) for limit in (110, 90, 45, 5)] == [
        [], [1], [1, 3], [1, 2, 3],
    ]  # fmt: skip
