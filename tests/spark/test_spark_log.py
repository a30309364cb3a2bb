"""The offsets that a log has: from bits to ranges."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from inbound.proof.intervals import union
from inbound.spark.log_source import Bits


def bits_of(offsets: set[int]) -> Bits:
    """As Spark delivers them: 64 offsets in a word, words ascending, none empty."""
    words: dict[int, int] = {}
    for offset in offsets:
        words[offset >> 6] = words.get(offset >> 6, 0) | 1 << (offset & 63)
    ordered = sorted(words)
    return Bits(np.array(ordered, np.int64), np.array([words[word] for word in ordered], np.uint64))


@given(st.sets(st.integers(0, 400)) | st.sets(st.integers(0, 200)).map(lambda gaps: set(range(200)) - gaps))
def test_bits_are_the_ranges_that_they_stand_for(offsets: set[int]) -> None:
    """For all gaps: the ranges are those of the offsets, and the count is theirs."""
    bits = bits_of(offsets)

    assert list(bits.ranges()) == union((offset, offset + 1) for offset in offsets)
    assert len(bits) == len(offsets)


def test_ranges_can_be_cut_and_asked_like_a_list() -> None:
    """A judge goes through them by index, slice and bisection."""
    ranges = bits_of({0, 1, 5, 70, 71, 200}).ranges()

    assert (len(ranges), ranges[-1], list(ranges[1:3])) == (4, (200, 201), [(5, 6), (70, 72)])
    assert all(type(number) is int for pair in ranges for number in pair)
