"""Collapses steady progress: thousands of a run's lines become one span.

A line begins a new span where it does not go straight on from the lines of its partition before it:

| line | begins a new span |
|---|---|
| any | if the epoch is another, or an event stands between |
| `begun` | if it does not begin where the last one ended, the span has none, or its `commit` is before one that was named |
| `done` | if its commit does not ascend, goes beyond what was delivered, or the last one has not landed yet |
| `settled` landed | the same for commit and mzxid, and if it is not the commit that was announced last |

Files or chunks that are read one by one have more spans than one reading would; `merged` joins spans that go straight
on. A judge finds the same with either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from inbound.proof.intervals import difference, union
from inbound.proof.model import Damage, LedgerEvent, LedgerRun, OffsetRange, PartitionKey, Span

#: Kinds of lines that are events as they stand.
EVENTS = frozenset(
    {"claimed", "released", "lost", "reset", "revert", "skip", "retention", "truncated", "withheld", "degraded"}
)


@dataclass(frozen=True, slots=True)
class RunSource:
    """Whose lines these are, and where they stand."""

    group: str
    consumer: str
    run: str
    where: str  # a file, for people


@dataclass(frozen=True, slots=True)
class Piece:
    """The spans and events of a file, or of a chunk."""

    source: RunSource
    spans: tuple[Span, ...]
    events: tuple[LedgerEvent, ...]
    numbers: tuple[OffsetRange, ...]  # of its entries, which are numbered from 1 through all files of a run
    damage: tuple[Damage, ...] = ()
    header: Mapping[str, Any] | None = None  # the file's first line, if it is in this piece
    ending: Mapping[str, Any] | None = None  # the file's last line, `end`, if it is in this piece
    torn: bool = False  # the file ends in the middle of a line


@dataclass(frozen=True, slots=True)
class RunStory:
    """The spans and events of a whole run."""

    run: LedgerRun
    spans: tuple[Span, ...]
    events: tuple[LedgerEvent, ...]
    damage: tuple[Damage, ...]


def degraded(source: RunSource, seq: int, facts: Mapping[str, Any]) -> list[Damage]:
    """Mark a time without a ledger, unless following lines name the partitions."""
    if "partitions" in facts:
        return []
    what = f"run {source.run} went on without its ledger for a while (on_failure: degrade; {dict(facts)})"
    return [Damage(source.where, what, source.group, source.run, seq, degraded=True)]


def merged(spans: Iterable[Span], events: Iterable[LedgerEvent] = (), apart: Iterable[Span] = ()) -> list[Span]:
    """Join spans that go straight on, in order of run and number.

    None are joined over an event, or over one of the spans `apart`, which are not in the result.
    """
    places: dict[tuple[str, PartitionKey], list[tuple[int, Span | None]]] = defaultdict(list)
    for span in spans:
        places[span.run, span.key].append((span.seq, span))
    between: list[Span | LedgerEvent] = [*events, *apart]
    for other in between:
        places[other.run, other.key].append((other.seq, None))
    result: list[Span] = []
    for _, items in sorted(places.items(), key=lambda place: place[0]):
        last: Span | None = None
        for _, item in sorted(items, key=lambda item: item[0]):
            if item is None:
                last = None
            elif last is not None and _goes_on(last, item):
                last = result[-1] = _together(last, item)
            else:
                last = item
                result.append(item)
    return sorted(result, key=lambda span: (span.run, span.seq))


def _goes_on(a: Span, b: Span) -> bool:
    if a.epoch != b.epoch or not a.batches or b.seq <= a.last_seq:
        return False
    if (b.first != a.next) if b.batches else (max(b.answered or 0, b.landed or 0) > a.next):
        return False
    if b.first_commit is not None and b.first_commit < max(a.answered or 0, a.commit or 0):
        return False
    if b.answered is None and b.landed is None:
        return True  # delivered, maybe while a commit is in flight
    outstanding = a.answered is not None and a.answered != a.landed
    if outstanding and (b.landed is None or a.answered is None or b.landed < a.answered):
        return False
    return (
        _ascend(a.answered, b.answered) and _ascend(a.landed, b.landed) and _ascend(a.last_mzxid, b.mzxid)
        and (b.answered is not None or b.landed is None or b.landed == a.answered)
    )  # fmt: skip


def _ascend(before: int | None, after: int | None) -> bool:
    return before is None or after is None or after > before


def _together(a: Span, b: Span) -> Span:
    def of(after: int | None, before: int | None) -> int | None:
        return before if after is None else after

    return replace(
        a, last_seq=b.last_seq, last_wall=b.last_wall, next=b.next if b.batches else a.next,
        last_first=of(b.last_first, a.last_first),
        answer_of=max((one for one in (a.answer_of, b.answer_of) if one is not None), default=None),
        batches=a.batches + b.batches, records=a.records + b.records, answered=of(b.answered, a.answered),
        landed=of(b.landed, a.landed), mzxid=of(a.mzxid, b.mzxid), last_mzxid=of(b.last_mzxid, a.last_mzxid),
        commit=b.commit if b.batches else a.commit,
    )  # fmt: skip


def joined(
    pieces: Sequence[Piece],
    again: Callable[[Sequence[int]], Piece] | None = None,
    apart: Callable[[], Iterable[Span]] = tuple,
) -> RunStory:
    """Join one run's pieces, in file order, and find missing lines.

    Entries can stand in two files of a run: after a failed fsync those in doubt are written again. Then `again` gets
    the indices of these pieces and returns them as one piece, each entry once; without `again`, ValueError is raised.
    `apart` returns spans of lines that are in no piece; no spans are joined over them.
    """
    whole: list[Piece] = []
    for indices in _groups(pieces):
        if len(indices) == 1:
            whole.append(pieces[indices[0]])
        elif again is None:
            raise ValueError(f"run {pieces[0].source.run}: entries stand in more than one of its files")
        else:
            whole.append(again(indices))
    pieces = whole
    source, ending = pieces[0].source, pieces[-1].ending
    run = LedgerRun(source.consumer, source.run, ended=ending is not None and ending.get("why") == "closed")
    spans = [span for piece in pieces for span in piece.spans]
    events = sorted((event for piece in pieces for event in piece.events), key=lambda event: event.seq)
    return RunStory(run, tuple(merged(spans, events, apart())), tuple(events), tuple(_missing(pieces)))


def _groups(pieces: Sequence[Piece]) -> list[list[int]]:
    """Return the indices of the pieces, those that overlap together."""
    groups: list[tuple[list[int], int]] = []  # and one past the highest number in them
    for index, piece in enumerate(pieces):
        indices, high = [index], piece.numbers[-1][1] if piece.numbers else 0
        while groups and piece.numbers and groups[-1][1] > piece.numbers[0][0]:
            before, before_high = groups.pop()
            indices, high = [*before, *indices], max(high, before_high)
        groups.append((indices, high))
    return [indices for indices, _ in groups]


def _missing(pieces: Sequence[Piece]) -> list[Damage]:
    """Return gaps in the numbers, and damaged lines that leave no gap."""
    source = pieces[0].source
    there = union(numbers for piece in pieces for numbers in piece.numbers)
    told = [mark["seq"] for piece in pieces for mark in (piece.header, piece.ending) if mark is not None]
    last = max([there[-1][1] - 1 if there else 0, *told])
    gaps = difference([(1, last + 1)], there)
    damage = [item for piece in pieces for item in piece.damage]
    found = [_told(item, gaps, there) for item in damage]
    known = {item.seq for item in damage if not (item.harmless or item.degraded)}
    given_up = {
        piece.numbers[-1][1]
        for piece, follower in pairwise(pieces)
        if piece.torn
        and piece.numbers
        and follower.header
        and str(follower.header.get("why")).startswith("write failed")
    }
    for first, end in gaps:
        if first - 1 in known:
            continue
        if first == 1 and end - 1 < last:
            what = f"lines 1 to {end - 1} of run {source.run} are not there: its first files were deleted, or not given"
        elif first in given_up:
            what = f"line {first} of run {source.run} was not written to its end, and not relied on: it was given again"
        else:
            what = f"lines {first} to {end - 1} of run {source.run} are missing: a file of it was deleted or not given"
        found.append(
            Damage(
                source.where, what, source.group, source.run, first - 1, harmless=first in given_up and end == first + 1
            )
        )
    return sorted(found, key=lambda item: item.seq if item.seq is not None else -1)


def _told(item: Damage, gaps: Sequence[OffsetRange], there: Sequence[OffsetRange]) -> Damage:
    """Add the missing numbers to a damaged line; none: it is harmless."""
    if item.harmless or item.seq is None or item.degraded:
        return item
    for first, end in gaps:
        if first - 1 == item.seq:
            return replace(item, what=f"{item.what}; so lines {first} to {end - 1} of run {item.run} are missing")
    return replace(item, harmless=True) if any(first <= item.seq + 1 < end for first, end in there) else item
