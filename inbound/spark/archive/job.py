"""The archive's queries: one per topic, from start to summary."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import kafka
import kafka.errors
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import inbound
from inbound.embedded.locks import LockFile, holder
from inbound.errors import BrokerUnavailableError
from inbound.kafka.python.client import errors_of
from inbound.kafka.python.topics import CONNECT_TIMEOUT_MS, consumer_of, settings_for
from inbound.runtime.signals import Latch
from inbound.spark.archive.batches import Step, TopicArchive
from inbound.spark.archive.compaction import Compacted, Compaction
from inbound.spark.archive.layout import (
    BOOKS,
    CHECKPOINT,
    EVENTS,
    STAGING,
    ArchiveError,
    Counts,
    Gap,
    Identity,
    TopicBook,
    from_text,
    to_text,
    topic_name,
)
from inbound.spark.archive.storage import Storage
from inbound.spark.kafka_source import client_options
from inbound.spark.session import cause

#: Offsets of a topic that are staged at once, at most.
OFFSETS_AT_ONCE = 10_000_000
_IDENTITY = f"{BOOKS}/archive.json"
_LOOK = 0.2
#: A process that was killed a moment ago loses its lock within this time. Seconds.
_LOCK_LIMIT = 2.0
_WHAT_TO_DO = "what is archived stays; start again, and it goes on there"
#: The running batch's time to end when the archive is asked to stop. Seconds.
_STOP_LIMIT = 120.0
_SETTINGS: Mapping[str, str] = {
    # Spark's default is a type of 96 bits that others read as nanoseconds, and that has no year 1.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
}


@dataclass(frozen=True, slots=True)
class ArchivePlan:
    """The topics to archive, and how."""

    to: str  # the folder's URI
    kafka: Mapping[str, Any]
    topics: Sequence[str]
    spark_kafka: Mapping[str, Any] | None = None  # the same for executors, which have none of this machine's files
    late: float | None = 86400.0  # seconds; None: no event is ever late
    every: float | None = None  # seconds between batches, until stopped; None: only records that exist now
    compact: bool = True
    at_once: int = OFFSETS_AT_ONCE


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """One topic's result of a run."""

    topic: str
    counts: Counts  # in this run
    totals: Counts  # ever
    until: Mapping[int, int]  # of each partition: the first offset that is not archived
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class ArchiveSummary:
    """The result of a run."""

    topics: tuple[TopicSummary, ...]
    compacted: Compacted
    seconds: float


