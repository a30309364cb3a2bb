"""The demo's end: the flights' topic archived, and the carriers' sums once more, by Spark from the archive's files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inbound.demo.flights import Sums
from inbound.latch import Latch
from inbound.proof.model import Proof, Verdict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from inbound.spark.archive.job import TopicSummary


def archived(
    spark: SparkSession, kafka: Mapping[str, Any], topic: str, to: Path, say: Callable[[str], None]
) -> TopicSummary:
    """Archive a topic below the folder `to`, no event being late: the flights of 2013 are published now."""
    from inbound.spark.archive.job import ArchiveJob, ArchivePlan

    plan = ArchivePlan(to.as_uri(), kafka, [topic], late=None)
    (summary,) = ArchiveJob(spark, plan, say=say, stop=Latch()).run().topics
    return summary


def carriers_of(spark: SparkSession, archive: Path) -> dict[str, Sums]:
    """Return the sums of each carrier, by name, as the archive's events have them."""
    from pyspark.sql import functions as F

    flight = F.from_json(F.col("data").cast("string"), "carrier string, dep_delay int").alias("flight")
    flights = spark.read.parquet(f"{archive.as_uri()}/events").select(flight).select("flight.*")
    sums = flights.groupBy("carrier").agg(F.count("*"), F.count("dep_delay"), F.sum("dep_delay")).sort("carrier")
    return {carrier: Sums(number, departed, minutes or 0) for carrier, number, departed, minutes in sums.collect()}


def problems(
    proof: Proof, summary: TopicSummary, carriers: Mapping[str, Sums], *, published: int, expected: Mapping[str, Sums]
) -> list[str]:
    """Return what is not as it must be: all proven, all archived, and every carrier's sums those of the CSV."""
    found = []
    if proof.verdict is not Verdict.PROVEN:
        found.append(f"spark validate says {proof.verdict.name.lower().replace('_', ' ')}")
    if summary.totals.events != published or summary.totals.rows != published:
        found.append(
            f"{published:,} events were published, but the archive has {summary.totals.events:,}, and "
            f"{summary.totals.late + summary.totals.undecodable:,} set apart"
        )
    if wrong := sorted(c for c in {*expected, *carriers} if expected.get(c) != carriers.get(c)):
        found.append(f"in the archive the counts of {', '.join(wrong)} are not those of the CSV")
    return found
