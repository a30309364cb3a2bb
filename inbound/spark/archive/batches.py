"""One micro-batch: staged, written down, moved into place.

1. Its rows are written to a folder of their own below `_archive/staging`. A run that dies leaves it there; the next
   run deletes it and writes another.
2. Its manifest is created: the final path of each file. From now on the batch is archived.
3. Its files are moved, one by one. A run that dies leaves the rest to the next run, which moves the files still staged.
4. The staging folder is deleted: all moves are done. Spark notes that the batch is done, and never gives it again. If
   it does, because it died before the note, the manifest is there and nothing is written a second time.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from inbound.spark.archive.layout import (
    BOOKS,
    CHECKPOINT,
    STAGING,
    UNDECODABLE,
    ArchiveError,
    BatchManifest,
    Counts,
    Gap,
    TopicBook,
    file_name,
    from_text,
    offsets_of,
    staged_folder,
    to_text,
    topic_name,
)
from inbound.spark.archive.rows import EVENT_DDL, SET_APART_DDL, archived, set_apart
from inbound.spark.archive.storage import Storage

#: A topic keeps the manifests of so many batches. Spark repeats the last batch only.
MANIFESTS_KEPT = 20
#: Called at each step: tests kill the archive there.
Step = Callable[[str], None]


class TopicArchive:
    """The archive of one topic, which adds batches one by one.

    `places` is held while files are moved into place: no folder may be swapped in that time.
    """

    def __init__(
        self,
        storage: Storage,
        book: TopicBook,
        *,
        late: float | None,
        state: Callable[[], TopicBook],
        places: threading.Lock,
        step: Step,
    ) -> None:
        self.book = book
        self.counts = Counts()  # since this run began
        self.gaps: list[Gap] = []
        self._storage = storage
        self._late = late
        self._state = state  # of the topic now; raises ArchiveError if the topic was recreated
        self._places = places
        self._step = step
        self._last: BatchManifest | None = None

    @property
    def checkpoint(self) -> str:
        """Return the folder of Spark's checkpoint of this topic."""
        return f"{CHECKPOINT}/{topic_name(self.book.topic)}"

    @property
    def totals(self) -> Counts:
        """Return the counts of all runs."""
        return Counts() if self._last is None else self._last.totals

    @property
    def until(self) -> Mapping[int, int]:
        """Return each partition's first offset that is not archived."""
        return self.book.starts if self._last is None else self._last.until

    def recover(self) -> None:
        """Finish the moves of an earlier run's manifests.

        Raises ArchiveError: Spark's checkpoint and the manifests do not belong together.
        """
        found = [self._read(batch) for batch in self._batches()]
        for manifest in found:
            self._put_in_place(manifest)
        self._last = found[-1] if found else None
        last = -1 if self._last is None else self._last.batch
        ended = self._numbers(f"{self.checkpoint}/commits")
        if last >= 0 and last not in self._numbers(f"{self.checkpoint}/offsets"):
            raise ArchiveError(
                f"{self._storage.uri}: topic {self.book.topic} is archived up to batch {last}, but Spark's checkpoint "
                f"{self.checkpoint} does not know that batch: it was deleted or is another's. Restore it, or archive to "
                "another --to"
            )
        if ended and max(ended) > last:
            raise ArchiveError(
                f"{self._storage.uri}: Spark's checkpoint {self.checkpoint} says that batch {max(ended)} is archived, but "
                f"{BOOKS}/batches does not have it: it was deleted. Restore it, or archive to another --to"
            )

    def add(self, records: DataFrame, batch: int) -> None:
        """Archive one micro-batch of `foreachBatch`."""
        until = offsets_of(self._storage.read(f"{self.checkpoint}/offsets/{batch}"), self.book.topic)
        manifest = self._read(batch) if batch in self._batches() else None
        if manifest is None:
            manifest = self._write_down(records, batch, until)
            self.counts += manifest.counts
            self.gaps += manifest.gaps
        elif manifest.until != until:
            raise ArchiveError(
                f"{self._storage.uri}: topic {self.book.topic}: batch {batch} was archived with other offsets than Spark's "
                "checkpoint has for it: the two are not of one another. Archive to another --to"
            )
        with self._places:
            self._put_in_place(manifest)
        self._last = manifest
        for old in self._batches()[:-MANIFESTS_KEPT]:
            self._storage.delete(self._manifest(old))

    # -- staging -----------------------------------------------------------------------------------------------------

    def _write_down(self, records: DataFrame, batch: int, until: Mapping[int, int]) -> BatchManifest:
        storage, spark = self._storage, records.sparkSession
        self._state()  # nothing may be staged of a recreated topic
        staging = f"{STAGING}/{topic_name(self.book.topic)}-{batch}-{uuid.uuid4().hex}"
        # One file for each folder, where that is not too large, needs no compaction later. It needs adaptive execution, which
        # a stream's session has switched off; this is no stream any more.
        spark.conf.set("spark.sql.adaptive.enabled", "true")
        rows = records.mapInArrow(archived(self._late), EVENT_DDL)  # type: ignore[arg-type]
        written = _write(rows, storage.full(f"{staging}/rows"))
        self._step("rows staged")
        staged = _read(spark, storage, f"{staging}/rows", EVENT_DDL)
        counts = self._count(staged)
        if counts.rows != written:
            raise ArchiveError(
                f"{storage.uri}: executors wrote {written:,} records there, but it has {counts.rows:,}: does every one of them see "
                "the same folder at this path? Nothing was archived; give a --to that all of them share"
            )
        if counts.undecodable:
            apart = staged.where(F.col("folder").startswith(f"{UNDECODABLE}/")).mapInArrow(set_apart, SET_APART_DDL)  # type: ignore[arg-type]
            _write(apart, storage.full(f"{staging}/apart"))
        moves, size = self._moves(staging, batch)
        self._step("staged")
        since = {p: (self.book.starts.get(p, 0) if self._last is None else self._last.until.get(p, 0)) for p in until}
        gaps = self._gaps(staged, since, until, self._state().starts)
        counts += Counts(files=len(moves), bytes=size)
        manifest = BatchManifest(
            self.book.topic, batch, since, until, counts, self.totals + counts, gaps, staging, tuple(moves)
        )  # fmt: skip
        if not storage.create(self._manifest(batch), to_text(manifest)):
            raise ArchiveError(
                f"{storage.uri}: another process archives {self.book.topic} here, too; end one of the two"
            )
        self._step("written down")
        return manifest

    def _count(self, staged: DataFrame) -> Counts:
        by_kind = staged.groupBy(F.substring_index("folder", "/", 1)).count()
        return Counts(**{str(row[0]): int(row[1]) for row in by_kind.collect()})

    def _moves(self, staging: str, batch: int) -> tuple[list[tuple[str, str]], int]:
        moves: list[tuple[str, str]] = []
        size = 0
        for file in self._storage.files(staging):
            part, _, rest = file.path.removeprefix(f"{staging}/").partition("/")
            folder, _, name = rest.partition("/")
            if not folder.startswith("folder=") or not name.endswith(".parquet"):
                continue
            target = staged_folder(folder)
            if part == "apart" or not target.startswith(f"{UNDECODABLE}/"):
                moves.append((file.path, f"{target}/{file_name(self.book.topic, batch, len(moves))}"))
                size += file.size
        return moves, size

    def _gaps(
        self, staged: DataFrame, since: Mapping[int, int], until: Mapping[int, int], starts: Mapping[int, int]
    ) -> tuple[Gap, ...]:
        """Return the offsets that Kafka deleted before they were archived.

        Offsets that are missing further up were compacted, or never a record.
        """
        gaps: list[Gap] = []
        for partition, first in since.items():
            end = min(starts.get(partition, 0), until[partition])
            if first < end:
                there = staged.where((F.col("kafka_partition") == partition) & (F.col("kafka_offset") < end))
                island = F.col("kafka_offset") - F.row_number().over(Window.orderBy("kafka_offset"))
                ranges = there.select("kafka_offset", island.alias("island")).groupBy("island")
                at = first
                for row in (
                    ranges.agg(F.min("kafka_offset").alias("a"), F.max("kafka_offset").alias("b")).sort("a").collect()
                ):
                    gaps += [Gap(partition, at, row["a"])] if at < row["a"] else []
                    at = row["b"] + 1
                gaps += [Gap(partition, at, end)] if at < end else []
        return tuple(gaps)

    # -- manifests ---------------------------------------------------------------------------------------------------

    def _put_in_place(self, manifest: BatchManifest) -> None:
        if not self._storage.exists(manifest.staging):
            return
        left = {file.path for file in self._storage.files(manifest.staging)}
        for source, target in manifest.moves:
            if source in left:
                self._storage.move(source, target)
                self._step("moved")
        self._step("all moved")
        self._storage.delete(manifest.staging)
        self._step("done")

    def _manifest(self, batch: int) -> str:
        return f"{BOOKS}/batches/{topic_name(self.book.topic)}/{batch:010d}.json"

    def _batches(self) -> list[int]:
        return self._numbers(f"{BOOKS}/batches/{topic_name(self.book.topic)}")

    def _numbers(self, folder: str) -> list[int]:
        names = (name.removesuffix(".json") for name in self._storage.names(folder))
        return sorted(int(name) for name in names if name.isdigit())

    def _read(self, batch: int) -> BatchManifest:
        path = self._manifest(batch)
        return from_text(BatchManifest, self._storage.read(path), f"{self._storage.uri}/{path}")


def _write(rows: DataFrame, to: str) -> int:
    """Write rows by the column `folder`; return the executors' count."""
    seen = Observation()
    in_order = rows.hint("rebalance", "folder").sortWithinPartitions("folder", "kafka_partition", "kafka_offset")
    counted = in_order.observe(seen, F.count(F.lit(1)).alias("rows"))
    counted.write.partitionBy("folder").mode("overwrite").parquet(to)
    return int(seen.get["rows"])


def _read(spark: SparkSession, storage: Storage, path: str, ddl: str) -> DataFrame:
    """Return the rows below a path, none if it is absent."""
    if not storage.names(path):
        return spark.createDataFrame([], ddl)
    return spark.read.schema(ddl).parquet(storage.full(path))
