"""Whole columns at a time gives the same as line after line; damage is named."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inbound.errors import LedgerError
from inbound.ledger.base import Done, Range, Settled
from inbound.ledger.columns import jsonl_batches, schema
from inbound.ledger.format import FileName, seal
from inbound.ledger.jsonl import Entry, read_lines
from inbound.ledger.lines import LedgerLines
from inbound.proof.column_spans import collapse_block
from inbound.proof.columns import Block, block_of, parse_block, together
from inbound.proof.spans import Piece, RunSource, joined
from tests.proof.collapser import Collapser

SOURCE = RunSource("group", "a", "a-20260101T000000000Z", "a-20260101T000000000Z-0001.jsonl")
NAME = FileName("a", "20260101T000000000Z", 1)
LINES = LedgerLines("group", "a")

numbers = st.integers(0, 12)
epochs = st.integers(1, 2)
partitions = st.integers(0, 1)


@st.composite
def bodies(draw: st.DrawFn) -> str:
    """Return a line of any kind, with numbers so small that they often fit each other."""
    partition, epoch = draw(partitions), draw(epochs)
    kind = draw(st.sampled_from(("begun", "begun", "done", "landed", "landed", "other", "note", "degraded")))
    low, high = draw(numbers), draw(numbers)
    if kind == "begun":
        commit = draw(st.none() | numbers)
        return LINES.begun(Range("orders", partition, epoch, low, max(low + 1, high), draw(numbers), commit), 1.5)
    if kind == "done":
        return LINES.done(Done("orders", partition, epoch, low, high, draw(st.none() | numbers)), 2.5)
    if kind == "landed":
        return LINES.settled(Settled("orders", partition, epoch, low, "landed", draw(st.none() | numbers)), 3.5)
    if kind == "other":
        return LINES.settled(
            Settled("orders", partition, epoch, low, draw(st.sampled_from(("fenced", "unknown")))), 3.5
        )
    if kind == "degraded":
        lines = LINES.degraded({("orders", partition, epoch): 1.0}, 4.5)
        return draw(st.sampled_from([*lines, lines[0].replace(',"partitions":1', "")]))
    return LINES.note(
        draw(st.sampled_from(("claimed", "revert", "new kind"))), "orders", partition, epoch, {"a": low}, 4.5
    )


def steady(batches: int, partition: int = 0) -> list[str]:
    """Return the lines of batches that go straight on."""
    found = []
    for number in range(batches):
        first, end = 10 * number, 10 * number + 10
        found.append(LINES.begun(Range("orders", partition, 1, first, end, 10), 1.0))
        found.append(LINES.done(Done("orders", partition, 1, end, end, end), 1.5))
        found.append(LINES.settled(Settled("orders", partition, 1, end, "landed", 100 + number), 2.0))
    return found


@st.composite
def windowed(draw: st.DrawFn, batches: int = 60) -> list[str]:
    """Return the lines of batches that are delivered while commits are in flight: all of them, or parts, or none answered."""
    found: list[str] = []
    position, answered, announced, landed, mzxid = 0, 0, 0, 0, 100
    for _ in range(draw(st.integers(1, batches))):
        step = draw(
            st.sampled_from(("begun", "begun", "begun", "done", "done", "landed", "landed", "fenced", "withheld"))
        )
        if step == "begun":
            first, position = position, position + 10
            found.append(LINES.begun(Range("orders", 0, 1, first, position, 10, answered), 1.0))
            answered = draw(st.sampled_from((position, position, position, position - 5, answered)))
            position = answered if first < answered else draw(st.sampled_from((position, first)))
        elif step == "done" and announced < answered:
            announced = answered
            found.append(LINES.done(Done("orders", 0, 1, max(0, announced - 10), announced, announced), 1.5))
        elif step == "landed" and landed < announced:
            landed, mzxid = announced, mzxid + 1
            found.append(LINES.settled(Settled("orders", 0, 1, landed, "landed", mzxid), 2.0))
        elif step == "fenced":
            found.append(LINES.settled(Settled("orders", 0, 1, announced, "fenced", None), 2.0))
        elif step == "withheld":
            found.append(
                LINES.note("withheld", "orders", 0, 1, {"first": answered, "next": position, "records": 10}, 2.0)
            )
    return found


def in_flight(batches: int, behind: int = 2) -> list[str]:
    """Return the lines of batches that go straight on while the commit of an earlier one is in flight."""
    found = []
    for number in range(batches):
        first, end, sent = 10 * number, 10 * number + 10, 10 * (number - behind)
        if sent >= 0 and sent % 30 == 0:
            found.append(LINES.settled(Settled("orders", 0, 1, sent, "landed", 100 + number), 2.0))
        found.append(LINES.begun(Range("orders", 0, 1, first, end, 10, first), 1.0))
        if first % 30 == 0:
            found.append(LINES.done(Done("orders", 0, 1, max(0, first - 10), first, first), 1.5))
    return found


def sealed(body: str, seq: int) -> bytes:
    return seal(f'{body},"seq":{seq}'.encode())


def file_of(bodies: Sequence[str], first: int = 1) -> bytes:
    """Return the lines as a file has them, numbered."""
    return b"".join(sealed(body, seq) for seq, body in enumerate(bodies, start=first))


def line_by_line(data: bytes) -> Piece:
    """Collapse with the reference."""
    collapser = Collapser(SOURCE)
    for item in read_lines(data.splitlines(keepends=True), Path(SOURCE.where)):
        if isinstance(item, Entry):
            collapser.add(item)
    return collapser.piece()


def same(fast: Piece, slow: Piece) -> None:
    assert fast.spans == slow.spans
    assert fast.events == slow.events
    assert fast.numbers == slow.numbers


@pytest.mark.slow
@settings(deadline=None, max_examples=50)
@given(st.lists(bodies(), max_size=40))
def test_columns_collapse_as_lines_do(lines: list[str]) -> None:
    """Any lines, sensible or not: the same spans and events."""
    data = file_of(lines)

    same(collapse_block(parse_block(data, SOURCE)), line_by_line(data))


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(windowed())
def test_columns_collapse_batches_with_commits_in_flight_as_lines_do(lines: list[str]) -> None:
    """Answers for parts, merged and fenced commits, and withheld batches between them."""
    data = file_of(lines)

    same(collapse_block(parse_block(data, SOURCE)), line_by_line(data))


def test_batches_delivered_while_commits_are_in_flight_are_one_span() -> None:
    """However many there are: a ledger of a million batches must not become a million spans."""
    data = file_of(in_flight(3000))

    (span,) = collapse_block(parse_block(data, SOURCE)).spans

    assert (span.first, span.next, span.batches, span.landed) == (0, 30_000, 3000, 29_970)
    assert (span.first_commit, span.commit, span.last_first) == (0, 29_990, 29_990)
    assert line_by_line(data).spans == (span,)


def test_a_commit_that_is_announced_before_what_it_stands_for_was_answered_begins_a_span() -> None:
    """The judge must see which came first."""
    lines = [
        LINES.begun(Range("orders", 0, 1, 0, 20, 20, 0), 1.0),
        LINES.done(Done("orders", 0, 1, 0, 20, 20), 1.5),
        LINES.begun(Range("orders", 0, 1, 20, 30, 10, 10), 2.0),
    ]

    piece = collapse_block(parse_block(file_of(lines), SOURCE))

    assert [(span.first, span.next, span.commit) for span in piece.spans] == [(0, 20, 0), (20, 30, 10)]


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 20), bodies()), max_size=30))
def test_columns_take_doubled_lines_once_as_lines_do(lines: list[tuple[int, str]]) -> None:
    """Numbers that come twice: in the order of their numbers, the first line that has one."""
    data = b"".join(sealed(body, seq) for seq, body in lines)
    first = dict(reversed(lines))
    in_order = b"".join(sealed(body, seq) for seq, body in sorted(first.items()))

    same(collapse_block(parse_block(data, SOURCE)), line_by_line(in_order))


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(st.lists(bodies(), min_size=1, max_size=30), st.data())
def test_a_changed_byte_damages_its_line_and_no_other(lines: list[str], data: st.DataObject) -> None:
    """Whichever byte it is: that line is named, the others are read."""
    written = bytearray(file_of(lines))
    at = data.draw(st.integers(0, len(written) - 2).filter(lambda at: written[at] != 10))
    written[at] ^= data.draw(st.sampled_from((1, 2, 4, 64)))
    line = bytes(written[:at]).count(b"\n") + 1

    block = parse_block(bytes(written), SOURCE)

    damaged = [item.what for item in block.damage]
    assert all(f"line {n} of" in what for n, what in enumerate(damaged, start=line))
    assert [*range(1, line), *range(line + 1, len(lines) + 1)] == block.seq.tolist()
    assert damaged


def test_a_damaged_line_says_which_numbers_are_missing() -> None:
    """The run lacks these lines."""
    lines = file_of(steady(3)).splitlines(keepends=True)
    lines[4] = lines[4].replace(b'"epoch":1', b'"epoch":2')

    (damage,) = joined([collapse_block(parse_block(b"".join(lines), SOURCE))]).damage

    assert (damage.seq, damage.harmless) == (4, False)
    assert f"line 5 of {SOURCE.where} can't be read: its checksum is wrong; so lines 5 to 5 of run" in damage.what


def test_a_torn_last_line_is_harmless() -> None:
    """The process was killed while it wrote: what the line was to say did not count yet."""
    data = file_of(steady(2))[:-30]

    story = joined([collapse_block(parse_block(data, SOURCE))])

    assert [(item.seq, item.harmless) for item in story.damage] == [(5, True)]
    assert not story.run.ended


def test_a_line_with_a_right_seal_that_is_no_line_of_a_ledger() -> None:
    """It is named, and the others are read."""
    strange = [seal(b'{"seq":"seven","kind":"begun"'), seal(b"no json"), seal(b'{"hello":1')]
    data = file_of(steady(1)) + b"".join(strange) + file_of(steady(1, partition=1), first=4)

    block = parse_block(data, SOURCE)

    assert block.seq.tolist() == [1, 2, 3, 4, 5, 6]
    assert [item.what.partition(" of ")[0] for item in block.damage] == ["line 4", "line 5", "line 6"]


def test_header_and_end_tell_of_the_run() -> None:
    """The run ended, and no line is missing."""
    header = sealed(LINES.header(NAME, None, "start", 0.5), 0)
    end = sealed(LINES.end("closed", 9.0), 6)

    story = joined([collapse_block(parse_block(header + file_of(steady(2)) + end, SOURCE))])

    assert (story.run.ended, story.damage) == (True, ())
    assert [(span.first, span.next, span.batches) for span in story.spans] == [(0, 20, 2)]


def test_an_end_that_counts_more_lines_than_there_are() -> None:
    """The last lines of a file were cut out."""
    data = file_of(steady(2)) + sealed(LINES.end("closed", 9.0), 9)

    (damage,) = joined([collapse_block(parse_block(data, SOURCE))]).damage

    assert "lines 7 to 9" in damage.what


# -- pieces --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(st.integers(1, 12), st.lists(st.integers(0, 36), max_size=4))
def test_a_steady_run_read_in_pieces_is_one_span(batches: int, cuts: list[int]) -> None:
    """Wherever it is cut."""
    lines = [sealed(body, seq) for seq, body in enumerate(steady(batches), start=1)]
    bounds = sorted({0, *(min(cut, len(lines)) for cut in cuts), len(lines)})
    pieces = [collapse_block(parse_block(b"".join(lines[low:high]), SOURCE)) for low, high in pairwise(bounds)]

    assert joined(pieces).spans == line_by_line(b"".join(lines)).spans


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(st.integers(6, 40), st.lists(st.integers(0, 60), max_size=4))
def test_batches_with_commits_in_flight_read_in_pieces_are_few_spans(batches: int, cuts: list[int]) -> None:
    """At most one more for each cut, wherever it is; and they say the same together."""
    lines = [sealed(body, seq) for seq, body in enumerate(in_flight(batches), start=1)]
    bounds = sorted({0, *(min(cut, len(lines)) for cut in cuts), len(lines)})
    pieces = [collapse_block(parse_block(b"".join(lines[low:high]), SOURCE)) for low, high in pairwise(bounds)]

    spans = joined(pieces).spans
    (whole,) = line_by_line(b"".join(lines)).spans

    assert len(spans) <= len(bounds) - 1
    assert (sum(span.batches for span in spans), spans[0].first, max(span.next for span in spans)) == (
        batches,
        0,
        whole.next,
    )
    assert max(span.landed or 0 for span in spans) == (whole.landed or 0)
    assert [span.commit for span in spans if span.batches][-1] == whole.commit


def test_entries_that_stand_in_two_files_are_taken_once() -> None:
    """After a failed fsync the lines in doubt are written again, to the next file."""
    lines = [sealed(body, seq) for seq, body in enumerate(steady(4), start=1)]
    blocks = [parse_block(b"".join(part), SOURCE) for part in (lines[:4], lines[4:9], lines[6:])]
    asked: list[list[int]] = []

    def again(indices: Sequence[int]) -> Piece:
        asked.append(list(indices))
        return collapse_block(together([blocks[index] for index in indices]))

    story = joined([collapse_block(block) for block in blocks], again)

    assert asked == [[1, 2]]
    assert [(span.first, span.next, span.batches, span.landed) for span in story.spans] == [(0, 40, 4, 40)]
    assert story.damage == ()


def test_a_missing_file_of_a_run_is_named_by_its_lines() -> None:
    """In the midst of a run; a missing beginning has its own message."""
    lines = [sealed(body, seq) for seq, body in enumerate(steady(4), start=1)]
    pieces = [collapse_block(parse_block(b"".join(part), SOURCE)) for part in (lines[2:4], lines[8:])]

    damage = joined(pieces).damage

    assert [(item.seq, item.harmless) for item in damage] == [(0, False), (4, False)]
    assert "its first files were deleted" in damage[0].what
    assert "lines 5 to 8" in damage[1].what


def test_a_line_that_was_torn_by_a_failing_disk_was_given_again() -> None:
    """Its number is used up, and no commit relied on it."""
    lines = [sealed(body, seq) for seq, body in enumerate(steady(4), start=1)]
    first = parse_block(b"".join(lines[:4]) + lines[4][:20], SOURCE)
    header = sealed(LINES.header(NAME, "x", "write failed: No space left on device", 0.5), 5)
    second = parse_block(header + b"".join(lines[5:]), SOURCE)

    damage = joined([collapse_block(first), collapse_block(second)]).damage

    assert all(item.harmless for item in damage)


# -- Parquet -------------------------------------------------------------------------------------------------------------


def rows_of(data: bytes) -> pa.Table:
    batches = list(jsonl_batches(data.splitlines(keepends=True), Path(SOURCE.where)))
    return pa.Table.from_batches(batches, schema())


def converted(data: bytes) -> Block:
    return block_of(rows_of(data), SOURCE)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(st.lists(bodies(), max_size=25))
def test_converted_files_collapse_as_their_lines_do(lines: list[str]) -> None:
    """Headers and ends included."""
    data = sealed(LINES.header(NAME, None, "start", 0.5), 0) + file_of(lines)

    fast, slow = collapse_block(converted(data)), collapse_block(parse_block(data, SOURCE))

    same(fast, slow)
    assert (fast.header or {})["why"] == "start"


def test_damage_is_kept_in_converted_files() -> None:
    """Damaged lines and torn ends are the same there."""
    lines = file_of(steady(3)).splitlines(keepends=True)
    lines[4] = lines[4].replace(b'"epoch":1', b'"epoch":2')
    data = b"".join(lines)[:-10]

    fast, slow = converted(data), parse_block(data, SOURCE)

    assert [(d.seq, d.harmless, d.what) for d in fast.damage] == [(d.seq, d.harmless, d.what) for d in slow.damage]
    assert fast.torn


@pytest.mark.parametrize("row", [0, 2, 8])
def test_a_row_without_a_kind_is_refused(row: int) -> None:
    """No row is left out for it, and none is read as `settled`, which could fake a proof."""
    rows = rows_of(file_of(steady(3)))
    kinds = rows["kind"].to_pylist()
    kinds[row] = None
    without = rows.set_column(rows.schema.get_field_index("kind"), "kind", pa.array(kinds, pa.string()))

    with pytest.raises(LedgerError, match="a row has no kind"):
        block_of(without, SOURCE)


def test_rows_without_any_kind_are_refused() -> None:
    """Also if no other row has one."""
    rows = rows_of(file_of(steady(1)))
    without = rows.set_column(rows.schema.get_field_index("kind"), "kind", pa.nulls(len(rows), pa.string()))

    with pytest.raises(LedgerError, match="a row has no kind"):
        block_of(without, SOURCE)
