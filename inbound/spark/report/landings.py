"""When which offsets of a partition were delivered and landed, as the ledger tells it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from inbound.proof.columns import BEGUN, SETTLED, Block
from inbound.proof.columns import LANDED as OUTCOME_LANDED
from inbound.proof.model import PartitionKey
from inbound.report.figures import BINS_PER_E, Tally, TimeWindow
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark import Broadcast


Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PartitionLines:
    """What a piece of a ledger says of one partition."""

    key: PartitionKey
    first: int | None  # the lowest offset that was delivered
    commits: Ints  # that landed
    landed_at: Ints  # milliseconds since 1970
    mzxids: Ints
    seconds: Ints  # since 1970, ascending, each once
    records: Ints  # that were delivered in that second


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What a piece of a ledger says: by partition, and how many of its lines can't be read."""

    lines: tuple[PartitionLines, ...]
    damaged: int


@dataclass(frozen=True, slots=True)
class Landings:
    """One partition of a group: an offset landed at `at[i]` for the first i with `commits[i]` above it.

    Nothing is known of offsets below `first`.
    """

    key: PartitionKey
    first: int
    commits: Ints  # ascending
    at: Ints  # milliseconds since 1970; of the commits, in the same order
    handed_out: Mapping[int, int] = field(default_factory=dict)  # records by second

    def within(self, begin: float, end: float) -> Landings:
        """Return what happened in this time (seconds since 1970): what landed before is settled, what did later is open."""
        settled = self.at < begin * 1000
        first = max(self.first, int(self.commits[settled].max(initial=self.first)))
        kept = ~settled & (self.at < end * 1000) & (self.commits > first)
        handed_out = {second: n for second, n in self.handed_out.items() if begin <= second < end}
        return Landings(self.key, first, self.commits[kept], self.at[kept], handed_out)


def excerpt(block: Block) -> Excerpt:
    """Take from a block of a ledger's lines what a report needs."""
    order = np.argsort(block.place, kind="stable")
    edges = np.searchsorted(block.place[order], np.arange(len(block.places) + 1))
    found = []
    for place, (topic, partition) in enumerate(block.places):
        rows = order[edges[place] : edges[place + 1]]
        begun = rows[block.kind[rows] == BEGUN]
        landed = rows[(block.kind[rows] == SETTLED) & (block.outcome[rows] == OUTCOME_LANDED)]
        if not len(begun) and not len(landed):
            continue
        seconds, which = np.unique(block.wall[begun].astype(np.int64), return_inverse=True)
        found.append(
            PartitionLines(
                PartitionKey(block.source.group, topic, partition),
                int(block.first[begun].min()) if len(begun) else None,
                block.commit[landed],
                (block.wall[landed] * 1000).round().astype(np.int64),
                block.mzxid[landed],
                seconds,
                np.bincount(which, np.maximum(block.records[begun], 0), len(seconds)).astype(np.int64),
            )
        )
    return Excerpt(tuple(found), sum(not damage.harmless for damage in block.damage))


def landings_of(excerpts: Iterable[Excerpt]) -> dict[PartitionKey, Landings]:
    """Put excerpts of all of a ledger's pieces together; a partition of which nothing was delivered is left out."""
    parts: dict[PartitionKey, list[PartitionLines]] = defaultdict(list)
    for one in excerpts:
        for lines in one.lines:
            parts[lines.key].append(lines)
    return {key: landings for key, lines in parts.items() for landings in _together(key, lines)}


def time_of(landings: Iterable[Landings]) -> tuple[float, float] | None:
    """Return first and last time of anything in them, seconds since 1970; None: there is nothing."""
    times = [
        time
        for one in landings
        for time in (*one.handed_out, *(one.at[[0, -1]] / 1000 if len(one.at) else ()))
    ]  # fmt: skip
    return (float(min(times)), float(max(times))) if times else None


