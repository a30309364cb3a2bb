"""The account of a run: its events by journals and by Spark."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from inbound.demo.flights import CarrierSums, Sums, differing
from inbound.errors import InboundError
from inbound.proof.model import Proof, Verdict
from inbound.runtime.signals import Latch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from inbound.spark.archive.job import TopicSummary


class JournalError(InboundError):
    """A journal holds a line that no processor wrote."""


class JournalEntry(NamedTuple):
    """One line: a batch `begin`s, flights of it are `counted`, it `end`s."""

    consumer: str
    at: float  # seconds since the epoch, by the clock that all processes of a machine share
    what: str
    partition: int
    first: int = 0
    next: int = 0
    flights: tuple[tuple[int, str, int | None], ...] = ()  # offset, carrier, delay


def entry_of(consumer: str, line: bytes) -> JournalEntry:
    """Parse one line. Raises ValueError, KeyError or TypeError."""
    value = json.loads(line)
    return JournalEntry(
        consumer,
        float(value["at"]),
        str(value["what"]),
        int(value["partition"]),
        int(value.get("first", 0)),
        int(value.get("next", 0)),
        tuple((int(offset), str(carrier), delay) for offset, carrier, delay in value.get("flights", ())),
    )


class Journals:
    """Reads new lines of all journals; a torn last line waits."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def new_entries(self) -> Iterator[JournalEntry]:
        """Yield the entries written since the last call, in each file's order.

        Raises JournalError: a line in the middle cannot be read.
        """
        for path in sorted(self._folder.glob("*.jsonl")):
            start = self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(start)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = start + len(whole)
            consumer = path.name.split(".")[0]
            for line in whole.splitlines():
                try:
                    yield entry_of(consumer, line)
                except (ValueError, KeyError, TypeError) as error:
                    raise JournalError(f"{path}: not a line of the processor ({error!r}): {line[:200]!r}") from None


class OpenBatches:
    """The batches that each consumer has begun and not ended."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], tuple[JournalEntry, int]] = {}

    def add(self, entry: JournalEntry) -> None:
        """Follow one entry, in the order of its consumer."""
        key = (entry.consumer, entry.partition)
        if entry.what == "begin":
            self._open[key] = (entry, 0)
        elif entry.what == "end":
            self._open.pop(key, None)
        elif key in self._open:
            begun, counted = self._open[key]
            self._open[key] = (begun, counted + len(entry.flights))

    def of(self, consumer: str) -> list[tuple[JournalEntry, int]]:
        """Return a consumer's open batches: each `begin`, and its counted flights."""
        return [batch for (name, _), batch in sorted(self._open.items()) if name == consumer]

    def in_flight(self, consumer: str) -> int:
        """Return how many records of a consumer's batches are in flight."""
        return sum(begun.next - begun.first for begun, _ in self.of(consumer))

    def halfway(self, consumer: str) -> bool:
        """Return whether a consumer has counted a part of a batch."""
        return any(0 < counted < begun.next - begun.first for begun, counted in self.of(consumer))


class SeenOffsets:
    """The counts of each offset of each partition."""

    def __init__(self) -> None:
        self._times: defaultdict[int, bytearray] = defaultdict(bytearray)
        self.distinct = 0
        self.repeated = 0

    def add(self, partition: int, offset: int) -> bool:
        """Count an offset. Returns False if it was counted before."""
        times = self._times[partition]
        if offset >= len(times):
            times.extend(bytes(offset + 1 - len(times)))
        if times[offset]:
            self.repeated += 1
            return False
        times[offset] = 1
        self.distinct += 1
        return True

    def missing(self, ends: Mapping[int, int]) -> dict[int, list[tuple[int, int]]]:
        """Return per partition the ranges [first, next) that no process saw."""
        found: dict[int, list[tuple[int, int]]] = {}
        for partition, end in ends.items():
            times = bytes(self._times[partition][:end]).ljust(end, b"\0")
            ranges, start = [], times.find(0)
            while start >= 0:
                next_seen = times.find(1, start)
                stop = end if next_seen < 0 else next_seen
                ranges.append((start, stop))
                start = times.find(0, stop)
            if ranges:
                found[partition] = ranges
        return found


class Kill(NamedTuple):
    """A consumer that was killed, and what ZooKeeper said right after it."""

    consumer: str
    at: float
    commits: Mapping[int, int]  # of each partition that it owned: the offset to be read next


class Share(NamedTuple):
    """The records of one partition that one process saw."""

    seen: int
    repeated: int


