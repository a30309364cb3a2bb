"""What a reader of the ledger gets: good lines as entries, and whatever is not good as what it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from inbound.ledger.base import Outcome
from inbound.ledger.places import FilePath

Format = Literal["jsonl", "parquet", "foreign"]


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """A file in a ledger's folder, as `list_files` finds it; `foreign`: nothing of a ledger's, and not read."""

    path: FilePath
    size: int  # bytes
    format: Format
    group: str
    run: str | None  # None: foreign
    number: int | None  # the how manieth file of its run, from 1
    modified: float  # seconds since 1970; of a converted file, those of the lines in it


@dataclass(frozen=True, slots=True)
class Entry:
    """One good line. What a kind of line does not have is None; members that this reader does not know are in `facts`.

    `seq` counts the entries of a run from 1 without gaps; `header` and `end` carry the last number before them.
    """

    path: FilePath
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

    path: FilePath
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Corrupt:
    """A line that is not as it was written; `line` counts from 1. What it said is not known."""

    path: FilePath
    line: int
    reason: str


Item = Entry | TornTail | Corrupt
