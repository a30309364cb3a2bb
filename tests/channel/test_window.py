"""The commit window of one partition: it counts what a crash would repeat, and never less."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbound.partition.position import Position


def window(*batches: tuple[int, int], landed: int = 0) -> Position:
    """Return a window in which batches [first, end) of as many records were delivered and advanced over."""
    made = Position(landed)
    for first, end in batches:
        made.deliver(first, end, end - first)
        made.advance(end)
    return made


def test_what_was_advanced_and_has_not_landed_counts() -> None:
    """What landed does not any more."""
    made = Position(0)
    marks = []
    for first in (0, 10, 20):
        made.deliver(first, first + 10, 10)
        marks.append(made.advance(first + 10))
    before = made.uncommitted
    made.land(marks[1])
    assert (before, made.uncommitted, made.committed, made.advanced, made.settled) == (30, 10, 20, 30, False)


def test_a_batch_in_hand_does_not_count() -> None:
    """It comes beside what the window holds."""
    made = window((0, 10))
    made.deliver(10, 25, 15)
    assert made.uncommitted == 10


def test_it_is_open_up_to_its_limit_and_with_none_only_when_nothing_is_on_its_way() -> None:
    """Also a commit that covers no records keeps the strict rule waiting."""
    made = window((0, 10))
    moved = Position(5)
    moved.advance(3)
    assert [made.is_open(limit) for limit in (0, 9, 10, 11)] == [False, False, True, True]
    assert (moved.is_open(0), moved.is_open(1), Position(None).is_open(0)) == (False, True, True)


def test_what_next_collected_counts_when_it_is_committed() -> None:
    """Records of several batches come with one commit."""
    made = Position(0)
    for first in (0, 10, 20):
        made.deliver(first, first + 10, 10)
    before = made.uncommitted
    made.advance(30)
    assert (before, made.uncommitted) == (0, 30)


def test_batches_that_are_never_committed_take_no_more_memory_the_more_they_are() -> None:
    """A processor that only looks answers `next` forever. What it advances over at last still counts in full."""
    made = Position(0)
    tracemalloc.start()
    try:
        for offset in range(100_000):
            made.deliver(offset, offset + 1, 1)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    made.advance(50_000)
    half = made.uncommitted
    made.advance(100_000)
    assert size < 3_000_000
    assert (50_000 <= half < 51_000, made.uncommitted) == (True, 100_000)


@pytest.mark.parametrize(("records", "divided", "all_of_it"), [(10, 5, 15), (7, 5, 15), (3, 3, 13)])
def test_of_a_batch_that_an_answer_divides_each_offset_may_have_a_record(
    records: int, divided: int, all_of_it: int
) -> None:
    """Which of them have one nobody has counted: rather too much than too little."""
    made = Position(0)
    made.deliver(0, 10, records)
    made.advance(5)
    made.go_back(5)
    before = made.uncommitted
    made.deliver(5, 15, 10)
    made.advance(15)
    assert (before, made.uncommitted) == (divided, all_of_it)


@pytest.mark.parametrize("records", [4, 3])
def test_what_is_finished_of_a_batch_behind_a_commit_in_its_midst_is_in_flight_when_that_lands(records: int) -> None:
    """Records of a batch are finished one by one, and the commit of some is on its way when the others are."""
    made = Position(25)
    made.deliver(25, 29, records)
    mark = made.advance(27)
    rest = made.advance(29)
    made.land(mark)
    landed = made.uncommitted, made.is_open(1)
    made.land(rest)
    assert (landed, made.uncommitted, made.is_open(1)) == ((2, False), 0, True)


def test_what_is_delivered_again_and_again_counts_once() -> None:
    """A batch that fails ten times is one batch."""
    made = Position(0)
    for _ in range(10):
        made.deliver(0, 10, 10)
        made.go_back(0)
    made.deliver(0, 10, 10)
    made.advance(10)
    assert made.uncommitted == 10


def test_nothing_is_on_its_way_when_it_was_withdrawn() -> None:
    """The partition is not ours any more."""
    made = window((0, 10), (10, 20))
    made.withdraw()
    assert (made.settled, made.uncommitted, made.advanced) == (True, 0, 0)


def test_marks_are_in_the_order_in_which_they_were_asked_for() -> None:
    """By that the committer tells the newer of two."""
    made = Position(0)
    first, second = made.advance(10), made.advance(5)
    made.land(second)
    assert (first.order < second.order, made.landed_order, made.committed) == (True, second.order, 5)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.integers(1, 9), st.integers(0, 3)),
        st.tuples(st.just("advance"), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("finish"), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("go back"), st.integers(0, 20), st.just(0)),
        st.tuples(st.just("land"), st.integers(0, 5), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
def test_it_never_counts_less_than_a_crash_would_repeat(steps: list[tuple[str, int, int]]) -> None:
    """Records that the claim was handed, and has not given back, below the newest answer and not below what landed."""
    made, position, handed, marks = Position(0), 0, set[int](), list[object]()
    for what, number, gap in steps:
        if what == "deliver":
            first, end = position, position + number + gap  # `gap` offsets at the end have no record
            made.deliver(first, end, number)
            handed |= set(range(first, first + number))
            position = end
        elif what == "advance" and made.advanced is not None:
            target = max(made.advanced, position - number)
            if target > position:
                continue
            marks.append(made.advance(target))
            if target < position:
                position, handed = target, {offset for offset in handed if offset < target}
                made.go_back(target)
        elif what == "finish" and made.advanced is not None:  # and what is behind it stays delivered
            marks.append(made.advance(max(made.advanced, position - number)))
        elif what == "go back" and made.advanced is not None:
            position = max(made.advanced, position - number)
            handed = {offset for offset in handed if offset < position}
            made.go_back(position)
        elif what == "land" and marks:
            made.land(marks[max(0, len(marks) - 1 - number)])  # type: ignore[arg-type]
            del marks[: max(0, len(marks) - number)]
        assert made.committed is not None
        assert made.advanced is not None
        assert made.uncommitted >= sum(made.committed <= offset < made.advanced for offset in handed)


def test_a_commit_that_takes_another_one_back_has_not_landed_before_it_has() -> None:
    """1. 0 has landed; 2. 1 is on its way; 3. the log is cut at 0, which is to be committed before anything is delivered."""
    window = Position(None)
    window.land(window.advance(0))
    window.advance(1)
    back = window.advance(0)
    before = window.settled
    window.land(back)
    assert (before, window.settled) == (False, True)
