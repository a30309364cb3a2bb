"""Durations and sizes: what is read, what is refused, and that writing and reading agree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbound.config import format_duration, format_size, parse_duration, parse_size

DURATION = "need a duration such as 10s (units: ms, s, m, h, d), got "
SIZE = "need a size such as 1MiB (units: B, KiB, MiB, GiB, kB, KB, MB, GB), got "


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("300ms", 0.3),
        ("10s", 10.0),
        ("1.5m", 90.0),
        ("1h", 3600.0),
        ("7d", 604800.0),
        ("0", 0.0),
        (0, 0.0),
        ("0s", 0.0),
    ],
)
def test_a_duration_is_read_as_seconds(text: Any, seconds: float) -> None:
    """Each unit is understood; only 0 needs none."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "count"), [("100B", 100), ("512KiB", 524288), ("1MiB", 2**20), ("10MB", 10**7), ("1.5KiB", 1536), (0, 0)]
)
def test_a_size_is_read_as_bytes(text: Any, count: int) -> None:
    """Binary and decimal units are told apart."""
    assert parse_size(text) == count


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (10, DURATION + "10"),
        (2.5, DURATION + "2.5"),
        ("10", DURATION + "'10'"),
        ("10 s", DURATION + "'10 s'"),
        ("10S", DURATION + "'10S'"),
        ("1m30s", DURATION + "'1m30s'"),
        ("ten", DURATION + "'ten'"),
        ("", DURATION + "''"),
        (True, DURATION + "true"),
        (None, DURATION + "nothing"),
        (["1s"], DURATION + "a list"),
        ("36501d", "need at most 100 years, got '36501d'"),
    ],
)
def test_a_wrong_duration_is_refused_with_the_units(value: Any, message: str) -> None:
    """A number without unit is never guessed at."""
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the whole message is compared
        parse_duration(value)
    assert str(refusal.value) == message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (1000, SIZE + "1000"),
        ("1mb", SIZE + "'1mb'"),
        ("1Mib", SIZE + "'1Mib'"),
        ("1s", SIZE + "'1s'"),
        ({}, SIZE + "a mapping"),
        ("1.5B", "need a whole number of bytes, got '1.5B'"),
        ("9999999999GiB", "need at most 1073741824GiB, got '9999999999GiB'"),
    ],
)
def test_a_wrong_size_is_refused_with_the_units(value: Any, message: str) -> None:
    """Half bytes and unknown units are named as they were written."""
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the whole message is compared
        parse_size(value)
    assert str(refusal.value) == message


@given(st.integers(0, 10**12).map(lambda ms: ms / 1000))
def test_a_duration_survives_writing_and_reading(seconds: float) -> None:
    """Whatever is printed reads back as the same number."""
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(0, 2**60))
def test_a_size_survives_writing_and_reading(count: int) -> None:
    """Whatever is printed reads back as the same number."""
    assert parse_size(format_size(count)) == count


def test_the_largest_plain_unit_is_written() -> None:
    """People read `7d`, not `604800s`, and never `0.3s`."""
    assert [format_duration(s) for s in (0, 0.3, 90, 7200, 604800)] == ["0s", "300ms", "90s", "2h", "7d"]
    assert [format_size(n) for n in (0, 1000, 1024, 2**20 * 10)] == ["0B", "1000B", "1KiB", "10MiB"]
