"""What a ledger amounts to, run by run, as it was at one moment.

A running group writes while it is read. The cut is the list of files with their lengths. Lines behind it are left out,
but for those of claims that were over by then: the claim that followed is inside the cut and must not seem to begin
where nobody had ended.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from inbound.ledger import LedgerFile
from inbound.ledger.places import FilePath, open_file
from inbound.proof.collapse import Piece, RunStory, joined, merged
from inbound.proof.columns import BEGUN, Block, collapse_block, together
from inbound.proof.model import Event, PartitionKey, Span
from inbound.spark.ledger_source import CHUNK, SMALL, Chunk, Cut, LedgerMovedError, chunks_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Offsets at which a span must end: what is scanned of a log is held against whole spans.
Breaks = Mapping[PartitionKey, int]
_TASKS_PER_CORE = 4
_NONE: Mapping[PartitionKey, int] = MappingProxyType({})

_COLUMNS = (
    "seq", "kind", "place", "epoch", "first", "next", "records", "commit", "outcome", "mzxid", "wall",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Passage:
    """What some lines amount to; `after`: the spans from the partition's break on, which are not in the piece."""

    piece: Piece
    after: tuple[Span, ...] = ()


def read_ledger(
    cut: Cut,
    spark: Callable[[], SparkSession] | None = None,
    ends: Mapping[PartitionKey, int] = _NONE,
    breaks: Breaks = _NONE,
    *,
    small: int = SMALL,
    chunk: int = CHUNK,
) -> list[RunStory]:
    """Return what a cut amounts to, run by run.

    Args:
        cut: What to read.
        spark: Gives the session that reads a large ledger; None: the files are to be seen by the driver alone.
        ends: The ends of the logs when the cut was made. Hand-outs behind them came later.
        breaks: Spans begin anew at these offsets.
        small: Below so many bytes the driver reads by itself.
        chunk: So many bytes are collapsed at once.

    Raises:
        LedgerMovedError: begin anew with another cut.
        LedgerError: a file can't be read, or is of a newer format than this reader.
    """
    chunks = cut.chunks(chunk)
    jobs = None if spark is None or cut.bytes < small else spark()
    passages = list(zip(chunks, _read(chunks, breaks, jobs), strict=True))
    grown = _grown(cut, Cut.now(cut.place, cut.group))
    passages = [_with_torn_end(one, passage, grown, breaks) for one, passage in passages]
    stories = [_story(of_run, breaks) for of_run in _by_run(passages)]
    tails: dict[str, list[Passage]] = defaultdict(list)
    for file, begin in grown.values():
        for one in chunks_of(file, begin, chunk):
            tails[one.source.run].append(collapsed(one.block(), breaks))
    return with_tails(stories, tails, ends)


def _read(chunks: Sequence[Chunk], breaks: Breaks, spark: SparkSession | None) -> list[Passage]:
    if spark is None or len(chunks) < 2:
        return [collapsed(chunk.block(), breaks) for chunk in chunks]
    told, context = dict(breaks), spark.sparkContext
    # A task for each chunk would cost as much as the chunk.
    tasks = min(len(chunks), _TASKS_PER_CORE * context.defaultParallelism)
    return context.parallelize(chunks, tasks).map(lambda one: collapsed(one.block(), told)).collect()


def collapsed(block: Block, breaks: Breaks) -> Passage:
    """Collapse lines; the spans from a partition's break on stand apart, so that they are not put together again."""
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
        # Answers to a hand-out that stands in the chunk before this one.
        first = np.flatnonzero(begun)
        behind |= of_place & (block.commit > at) & (rows < (first[0] if len(first) else len(block)))
    whole = collapse_block(block)
    if not behind.any():
        return Passage(whole)
    if behind.all():
        return Passage(replace(whole, spans=()), whole.spans)
    # An event is a border of spans on both sides: a commit that is answered for behind a skip is none of before it.
    events = np.isin(rows, list(block.events))
    before, after = collapse_block(_rows(block, ~behind | events)), collapse_block(_rows(block, behind | events))
    return Passage(replace(whole, spans=before.spans), after.spans)


