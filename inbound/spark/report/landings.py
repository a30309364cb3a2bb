"""Times at which offsets were delivered and landed, from the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from inbound.proof.columns import BEGUN, LANDED, SETTLED, Block
from inbound.proof.model import PartitionKey

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PartitionLines:
    """One partition's deliveries and commits in a piece of a ledger."""

    key: PartitionKey
    first: int | None  # the lowest delivered offset
    commits: Ints  # that landed
    landed_at: Ints  # milliseconds since 1970
    mzxids: Ints
    seconds: Ints  # since 1970, ascending, each once
    records: Ints  # delivered in that second


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The deliveries and commits in a piece of a ledger."""

    lines: tuple[PartitionLines, ...]
    damaged: int  # lines that cannot be read


@dataclass(frozen=True, slots=True)
class Landings:
    """The landed commits of one partition of a group.

    An offset landed at `at[i]` for the first i with `commits[i]` above it. Nothing is known of offsets below `first`.
    """

    key: PartitionKey
    first: int
    commits: Ints  # ascending
    at: Ints  # milliseconds since 1970; of the commits, in the same order
    handed_out: Mapping[int, int] = field(default_factory=dict)  # records by second

    def within(self, begin: float, end: float) -> Landings:
        """Return the landings within this time, in seconds since 1970.

        Offsets that landed before count as settled, offsets that landed later as open.
        """
        settled = self.at < begin * 1000
        first = max(self.first, int(self.commits[settled].max(initial=self.first)))
        kept = ~settled & (self.at < end * 1000) & (self.commits > first)
        handed_out = {second: n for second, n in self.handed_out.items() if begin <= second < end}
        return Landings(self.key, first, self.commits[kept], self.at[kept], handed_out)


def excerpt(block: Block) -> Excerpt:
    """Extract deliveries and commits from a block of a ledger's lines."""
    order = np.argsort(block.place, kind="stable")
    edges = np.searchsorted(block.place[order], np.arange(len(block.places) + 1))
    found = []
    for place, (topic, partition) in enumerate(block.places):
        rows = order[edges[place] : edges[place + 1]]
        begun = rows[block.kind[rows] == BEGUN]
        landed = rows[(block.kind[rows] == SETTLED) & (block.outcome[rows] == LANDED)]
        if not len(begun) and not len(landed):
            continue
        seconds, which = np.unique(block.wall[begun].astype(np.int64), return_inverse=True)
        found.append(
            PartitionLines(
                PartitionKey(block.source.group, topic, partition),
                int(block.first[begun].min()) if len(begun) else None,
                block.commit[landed],
                (block.wall[landed] * 1000).round().astype(np.int64),
                block.mzxid[landed],
                seconds,
                np.bincount(which, np.maximum(block.records[begun], 0), len(seconds)).astype(np.int64),
            )
        )
    return Excerpt(tuple(found), sum(not damage.harmless for damage in block.damage))


def landings_of(excerpts: Iterable[Excerpt]) -> dict[PartitionKey, Landings]:
    """Join the excerpts of a ledger, of partitions with any delivery."""
    parts: dict[PartitionKey, list[PartitionLines]] = defaultdict(list)
    for one in excerpts:
        for lines in one.lines:
            parts[lines.key].append(lines)
    return {key: landings for key, lines in parts.items() for landings in _together(key, lines)}


def time_of(landings: Iterable[Landings]) -> tuple[float, float] | None:
    """Return the first and last time, in seconds since 1970, if any."""
    times = [
        time
        for one in landings
        for time in (*one.handed_out, *(one.at[[0, -1]] / 1000 if len(one.at) else ()))
    ]  # fmt: skip
    return (float(min(times)), float(max(times))) if times else None


def _together(key: PartitionKey, lines: list[PartitionLines]) -> Iterator[Landings]:
    firsts = [one.first for one in lines if one.first is not None]
    if not firsts:
        return
    commits, at, mzxids = (
        np.concatenate([getattr(one, name) for one in lines]) for name in ("commits", "landed_at", "mzxids")
    )
    # Not by the clocks: ZooKeeper knows which commit came first. After a reset, offsets that land again landed before.
    order = np.lexsort((commits, mzxids))
    commits, at = commits[order], at[order]
    ahead = np.flatnonzero(commits > np.concatenate(([-1], np.maximum.accumulate(commits)))[:-1])
    handed_out: dict[int, int] = defaultdict(int)
    for one in lines:
        for second, records in zip(one.seconds.tolist(), one.records.tolist(), strict=True):
            handed_out[second] += records
    yield Landings(key, min(firsts), commits[ahead], at[ahead], dict(handed_out))
