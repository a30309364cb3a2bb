"""A ledger that is kept in a Kafka topic: read by Spark, a task for each partition of the topic.

A record is a line; its key is the run, so that a run's lines are in one partition, in order.
"""

from __future__ import annotations

import json
import pickle
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from inbound.errors import LedgerError
from inbound.kafka.base import LogRange
from inbound.ledger.format import name_of
from inbound.proof.collapse import RunStory, Source
from inbound.proof.columns import Block, parse_block
from inbound.proof.model import PartitionKey
from inbound.spark.gather import Brokers
from inbound.spark.kafka_source import read_log
from inbound.spark.stories import Breaks, Passage, collapsed, story_of, with_tails
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: So much of a run is collapsed at once. Bytes.
_PORTION = 16 << 20


@dataclass(frozen=True, slots=True)
class LedgerTopic:
    """The topic that holds the ledgers of all groups."""

    topic: str

    def __str__(self) -> str:
        return f"ledger topic {self.topic}"


@dataclass(frozen=True, slots=True)
class TopicCut:
    """A group's ledger at one moment."""

    place: LedgerTopic
    group: str
    limits: Mapping[TopicPartition, LogRange]

    @classmethod
    def now(cls, place: LedgerTopic, group: str, brokers: Brokers) -> TopicCut:
        """Ask for the ends of the topic. LedgerError: there is none."""
        found = brokers.topics([place.topic]).get(place.topic)
        if found is None:
            raise LedgerError(f"{place}: Kafka has no such topic; check ledger.topic")
        keys = [TopicPartition(place.topic, number) for number in range(found.partitions)]
        return cls(place, group, brokers.limits(keys))

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
    grown = {tp: LogRange(cut.limits[tp].end, limits.end) for tp, limits in later.limits.items() if tp in cut.limits}
    passages = _passages(spark, kafka, cut, cut.limits, breaks)
    stories = []
    for run, of_run in passages.items():

        def again(indices: Sequence[int], run: str = run) -> Passage:
            rows = _log(spark, kafka, cut, cut.limits).where(_is(run)).orderBy("partition", "offset").toArrow()
            return collapsed(_Runs(cut, _nothing).block(run, rows["value"].to_pylist()), breaks)

        stories.append(story_of(of_run, again))
    return with_tails(stories, _passages(spark, kafka, cut, grown, breaks), ends)


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


def _passages(
    spark: SparkSession,
    kafka: Mapping[str, object],
    cut: TopicCut,
    limits: Mapping[TopicPartition, LogRange],
    breaks: Breaks,
) -> dict[str, list[Passage]]:
    return taken(cut, spark, kafka, limits, partial(collapsed, breaks=dict(breaks)))


def _nothing(block: Block) -> None:
    """What is taken of a block that is needed itself."""


def _log(
    spark: SparkSession, kafka: Mapping[str, object], cut: TopicCut, limits: Mapping[TopicPartition, LogRange]
) -> DataFrame:
    ranges = {
        cut.place.topic: {tp.partition: (one.start, one.end) for tp, one in limits.items() if one.start < one.end}
    }
    return read_log(spark, kafka, ranges).select("key", "value", "partition", "offset")


def _is(run: str) -> Any:
    from pyspark.sql import functions as sql

    return sql.col("key") == sql.lit(run.encode())


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
        source = Source(self._group, consumer, run, f"{self._where}, run {run}")
        return parse_block(b"".join(line + b"\n" for line in lines if self._ours(line)), source, last=False)

    def _row(self, key: bytes, number: int, lines: Sequence[bytes]) -> pa.RecordBatch:
        run = key.decode(errors="replace")
        piece = pickle.dumps(self._take(self.block(run, lines)))
        return pa.RecordBatch.from_pydict(
            {"run": [run], "number": [number], "piece": [piece]},
            pa.schema([("run", pa.string()), ("number", pa.int64()), ("piece", pa.binary())]),
        )
