"""A group's ledger in a topic, at one moment, run by run.

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
from inbound.proof.columns import Block, parse_block
from inbound.proof.model import PartitionKey
from inbound.proof.spans import RunSource, RunStory
from inbound.spark.cluster_state import KafkaLogs
from inbound.spark.kafka_source import read_log
from inbound.spark.stories import Breaks, Passage, collapsed, story_of, with_tails
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The part of a run that is collapsed at once. Bytes.
_PORTION = 16 << 20


@dataclass(frozen=True, slots=True)
class LedgerTopicName:
    """The topic with the ledgers of all groups."""

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
        """Read the ends of the topic, or raise LedgerError: there is none."""
        found = brokers.topics([place.topic]).get(place.topic)
        if found is None:
            raise LedgerError(f"{place}: Kafka has no such topic; check ledger.topic")
        partitions = range(found.partitions)
        return cls(place, group, brokers.limits(TopicPartition(place.topic, number) for number in partitions))

    @property
    def empty(self) -> bool:
        return all(limits.start >= limits.end for limits in self.limits.values())


def read_topic(
    cut: TopicCut,
    later: TopicCut,
    spark: SparkSession,
    kafka: Mapping[str, object],
    ends: Mapping[PartitionKey, int],
    breaks: Breaks,
) -> list[RunStory]:
    """Return the stories of a cut's runs, as `read_ledger` does for files.

    `later` is a newer cut.
    """
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
    """Apply `take` to each run's lines, piece by piece, on executors.

    Returns the results by run, in the order of the pieces.
    """
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
    """Splits a partition of the topic into one group's runs, on executors."""

    def __init__(self, cut: TopicCut, take: Callable[[Block], Any]) -> None:
        self._where = str(cut.place)
        self._group = cut.group
        self._take = take
        # Two groups of one process can have the same consumer id, and so the same key: each line names its group.
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
