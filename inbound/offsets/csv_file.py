"""Reads and writes offsets in the CSV of kafka-consumer-groups.

It has no header, and the group first if there are several.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from typing import NamedTuple

from inbound.coordinators.paths import path_part
from inbound.errors import ConfigError
from inbound.offsets.model import Row
from inbound.topic_partition import MOST_OFFSET

#: Longer names are always quoted: Kafka's tool does not check their characters.
_LONGEST_PLAIN = 24
_ODD = re.compile(r'[,"\x00-\x20]')
_FORMAT = "need topic,partition,offset, or with several groups group,topic,partition,offset"


class WantedOffset(NamedTuple):
    """One line: the wanted offset of a partition, and the line's number."""

    group: str
    topic: str
    partition: int
    offset: int
    line: int = 0


#: The most unusable lines in a message.
MOST_PROBLEMS = 20


def csv_text(rows: Iterable[Row], *, groups: bool) -> str:
    """Return a line per offset, which begins with its group if `groups`."""
    lines = (
        ([row.group, row.topic] if groups else [row.topic], row.partition, row.committed)
        for row in rows
        if row.committed is not None
    )
    return "".join(f"{','.join(map(_quoted, names))},{partition},{offset}\n" for names, partition, offset in lines)


def read_csv(text: str, name: str, group: str | None = None, default: str | None = None) -> list[WantedOffset]:
    """Return the offsets in a CSV text.

    Lines may only be about `group`; without it, a line that names no group is about `default`.

    Raises:
        ConfigError: lines are unusable; the message has the file and number of each.
    """
    found: list[WantedOffset] = []
    problems: list[str] = []
    seen: dict[tuple[str, str, int], int] = {}
    reader = csv.reader(text.splitlines(), strict=True)
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            problems.append(f"{name}:{reader.line_num}: {error}; {_FORMAT}")
            break  # the start of the next line is unknown
        if cells is None:
            break
        if not any(cell.strip() for cell in cells):
            continue
        where = f"{name}:{reader.line_num}"
        try:
            one = _wanted([cell.strip() for cell in cells], group, default, reader.line_num)
        except ConfigError as error:
            problems.append(f"{where}: {error}")
            continue
        before = seen.setdefault(one[:3], one.line)
        if before != one.line:
            problems.append(
                f"{where}: {one.topic}/{one.partition} stands in line {before} already; keep one of the two"
            )
        found.append(one)
    if not found and not problems:
        problems.append(f"{name}: holds no offsets; {_FORMAT}, a line for each partition")
    if problems:
        more = len(problems) - MOST_PROBLEMS
        raise ConfigError(
            "\n".join([*problems[:MOST_PROBLEMS], *([f"{name}: and {more} lines more"] if more > 0 else [])])
        )
    return found


def _wanted(cells: list[str], group: str | None, default: str | None, line: int) -> WantedOffset:
    if len(cells) not in (3, 4):
        raise ConfigError(f"has {len(cells)} columns; {_FORMAT}")
    named = cells[0] if len(cells) == 4 else group or default
    if named is None:
        raise ConfigError("names no group; give one with --group")
    if group is not None and named != group:
        raise ConfigError(f"is of group {named!r}, not of {group!r}; leave --group out, or take the line out")
    topic, partition, offset = cells[-3:]
    return WantedOffset(
        path_part(named, "group"), path_part(topic, "topic"),
        _number(partition, "partition", 2**31 - 1), _number(offset, "offset", MOST_OFFSET), line,
    )  # fmt: skip


def _number(text: str, what: str, largest: int) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > largest:
        raise ConfigError(f"{what} {text!r} is no number from 0 to {largest}")
    return int(text)


def _quoted(name: str) -> str:
    if len(name) <= _LONGEST_PLAIN and not _ODD.search(name):
        return name
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
