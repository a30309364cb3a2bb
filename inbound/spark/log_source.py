"""The offsets of a Kafka log that have a record, as bits.

Spark's JVM finds them, and the driver collects them. A compacted or transactional log can have as many gaps as records. So a
scan yields no ranges but a bit per offset, 64 in a row: at most a quarter of a byte per offset for any log, and about the
cost of a count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import NDArray

from inbound.proof.model import OffsetRange
from inbound.spark.kafka_source import Ranges, read_log
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Offsets that share a row.
_BITS = 64
_NO, _ONE = np.uint64(0), np.uint64(1)
_TOP = np.uint64(_BITS - 1)


def present_offsets(
    spark: SparkSession, kafka: Mapping[str, object], ranges: Ranges, *, read_committed: bool
) -> dict[TopicPartition, Bits]:
    """Return the offsets with a record; `ranges` must be within the log."""
    topics = sorted(topic for topic, parts in ranges.items() if any(first < end for first, end in parts.values()))
    if not topics:
        return {}
    wanted = {topic: {p: r for p, r in ranges[topic].items() if r[0] < r[1]} for topic in topics}
    rows = _words(read_log(spark, kafka, wanted, read_committed=read_committed), topics).toArrow()
    topic, partition, word, bits = (rows[name].to_numpy() for name in ("t", "partition", "word", "bits"))
    order = np.lexsort((word, partition, topic))
    topic, partition, word, bits = topic[order], partition[order], word[order], bits[order].view(np.uint64)
    starts = np.flatnonzero((np.diff(topic, prepend=-1) != 0) | (np.diff(partition, prepend=-1) != 0))
    ends = [*starts[1:].tolist(), len(topic)]
    return {
        TopicPartition(topics[int(topic[at])], int(partition[at])): Bits(word[at:end], bits[at:end])
        for at, end in zip(starts.tolist(), ends, strict=True)
    }


def _words(log: DataFrame, topics: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as sql

    # A topic's number makes a cheaper key than its name.
    number = (
        sql.lit(0) if len(topics) == 1 else sql.array_position(sql.array(*map(sql.lit, topics)), sql.col("topic")) - 1
    )
    bit = sql.expr(f"shiftleft(1L, cast(offset & {_BITS - 1} as int))")
    keys = (number.cast("int").alias("t"), sql.col("partition"), sql.shiftright("offset", 6).alias("word"))
    return log.groupBy(*keys).agg(sql.bit_or(bit).alias("bits"))


@dataclass(frozen=True, slots=True)
class Bits:
    """A set of offsets."""

    word: NDArray[np.int64]  # ascending
    bits: NDArray[np.uint64]  # bit i of `bits[n]` is offset 64 * word[n] + i; none is 0

    def __len__(self) -> int:
        return int(np.bitwise_count(self.bits).sum())

    def ranges(self) -> OffsetRanges:
        """Return the offsets as ascending ranges that do not touch."""
        word, bits = self.word, self.bits
        if not len(word):
            return OffsetRanges(np.empty(0, np.int64), np.empty(0, np.int64))
        follows = np.diff(word, prepend=word[0] - 2) == 1  # the word before is there
        before = np.where(follows, np.roll(bits, 1) >> _TOP, _NO)
        followed = np.append(follows[1:], False)
        after = np.where(followed, np.roll(bits, -1) & _ONE, _NO)
        firsts = _offsets(word, bits & ~((bits << _ONE) | before))
        lasts = _offsets(word, bits & ~((bits >> _ONE) | (after << _TOP)))
        return OffsetRanges(firsts, lasts + 1)


def _offsets(word: NDArray[np.int64], bits: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the offsets of all set bits, ascending."""
    some = np.flatnonzero(bits)
    spread = np.unpackbits(bits[some].astype("<u8").view(np.uint8), bitorder="little").reshape(-1, _BITS)
    row, bit = np.nonzero(spread)
    return word[some][row] * _BITS + bit


class OffsetRanges(Sequence[OffsetRange]):
    """Ranges in two arrays, in a tenth of a list's memory."""

    __slots__ = ("firsts", "nexts")

    def __init__(self, firsts: NDArray[np.int64], nexts: NDArray[np.int64]) -> None:
        self.firsts = firsts
        self.nexts = nexts

    def __len__(self) -> int:
        return len(self.firsts)

    @overload
    def __getitem__(self, index: int) -> OffsetRange: ...
    @overload
    def __getitem__(self, index: slice) -> OffsetRanges: ...
    def __getitem__(self, index: int | slice) -> OffsetRange | OffsetRanges:
        if isinstance(index, slice):
            return OffsetRanges(self.firsts[index], self.nexts[index])
        return int(self.firsts[index]), int(self.nexts[index])
