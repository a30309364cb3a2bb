"""What an operator asks of a ledger after a crash: what was begun and not settled, and which runs died."""

from __future__ import annotations

from collections.abc import Iterable

from inbound.ledger.format import FileName
from inbound.ledger.items import Entry, Item
from inbound.ledger.places import FilePath

#: Offsets from the first up to but without the second.
OffsetRange = tuple[int, int]


def open_ranges(items: Iterable[Item]) -> dict[tuple[str, int], list[OffsetRange]]:
    """Return, per partition, the ranges that were begun and that no landed commit covers; none: not in the result.

    A commit covers what was begun before it: under its own epoch earlier in the run, or under any older epoch. So
    the order is that of epochs and sequence numbers, never of clocks. `items` is what `read_directory` yields.
    """
    partitions: dict[tuple[str, int], dict[int, _Epoch]] = {}
    for item in items:
        if not isinstance(item, Entry) or item.topic is None or item.partition is None or item.epoch is None:
            continue
        epoch = partitions.setdefault((item.topic, item.partition), {}).setdefault(item.epoch, _Epoch())
        if item.kind == "begun" and item.first is not None and item.next is not None:
            epoch.begun(item.first, item.next)
        elif item.kind == "withheld":
            epoch.withheld()
        elif item.kind == "settled" and item.outcome == "landed" and item.commit is not None:
            epoch.landed(item.commit)
    found = {partition: _still_open(epochs) for partition, epochs in sorted(partitions.items())}
    return {partition: ranges for partition, ranges in found.items() if ranges}


def died(items: Iterable[Item]) -> list[FilePath]:
    """Return the last file of each run without a clean end: the process was killed, or it is running now."""
    runs: dict[tuple[FilePath, str], tuple[FilePath, bool]] = {}
    for item in items:
        name = FileName.parse(item.path.name)
        clean = isinstance(item, Entry) and item.kind == "end" and item.facts.get("why") == "closed"
        runs[item.path.parent, item.path.stem if name is None else name.run] = item.path, clean
    return [path for path, clean in runs.values() if not clean]


class _Epoch:
    """What happened to a partition under one epoch, in the order of one run."""

    def __init__(self) -> None:
        self.open: list[OffsetRange] = []
        self._before: list[OffsetRange] = []  # the last `begun`
        self.committed = 0  # the highest offset that landed

    def begun(self, first: int, end: int) -> None:
        self._before, self.open = self.open, _merged([*self.open, (first, end)])

    def withheld(self) -> None:
        self.open = self._before

    def landed(self, commit: int) -> None:
        self.open = _above(self.open, commit)
        self._before = _above(self._before, commit)  # it may land between a `begun` and its `withheld`
        self.committed = max(self.committed, commit)


def _still_open(epochs: dict[int, _Epoch]) -> list[OffsetRange]:
    ranges: list[OffsetRange] = []
    for _, epoch in sorted(epochs.items()):
        ranges = _merged([*_above(ranges, epoch.committed), *epoch.open])
    return ranges


def _above(ranges: list[OffsetRange], commit: int) -> list[OffsetRange]:
    return [(max(first, commit), end) for first, end in ranges if end > commit]


def _merged(ranges: list[OffsetRange]) -> list[OffsetRange]:
    merged: list[OffsetRange] = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return merged
