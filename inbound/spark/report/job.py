"""Makes the report of groups from their ledger and topics."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from inbound.errors import ConfigError, InboundError, SparkError
from inbound.kafka.base import LogRange
from inbound.ledger.places import FilePath
from inbound.proof.model import PartitionKey
from inbound.report.figures import DeliveryReport, Series, Tally, TimeWindow, series_of, window_of
from inbound.spark.cluster_state import KafkaLogs, Subject
from inbound.spark.kafka_source import read_log
from inbound.spark.ledger_source import SMALL, LedgerCut, LedgerMovedError, take_chunks
from inbound.spark.ledger_topic import LedgerTopicName, TopicCut, taken
from inbound.spark.report.landings import Excerpt, Landings, excerpt, landings_of, time_of
from inbound.spark.report.record_counter import SCHEMA, SCHEMA_TEXT, Lookup, counting, tallies
from inbound.spark.session import cause
from inbound.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

#: Attempts to read the ledger while files of it are converted or deleted.
_ATTEMPTS = 3
#: A note names so many partitions.
_NAMED = 8


class NothingToReportError(InboundError):
    """There is no ledger, or none of the requested groups and topics."""


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """The groups, topics and time of a report."""

    subjects: Sequence[Subject]
    topics: frozenset[str] = frozenset()  # empty: all that the ledger knows
    begin: float | None = None  # seconds since 1970; None: where the ledger begins
    end: float | None = None
    bucket: float | None = None  # seconds; None: what fits


def make_report(
    wanted: ReportRequest,
    place: FilePath | LedgerTopicName,
    kafka: Mapping[str, Any],
    session: Callable[[], SparkSession],
    *,
    made: float,
    writer: str = "",
    spark_kafka: Mapping[str, Any] | None = None,
    small: int | None = SMALL,
) -> DeliveryReport:
    """Read ledger and log, and return the figures.

    Args:
        place: The ledger's folder, or topic.
        kafka: Properties of the Kafka client, in this process.
        session: Starts Spark; called once there is something to read.
        made: The time now, seconds since 1970.
        spark_kafka: The same for Spark's executors, which have none of this machine's files.
        small: This process reads a ledger of fewer bytes, Spark a larger one; None: executors cannot see its files.

    Raises:
        NothingToReportError: the ledger has none of the requested groups and topics.
        ConfigError: the time ends before it begins, or its buckets are too many.
        LedgerError: a file of the ledger can't be read.
        BrokerUnavailableError: Kafka does not answer.
        SparkError: the job failed.
    """
    begun = time.monotonic()
    notes: list[str] = []
    if isinstance(place, LedgerTopicName):
        read = partial(_read_topic, place, kafka, spark_kafka or kafka, session)
    else:
        read = partial(_read_files, place, session, small)
    landings = _landings(wanted, place, read, notes)
    brokers_of = {subject.group: subject.read_committed for subject in wanted.subjects}
    limits = _limits(kafka, landings, brokers_of)
    window = _window(wanted, landings, limits, made)
    about: dict[str, list[TopicPartition]] = defaultdict(list)  # notes on partitions
    usable = {
        key: one.within(window.begin, window.end)
        for key, one in landings.items()
        if _usable(one, limits[brokers_of[key.group]].get(TopicPartition(key.topic, key.partition)), about)
    }
    names = sorted({(key.group, key.topic) for key in usable})
    if not names:
        raise NothingToReportError("; ".join(["there is nothing left to report from", *_told(about)]))
    counts = [SCHEMA.empty_table()]
    for read_committed in sorted(set(brokers_of.values())):
        some = {key: one for key, one in usable.items() if brokers_of[key.group] is read_committed}
        lookup = _lookup(some, names)
        if ranges := _ranges(lookup, limits[read_committed]):
            counts.append(_count(session(), spark_kafka or kafka, lookup, ranges, window, read_committed))
    counted = tallies(pa.concat_tables(counts), len(names))
    return DeliveryReport(
        made,
        time.monotonic() - begun,
        window,
        tuple(_series(name, usable, tally, window) for name, tally in zip(names, counted, strict=True)),
        (*notes, *_told(about), *_ahead(names, counted)),
        writer,
    )


def _landings(
    wanted: ReportRequest, place: FilePath | LedgerTopicName, read: Callable[[str], list[Excerpt]], notes: list[str]
) -> dict[PartitionKey, Landings]:
    if isinstance(place, Path) and not place.is_dir():
        raise NothingToReportError(
            f"ledger {place}: there is no such folder; check ledger.path, and whether the group has run"
        )
    excerpts = [one for subject in wanted.subjects for one in read(subject.group)]
    found = landings_of(excerpts)
    if wanted.topics:
        found = {key: one for key, one in found.items() if key.topic in wanted.topics}
    if not found:
        groups = ", ".join(subject.group for subject in wanted.subjects)
        topics = f" for {', '.join(sorted(wanted.topics))}" if wanted.topics else ""
        where = str(place) if isinstance(place, LedgerTopicName) else f"ledger {place}"
        raise NothingToReportError(
            f"{where}: no batch of {groups} stands in it{topics}; check --channel and --topic, the settings of the ledger, "
            "and whether the group has run"
        )
    damaged = sum(one.damaged for one in excerpts)
    if damaged:
        notes.append(
            f"{damaged:,} lines of the ledger can't be read and are left out; `inbound spark validate` names them"
        )
    return found


def _read_files(place: FilePath, session: Callable[[], SparkSession], small: int | None, group: str) -> list[Excerpt]:
    attempt = 1
    while True:
        try:
            cut = LedgerCut.now(place, group)
            chunks = cut.chunks()
            if small is None or cut.bytes < small or len(chunks) < 2:
                return take_chunks(chunks, excerpt, None)
            return spark_says(partial(take_chunks, chunks, excerpt, session()))
        except LedgerMovedError:
            if attempt == _ATTEMPTS:
                raise
            attempt += 1


def _read_topic(
    place: LedgerTopicName,
    kafka: Mapping[str, Any],
    spark_kafka: Mapping[str, Any],
    session: Callable[[], SparkSession],
    group: str,
) -> list[Excerpt]:
    with KafkaLogs(kafka, read_committed=True) as brokers:
        cut = TopicCut.now(place, group, brokers)
    pieces = spark_says(lambda: taken(cut, session(), spark_kafka, cut.limits, excerpt))
    return [piece for of_run in pieces.values() for piece in of_run]


def _limits(
    kafka: Mapping[str, Any], landings: Iterable[PartitionKey], isolation: Mapping[str, bool]
) -> dict[bool, dict[TopicPartition, LogRange]]:
    found = {}
    for read_committed in set(isolation.values()):
        keys = [key for key in landings if isolation[key.group] is read_committed]
        with KafkaLogs(kafka, read_committed=read_committed) as brokers:
            known = brokers.topics(sorted({key.topic for key in keys}))
            there = {
                TopicPartition(key.topic, key.partition)
                for key in keys
                if key.topic in known and key.partition < known[key.topic].partitions
            }
            found[read_committed] = brokers.limits(there)
    return found


def _window(
    wanted: ReportRequest,
    landings: Mapping[PartitionKey, Landings],
    limits: Mapping[bool, Mapping[TopicPartition, LogRange]],
    made: float,
) -> TimeWindow:
    times = time_of(landings.values())
    if times is None:
        raise NothingToReportError("the ledger has no batch")
    ends = {tp: log.end for some in limits.values() for tp, log in some.items()}
    # The report must show that a group has stalled since its last line.
    behind = any(
        int(one.commits[-1]) < ends.get(TopicPartition(key.topic, key.partition), 0) if len(one.commits) else True
        for key, one in landings.items()
    )
    begin = times[0] if wanted.begin is None else wanted.begin
    end = (max(times[1], made) if behind else times[1]) if wanted.end is None else wanted.end
    if end < begin or (end == begin and wanted.end is not None):
        raise ConfigError("the time to report on ends before it begins; check --from and --to")
    try:
        return window_of(begin, end, wanted.bucket)
    except ValueError as error:
        raise ConfigError(f"--bucket: {error}; give a wider one, or a shorter time by --from and --to") from None


def _told(notes: Mapping[str, Sequence[TopicPartition]]) -> list[str]:
    """Return each note with its partitions."""
    return [
        f"{', '.join(f'{one.topic}/{one.partition}' for one in sorted(tps)[:_NAMED])}"
        f"{f' and {len(tps) - _NAMED:,} more' if len(tps) > _NAMED else ''}: {text}"
        for text, tps in notes.items()
    ]


def _usable(landings: Landings, log: LogRange | None, notes: dict[str, list[TopicPartition]]) -> bool:
    tp = TopicPartition(landings.key.topic, landings.key.partition)
    if log is None:
        notes["Kafka has no such partition any more; left out"].append(tp)
        return False
    if len(landings.commits) and int(landings.commits[-1]) > log.end:
        notes["commits go past the log's end: was the topic deleted and recreated? Left out"].append(tp)
        return False
    if log.start > landings.first:
        notes[
            "older records than the log still holds were delivered; they are not counted as published or landed"
        ].append(tp)
    return True


def _lookup(landings: Mapping[PartitionKey, Landings], names: Sequence[tuple[str, str]]) -> Lookup:
    places = {name: place for place, name in enumerate(names)}
    found: dict[TopicPartition, list[tuple[int, Landings]]] = defaultdict(list)
    for key, one in landings.items():
        # Executors count records, and do not need the deliveries per second.
        slim = Landings(key, one.first, one.commits, one.at)
        found[TopicPartition(key.topic, key.partition)].append((places[key.group, key.topic], slim))
    return dict(found)


def _ranges(lookup: Lookup, limits: Mapping[TopicPartition, LogRange]) -> dict[str, dict[int, tuple[int, int]]]:
    ranges: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    for tp, series in lookup.items():
        log = limits[tp]
        first = max(log.start, min(one.first for _, one in series))
        if first < log.end:
            ranges[tp.topic][tp.partition] = (first, log.end)
    return dict(ranges)


def _count(
    spark: SparkSession,
    kafka: Mapping[str, Any],
    lookup: Lookup,
    ranges: Mapping[str, Mapping[int, tuple[int, int]]],
    window: TimeWindow,
    read_committed: bool,
) -> pa.Table:
    from pyspark.sql import functions as sql

    shared = spark.sparkContext.broadcast(lookup)
    log = read_log(spark, kafka, ranges, read_committed=read_committed).select(
        "topic", "partition", "offset", sql.unix_millis("timestamp").alias("at")
    )
    keys = SCHEMA.names[:-1]
    counts = log.mapInArrow(counting(shared, window), SCHEMA_TEXT).groupBy(*keys).agg(sql.sum("n").alias("n"))
    try:
        rows = spark_says(counts.toArrow)
    finally:
        shared.destroy()
    return rows.cast(SCHEMA)


def spark_says(job: Callable[[], T]) -> T:
    """Run a job, and raise Spark's errors as a SparkError with cause."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return job()
    except (PySparkException, Py4JError) as error:
        raise SparkError(
            f"spark report: the job failed: {cause(error)}. Check that Kafka runs, and --master"
        ) from error


def _series(
    name: tuple[str, str], landings: Mapping[PartitionKey, Landings], tally: Tally, window: TimeWindow
) -> Series:
    mine = [one for key, one in landings.items() if (key.group, key.topic) == name]
    for one in mine:
        for second, records in one.handed_out.items():
            tally.handed_out[int((second - window.begin) // window.width)] += records
    return series_of(*name, len(mine), tally, window)


def _ahead(names: Sequence[tuple[str, str]], counted: Sequence[Tally]) -> list[str]:
    return [
        f"{group} reading {topic}: {tally.ahead:,} records landed before their timestamp: the clocks of producers and consumers "
        "differ, so delays are off"
        for (group, topic), tally in zip(names, counted, strict=True)
        if tally.ahead
    ]