def _rows(block: Block, wanted: NDArray[np.bool_]) -> Block:
    rows = np.flatnonzero(wanted)
    at = {int(row): index for index, row in enumerate(rows)} if block.events else {}
    return replace(
        block,
        events={at[row]: event for row, event in block.events.items() if row in at},
        **{name: getattr(block, name)[rows] for name in _COLUMNS},
    )


# -- runs ----------------------------------------------------------------------------------------------------------------


def _by_run(passages: Iterable[tuple[Chunk, Passage]]) -> list[list[tuple[Chunk, Passage]]]:
    runs: dict[str, list[tuple[Chunk, Passage]]] = defaultdict(list)
    for chunk, passage in passages:
        piece = passage.piece
        if chunk.start and not (piece.numbers or piece.header or piece.ending or piece.damage):
            continue  # its bytes all belong to a line of the chunk before it
        runs[chunk.source.run].append((chunk, passage))
    return list(runs.values())


def _story(of_run: Sequence[tuple[Chunk, Passage]], breaks: Breaks) -> RunStory:
    def again(indices: Sequence[int]) -> Passage:
        return collapsed(together([of_run[index][0].block() for index in indices]), breaks)

    return story_of([passage for _, passage in of_run], again)


def story_of(passages: Sequence[Passage], again: Callable[[Sequence[int]], Passage]) -> RunStory:
    """Put a run's passages together; `again` gives those with these indices as one, where lines stand in several."""
    after = {index: passage.after for index, passage in enumerate(passages)}

    def once(indices: Sequence[int]) -> Piece:
        passage = again(indices)
        after.update(dict.fromkeys(indices, ()))
        after[indices[0]] = passage.after
        return passage.piece

    def behind_breaks() -> list[Span]:
        return [span for spans in after.values() for span in spans]

    # A commit that was in flight has its lines in the midst of the spans behind a break, or the other way round.
    story = joined([passage.piece for passage in passages], once, behind_breaks)
    behind = merged(behind_breaks(), story.events, story.spans)
    return replace(story, spans=tuple(sorted((*story.spans, *behind), key=lambda span: span.seq))) if behind else story


# -- what comes while it is read -----------------------------------------------------------------------------------------


def _grown(cut: Cut, later: Cut) -> dict[FilePath, tuple[LedgerFile, int]]:
    """Return the files of the cut's runs that are longer than in it, or new, with where that part begins."""
    before = {file.path: file for file in cut.files if file.format != "foreign"}
    runs = {file.run for file in before.values()}
    now = {file.path: file for file in later.files if file.format != "foreign"}
    if gone := before.keys() - now.keys():
        raise LedgerMovedError(f"ledger file {min(map(str, gone))}: it was converted or deleted meanwhile; try again")
    found = {}
    for path, file in now.items():
        if path not in before:
            if file.run in runs:
                found[path] = file, 0
        elif file.size > before[path].size:
            found[path] = file, before[path].size
    return found


def _with_torn_end(
    chunk: Chunk, passage: Passage, grown: Mapping[FilePath, tuple[LedgerFile, int]], breaks: Breaks
) -> tuple[Chunk, Passage]:
    """Look again at the end of a file that has not grown: what lacks its newline there is torn."""
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
    """Add, by run, what came behind the cut and belongs to claims that others had followed by then."""
    if not tails:
        return list(stories)
    newest = _newest_epochs(stories)
    return [_with_tail(story, tails.get(story.run.run, ()), newest, ends) for story in stories]


def _newest_epochs(stories: Iterable[RunStory]) -> dict[PartitionKey, int]:
    newest: dict[PartitionKey, int] = {}
    for story in stories:
        for item in _items(story):
            newest[item.key] = max(newest.get(item.key, -1), item.epoch)
    return newest


def _with_tail(
    story: RunStory, tail: Sequence[Passage], newest: Mapping[PartitionKey, int], ends: Mapping[PartitionKey, int]
) -> RunStory:
    """Add what a run wrote behind the cut under claims that were followed by others inside it."""
    last = max((item.last_seq if isinstance(item, Span) else item.seq for item in _items(story)), default=0)

    def counts(item: Span | Event) -> bool:
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


def _items(story: RunStory) -> list[Span | Event]:
    return [*story.spans, *story.events]
