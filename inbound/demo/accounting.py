"""What became of every event, from the processors' own journals alone. Pure: no files, no clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from inbound.demo.flights import CarrierSums, Sums
from inbound.demo.journal import Entry, OpenBatches


class Seen:
    """Which offsets of each partition have been counted, and how often."""

    def __init__(self) -> None:
        self._times: defaultdict[int, bytearray] = defaultdict(bytearray)
        self.distinct = 0
        self.repeated = 0

    def add(self, partition: int, offset: int) -> bool:
        """Note one sight. Returns False if the offset has been seen before."""
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
        """Return, per partition, the ranges [first, next) below its log's end that nobody has seen."""
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
    """What one process saw of one partition."""

    seen: int
    repeated: int


@dataclass
class Account:
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
        """Return what is not as it must be: nothing lost, no more repeats than allowed, and every carrier's sums."""
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
            found.append("a partition of the killed process was seen by nobody else")
        wrong = sorted(c for c in {*expected, *self.carriers} if expected.get(c) != self.carriers.get(c))
        if wrong:
            found.append(f"the counts of {', '.join(wrong)} are not those of the CSV")
        return found


def account(entries: Iterable[Entry], *, published: int, ends: Mapping[int, int], kill: Kill) -> Account:
    """Return the figures of a run.

    `entries` are all journals' lines, those of one process in its order; `ends` is the end of each partition's log,
    which begins at 0.
    """
    seen, open_batches, sums = Seen(), OpenBatches(), CarrierSums()
    counted: Counter[tuple[str, int]] = Counter()
    repeated: Counter[tuple[str, int]] = Counter()
    last_of_victim: dict[int, int] = {}
    first_elsewhere: dict[int, float] = {}
    lines = list(entries)
    for entry in lines:
        open_batches.add(entry)
    # By time, so that of two processes the later one is said to have repeated.
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
    return Account(
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
