"""Where a record of the archive belongs. Pure."""

from __future__ import annotations

import hashlib
from datetime import date, timedelta
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

from inbound.errors import InboundError

#: The three parts of an archive. Readers take one of them.
EVENTS: Final = "events"
LATE: Final = "late"
UNDECODABLE: Final = "undecodable"
KINDS: Final = (EVENTS, LATE, UNDECODABLE)

#: What no reader of Parquet looks into: books, and files that are not in place yet.
BOOKS: Final = "_archive"
STAGING: Final = f"{BOOKS}/staging"
CHECKPOINT: Final = "_checkpoint"

#: File systems take names of up to 255 bytes.
LONGEST_TYPE: Final = 240
_LONGEST_TOPIC: Final = 160
_EPOCH: Final = date(1970, 1, 1).toordinal()
_MICROSECONDS_A_DAY: Final = 86_400_000_000
#: What Hive's readers take for "no value".
_NOTHING: Final = "__HIVE_DEFAULT_PARTITION__"


class ArchiveError(InboundError):
    """The archive cannot be begun or continued."""


@lru_cache(maxsize=1024)
def type_name(kind: str) -> str | None:
    """Return an event's type as a folder's name, percent-encoded in UTF-8; None if it would be too long for one."""
    name = quote(kind, safe="") if kind != _NOTHING else f"%5F{kind[1:]}"
    return name if len(name) <= LONGEST_TYPE else None


def folder(part: str, day: str, name: str | None = None) -> str:
    """Return the folder of a day's records, below the archive's: `events/date=2013-01-01/type=orders.placed`."""
    return f"{part}/date={day}" if name is None else f"{part}/date={day}/type={name}"


def day_of(microseconds: int | None) -> str:
    """Return the UTC day of a moment, given since 1970; the first or last that dates have, for one beyond them."""
    return _day((microseconds or 0) // _MICROSECONDS_A_DAY)


@lru_cache(maxsize=4096)
def _day(number: int) -> str:
    day = _EPOCH + number
    return date.fromordinal(min(max(day, 1), date.max.toordinal())).isoformat()


def is_closed(path: str, now: float, late: float | None) -> bool:
    """Tell whether a folder's day has ended, and by more than events may be late.

    `now` is in seconds since 1970; `late` in seconds, None where no event is ever late.
    """
    day = next((part.removeprefix("date=") for part in path.split("/") if part.startswith("date=")), "")
    try:
        end = (date.fromisoformat(day) + timedelta(days=1)).toordinal() - _EPOCH
    except (ValueError, OverflowError):  # not a folder of ours, or the last day of the calendar
        return False
    return end * 86400 + (late or 0.0) < now


def topic_name(topic: str) -> str:
    """Return a topic as a part of file names: as it is, or shortened where that would be too long."""
    if len(topic) <= _LONGEST_TOPIC:
        return topic
    return f"{topic[:_LONGEST_TOPIC]}~{hashlib.sha256(topic.encode()).hexdigest()[:16]}"


def file_name(topic: str, batch: int, number: int) -> str:
    """Return the name of a file of a batch. (Names that begin with a dot or `_` are hidden from readers.)"""
    return f"part-{topic_name(topic)}-{batch:010d}-{number:05d}.parquet"


def staged_folder(name: str) -> str:
    """Return the folder that Spark wrote as `folder=events%2Fdate%3D2013-01-01...`."""
    return unquote(name.removeprefix("folder="))
