"""Compacts many small files of a closed day into few.

One job rewrites all folders of a round, to a staging folder. Then a book is created with the new files of each folder; from
now on the swap is decided. Each folder is swapped as a whole: the old one is moved out of the archive, the new one in. So a
reader sees every offset once, or, between the two moves, nothing of that folder; never an offset twice. A run that dies
between them leaves the book, and the next run finishes.
"""

from __future__ import annotations

import math
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from inbound.spark.archive.batches import Step
from inbound.spark.archive.layout import (
    BOOKS,
    EVENTS,
    LATE,
    STAGING,
    UNDECODABLE,
    ArchiveError,
    Swap,
    from_text,
    is_closed,
    to_text,
)
from inbound.spark.archive.rows import EVENT_DDL, SET_APART_DDL
from inbound.spark.archive.storage import File, Storage

#: The size of a compacted file. Bytes.
TARGET = 128 * 2**20
#: The most bytes and folders of one round: the space in staging beside the archive.
_ROUND_BYTES = 16 * 2**30
_ROUND_FOLDERS = 1000
_SWAPS = f"{BOOKS}/swaps"


@dataclass(frozen=True, slots=True)
class Compacted:
    """Numbers of files before and after."""

    folders: int = 0
    before: int = 0
    after: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(self.folders + other.folders, self.before + other.before, self.after + other.after)


class Compaction:
    """Compacts the folders of closed days, which nothing else may change."""

    def __init__(self, spark: SparkSession, storage: Storage, step: Step, target: int = TARGET) -> None:
        self._spark = spark
        self._storage = storage
        self._step = step
        self._target = target

    def recover(self) -> None:
        """Finish the swaps that an earlier run began."""
        for name in self._storage.names(_SWAPS):
            if name.endswith(".json") and name[0] != ".":
                path = f"{_SWAPS}/{name}"
                self._swap(path, from_text(Swap, self._storage.read(path), f"{self._storage.uri}/{path}"))

    def run(self, now: float, late: float | None) -> Compacted:
        """Compact the scattered folders that are closed at `now`.

        `now` is in seconds since 1970; `late` as in `is_closed`.
        """
        done = Compacted()
        for part, ddl in ((EVENTS, EVENT_DDL), (LATE, EVENT_DDL), (UNDECODABLE, SET_APART_DDL)):
            for folders in self._rounds(self._scattered(part, now, late)):
                done += self._compact(folders, ddl)
        return done

    def _scattered(self, part: str, now: float, late: float | None) -> dict[str, list[File]]:
        found: defaultdict[str, list[File]] = defaultdict(list)
        for day in self._storage.names(part):
            if is_closed(day, now, late):
                for file in self._storage.files(f"{part}/{day}"):
                    if file.path.endswith(".parquet"):
                        found[file.path.rpartition("/")[0]].append(file)
        return {folder: files for folder, files in found.items() if self._is_scattered(files)}

    def _is_scattered(self, files: Sequence[File]) -> bool:
        # One late file is no reason to rewrite a large folder.
        small = sum(file.size < self._target / 2 for file in files)
        return small > 1 and len(files) > self._pieces(files)

    def _pieces(self, files: Sequence[File]) -> int:
        return max(1, math.ceil(sum(file.size for file in files) / self._target))

    def _rounds(self, folders: dict[str, list[File]]) -> Iterator[dict[str, list[File]]]:
        chosen: dict[str, list[File]] = {}
        size = 0
        for folder, files in folders.items():
            size += sum(file.size for file in files)
            if chosen and (size > _ROUND_BYTES or len(chosen) >= _ROUND_FOLDERS):
                yield chosen
                chosen, size = {}, sum(file.size for file in files)
            chosen[folder] = files
        if chosen:
            yield chosen

    def _compact(self, folders: dict[str, list[File]], ddl: str) -> Compacted:
        storage, spark = self._storage, self._spark
        name = uuid.uuid4().hex
        staging = f"{STAGING}/compaction-{name}"
        old = [file for files in folders.values() for file in files]
        schema = ddl.removeprefix("folder string, ")
        rows = spark.read.schema(schema).parquet(*(storage.full(file.path) for file in old))
        # By the files' names, which are unique in the archive: paths come in more than one spelling.
        places = spark.createDataFrame(
            [
                (file.path.rpartition("/")[2], number, self._pieces(files))
                for number, files in enumerate(folders.values())
                for file in files
            ],
            "file string, folder int, pieces int",
        )
        block = F.xxhash64("kafka_topic", "kafka_partition", F.expr("kafka_offset div 10000"))
        placed = rows.withColumn("file", F.col("_metadata.file_name")).join(F.broadcast(places), "file", "left")
        (
            placed.withColumn("piece", F.pmod(block, F.col("pieces")))
            .repartition("folder", "piece")
            .sortWithinPartitions("folder", "kafka_topic", "kafka_partition", "kafka_offset")
            .drop("file", "pieces", "piece")
            .write.partitionBy("folder")
            .parquet(storage.full(f"{staging}/rows"))
        )
        self._step("compaction staged")
        before, after = rows.count(), spark.read.schema(schema).parquet(storage.full(f"{staging}/rows")).count()
        if before != after:
            raise ArchiveError(
                f"{storage.uri}: compacting would make {after:,} records of {before:,}; nothing was changed. Please report it"
            )
        numbered = dict(enumerate(folders))
        made = 0
        for file in storage.files(f"{staging}/rows"):
            place = file.path.split("/")[-2].removeprefix("folder=")
            if file.path.endswith(".parquet"):
                storage.move(file.path, f"{staging}/new/{place}/part-{name}-{made:05d}.parquet")
                made += 1
        swaps = tuple((folder, f"{staging}/new/{n}", f"{staging}/old/{n}") for n, folder in numbered.items())
        swap, path = Swap(staging, swaps), f"{_SWAPS}/{name}.json"
        storage.create(path, to_text(swap))
        self._step("compaction written down")
        self._swap(path, swap)
        return Compacted(len(folders), len(old), made)

    def _swap(self, path: str, swap: Swap) -> None:
        storage = self._storage
        for folder, fresh, old in swap.folders:
            if storage.exists(fresh):
                if not storage.exists(old):
                    storage.move(folder, old)
                    self._step("old moved out")
                storage.move(fresh, folder)
                self._step("new moved in")
        storage.delete(swap.staging)
        self._step("swapped")
        storage.delete(path)
