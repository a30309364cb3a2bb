"""Folders, file names and manifests of the archive. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import date, timedelta
from functools import lru_cache
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

from pydantic import TypeAdapter

from inbound.errors import InboundError

#: The three parts of an archive. Readers take one of them.
EVENTS: Final = "events"
LATE: Final = "late"
UNDECODABLE: Final = "undecodable"
KINDS: Final = (EVENTS, LATE, UNDECODABLE)

#: Folders that no reader of Parquet looks into: books, and files that are not in place yet.
BOOKS: Final = "_archive"
STAGING: Final = f"{BOOKS}/staging"
CHECKPOINT: Final = "_checkpoint"

#: File systems take names of up to 255 bytes.
LONGEST_TYPE: Final = 240
_LONGEST_TOPIC: Final = 160
_EPOCH: Final = date(1970, 1, 1).toordinal()
_MICROSECONDS_A_DAY: Final = 86_400_000_000
_NOTHING: Final = "__HIVE_DEFAULT_PARTITION__"  # Hive's name for "no value"


class ArchiveError(InboundError):
    """The archive cannot be begun or continued."""


@lru_cache(maxsize=1024)
def type_name(kind: str) -> str | None:
    """Return an event's type as a folder's name, None if too long."""
    name = quote(kind, safe="") if kind != _NOTHING else f"%5F{kind[1:]}"
    return name if len(name) <= LONGEST_TYPE else None


def folder(part: str, day: str, name: str | None = None) -> str:
    """Return a day's folder, as `events/date=2013-01-01/type=orders.placed`."""
    return f"{part}/date={day}" if name is None else f"{part}/date={day}/type={name}"


def day_of(microseconds: int | None) -> str:
    """Return the UTC day of a moment, or the nearest possible date."""
    return _day((microseconds or 0) // _MICROSECONDS_A_DAY)


@lru_cache(maxsize=4096)
def _day(number: int) -> str:
    day = _EPOCH + number
    return date.fromordinal(min(max(day, 1), date.max.toordinal())).isoformat()


def is_closed(path: str, now: float, late: float | None) -> bool:
    """Return whether a folder's day ended more than `late` ago.

    `now` is in seconds since 1970; `late` in seconds, None where no event is ever late.
    """
    day = next((part.removeprefix("date=") for part in path.split("/") if part.startswith("date=")), "")
    try:
        end = (date.fromisoformat(day) + timedelta(days=1)).toordinal() - _EPOCH
    except (ValueError, OverflowError):  # not a folder of ours, or the last day of the calendar
        return False
    return end * 86400 + (late or 0.0) < now


def topic_name(topic: str) -> str:
    """Return a topic as part of file names, shortened if too long."""
    if len(topic) <= _LONGEST_TOPIC:
        return topic
    return f"{topic[:_LONGEST_TOPIC]}~{hashlib.sha256(topic.encode()).hexdigest()[:16]}"


def file_name(topic: str, batch: int, number: int) -> str:
    """Return a batch's file name, without the prefixes that hide files."""
    return f"part-{topic_name(topic)}-{batch:010d}-{number:05d}.parquet"


def staged_folder(name: str) -> str:
    """Return the folder in Spark's name `folder=events%2Fdate%3D2013-01-01...`."""
    return unquote(name.removeprefix("folder="))


FORMAT: Final = 1  # of everything in `_archive`
_KIND: Final = "inbound archive"

Made = TypeVar("Made", bound="Identity | TopicBook | BatchManifest | Swap")
Offsets = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of archived records, files and bytes."""

    events: int = 0
    late: int = 0
    undecodable: int = 0
    files: int = 0
    bytes: int = 0

    @property
    def rows(self) -> int:
        return self.events + self.late + self.undecodable

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets [first, next) that Kafka deleted before they were archived."""

    partition: int
    first: int
    next: int


@dataclass(frozen=True, slots=True)
class Identity:
    """The mark of a folder that is an archive."""

    kind: str = _KIND
    made: str = ""
    writer: str = ""


@dataclass(frozen=True, slots=True)
class TopicBook:
    """A topic at one moment; the archive keeps its first state."""

    topic: str
    topic_id: str | None  # None: the brokers are too old to have any
    starts: Offsets  # the first offset of each partition's log


@dataclass(frozen=True, slots=True)
class BatchManifest:
    """One batch of a topic, archived once this exists, but for moves."""

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
    """Folders that get new files, decided once this exists."""

    staging: str  # gone when all is done
    #: for each folder: itself, the folder with its new files, the folder for its old files
    folders: tuple[tuple[str, str, str], ...]


def to_text(book: Identity | TopicBook | BatchManifest | Swap) -> str:
    return json.dumps({"v": FORMAT, **asdict(book)}, separators=(",", ":"))


def from_text(kind: type[Made], text: str, where: str) -> Made:
    """Return the book in a text, or raise ArchiveError: damaged or newer."""
    try:
        read: dict[str, Any] = json.loads(text)
        version = read.pop("v")
        if isinstance(version, int) and version > FORMAT:
            raise ArchiveError(f"{where}: has format {version}, written by a later inbound; this one reads {FORMAT}")
        if kind is Identity and read["kind"] != _KIND:
            raise ValueError("another kind")
        return TypeAdapter(kind).validate_python(read)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArchiveError(
            f"{where}: is damaged, or no file of an archive ({error}); restore it from a backup"
        ) from None


def offsets_of(text: str, topic: str) -> dict[int, int]:
    """Return a topic's offsets in Spark's offset log, or raise ArchiveError."""
    try:
        said = json.loads(text.splitlines()[-1])[topic]  # the last line has offsets by topic and partition
        return {int(partition): int(offset) for partition, offset in said.items()}
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise ArchiveError(
            f"topic {topic}: Spark's checkpoint of it is damaged or another topic's ({error!r}); take another --to"
        ) from None
