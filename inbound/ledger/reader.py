"""Reading the ledger's files: good lines as entries, and whatever is not good as what it is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inbound.errors import LedgerError
from inbound.ledger.base import Outcome
from inbound.ledger.disk import reason
from inbound.ledger.format import FORMAT_VERSION, SUFFIX, FileName, name_of, unseal


@dataclass(frozen=True, slots=True)
class Entry:
    """One good line. What a kind of line does not have is None; members that this reader does not know are in `facts`.

    `seq` counts the entries of a run from 1 without gaps; `header` and `end` carry the last number before them.
    """

    path: Path
    line: int
    kind: str
    run: str
    seq: int
    group: str
    consumer: str
    wall: float
    topic: str | None = None
    partition: int | None = None
    epoch: int | None = None
    first: int | None = None
    next: int | None = None
    records: int | None = None
    commit: int | None = None
    outcome: Outcome | None = None
    mzxid: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TornTail:
    """The last line of a file lacks its end: the process died while it wrote, or it is writing just now."""

    path: Path
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Corrupt:
    """A line that is not as it was written; `line` counts from 1. What it said is not known."""

    path: Path
    line: int
    reason: str


Item = Entry | TornTail | Corrupt

#: Members of a line that an Entry has by name.
_MEMBERS = frozenset(
    ("group", "consumer", "topic", "partition", "epoch", "first", "next", "records", "commit", "outcome", "mzxid")
)


def read_file(path: Path) -> Iterator[Item]:
    """Yield what a file holds, in the order of its lines: first the header, last `end` unless the process died.

    Damage is yielded, never raised. LedgerError: the file can't be read, or is of a newer format than this reader.
    """
    try:
        with path.open("rb") as lines:
            yield from read_lines(lines, path)
    except OSError as error:
        what = f"it cannot be read ({reason(error)}); check the path and its rights"
        raise LedgerError(f"ledger file {path}: {what}") from error


def read_lines(lines: Iterable[bytes], path: Path) -> Iterator[Item]:
    """Yield what the lines of a file hold; `path` is where they come from. LedgerError as with `read_file`."""
    name = FileName.parse(path.name)
    run = path.stem if name is None else name.run
    offset = 0
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            yield TornTail(path, offset, len(line))
            return
        offset += len(line)
        item = _read_line(line[:-1], path, number, run)
        if isinstance(item, Entry) and item.kind == "header":
            run = item.run
        yield item


def read_directory(directory: Path) -> Iterator[Item]:
    """Yield what all files of a ledger hold: run by run, each in the order of its files.

    Entries that a run wrote a second time, because an fsync failed, are yielded once. LedgerError as with `read_file`.
    """
    if not directory.is_dir():
        raise LedgerError(f"ledger directory {directory}: there is no such directory; check ledger.path")
    for run in _runs(directory):
        seen = _Numbers()
        for path in run:
            for item in read_file(path):
                if not isinstance(item, Entry) or item.kind in ("header", "end") or seen.add(item.seq):
                    yield item


def _read_line(line: bytes, path: Path, number: int, run: str) -> Item:
    body = unseal(line)
    if body is None:
        return Corrupt(path, number, "its checksum is wrong")
    try:
        members = json.loads(body)
        if "v" in members and members["v"] > FORMAT_VERSION:
            raise LedgerError(
                f"ledger file {path}: it has format version {members['v']}, this inbound reads up to {FORMAT_VERSION}; "
                f"read it with the release that wrote it ({members.get('writer')}) or a newer one"
            )
        facts = members.pop("facts", {})
        named = {name: members.pop(name) for name in _MEMBERS & members.keys()}
        return Entry(
            path=path,
            line=number,
            kind=members.pop("kind"),
            run=members.pop("run", run),
            seq=members.pop("seq"),
            wall=members.pop("wall"),
            facts={**members, **facts},
            **named,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Corrupt(path, number, f"its checksum is right, but it is no line of a ledger: {error!r}")


def _runs(directory: Path) -> list[list[Path]]:
    """Group the files by run, in order of group, consumer and start; files named otherwise stand alone."""
    runs: dict[tuple[str, str, str], list[tuple[int, Path]]] = {}
    for path in directory.glob(f"*/*{SUFFIX}"):
        name = FileName.parse(path.name) or FileName(path.stem, "", 0)
        runs.setdefault((name_of(path.parent.name), name.consumer, name.start), []).append((name.number, path))
    return [[path for _, path in sorted(files)] for _, files in sorted(runs.items())]


class _Numbers:
    """A set of integers that come nearly in order, kept as a few ranges."""

    def __init__(self) -> None:
        self._ranges: list[list[int]] = []  # [first, next], ascending, not touching

    def add(self, number: int) -> bool:
        """Return whether the number is new."""
        if self._ranges and self._ranges[-1][1] == number:  # nearly always
            self._ranges[-1][1] += 1
            return True
        if any(first <= number < end for first, end in reversed(self._ranges)):
            return False
        merged: list[list[int]] = []
        for first, end in sorted([*self._ranges, [number, number + 1]]):
            if merged and merged[-1][1] == first:
                merged[-1][1] = end
            else:
                merged.append([first, end])
        self._ranges = merged
        return True
