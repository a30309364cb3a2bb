"""A ledger as spans and events, run by run, at one moment.

A running group writes during the read. The cut is the list of files with their lengths. Lines behind it are left out, but for
lines of claims that had ended by then: the next claim is inside the cut and must not seem to begin where no claim had ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from inbound.ledger import LedgerFile
from inbound.ledger.places import FilePath, open_file
from inbound.proof.column_spans import collapse_block
from inbound.proof.columns import BEGUN, Block, together
from inbound.proof.model import LedgerEvent, PartitionKey, Span
from inbound.proof.spans import Piece, RunStory, joined, merged
from inbound.spark.ledger_source import CHUNK, SMALL, LedgerChunk, LedgerCut, LedgerMovedError, chunks_of, take_chunks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Offsets at which a span must end: the scanned part of a log is compared with whole spans.
Breaks = Mapping[PartitionKey, int]
_NONE: Mapping[PartitionKey, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Passage:
    """Collapsed lines of one run."""

    piece: Piece
    after: tuple[Span, ...] = ()  # spans from the partition's break on, which are not in the piece


def read_ledger(
    cut: LedgerCut,
    spark: Callable[[], SparkSession] | None = None,
    ends: Mapping[PartitionKey, int] = _NONE,
    breaks: Breaks = _NONE,
    *,
    small: int = SMALL,
    chunk: int = CHUNK,
) -> list[RunStory]:
    """Return the stories of a cut's runs.

    Args:
        cut: The ledger to read.
        spark: Gives the session that reads a large ledger; None: only the driver can read the files.
        ends: The ends of the logs when the cut was made. Deliveries behind them came later.
        breaks: A new span begins at each of these offsets.
        small: The driver reads a ledger of fewer bytes.
        chunk: So many bytes are collapsed at once.

    Raises:
        LedgerMovedError: start again with a new cut.
        LedgerError: a file can't be read, or is of a newer format than this reader.
    """
    chunks = cut.chunks(chunk)
    jobs = None if spark is None or cut.bytes < small else spark()
    passages = list(zip(chunks, take_chunks(chunks, partial(collapsed, breaks=dict(breaks)), jobs), strict=True))
    grown = _grown(cut, LedgerCut.now(cut.place, cut.group))
    passages = [_with_torn_end(one, passage, grown, breaks) for one, passage in passages]
    stories = [_story(of_run, breaks) for of_run in _by_run(passages)]
    tails: dict[str, list[Passage]] = defaultdict(list)
    for file, begin in grown.values():
        for one in chunks_of(file, begin, chunk):
            tails[one.source.run].append(collapsed(one.block(), breaks))
    return with_tails(stories, tails, ends)


def collapsed(block: Block, breaks: Breaks) -> Passage:
    """Collapse lines, with the spans from a partition's break on apart."""
    behind = np.zeros(len(block), bool)
    rows = np.arange(len(block))
    for place, (topic, partition) in enumerate(block.places):
        at = breaks.get(PartitionKey(block.source.group, topic, partition))
        if at is None:
            continue
        of_place = block.place == place
        begun = of_place & (block.kind == BEGUN)
        reached = np.flatnonzero(begun & (block.first >= at))
        if len(reached):
            behind |= of_place & (rows >= reached[0])
        # Answers to a delivery in the chunk before this one.
        first = np.flatnonzero(begun)
        behind |= of_place & (block.commit > at) & (rows < (first[0] if len(first) else len(block)))
    whole = collapse_block(block)
    if not behind.any():
        return Passage(whole)
    if behind.all():
        return Passage(replace(whole, spans=()), whole.spans)
    # An event is a border of spans on both sides: a commit that is answered behind a skip does not belong before it.
    events = np.isin(rows, list(block.events))
    before, after = (collapse_block(block.take(np.flatnonzero(rows | events))) for rows in (~behind, behind))
    return Passage(replace(whole, spans=before.spans), after.spans)


# -- runs ----------------------------------------------------------------------------------------------------------------


def _by_run(passages: Iterable[tuple[LedgerChunk, Passage]]) -> list[list[tuple[LedgerChunk, Passage]]]:
    runs: dict[str, list[tuple[LedgerChunk, Passage]]] = defaultdict(list)
    for chunk, passage in passages:
        piece = passage.piece
        if chunk.start and not (piece.numbers or piece.header or piece.ending or piece.damage):
            continue  # all its bytes belong to a line of the chunk before it
        runs[chunk.source.run].append((chunk, passage))
    return list(runs.values())


