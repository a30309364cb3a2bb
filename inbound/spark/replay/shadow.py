"""A shadow: captures a `simple` processor's events, and compares them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from inbound.errors import InboundError
from inbound.ledger.format import path_part
from inbound.processors.base import Context
from inbound.processors.sinks.jsonl import JsonlOptions, JsonlSink
from inbound.spark.replay.job import configured
from inbound.spark.replay.plan import Unit

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class CaptureOptions(BaseModel):
    """The folder to write to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path = Field(description="a folder that all executors share; each attempt writes a file of its own")


class CaptureSink(JsonlSink):
    """Writes the `jsonl` sink's lines, one file per attempt.

    Hosts that share a folder must not share a file.
    """

    Options = CaptureOptions  # type: ignore[assignment]  # its own, in place of those of `jsonl`

    def open(self, context: Context) -> None:
        """Open the attempt's file, or raise ConfigError."""
        options: CaptureOptions = context.options
        path = options.folder / f"{path_part(context.consumer_id)}.jsonl"
        super().open(replace(context, options=JsonlOptions(path=path)))


#: Examples of each kind of difference.
EXAMPLES = 100
_KINDS = ("only here", "only there", "different")
_SAME, _BROKEN = "same", "broken"
#: Lines that one task compares. Bytes.
_PARTITION_BYTES = 32 * 2**20


@dataclass(frozen=True, slots=True)
class Example:
    """One event that differs between the sides."""

    kind: str
    source: str
    id: str
    differs: tuple[str, ...] = ()  # attributes, or `data`, if the event is on both sides


@dataclass(frozen=True, slots=True)
class Difference:
    """Numbers of events on one side or on both."""

    only_here: int
    only_there: int
    different: int
    same: int
    repeats_here: int  # lines beyond an event's first
    repeats_there: int
    broken_here: int  # lines that are none of the `jsonl` sink's: torn by a kill
    broken_there: int
    examples: tuple[Example, ...]


def compare(spark: SparkSession, here: Path, there: Sequence[Path], units: Sequence[Unit], report: Path) -> Difference:
    """Compare the shadow in `here` with `there`, over the offsets of `units`.

    `there` are files of the `jsonl` sink, or other shadows' folders. The result is also written to `report`, as JSON.

    Raises:
        InboundError: the report cannot be written.
    """
    sides = {"here": _files([here]), "there": _files(there)}
    size = sum(file.stat().st_size for files in sides.values() for file in files)
    tasks = max(spark.sparkContext.defaultParallelism, size // _PARTITION_BYTES)
    with configured(spark, {"spark.sql.shuffle.partitions": tasks}):
        found = _compared(spark, sides, units)
    try:
        report.write_text(f"{json.dumps(asdict(found), indent=1)}\n", encoding="utf-8")
    except OSError as error:
        raise InboundError(f"{report}: cannot be written ({error.strerror})") from None
    return found


def _compared(spark: SparkSession, sides: Mapping[str, Sequence[Path]], units: Sequence[Unit]) -> Difference:
    from pyspark.sql import functions as f

    lines = reduce(
        lambda some, more: some.union(more),
        [_events(spark, files, units).withColumn("side", f.lit(side)) for side, files in sides.items()],
    )

    def of(side: str) -> Column:
        return f.when(f.col("side") == side, f.col("event"))

    joined = (
        lines.groupBy("source", "id")
        .agg(
            *(f.sort_array(f.collect_set(of(side))).alias(f"forms_{side}") for side in sides),
            *(f.count_if(f.col("side") == side).alias(f"lines_{side}") for side in sides),
        )
        .withColumn(
            "kind",
            f.when(f.col("id").isNull(), _BROKEN)
            .when(f.col("lines_there") == 0, _KINDS[0])
            .when(f.col("lines_here") == 0, _KINDS[1])
            .when(f.col("forms_here") != f.col("forms_there"), _KINDS[2])
            .otherwise(_SAME),
        )
        .cache()
    )
    try:
        counted = joined.groupBy("kind").agg(
            f.count("*").alias("events"),
            *(f.sum(f"lines_{side}").alias(f"lines_{side}") for side in sides),
            *(f.sum(f.greatest(f.col(f"lines_{side}") - 1, f.lit(0))).alias(f"repeats_{side}") for side in sides),
        )
        counts = {row.kind: row for row in counted.collect()}
        broken = counts.pop(_BROKEN, None)
        examples = [
            Example(kind, row.source, row.id, _differing(row) if kind == _KINDS[2] else ())
            for kind in _KINDS
            if kind in counts
            for row in joined.where(f.col("kind") == kind).orderBy("source", "id").limit(EXAMPLES).collect()
        ]
    finally:
        joined.unpersist()

    def total(kind: str) -> int:
        return counts[kind].events if kind in counts else 0

    return Difference(
        only_here=total(_KINDS[0]),
        only_there=total(_KINDS[1]),
        different=total(_KINDS[2]),
        same=total(_SAME),
        repeats_here=sum(row.repeats_here for row in counts.values()),
        repeats_there=sum(row.repeats_there for row in counts.values()),
        broken_here=broken.lines_here if broken is not None else 0,
        broken_there=broken.lines_there if broken is not None else 0,
        examples=tuple(examples),
    )


def _files(paths: Sequence[Path]) -> list[Path]:
    return [file for path in paths for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]


def _events(spark: SparkSession, files: Sequence[Path], units: Sequence[Unit]) -> DataFrame:
    """Return `event_of` each line."""
    wanted = [(unit.topic, unit.partition, unit.first, unit.next) for unit in units]

    def parsed(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for batch in batches:
            rows = [row for line in batch.column(0).to_pylist() if (row := event_of(line, wanted)) is not None]
            columns = [pyarrow.array(column, pyarrow.string()) for column in zip(*rows, strict=True)] if rows else []
            if columns:
                yield pyarrow.RecordBatch.from_arrays(columns, names=["source", "id", "event"])

    schema = "source string, id string, event string"
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.text([file.absolute().as_uri() for file in files]).mapInArrow(parsed, schema)  # type: ignore[arg-type]


def event_of(
    line: str, wanted: Sequence[tuple[str, int, int, int]]
) -> tuple[str | None, str | None, str | None] | None:
    """Return source, id and canonical text of the event in a line.

    None: the line is empty, or its offset is not wanted. A record that is no event has an empty source, and
    `topic/partition/offset` as id. A broken line has neither.
    """
    if not line.strip():
        return None
    try:
        members = json.loads(line)
        topic, partition, offset = members["topic"], members["partition"], members["offset"]
        if not any((topic, partition) == (t, p) and first <= offset < end for t, p, first, end in wanted):
            return None
        event = members.get("event")
        if event is None:
            content = {name: members[name] for name in ("value_base64", "headers") if name in members}
            return "", f"{topic}/{partition}/{offset}", json.dumps(content, sort_keys=True)
        return str(event["source"]), str(event["id"]), json.dumps(event, sort_keys=True)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, None, None


def _differing(row: Any) -> tuple[str, ...]:
    """Return the members that differ between the two sides of an event."""
    here, there = ([json.loads(form) for form in forms] for forms in (row.forms_here, row.forms_there))
    names = {name for event in here + there for name in event}

    def values(events: list[Any], name: str) -> set[str]:
        return {json.dumps(event.get(name), sort_keys=True) for event in events}

    return tuple(sorted(name for name in names if values(here, name) != values(there, name)))
