"""What is written down: of a topic before its first batch, of a batch before anybody sees its files. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, TypeVar

from inbound.spark.archive.layout import ArchiveError

#: Version of everything in `_archive`.
FORMAT: Final = 1
_KIND: Final = "inbound archive"

Made = TypeVar("Made", bound="Identity | TopicBook | Manifest | Swap")
Offsets = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Counts:
    """What was archived."""

    events: int = 0
    late: int = 0
    undecodable: int = 0
    files: int = 0
    bytes: int = 0

    @property
    def rows(self) -> int:
        """How many records, of whatever kind."""
        return self.events + self.late + self.undecodable

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets [first, next) of a partition that Kafka had deleted before they were archived."""

    partition: int
    first: int
    next: int


@dataclass(frozen=True, slots=True)
class Identity:
    """That a folder is an archive."""

    kind: str = _KIND
    made: str = ""
    writer: str = ""


@dataclass(frozen=True, slots=True)
class TopicBook:
    """A topic as it was before its first batch."""

    topic: str
    topic_id: str | None
    starts: Offsets  # the first offset of each partition's log


@dataclass(frozen=True, slots=True)
class Manifest:
    """One batch of a topic. From when this stands, the batch is archived: what is left are the moves."""

    topic: str
    batch: int
    since: Offsets
    until: Offsets
    counts: Counts
    totals: Counts  # of this topic, this batch included
    gaps: tuple[Gap, ...]
    staging: str  # gone when all moves are done
    moves: tuple[tuple[str, str], ...]  # from, to; files, below the archive's folder


@dataclass(frozen=True, slots=True)
class Swap:
    """Folders that get new contents. From when this stands, they get them."""

    staging: str  # gone when all is done
    #: of each folder: itself, the folder with its new files, the one that its old files go to
    folders: tuple[tuple[str, str, str], ...]


def to_text(book: Identity | TopicBook | Manifest | Swap) -> str:
    """Return `book` as JSON."""
    return json.dumps({"v": FORMAT, **asdict(book)}, separators=(",", ":"))


def from_text(kind: type[Made], text: str, where: str) -> Made:
    """Read what `to_text` wrote.

    Raises ArchiveError: it is damaged, or of a later version.
    """
    try:
        read: dict[str, Any] = json.loads(text)
        version = read.pop("v")
        if isinstance(version, int) and version > FORMAT:
            raise ArchiveError(f"{where}: has format {version}, written by a later inbound; this one reads {FORMAT}")
        for name in ("starts", "since", "until"):
            if name in read:
                read[name] = {int(partition): int(offset) for partition, offset in read[name].items()}
        for name in ("counts", "totals"):
            if name in read:
                read[name] = Counts(**read[name])
        if "gaps" in read:
            read["gaps"] = tuple(Gap(**gap) for gap in read["gaps"])
        for name in ("moves", "folders"):
            if name in read:
                read[name] = tuple(tuple(item) for item in read[name])
        if kind is Identity and read["kind"] != _KIND:
            raise ValueError("another kind")
        return kind(**read)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArchiveError(
            f"{where}: is damaged, or no file of an archive ({error}); restore it from a backup"
        ) from None


def offsets_of(text: str, topic: str) -> dict[int, int]:
    """Return the offsets of `topic` in a file of Spark's offset log: its last line is JSON, per topic and partition.

    Raises ArchiveError: it is no such file, or not of this topic.
    """
    try:
        said = json.loads(text.splitlines()[-1])[topic]
        return {int(partition): int(offset) for partition, offset in said.items()}
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise ArchiveError(
            f"topic {topic}: Spark's checkpoint of it is damaged or another topic's ({error!r}); take another --to"
        ) from None