def _story(of_run: Sequence[tuple[LedgerChunk, Passage]], breaks: Breaks) -> RunStory:
    def again(indices: Sequence[int]) -> Passage:
        return collapsed(together([of_run[index][0].block() for index in indices]), breaks)

    return story_of([passage for _, passage in of_run], again)


def story_of(passages: Sequence[Passage], again: Callable[[Sequence[int]], Passage]) -> RunStory:
    """Join a run's passages into its story.

    Where lines of one commit are in several passages, `again` collapses the passages with these indices as one.
    """
    after = {index: passage.after for index, passage in enumerate(passages)}

    def once(indices: Sequence[int]) -> Piece:
        passage = again(indices)
        after.update(dict.fromkeys(indices, ()))
        after[indices[0]] = passage.after
        return passage.piece

    def behind_breaks() -> list[Span]:
        return [span for spans in after.values() for span in spans]

    # An in-flight commit has its lines in the midst of the spans behind a break, or the other way round.
    story = joined([passage.piece for passage in passages], once, behind_breaks)
    behind = merged(behind_breaks(), story.events, story.spans)
    return replace(story, spans=tuple(sorted((*story.spans, *behind), key=lambda span: span.seq))) if behind else story


# -- lines written during the read ---------------------------------------------------------------------------------------


def _grown(cut: LedgerCut, later: LedgerCut) -> dict[FilePath, tuple[LedgerFile, int]]:
    """Return grown and new files of the cut's runs, with old lengths."""
    before = {file.path: file for file in cut.files if file.format != "foreign"}
    runs = {file.run for file in before.values()}
    now = {file.path: file for file in later.files if file.format != "foreign"}
    if gone := before.keys() - now.keys():
        raise LedgerMovedError(
            f"ledger file {min(map(str, gone))}: it was converted or deleted while it was read; try again"
        )
    found = {}
    for path, file in now.items():
        if path not in before:
            if file.run in runs:
                found[path] = file, 0
        elif file.size > before[path].size:
            found[path] = file, before[path].size
    return found


def _with_torn_end(
    chunk: LedgerChunk, passage: Passage, grown: Mapping[FilePath, tuple[LedgerFile, int]], breaks: Breaks
) -> tuple[LedgerChunk, Passage]:
    """Collapse the end of a file again if it is torn."""
    if chunk.parquet or chunk.end < chunk.limit or chunk.path in grown:
        return chunk, passage
    with open_file(chunk.path) as data:
        if chunk.limit:
            data.seek(chunk.limit - 1)
        if data.read(1) in (b"\n", b""):
            return chunk, passage
    again = replace(chunk, torn=True)
    return again, collapsed(again.block(), breaks)


def with_tails(
    stories: Sequence[RunStory], tails: Mapping[str, Sequence[Passage]], ends: Mapping[PartitionKey, int]
) -> list[RunStory]:
    """Add lines behind the cut, by run, of claims that had ended."""
    if not tails:
        return list(stories)
    newest: dict[PartitionKey, int] = {}
    for item in (item for story in stories for item in _items(story)):
        newest[item.key] = max(newest.get(item.key, -1), item.epoch)
    return [_with_tail(story, tails.get(story.run.run, ()), newest, ends) for story in stories]


def _with_tail(
    story: RunStory, tail: Sequence[Passage], newest: Mapping[PartitionKey, int], ends: Mapping[PartitionKey, int]
) -> RunStory:
    last = max((item.last_seq if isinstance(item, Span) else item.seq for item in _items(story)), default=0)

    def counts(item: Span | LedgerEvent) -> bool:
        return item.seq > last and item.epoch < newest.get(item.key, -1)

    spans = [
        span
        for passage in tail
        for span in (*passage.piece.spans, *passage.after)
        if counts(span) and span.next <= ends.get(span.key, span.next)
    ]
    events = [event for passage in tail for event in passage.piece.events if counts(event)]
    if not spans and not events:
        return story
    return replace(
        story,
        spans=(*story.spans, *sorted(spans, key=lambda span: span.seq)),
        events=(*story.events, *sorted(events, key=lambda event: event.seq)),
    )


def _items(story: RunStory) -> list[Span | LedgerEvent]:
    return [*story.spans, *story.events]
