"""Reads the ledger's files, `.jsonl` and `.parquet`, from a folder or URI."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from inbound.errors import LedgerError
from inbound.ledger import columns
from inbound.ledger.disk import reason
from inbound.ledger.format import PARQUET_SUFFIX, SUFFIX, FileName, name_of
from inbound.ledger.jsonl import Entry, Format, Item, LedgerFile, read_lines, split_lines
from inbound.ledger.places import FilePath, RemotePath, files_below, open_file, place_of

if TYPE_CHECKING:
    import pyarrow


def list_files(place: Path | str | RemotePath, group: str | None = None) -> list[LedgerFile]:
    """List the files of a ledger, or of one group, by run.

    A converted file whose lines still exist is listed as Parquet only; foreign files come last, hidden ones never.

    Raises:
        LedgerError: there is no such folder, or it can't be listed.
        ConfigError: pyarrow is missing for a URI, or does not know it.
    """
    found: list[LedgerFile] = []
    for file in files_below(place_of(place)):
        of = name_of(file.path.parent.name)
        if file.path.name.startswith(".") or (group is not None and of != group):
            continue
        name = FileName.parse(file.path.name)
        parquet = file.path.name.endswith(PARQUET_SUFFIX)
        kind: Format = "foreign" if name is None else "parquet" if parquet else "jsonl"
        run, number = (None, None) if name is None else (name.run, name.number)
        found.append(LedgerFile(file.path, file.size, kind, of, run, number, file.modified))
    converted = {(file.group, file.run, file.number) for file in found if file.format == "parquet"}
    return sorted((f for f in found if f.format != "jsonl" or (f.group, f.run, f.number) not in converted), key=_order)


def read_file(path: Path | str | RemotePath) -> Iterator[Item]:
    """Yield a file's items, from `header` to `end` (unless the process died).

    Damage is yielded, never raised. LedgerError: the file can't be read, or is of a newer format than this reader.
    """
    for file, data, parquet in _opened(place_of(path)):
        if parquet:
            for batch in columns.parquet_batches(data, file):
                yield from columns.items_of(batch, file)
        else:
            yield from read_lines(split_lines(data), file)


def read_batches(path: Path | str | RemotePath) -> Iterator[pyarrow.RecordBatch]:
    """Yield a file as Arrow record batches of `columns.schema()`, for Spark.

    A row is a line; an unreadable line is a row of kind `damaged`. LedgerError as `read_file`. ConfigError: no pyarrow.
    """
    for file, data, parquet in _opened(place_of(path)):
        yield from columns.parquet_batches(data, file) if parquet else columns.jsonl_batches(split_lines(data), file)


def read_directory(directory: Path | str | RemotePath) -> Iterator[Item]:
    """Yield the items of a ledger's files, in run and file order.

    Entries that a run wrote twice (an fsync failed) are yielded once, foreign files not at all. LedgerError as
    `read_file`.
    """
    run: tuple[str, str | None] | None = None
    seen = _Numbers()
    for file in (file for file in list_files(directory) if file.format != "foreign"):
        if run != (file.group, file.run):
            run, seen = (file.group, file.run), _Numbers()
        for item in read_file(file.path):
            if not isinstance(item, Entry) or item.kind in ("header", "end") or seen.add(item.seq):
                yield item


def _opened(path: FilePath) -> Iterator[tuple[FilePath, BinaryIO, bool]]:
    """Yield an open file, and whether it is Parquet; then close it."""
    try:
        try:
            data = open_file(path)
        except FileNotFoundError:
            if not path.name.endswith(SUFFIX):
                raise
            path = path.with_name(path.name.removesuffix(SUFFIX) + PARQUET_SUFFIX)  # converted since it was listed
            try:
                data = open_file(path)
            except FileNotFoundError:
                path = path.with_name(path.name.removesuffix(PARQUET_SUFFIX) + SUFFIX)
                raise
        with closing(data):
            yield path, data, path.name.endswith(PARQUET_SUFFIX)
    except OSError as error:
        what = f"it cannot be read ({reason(error)}); check the path and its rights"
        raise LedgerError(f"ledger file {path}: {what}") from error


def _order(file: LedgerFile) -> tuple[str, bool, str, str, int, str]:
    name = FileName.parse(file.path.name)
    if name is None:
        return file.group, True, "", "", 0, file.path.name
    return file.group, False, name.consumer, name.start, name.number, ""


class _Numbers:
    """A set of integers that come nearly in order, as few ranges."""

    def __init__(self) -> None:
        self._ranges: list[OffsetRange] = []  # ascending, not touching

    def add(self, number: int) -> bool:
        """Return whether the number is new."""
        if self._ranges and self._ranges[-1][1] == number:  # nearly always
            self._ranges[-1] = self._ranges[-1][0], number + 1
            return True
        if any(first <= number < end for first, end in reversed(self._ranges)):
            return False
        self._ranges = _merged([*self._ranges, (number, number + 1)])
        return True


#: Offsets from the first to the second, exclusive.
OffsetRange = tuple[int, int]


def open_ranges(items: Iterable[Item]) -> dict[tuple[str, int], list[OffsetRange]]:
    """Return each partition's ranges that were begun and are not committed.

    A landed commit covers what was begun before it: under its own epoch earlier in the run, or under any older epoch.
    So epochs and sequence numbers order entries, never clocks. `items` is what `read_directory` yields.
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
    """Return each run's last file, if killed (or running) without an end."""
    runs: dict[tuple[FilePath, str], tuple[FilePath, bool]] = {}
    for item in items:
        name = FileName.parse(item.path.name)
        clean = isinstance(item, Entry) and item.kind == "end" and item.facts.get("why") == "closed"
        runs[item.path.parent, item.path.stem if name is None else name.run] = item.path, clean
    return [path for path, clean in runs.values() if not clean]


class _Epoch:
    """A partition's open ranges under one epoch of one run."""

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
