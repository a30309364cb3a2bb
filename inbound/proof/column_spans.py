"""Collapses a block of columns into spans and events.

Needs numpy (the extra `spark`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from inbound.proof.columns import ABSENT, BEGUN, DONE, EVENT, LANDED, OUTCOMES, SETTLED, Block, Bools, Ints
from inbound.proof.model import LedgerEvent, OffsetRange, PartitionKey, Span
from inbound.proof.spans import Piece, degraded


def collapse_block(block: Block) -> Piece:
    """Collapse a block into spans and events."""
    if len(block) > 1 and not bool((np.diff(block.seq) > 0).all()):
        # In the order of their numbers, each number once: the first line that has it.
        block = block.take(np.unique(block.seq, return_index=True)[1])
    source = block.source
    damage = list(block.damage)
    rows = np.flatnonzero(block.place == ABSENT)
    damage += [
        item
        for row in rows.tolist()
        if row in block.events and block.events[row][0] == "degraded"
        for item in degraded(source, int(block.seq[row]), block.events[row][1])
    ]
    settled_badly = (block.kind == SETTLED) & (block.outcome != LANDED) & (block.commit >= 0)
    of_places = block.place != ABSENT
    is_event = ((block.kind == EVENT) | settled_badly) & of_places
    progress = (block.kind == BEGUN) | ((block.kind == DONE) & (block.commit >= 0))
    progress |= (block.kind == SETTLED) & (block.outcome == LANDED) & (block.commit >= 0)
    keep = np.flatnonzero(is_event | (progress & of_places))
    order = keep[np.argsort(block.place[keep], kind="stable")]
    events = [_event(block, row) for row in np.flatnonzero(is_event).tolist()]
    return Piece(
        source, tuple(_spans(block, order, is_event[order])), tuple(events), tuple(_ranges(block.seq)), tuple(damage),
        block.header, block.ending, block.torn,
    )  # fmt: skip


def _event(block: Block, row: int) -> LedgerEvent:
    if block.kind[row] == SETTLED:
        kind = "commit"
        facts: Mapping[str, Any] = {"commit": int(block.commit[row]), "outcome": OUTCOMES[block.outcome[row]]}
    else:
        kind, facts = block.events[row]
    key = PartitionKey(block.source.group, *block.places[block.place[row]])
    return LedgerEvent(
        key, block.source.consumer, block.source.run, int(block.epoch[row]), int(block.seq[row]), kind,
        float(block.wall[row]), facts,
    )  # fmt: skip


def _ranges(numbers: Ints) -> list[OffsetRange]:
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    starts = numbers[np.concatenate(([0], breaks + 1))]
    ends = numbers[np.concatenate((breaks, [len(numbers) - 1]))] + 1
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _before(marked: Bools, values: Ints, group_start: Ints) -> Ints:
    """Return the last marked value before each row in its group."""
    rows = np.arange(len(marked))
    last = np.maximum.accumulate(np.where(marked, rows, -1))
    last = np.concatenate(([-1], last[:-1]))
    return np.where(last >= group_start, values[last], ABSENT)


def _spans(block: Block, order: Ints, event: Bools) -> list[Span]:  # `order`: by place, then seq
    """Find where spans begin (the table in `spans.py`), and sum each up."""
    if not len(order):
        return []
    place, kind, epoch = block.place[order], block.kind[order], block.epoch[order]
    commit, mzxid = block.commit[order], block.mzxid[order]
    begun = (kind == BEGUN) & ~event
    done = (kind == DONE) & ~event
    landed = (kind == SETTLED) & ~event
    rows = np.arange(len(order))
    new_group = np.concatenate(([True], place[1:] != place[:-1]))
    group_start = np.maximum.accumulate(np.where(new_group, rows, 0))
    handed_to = _before(begun, block.next[order], group_start)
    announced = _before(done, commit, group_start)
    landed_before = _before(landed, commit, group_start)
    mzxid_before = _before(landed & (mzxid >= 0), mzxid, group_start)
    last_done = _before(done, rows, group_start)
    # It has landed when a commit equal to the last announced one did, after it.
    confirmed = landed & (commit == announced)
    outstanding = (announced >= 0) & (_before(confirmed, rows, group_start) < last_done)
    starts = event | new_group | np.concatenate(([False], event[:-1] | (epoch[1:] != epoch[:-1])))
    starts |= (commit >= 0) & (done | landed) & (handed_to >= 0) & (commit > handed_to)
    answered = np.maximum(announced, _before(begun, commit, group_start))
    starts |= begun & ((block.first[order] != handed_to) | ((commit >= 0) & (commit < answered)))
    starts |= done & (((announced >= 0) & (commit <= announced)) | outstanding)
    starts |= landed & (
        (commit <= landed_before) | ((mzxid >= 0) & (mzxid_before >= 0) & (mzxid <= mzxid_before))
        | ~outstanding | (commit != announced)
    )  # fmt: skip
    span_start = np.maximum.accumulate(np.where(starts, rows, 0))
    starts |= begun & (_before(begun, rows, span_start) < 0)
    at = np.flatnonzero(starts)
    ends = np.concatenate((at[1:], [len(order)])) - 1
    return _summed(block, order, at, ends, begun, done, landed, ~event[at])


def _summed(
    block: Block, order: Ints, at: Ints, ends: Ints, begun: Bools, done: Bools, landed: Bools, wanted: Bools
) -> list[Span]:
    def total(values: Ints) -> Ints:
        return np.add.reduceat(values, at)[wanted]

    def highest(values: Ints, marked: Bools) -> Ints:
        return np.maximum.reduceat(np.where(marked, values, ABSENT), at)[wanted]

    commit, mzxid = block.commit[order], block.mzxid[order]
    batches = total(begun.astype(np.int64))
    first_commit = np.where(begun, commit, ABSENT)[at][wanted]
    last_begun = highest(np.arange(len(order)), begun)
    last_commit = np.where(batches > 0, commit[last_begun], ABSENT)
    first = np.where(begun, block.first[order], commit)[at][wanted]
    first_mzxid = np.minimum.reduceat(np.where(landed & (mzxid >= 0), mzxid, np.iinfo(np.int64).max), at)[wanted]
    seq, wall = block.seq[order], block.wall[order]
    ends_of, starts_of = ends[wanted], at[wanted]
    columns = (
        block.place[order][starts_of], block.epoch[order][starts_of], seq[starts_of], seq[ends_of], first,
        np.where(batches > 0, highest(block.next[order], begun), first), batches,
        total(np.where(begun, np.maximum(block.records[order], 0), 0)), highest(commit, done), highest(commit, landed),
        first_mzxid, highest(mzxid, landed), wall[starts_of], wall[ends_of], highest(block.first[order], begun),
        highest(block.first[order], done & (block.first[order] < commit)), first_commit, last_commit,
    )  # fmt: skip
    source = block.source
    keys = [PartitionKey(source.group, topic, partition) for topic, partition in block.places]
    spans = [
        Span(
            keys[place], source.consumer, source.run, epoch, seq, last_seq, first, end, batches, records,
            _or_none(answered), _or_none(landed), None if last_mzxid < 0 else mzxid, _or_none(last_mzxid), wall, last_wall,
            _or_none(last_first), _or_none(answer_of), _or_none(first_commit), _or_none(of_last),
        )
        for (
            place, epoch, seq, last_seq, first, end, batches, records, answered, landed, mzxid, last_mzxid, wall,
            last_wall, last_first, answer_of, first_commit, of_last,
        ) in zip(*(column.tolist() for column in columns), strict=True)
    ]  # fmt: skip
    return sorted(spans, key=lambda span: span.seq)


def _or_none(value: int) -> int | None:
    return None if value < 0 else value
