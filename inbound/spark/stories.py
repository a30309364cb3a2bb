"""A ledger, of files or of a topic, as spans and events: run by run, as it was at one moment.

A running group writes while it is read. The cut is the list of files with their lengths. Lines behind it are left out,
but for those of claims that were over by then: the claim that followed is inside the cut and must not seem to begin
where no claim had ended.

In a ledger topic a record is a line; its key is the run, so that a run's lines are in one partition, in order.
"""

from __future__ import annotations

import json
import pickle
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from inbound.errors import LedgerError
from inbound.kafka.base import LogRange
from inbound.ledger import LedgerFile
from inbound.ledger.format import name_of
from inbound.ledger.places import FilePath, open_file
from inbound.proof.columns import BEGUN, Block, collapse_block, parse_block, together
from inbound.proof.model import LedgerEvent, PartitionKey, Span
from inbound.proof.spans import Piece, RunSource, RunStory, joined, merged
from inbound.spark.cluster_state import KafkaLogs
from inbound.spark.kafka_source import read_log
from inbound.spark.ledger_source import CHUNK, SMALL, LedgerChunk, LedgerCut, LedgerMovedError, chunks_of, take_chunks
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: Offsets at which a span must end: what is scanned of a log is held against whole spans.
Breaks = Mapping[PartitionKey, int]
_NONE: Mapping[PartitionKey, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Passage:
    """What some lines amount to; `after`: the spans from the partition's break on, which are not in the piece."""

    piece: Piece
    after: tuple[Span, ...] = ()


def read_ledger(
    cut: LedgerCut,
    spark: Callable[[], SparkSession] | None = None,
    ends: Mapping[PartitionKey, int] = _NONE,
    breaks: Breaks = _NONE,
    *,
    small: int = SMALL,
    chunk: int = CHUNK,
) -> list[RunStory]:
    """Return what a cut amounts to, run by run.

    Args:
        cut: What to read.
        spark: Gives the session that reads a large ledger; None: the files are to be seen by the driver alone.
        ends: The ends of the logs when the cut was made. Deliveries behind them came later.
        breaks: A new span begins at each of these offsets.
        small: Below so many bytes the driver reads the ledger.
        chunk: So many bytes are collapsed at once.

    Raises:
        LedgerMovedError: start again with a new cut.
        LedgerError: a file can't be read, or is of a newer format than this reader.
    """
    chunks = cut.chunks(chunk)
    jobs = None if spark is None or cut.bytes < small else spark()
    passages = list(zip(chunks, take_chunks(chunks, partial(collapsed, breaks=dict(breaks)), jobs), strict=True))
    grown = _grown(cut, LedgerCut.now(cut.place, cut.group))
    passages = [_with_torn_end(one, passage, grown, breaks) for one, passage in passages]
    stories = [_story(of_run, breaks) for of_run in _by_run(passages)]
    tails: dict[str, list[Passage]] = defaultdict(list)
    for file, begin in grown.values():
        for one in chunks_of(file, begin, chunk):
            tails[one.source.run].append(collapsed(one.block(), breaks))
    return with_tails(stories, tails, ends)


def collapsed(block: Block, breaks: Breaks) -> Passage:
    """Collapse lines; the spans from a partition's break on stand apart, so that they are not put together again."""
    behind = np.zeros(len(block), bool)
    rows = np.arange(len(block))
    for place, (topic, partition) in enumerate(block.places):
        at = breaks.get(PartitionKey(block.source.group, topic, partition))
        if at is None:
            continue
        of_place = block.place == place
        begun = of_place & (block.kind == BEGUN)
        reached = np.flatnonzero(begun & (block.first >= at))
        if len(reached):
            behind |= of_place & (rows >= reached[0])
        # Answers to a delivery that stands in the chunk before this one.
        first = np.flatnonzero(begun)
        behind |= of_place & (block.commit > at) & (rows < (first[0] if len(first) else len(block)))
    whole = collapse_block(block)
    if not behind.any():
        return Passage(whole)
    if behind.all():
        return Passage(replace(whole, spans=()), whole.spans)
    # An event is a border of spans on both sides: a commit that is answered for behind a skip is none of before it.
    events = np.isin(rows, list(block.events))
    before, after = (collapse_block(block.take(np.flatnonzero(rows | events))) for rows in (~behind, behind))
    return Passage(replace(whole, spans=before.spans), after.spans)


# -- runs ----------------------------------------------------------------------------------------------------------------


def _by_run(passages: Iterable[tuple[LedgerChunk, Passage]]) -> list[list[tuple[LedgerChunk, Passage]]]:
    runs: dict[str, list[tuple[LedgerChunk, Passage]]] = defaultdict(list)
    for chunk, passage in passages:
        piece = passage.piece
        if chunk.start and not (piece.numbers or piece.header or piece.ending or piece.damage):
            continue  # its bytes all belong to a line of the chunk before it
        runs[chunk.source.run].append((chunk, passage))
    return list(runs.values())


def _story(of_run: Sequence[tuple[LedgerChunk, Passage]], breaks: Breaks) -> RunStory:
    def again(indices: Sequence[int]) -> Passage:
        return collapsed(together([of_run[index][0].block() for index in indices]), breaks)

    return story_of([passage for _, passage in of_run], again)


def story_of(passages: Sequence[Passage], again: Callable[[Sequence[int]], Passage]) -> RunStory:
    """Put a run's passages together; `again` gives those with these indices as one, where lines stand in several."""
    after = {index: passage.after for index, passage in enumerate(passages)}

    def once(indices: Sequence[int]) -> Piece:
        passage = again(indices)
        after.update(dict.fromkeys(indices, ()))
        after[indices[0]] = passage.after
        return passage.piece

    def behind_breaks() -> list[Span]:
        return [span for spans in after.values() for span in spans]

    # A commit that was in flight has its lines in the midst of the spans behind a break, or the other way round.
    story = joined([passage.piece for passage in passages], once, behind_breaks)
    behind = merged(behind_breaks(), story.events, story.spans)
    return replace(story, spans=tuple(sorted((*story.spans, *behind), key=lambda span: span.seq))) if behind else story


# -- what comes while it is read -----------------------------------------------------------------------------------------


def _grown(cut: LedgerCut, later: LedgerCut) -> dict[FilePath, tuple[LedgerFile, int]]:
    """Return the files of the cut's runs that are longer than in it, or new, with where that part begins."""
    before = {file.path: file for file in cut.files if file.format != "foreign"}
    runs = {file.run for file in before.values()}
    now = {file.path: file for file in later.files if file.format != "foreign"}
    if gone := before.keys() - now.keys():
        raise LedgerMovedError(
            f"ledger file {min(map(str, gone))}: it was converted or deleted while it was read; try again"
        )
    found = {}
    for path, file in now.items():
        if path not in before:
            if file.run in runs:
                found[path] = file, 0
        elif file.size > before[path].size:
            found[path] = file, before[path].size
    return found


def _with_torn_end(
    chunk: LedgerChunk, passage: Passage, grown: Mapping[FilePath, tuple[LedgerFile, int]], breaks: Breaks
) -> tuple[LedgerChunk, Passage]:
    """Look again at the end of a file that has not grown: what lacks its newline there is torn."""
    if chunk.parquet or chunk.end < chunk.limit or chunk.path in grown:
        return chunk, passage
    with open_file(chunk.path) as data:
        if chunk.limit:
            data.seek(chunk.limit - 1)
        if data.read(1) in (b"\n", b""):
            return chunk, passage
    again = replace(chunk, torn=True)
    return again, collapsed(again.block(), breaks)


def with_tails(
    stories: Sequence[RunStory], tails: Mapping[str, Sequence[Passage]], ends: Mapping[PartitionKey, int]
) -> list[RunStory]:
    """Add, by run, what came behind the cut and belongs to claims that others had followed by then."""
    if not tails:
        return list(stories)
    newest: dict[PartitionKey, int] = {}
    for item in (item for story in stories for item in _items(story)):
        newest[item.key] = max(newest.get(item.key, -1), item.epoch)
    return [_with_tail(story, tails.get(story.run.run, ()), newest, ends) for story in stories]


def _with_tail(
    story: RunStory, tail: Sequence[Passage], newest: Mapping[PartitionKey, int], ends: Mapping[PartitionKey, int]
) -> RunStory:
    """Add what a run wrote behind the cut under claims that were followed by others inside it."""
    last = max((item.last_seq if isinstance(item, Span) else item.seq for item in _items(story)), default=0)

    def counts(item: Span | LedgerEvent) -> bool:
        return item.seq > last and item.epoch < newest.get(item.key, -1)

    spans = [
        span
        for passage in tail
        for span in (*passage.piece.spans, *passage.after)
        if counts(span) and span.next <= ends.get(span.key, span.next)
    ]
    events = [event for passage in tail for event in passage.piece.events if counts(event)]
    if not spans and not events:
        return story
    return replace(
        story,
        spans=(*story.spans, *sorted(spans, key=lambda span: span.seq)),
        events=(*story.events, *sorted(events, key=lambda event: event.seq)),
    )


def _items(story: RunStory) -> list[Span | LedgerEvent]:
    return [*story.spans, *story.events]


#: So much of a run is collapsed at once. Bytes.
_PORTION = 16 << 20


@dataclass(frozen=True, slots=True)
class LedgerTopicName:
    """The topic that holds the ledgers of all groups."""

    topic: str

    def __str__(self) -> str:
        return f"ledger topic {self.topic}"


@dataclass(frozen=True, slots=True)
class TopicCut:
    """A group's ledger at one moment."""

    place: LedgerTopicName
    group: str
    limits: Mapping[TopicPartition, LogRange]

    @classmethod
    def now(cls, place: LedgerTopicName, group: str, brokers: KafkaLogs) -> TopicCut:
        """Ask for the ends of the topic. LedgerError: there is none."""
        found = brokers.topics([place.topic]).get(place.topic)
        if found is None:
            raise LedgerError(f"{place}: Kafka has no such topic; check ledger.topic")
        partitions = range(found.partitions)
        return cls(place, group, brokers.limits(TopicPartition(place.topic, number) for number in partitions))

    @property
    def empty(self) -> bool:
        """Whether there is nothing in it at all."""
        return all(limits.start >= limits.end for limits in self.limits.values())


def read_topic(
    cut: TopicCut,
    later: TopicCut,
    spark: SparkSession,
    kafka: Mapping[str, object],
    ends: Mapping[PartitionKey, int],
    breaks: Breaks,
) -> list[RunStory]:
    """Return what a cut amounts to, run by run, as `inbound.spark.stories.read_ledger` does; `later` is a newer cut."""
    from pyspark.sql import functions as sql

    grown = {tp: LogRange(cut.limits[tp].end, limits.end) for tp, limits in later.limits.items() if tp in cut.limits}
    take = partial(collapsed, breaks=dict(breaks))
    runs = _Runs(cut, take)
    stories = []
    for run, of_run in taken(cut, spark, kafka, cut.limits, take).items():

        def again(indices: Sequence[int], run: str = run) -> Passage:
            of_this_run = sql.col("key") == sql.lit(run.encode())
            rows = _log(spark, kafka, cut, cut.limits).where(of_this_run).orderBy("partition", "offset").toArrow()
            return take(runs.block(run, rows["value"].to_pylist()))

        stories.append(story_of(of_run, again))
    return with_tails(stories, taken(cut, spark, kafka, grown, take), ends)


def taken(
    cut: TopicCut,
    spark: SparkSession,
    kafka: Mapping[str, object],
    limits: Mapping[TopicPartition, LogRange],
    take: Callable[[Block], Any],
) -> dict[str, list[Any]]:
    """Return what `take` makes of each piece of each run's lines, on executors: a run's pieces in their order."""
    if all(one.start >= one.end for one in limits.values()):
        return {}
    runs = _Runs(cut, take)
    rows = _log(spark, kafka, cut, limits).mapInArrow(runs, "run string, number long, piece binary").toArrow()
    found: dict[str, list[tuple[int, Any]]] = defaultdict(list)
    for row in rows.to_pylist():
        found[row["run"]].append((row["number"], pickle.loads(row["piece"])))
    return {run: [piece for _, piece in sorted(some, key=lambda one: one[0])] for run, some in found.items()}


def _log(
    spark: SparkSession, kafka: Mapping[str, object], cut: TopicCut, limits: Mapping[TopicPartition, LogRange]
) -> DataFrame:
    ranges = {
        cut.place.topic: {tp.partition: (one.start, one.end) for tp, one in limits.items() if one.start < one.end}
    }
    return read_log(spark, kafka, ranges).select("key", "value", "partition", "offset")


class _Runs:
    """Takes a partition of the topic apart into runs of one group: what Spark's tasks do."""

    def __init__(self, cut: TopicCut, take: Callable[[Block], Any]) -> None:
        self._where = str(cut.place)
        self._group = cut.group
        self._take = take
        # Two groups of one process can have the same consumer id, and so the same key: each line says whose it is.
        group = re.escape(json.dumps(cut.group).encode())
        self._ours = re.compile(rb'\{(?:"v":\d+,)?"kind":"[^"]*","group":' + group + b",").match

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: dict[bytes, list[bytes]] = defaultdict(list)
        sizes: dict[bytes, int] = defaultdict(int)
        number = 0
        for batch in batches:
            for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True):
                if key is None or value is None or not self._ours(value):
                    continue
                waiting[key].append(value)
                sizes[key] += len(value)
                if sizes[key] >= _PORTION:
                    number += 1
                    yield self._row(key, number, waiting.pop(key))
                    del sizes[key]
        for key, lines in waiting.items():
            number += 1
            yield self._row(key, number, lines)

    def block(self, run: str, lines: Sequence[bytes]) -> Block:
        """Read lines of a run."""
        consumer = name_of(run.rpartition("-")[0])
        source = RunSource(self._group, consumer, run, f"{self._where}, run {run}")
        return parse_block(b"".join(line + b"\n" for line in lines if self._ours(line)), source, last=False)

    def _row(self, key: bytes, number: int, lines: Sequence[bytes]) -> pa.RecordBatch:
        run = key.decode(errors="replace")
        piece = pickle.dumps(self._take(self.block(run, lines)))
        return pa.RecordBatch.from_pydict(
            {"run": [run], "number": [number], "piece": [piece]},
            pa.schema([("run", pa.string()), ("number", pa.int64()), ("piece", pa.binary())]),
        )
