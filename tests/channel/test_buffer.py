"""How batches are cut from what was read ahead."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inbound import PlainRecord
from inbound.partition.buffer import Chunk, RecordBuffer, record_size


def chunk(first: int, sizes: list[int], gap: int = 0) -> Chunk:
    """Records of `sizes` bytes from offset `first`, with `gap` offsets without records behind them."""
    records = [PlainRecord(first + i, value=b"x" * size) for i, size in enumerate(sizes)]
    return Chunk(records, first + len(sizes) + gap, sum(sizes))


def test_a_chunk_that_fits_is_handed_on_without_copying() -> None:
    """One fetch, one batch: the client's own list."""
    buffer = RecordBuffer()
    one = chunk(0, [10, 10])
    buffer.add(one, 0)
    cut = buffer.cut(100, 1000)
    assert cut is not None
    assert cut.records is one.records


def test_a_batch_ends_at_the_record_limit_and_the_rest_follows() -> None:
    """Nothing is lost at a cut, and the next offset is the next record's."""
    buffer = RecordBuffer()
    buffer.add(chunk(0, [1, 1, 1]), 0)
    buffer.add(chunk(3, [1, 1], gap=4), 0)
    cuts = [buffer.cut(2, 1000) for _ in range(4)]
    assert [(c and [r.offset for r in c.records], c and c.next_offset) for c in cuts] == [
        ([0, 1], 2),
        ([2, 3], 4),
        ([4], 9),
        (None, None),
    ]


def test_a_record_larger_than_a_batch_is_delivered_alone() -> None:
    """It would else stop its partition forever."""
    buffer = RecordBuffer()
    buffer.add(chunk(0, [10, 5000, 10]), 0)
    assert [[r.offset for r in c.records] for c in iter(lambda: buffer.cut(100, 100), None)] == [[0], [1], [2]]


def test_what_was_read_for_an_earlier_position_is_refused_after_a_jump() -> None:
    """The reader may deliver it at any time after the worker has moved the position."""
    buffer = RecordBuffer()
    buffer.add(chunk(0, [1]), 0)
    buffer.jump()
    assert (buffer.add(chunk(1, [1]), 0), buffer.add(chunk(50, [1]), 1), buffer.size) == (False, True, 1)


def test_the_size_of_a_record_counts_key_value_and_headers() -> None:
    """Nulls count nothing."""
    record = PlainRecord(0, key=b"abc", value=b"12345", headers=[("h", b"vv"), ("n", None)])
    assert (record_size(record), record_size(PlainRecord(1))) == (12, 0)


@given(
    chunks=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=8), max_size=6),
    max_records=st.integers(1, 10),
    max_bytes=st.integers(1, 120),
)
def test_cuts_give_every_record_once_in_order_within_both_limits(
    chunks: list[list[int]], max_records: int, max_bytes: int
) -> None:
    """All that comes in goes out, and the sizes add up."""
    buffer = RecordBuffer()
    offset = 0
    for sizes in chunks:
        buffer.add(chunk(offset, sizes), 0)
        offset += len(sizes)
    seen: list[int] = []
    while (cut := buffer.cut(max_records, max_bytes)) is not None:
        assert len(cut.records) <= max_records
        assert cut.size <= max_bytes or len(cut.records) == 1
        assert cut.next_offset == cut.records[-1].offset + 1
        seen += [r.offset for r in cut.records]
    assert seen == list(range(offset))
    assert buffer.size == 0


@given(
    sizes=st.lists(st.integers(0, 50), min_size=1, max_size=20),
    counted=st.integers(0, 500),
    max_bytes=st.integers(1, 60),
)
def test_an_emptied_buffer_has_no_size_left_however_its_chunks_were_counted(
    sizes: list[int], counted: int, max_bytes: int
) -> None:
    """Clients count bytes in their own way; a rest that stays would pause the partition forever."""
    buffer = RecordBuffer()
    records = chunk(0, sizes).records
    buffer.add(Chunk(records, len(records), counted), 0)
    seen = 0
    while (cut := buffer.cut(7, max_bytes)) is not None:
        seen += len(cut.records)
    assert (seen, buffer.size, bool(buffer)) == (len(sizes), 0, False)


def test_the_number_of_records_is_what_is_left() -> None:
    """After any adds, cuts, put-backs and forgets: memory is reckoned by it."""
    buffer = RecordBuffer()
    buffer.add(chunk(0, [10] * 5), 0)
    counts = [buffer.records]
    cut = buffer.cut(3, 1000)
    assert cut is not None
    counts.append(buffer.records)
    buffer.put_back(Chunk(cut.records, cut.next_offset, cut.size))
    counts.append(buffer.records)
    buffer.jump()
    assert [*counts, buffer.records] == [5, 2, 5, 0]