@dataclass
class RunAccount:
    """All figures of a run."""

    published: int
    delivered: int = 0
    lost: int = 0
    duplicated: int = 0
    in_flight_at_kill: int = 0
    duplicates_allowed: int = 0
    failover_seconds: float | None = None  # None: not every partition of the victim was seen elsewhere
    shares: dict[tuple[str, int], Share] = field(default_factory=dict)
    missing: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    carriers: dict[str, Sums] = field(default_factory=dict)
    logged: int = 0

    def problems(self, expected: Mapping[str, Sums]) -> list[str]:
        """Return a line for each figure that is wrong."""
        found = []
        if self.logged != self.published:
            found.append(f"the topic holds {self.logged:,} events, but {self.published:,} were published")
        if self.lost:
            where = [f"{p}: {a}-{b - 1}" for p, ranges in sorted(self.missing.items()) for a, b in ranges[:3]]
            found.append(f"{self.lost:,} events were lost, among them (partition: offsets) {'; '.join(where[:10])}")
        if self.duplicated > self.duplicates_allowed:
            found.append(f"{self.duplicated:,} events were repeated, but the kill explains {self.duplicates_allowed:,}")
        if not self.in_flight_at_kill:
            found.append("nothing was in flight when the process was killed, so the kill shows nothing")
        if self.failover_seconds is None:
            found.append("a partition of the killed process was seen by no other process")
        if wrong := differing(self.carriers, expected):
            found.append(f"the counts of {', '.join(wrong)} are not those of the CSV")
        return found


def account(entries: Iterable[JournalEntry], *, published: int, ends: Mapping[int, int], kill: Kill) -> RunAccount:
    """Return the figures of a run.

    `entries` are all journals' lines, those of one process in its order; `ends` is the end of each partition's log,
    which begins at 0.
    """
    seen, open_batches, sums = SeenOffsets(), OpenBatches(), CarrierSums()
    counted: Counter[tuple[str, int]] = Counter()
    repeated: Counter[tuple[str, int]] = Counter()
    last_of_victim: dict[int, int] = {}
    first_elsewhere: dict[int, float] = {}
    lines = list(entries)
    for entry in lines:
        open_batches.add(entry)
    # By time, so that of two processes the later one counts as the repeating one.
    for entry in sorted(lines, key=lambda entry: entry.at):
        victim = entry.consumer == kill.consumer
        if not victim and entry.what == "counted" and entry.at >= kill.at:
            first_elsewhere.setdefault(entry.partition, entry.at)
        share = (entry.consumer, entry.partition)
        for offset, carrier, delay in entry.flights:
            counted[share] += 1
            if seen.add(entry.partition, offset):
                sums.add(carrier, delay)
            else:
                repeated[share] += 1
            if victim:
                last_of_victim[entry.partition] = max(offset, last_of_victim.get(entry.partition, -1))
    missing = seen.missing(ends)
    waits = [first_elsewhere[p] - kill.at if p in first_elsewhere else None for p in kill.commits]
    return RunAccount(
        published=published,
        delivered=seen.distinct,
        lost=sum(stop - start for ranges in missing.values() for start, stop in ranges),
        duplicated=seen.repeated,
        in_flight_at_kill=open_batches.in_flight(kill.consumer),
        duplicates_allowed=sum(
            max(0, last_of_victim.get(partition, -1) + 1 - commit) for partition, commit in kill.commits.items()
        ),
        failover_seconds=max((w for w in waits if w is not None), default=None) if None not in waits else None,
        shares={share: Share(number, repeated[share]) for share, number in sorted(counted.items())},
        missing=missing,
        carriers=sums.by_carrier(),
        logged=sum(ends.values()),
    )


def archived(
    spark: SparkSession, kafka: Mapping[str, Any], topic: str, to: Path, say: Callable[[str], None]
) -> TopicSummary:
    """Archive a topic below `to`; flights of 2013 are not late."""
    from inbound.spark.archive.job import ArchiveJob, ArchivePlan

    plan = ArchivePlan(to.as_uri(), kafka, [topic], late=None)
    (summary,) = ArchiveJob(spark, plan, say=say, stop=Latch()).run().topics
    return summary


def carriers_of(spark: SparkSession, archive: Path) -> dict[str, Sums]:
    """Return the sums of each carrier in the archive, by name."""
    from pyspark.sql import functions as F

    flight = F.from_json(F.col("data").cast("string"), "carrier string, dep_delay int").alias("flight")
    flights = spark.read.parquet(f"{archive.as_uri()}/events").select(flight).select("flight.*")
    sums = flights.groupBy("carrier").agg(F.count("*"), F.count("dep_delay"), F.sum("dep_delay")).sort("carrier")
    return {carrier: Sums(number, departed, minutes or 0) for carrier, number, departed, minutes in sums.collect()}


def problems(
    proof: Proof, summary: TopicSummary, carriers: Mapping[str, Sums], *, published: int, expected: Mapping[str, Sums]
) -> list[str]:
    """Return a line for each result of Spark that is wrong."""
    found = []
    if proof.verdict is not Verdict.PROVEN:
        found.append(f"spark validate says {proof.verdict.name.lower().replace('_', ' ')}")
    if summary.totals.events != published or summary.totals.rows != published:
        found.append(
            f"{published:,} events were published, but the archive has {summary.totals.events:,}, and "
            f"{summary.totals.late + summary.totals.undecodable:,} set apart"
        )
    if wrong := differing(carriers, expected):
        found.append(f"in the archive the counts of {', '.join(wrong)} are not those of the CSV")
    return found