def _together(key: PartitionKey, lines: list[PartitionLines]) -> Iterator[Landings]:
    firsts = [one.first for one in lines if one.first is not None]
    if not firsts:
        return
    commits, at, mzxids = (
        np.concatenate([getattr(one, name) for one in lines]) for name in ("commits", "landed_at", "mzxids")
    )
    # Not by the clocks: ZooKeeper knows which commit came first. After a reset, what lands again has landed before.
    order = np.lexsort((commits, mzxids))
    commits, at = commits[order], at[order]
    ahead = np.flatnonzero(commits > np.concatenate(([-1], np.maximum.accumulate(commits)))[:-1])
    handed_out: dict[int, int] = defaultdict(int)
    for one in lines:
        for second, records in zip(one.seconds.tolist(), one.records.tolist(), strict=True):
            handed_out[second] += records
    yield Landings(key, min(firsts), commits[ahead], at[ahead], dict(handed_out))


#: What a count is of; `bin` says more where it is a delay (its bin) or the longest one (milliseconds).
PUBLISHED, LANDED, DELAY, LONGEST, BEFORE, AHEAD = range(6)
#: The counts' columns: which of the series, which bucket, what is counted, its bin, how many.
SCHEMA = pa.schema([(name, pa.int64()) for name in ("series", "bucket", "what", "bin", "n")])
SCHEMA_TEXT = ", ".join(f"{name} bigint" for name in SCHEMA.names)

Count = tuple[int, int, int, int]
#: By partition: whose landings its records are held against; a series is one group's reading of one topic.
Lookup = Mapping[TopicPartition, Sequence[tuple[int, Landings]]]


class RecordCounter:
    """Counts records. One of a task; not for several threads."""

    def __init__(self, lookup: Lookup, window: TimeWindow) -> None:
        self._lookup = lookup
        self._begin = round(window.begin * 1000)
        self._width = round(window.width * 1000)
        self._buckets = window.buckets
        self._counts: dict[Count, int] = defaultdict(int)
        self._longest: dict[tuple[int, int], int] = {}

    def add(self, tp: TopicPartition, offsets: NDArray[np.int64], timestamps: NDArray[np.int64]) -> None:
        """Count records of one partition; timestamps are Kafka's, in milliseconds."""
        for series, landings in self._lookup.get(tp, ()):
            known = offsets >= landings.first
            if len(landings.commits) or known.any():
                self._add(series, landings, offsets[known], timestamps[known])

    def rows(self) -> pa.RecordBatch:
        """Return what was counted."""
        rows = [(*count, n) for count, n in self._counts.items()]
        rows += [(series, bucket, LONGEST, most, 1) for (series, bucket), most in self._longest.items()]
        columns = zip(*rows, strict=True) if rows else ([] for _ in SCHEMA.names)
        return pa.RecordBatch.from_arrays([pa.array(column, pa.int64()) for column in columns], schema=SCHEMA)

    def _add(self, series: int, landings: Landings, offsets: NDArray[np.int64], timestamps: NDArray[np.int64]) -> None:
        at = np.searchsorted(landings.commits, offsets, side="right")
        landed = at < len(landings.commits)
        end = self._begin + self._width * self._buckets
        # A producer's clock may be ahead: what has landed has come.
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

    def _buckets_of(self, series: int, what: int, times: NDArray[np.int64]) -> None:
        buckets, counts = np.unique((times - self._begin) // self._width, return_counts=True)
        for bucket, n in zip(buckets.tolist(), counts.tolist(), strict=True):
            self._count(series, bucket, what, n)

    def _count(self, series: int, bucket: int, what: int, n: int, bin_: int = 0) -> None:
        if n:
            self._counts[series, bucket, what, bin_] += n


def counting(
    lookup: Broadcast[Lookup], window: TimeWindow
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow` over topic, partition, offset and timestamp (ms)."""

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counter = RecordCounter(lookup.value, window)
        for batch in batches:
            for tp, offsets, timestamps in _by_partition(batch):
                counter.add(tp, offsets, timestamps)
        yield counter.rows()

    return count


def tallies(rows: pa.Table, series: int) -> list[Tally]:
    """Sum counts up: a tally for each of so many series."""
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


def _by_partition(
    batch: pa.RecordBatch,
) -> Iterator[tuple[TopicPartition, NDArray[np.int64], NDArray[np.int64]]]:
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