class ArchiveJob:
    """Archives topics, in one run per object. Main thread."""

    def __init__(
        self,
        spark: SparkSession,
        plan: ArchivePlan,
        *,
        say: Callable[[str], None],
        stop: Latch,
        step: Step = lambda where: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._spark = spark.newSession()  # with its own settings
        for name, value in _SETTINGS.items():
            self._spark.conf.set(name, value)
        self._plan = plan
        self._say = say
        self._stop = stop
        self._step = step
        self._now = now
        self._storage = Storage(self._spark, plan.to)
        self._places = threading.Lock()
        self._compaction = Compaction(self._spark, self._storage, step)
        self._compacted = Compacted()
        self._failures: dict[str, Exception] = {}
        self._ending = threading.Event()
        self._waiting = threading.Event()  # never set

    def run(self) -> ArchiveSummary:
        """Archive the existing records, or all until asked to stop.

        Raises:
            ArchiveError: the folder is no archive, or another process's; a topic is missing, or was recreated; Spark failed.
            ConfigError, BrokerUnavailableError: about Kafka.
        """
        began = time.monotonic()
        with ExitStack() as owned:
            self._topics = owned.enter_context(TopicStarts(self._plan.kafka))
            states = {topic: self._topics.state(topic) for topic in self._plan.topics}  # before anything is written
            self._enter(owned)
            made = datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="seconds")
            self._storage.create(_IDENTITY, to_text(Identity(made=made, writer=f"inbound {inbound.__version__}")))
            self._storage.make_folder(EVENTS)  # readers may come before the first event
            archives = [self._open(topic, state) for topic, state in states.items()]
            self._recover(archives)
            if self._plan.every is None:
                for archive in archives:
                    self._drain(archive)
                self._compact()
            else:
                self._follow(archives)
            topics = [TopicSummary(a.book.topic, a.counts, a.totals, dict(a.until), tuple(a.gaps)) for a in archives]
            return ArchiveSummary(tuple(topics), self._compacted, time.monotonic() - began)

    def compact(self) -> ArchiveSummary:
        """Compact the archive, without Kafka, and archive nothing.

        Raises ArchiveError: the folder is no archive, or another process's.
        """
        began = time.monotonic()
        if not self._storage.exists(_IDENTITY):
            raise ArchiveError(f"{self._storage.uri}: is no archive of inbound; archive something there first")
        with ExitStack() as owned:
            self._enter(owned)
            self._recover([])
            self._compact()
            return ArchiveSummary((), self._compacted, time.monotonic() - began)

    # -- the folder --------------------------------------------------------------------------------------------------

    def _enter(self, owned: ExitStack) -> None:
        """Check that the folder is an archive or empty, and lock it."""
        storage = self._storage
        if storage.exists(_IDENTITY):
            from_text(Identity, storage.read(_IDENTITY), f"{storage.uri}/{_IDENTITY}")
        elif others := [name for name in storage.names("") if name != BOOKS]:
            raise ArchiveError(
                f"{storage.uri}: is no archive of inbound, and not empty ({', '.join(others[:3])}); "
                "give an empty folder, or one that does not exist yet"
            )
        if storage.local is not None:
            lock = LockFile(storage.local / BOOKS / "lock")
            try:
                free = lock.acquire(timeout=_LOCK_LIMIT)
            except OSError as error:
                raise ArchiveError(
                    f"{storage.uri}: cannot be written to: {error.strerror}; give another --to"
                ) from None
            if not free:
                raise ArchiveError(f"{storage.uri}: process {holder(lock.path)} archives to it; end it first")
            owned.enter_context(lock)

    def _open(self, topic: str, state: TopicBook) -> TopicArchive:
        storage = self._storage
        path = f"{BOOKS}/topics/{topic_name(topic)}.json"
        if not storage.exists(path):
            if storage.exists(f"{CHECKPOINT}/{topic_name(topic)}"):
                raise ArchiveError(
                    f"{storage.uri}: {path} is missing, but the topic has a checkpoint; restore the file"
                )
            storage.create(path, to_text(state))
        book = from_text(TopicBook, storage.read(path), f"{storage.uri}/{path}")
        self._check(book, state)
        return self._archive_of(book)

    def _archive_of(self, book: TopicBook) -> TopicArchive:
        return TopicArchive(
            self._storage,
            book,
            late=self._plan.late,
            state=lambda: self._check(book, self._topics.state(book.topic)),
            places=self._places,
            step=self._step,
        )

    def _check(self, book: TopicBook, state: TopicBook) -> TopicBook:
        if None not in (book.topic_id, state.topic_id) and book.topic_id != state.topic_id:
            raise ArchiveError(
                f"topic {book.topic}: was deleted and made again since {self._storage.uri} was begun (topic id {book.topic_id}, "
                f"now {state.topic_id}); its offsets begin at 0 again. Archive the new one to another --to; nothing was written"
            )
        return state

    def _recover(self, archives: Sequence[TopicArchive]) -> None:
        self._compaction.recover()
        # All topics that were ever archived here: their staged files must not be deleted below.
        mine = {archive.book.topic for archive in archives}
        for name in self._storage.names(f"{BOOKS}/topics"):
            path = f"{BOOKS}/topics/{name}"
            if name.endswith(".json") and name[0] != ".":
                book = from_text(TopicBook, self._storage.read(path), f"{self._storage.uri}/{path}")
                if book.topic not in mine:
                    self._archive_of(book).recover()
        for archive in archives:
            archive.recover()
        self._storage.delete(STAGING)

    # -- the queries -------------------------------------------------------------------------------------------------

    def _drain(self, archive: TopicArchive) -> None:
        query = self._start(archive)
        while query.isActive:
            if self._stop.is_set():
                self._end([query])
                return
            self._waiting.wait(_LOOK)
        self._raise_failure(archive, query)

    def _follow(self, archives: Sequence[TopicArchive]) -> None:
        """Archive until asked to stop, and compact when a day begins."""
        queries = {archive.book.topic: (archive, self._start(archive)) for archive in archives}
        compacted_on: int | None = None
        try:
            while not self._stop.wait(_LOOK):
                for archive, query in queries.values():
                    if not query.isActive:
                        self._raise_failure(archive, query)
                        raise ArchiveError(
                            f"topic {archive.book.topic}: Spark ended its query; see its log, start again"
                        )
                today = int(self._now() // 86400)
                if today != compacted_on:
                    self._compact()
                    compacted_on = today
        finally:
            self._end([query for _, query in queries.values()])

    def _start(self, archive: TopicArchive) -> StreamingQuery:
        topic = archive.book.topic
        # This job finds deleted offsets, and goes on behind them; Spark would stop there.
        options = {**client_options(self._plan.spark_kafka or self._plan.kafka), "failOnDataLoss": "false"}
        records = (
            self._spark.readStream.format("kafka")
            .options(**options)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .option("maxOffsetsPerTrigger", str(self._plan.at_once))
            .load()
        )
        every = self._plan.every
        when: dict[str, Any] = {"availableNow": True} if every is None else {"processingTime": f"{every} seconds"}

        def add(records: DataFrame, batch: int) -> None:
            try:
                if self._ending.is_set():
                    raise _Ended
                self._add(archive, records, batch)
            except Exception as error:  # Spark would report it as text, with two stacks
                self._failures.setdefault(topic, error)
                raise

        try:
            return (
                records.writeStream.foreachBatch(add)
                .option("checkpointLocation", self._storage.full(archive.checkpoint))
                .queryName(f"archive {topic}")
                .trigger(**when)
                .start()
            )
        except PySparkException as error:
            raise ArchiveError(f"topic {topic}: {cause(error)}; {_WHAT_TO_DO}") from error

    def _add(self, archive: TopicArchive, records: DataFrame, batch: int) -> None:
        before, gaps = archive.counts, len(archive.gaps)
        archive.add(records, batch)
        topic = archive.book.topic
        for gap in archive.gaps[gaps:]:
            self._say(
                f"{topic}/{gap.partition}: offsets {gap.first} to {gap.next - 1} were deleted before they were archived"
            )
        rows = archive.counts.rows - before.rows
        self._say(f"{topic}: {rows:,} records archived" if rows else f"{topic}: nothing new")

    def _raise_failure(self, archive: TopicArchive, query: StreamingQuery) -> None:
        error = self._failures.get(archive.book.topic) or query.exception()
        if error is not None and not isinstance(error, PySparkException):
            raise error
        if error is not None:
            raise ArchiveError(f"topic {archive.book.topic}: {cause(error)}; {_WHAT_TO_DO}") from error

    def _end(self, queries: Sequence[StreamingQuery]) -> None:
        """Stop the queries between two batches."""
        self._ending.set()
        deadline = time.monotonic() + _STOP_LIMIT
        for query in queries:
            while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
                self._waiting.wait(_LOOK)
            query.stop()

    def _compact(self) -> None:
        if self._plan.compact:
            with self._places:
                self._compacted += self._compaction.run(self._now(), self._plan.late)


class _Ended(Exception):
    """No batch begins any more; Spark repeats it in the next run."""


#: The answer of brokers without topic ids.
_NO_ID = "00000000-0000-0000-0000-000000000000"


class TopicStarts(AbstractContextManager["TopicStarts"]):
    """Reads topics' ids and log starts from Kafka. Any thread; close it."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Connect, or raise ConfigError (properties) or BrokerUnavailableError (no answer)."""
        self._asking = threading.Lock()  # the clients are for one thread at a time
        self._settings = settings = settings_for(properties, kafka.KafkaConsumer.DEFAULT_CONFIG)
        of_admin = {name: value for name, value in settings.items() if name in kafka.KafkaAdminClient.DEFAULT_CONFIG}
        with errors_of(settings), ExitStack() as owned:
            admin = kafka.KafkaAdminClient(**{"client_id": "inbound-archive", **of_admin})
            self._admin = owned.enter_context(closing(admin))
            self._consumer = owned.enter_context(consumer_of(settings))
            self._owned = owned.pop_all()

    def __exit__(self, *_: object) -> None:
        self._owned.close()

    def state(self, topic: str) -> TopicBook:
        """Return a topic's id and log starts.

        Raises:
            ArchiveError: there is no such topic.
            BrokerUnavailableError: the brokers do not answer, or refuse to.
        """
        with errors_of(self._settings), self._asking:
            found = self._admin.describe_topics([topic])[0]
            if found["error_code"] == kafka.errors.UnknownTopicOrPartitionError.errno:
                raise ArchiveError(
                    f"topic {topic}: there is none at the brokers; check the name, or leave it out by --topic"
                )
            if found["error_code"]:
                reason = kafka.errors.for_code(found["error_code"]).__name__
                raise BrokerUnavailableError(f"topic {topic}: the brokers say nothing of it ({reason})")
            keys = [kafka.TopicPartition(topic, part["partition_index"]) for part in found["partitions"]]
            starts = self._consumer.beginning_offsets(keys, timeout_ms=CONNECT_TIMEOUT_MS)
        topic_id = str(found.get("topic_id") or _NO_ID)
        return TopicBook(topic, None if topic_id == _NO_ID else topic_id, {key.partition: starts[key] for key in keys})
