"""Sets of offsets as ranges behave as sets of numbers do."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inbound.proof.intervals import CountedRanges, Growing, contains, difference, intersection, size, union
from inbound.proof.model import OffsetRange

ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8)
offsets = st.integers(-1, 32)


def numbers(found: list[OffsetRange]) -> set[int]:
    return {offset for first, end in found for offset in range(first, end)}


def is_a_set(found: list[OffsetRange]) -> bool:
    """Whether it is ascending, and no two ranges touch."""
    return all(first < end for first, end in found) and all(a[1] < b[0] for a, b in pairwise(found))


@pytest.mark.slow
@settings(max_examples=60)
@given(ranges, ranges)
def test_the_algebra_of_sets(left: list[OffsetRange], right: list[OffsetRange]) -> None:
    """Union, intersection, difference; what comes out is a set again."""
    a, b = union(left), union(right)

    assert is_a_set(a)
    assert numbers(a) == numbers(left)
    assert numbers(intersection(a, b)) == numbers(a) & numbers(b)
    assert numbers(difference(a, b)) == numbers(a) - numbers(b)
    assert is_a_set(intersection(a, b))
    assert is_a_set(difference(a, b))
    assert size(a) == len(numbers(a))


@pytest.mark.slow
@settings(max_examples=60)
@given(ranges, offsets, offsets)
def test_counting_and_looking_up(given: list[OffsetRange], low: int, high: int) -> None:
    """How many of a set lie in a range, and whether it has an offset."""
    found = union(given)

    assert CountedRanges(found).within(low, high) == len(numbers(found) & set(range(low, high)))
    assert contains(found, low) == (low in numbers(found))


@pytest.mark.slow
@settings(max_examples=60)
@given(ranges)
def test_a_growing_set_says_what_it_had(added: list[OffsetRange]) -> None:
    """Each range that is put in: what of it was there already."""
    growing = Growing()
    model: set[int] = set()
    for first, end in added:
        assert numbers(growing.overlaps(first, end)) == model & set(range(first, end))
        assert numbers(growing.add(first, end)) == model & set(range(first, end))
        model |= set(range(first, end))

    assert numbers(growing.ranges) == model
    assert is_a_set(growing.ranges)
    assert growing.end == max(model, default=-1) + 1
