"""Reads lines of `.jsonl` files and of a ledger's topic: unsealed, parsed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Literal

from inbound.errors import LedgerError
from inbound.ledger.base import Outcome
from inbound.ledger.format import FORMAT_VERSION, FileName, unseal
from inbound.ledger.places import FilePath, RemotePath

Format = Literal["jsonl", "parquet", "foreign"]


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """A file in a ledger's folder; `foreign` ones are not the ledger's."""

    path: FilePath
    size: int  # bytes
    format: Format
    group: str
    run: str | None  # None: foreign
    number: int | None  # of the file in its run, from 1
    modified: float  # seconds since 1970; of a converted file, those of the lines in it


@dataclass(frozen=True, slots=True)
class Entry:
    """One good line of a ledger.

    Members that its kind lacks are None; unknown members are in `facts`. `seq` counts the entries of a run from 1
    without gaps; `header` and `end` carry the last number before them.
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
    """A last line without its end: the process died, or still writes."""

    path: FilePath
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Corrupt:
    """A line that is not as written; `line` counts from 1."""

    path: FilePath
    line: int
    reason: str


Item = Entry | TornTail | Corrupt


#: Members of a line that an Entry has by name.
_MEMBERS = frozenset(
    ("group", "consumer", "topic", "partition", "epoch", "first", "next", "records", "commit", "outcome", "mzxid")
)


def split_lines(data: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of an open file, with newlines; pyarrow's yield none."""
    begun: list[bytes] = []  # pieces of an unfinished line
    while block := data.read(1 << 20):
        first, *others = bytes(block).split(b"\n")
        begun.append(first)
        for other in others:
            yield b"".join(begun) + b"\n"
            begun = [other]
    if rest := b"".join(begun):
        yield rest


def read_lines(lines: Iterable[bytes], path: FilePath) -> Iterator[Item]:
    """Yield the items in a file's lines, which come from `path`.

    Damage is yielded, never raised. LedgerError: the lines are of a newer format than this reader.
    """
    run = run_of(path)
    offset = 0
    for number, line in enumerate(lines, start=1):
        if not line.endswith(b"\n"):
            yield TornTail(path, offset, len(line))
            return
        offset += len(line)
        item = read_line(line[:-1], path, number, run)
        if isinstance(item, Entry) and item.kind == "header":
            run = item.run
        yield item


def run_of(path: FilePath) -> str:
    """Return a file's run by its name; its header is more exact."""
    name = FileName.parse(path.name)
    return path.stem if name is None else name.run


def read_line(line: bytes, path: FilePath, number: int, run: str) -> Entry | Corrupt:
    """Parse a line, given without its newline; LedgerError as `read_lines`."""
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
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return Corrupt(path, number, f"its checksum is right, but it is no line of a ledger: {error!r}")


def read_record(topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None) -> Entry | Corrupt:
    """Parse a record of a ledger's topic; `line` is its offset.

    LedgerError as `read_lines`. A run's numbers tell the order of its lines, and which stand twice.
    """
    path = RemotePath(f"kafka://{topic}", str(partition))
    if value is None or key is None:
        return Corrupt(path, offset, "it has no key or no value: nothing that a ledger wrote")
    return read_line(value, path, offset, key.decode(errors="replace"))
