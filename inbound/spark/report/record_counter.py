"""Counts a log's records and their delays by time, on executors."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from inbound.report.figures import BINS_PER_E, Tally, TimeWindow
from inbound.spark.report.landings import Ints, Landings
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark import Broadcast

#: The kinds of counts; `bin` is a delay's bin, or the longest delay in milliseconds.
PUBLISHED, LANDED, DELAY, LONGEST, BEFORE, AHEAD = range(6)
#: The counts' columns: number of the series, number of the bucket, kind (`what`), bin, count.
SCHEMA = pa.schema([(name, pa.int64()) for name in ("series", "bucket", "what", "bin", "n")])
SCHEMA_TEXT = ", ".join(f"{name} bigint" for name in SCHEMA.names)

Count = tuple[int, int, int, int]
#: By partition: the landings to compare its records with, by number of the series (one group's reading of one topic).
Lookup = Mapping[TopicPartition, Sequence[tuple[int, Landings]]]


class RecordCounter:
    """Counts a task's records. One thread."""

    def __init__(self, lookup: Lookup, window: TimeWindow) -> None:
        self._lookup = lookup
        self._begin = round(window.begin * 1000)
        self._width = round(window.width * 1000)
        self._buckets = window.buckets
        self._counts: dict[Count, int] = defaultdict(int)
        self._longest: dict[tuple[int, int], int] = {}

    def add(self, tp: TopicPartition, offsets: Ints, timestamps: Ints) -> None:
        """Count one partition's records; timestamps are Kafka's, in milliseconds."""
        for series, landings in self._lookup.get(tp, ()):
            known = offsets >= landings.first
            if len(landings.commits) or known.any():
                self._add(series, landings, offsets[known], timestamps[known])

    def rows(self) -> pa.RecordBatch:
        rows = [(*count, n) for count, n in self._counts.items()]
        rows += [(series, bucket, LONGEST, most, 1) for (series, bucket), most in self._longest.items()]
        columns = zip(*rows, strict=True) if rows else ([] for _ in SCHEMA.names)
        return pa.RecordBatch.from_arrays([pa.array(column, pa.int64()) for column in columns], schema=SCHEMA)

    def _add(self, series: int, landings: Landings, offsets: Ints, timestamps: Ints) -> None:
        at = np.searchsorted(landings.commits, offsets, side="right")
        landed = at < len(landings.commits)
        end = self._begin + self._width * self._buckets
        # A producer's clock may be ahead: a record that landed was published before.
        timestamps = np.where(landed, np.minimum(timestamps, end - 1), timestamps)
        before = timestamps < self._begin
        self._count(series, 0, BEFORE, int(before.sum()))
        self._buckets_of(series, PUBLISHED, timestamps[~before & (timestamps < end)])
        when = landings.at[at[landed]]
        delays = when - timestamps[landed]
        self._buckets_of(series, LANDED, when)
        self._count(series, 0, AHEAD, int((delays < 0).sum()))
        delays = np.maximum(delays, 0)
        bins = (np.log1p(delays) * BINS_PER_E).astype(np.int64)
        buckets = (when - self._begin) // self._width
        for code, n in zip(
            *(part.tolist() for part in np.unique(buckets << 32 | bins, return_counts=True)), strict=True
        ):
            self._count(series, code >> 32, DELAY, n, code & 0xFFFFFFFF)
        for bucket in np.unique(buckets).tolist():
            most = int(delays[buckets == bucket].max())
            self._longest[series, bucket] = max(most, self._longest.get((series, bucket), 0))

    def _buckets_of(self, series: int, what: int, times: Ints) -> None:
        buckets, counts = np.unique((times - self._begin) // self._width, return_counts=True)
        for bucket, n in zip(buckets.tolist(), counts.tolist(), strict=True):
            self._count(series, bucket, what, n)

    def _count(self, series: int, bucket: int, what: int, n: int, bin_: int = 0) -> None:
        if n:
            self._counts[series, bucket, what, bin_] += n


def counting(
    lookup: Broadcast[Lookup], window: TimeWindow
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow` that counts records.

    Its columns are topic, partition, offset and timestamp (ms).
    """

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counter = RecordCounter(lookup.value, window)
        for batch in batches:
            for tp, offsets, timestamps in _by_partition(batch):
                counter.add(tp, offsets, timestamps)
        yield counter.rows()

    return count


def tallies(rows: pa.Table, series: int) -> list[Tally]:
    """Sum the counts up, into a tally for each series."""
    found = [Tally() for _ in range(series)]
    for which, bucket, what, bin_, n in zip(*(rows[name].to_pylist() for name in SCHEMA.names), strict=True):
        tally = found[which]
        if what == PUBLISHED:
            tally.published[bucket] += n
        elif what == LANDED:
            tally.landed[bucket] += n
        elif what == DELAY:
            tally.delays.setdefault(bucket, Counter())[bin_] += n
        elif what == LONGEST:
            tally.longest[bucket] = max(float(bin_), tally.longest.get(bucket, 0.0))
        elif what == BEFORE:
            tally.before += n
        else:
            tally.ahead += n
    return found


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, Ints, Ints]]:
    if not batch.num_rows:
        return
    topics = batch["topic"].dictionary_encode()
    partitions = batch["partition"].to_numpy()
    offsets, timestamps = batch["offset"].to_numpy(), batch["at"].to_numpy()
    names: list[str] = topics.dictionary.to_pylist()
    # A task reads one partition, so this is one round; but nothing here relies on it.
    codes = topics.indices.to_numpy().astype(np.int64) << 32 | partitions
    for code in np.unique(codes).tolist():
        mine = codes == code
        yield TopicPartition(names[code >> 32], code & 0xFFFFFFFF), offsets[mine], timestamps[mine]
