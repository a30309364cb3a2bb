"""Durations and sizes: what is read, what is refused, and that writing and reading agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbound.config import format_duration, format_size, parse_duration, parse_size

Read = Callable[[Any], float]
DURATION = "need a duration such as 10s (units: ms, s, m, h, d), got "
SIZE = "need a size such as 1MiB (units: B, KiB, MiB, GiB, kB, KB, MB, GB), got "


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (parse_duration, "300ms", 0.3),
        (parse_duration, "10s", 10.0),
        (parse_duration, "1.5m", 90.0),
        (parse_duration, "1h", 3600.0),
        (parse_duration, "7d", 604800.0),
        (parse_duration, "0", 0.0),
        (parse_duration, 0, 0.0),
        (parse_duration, "0s", 0.0),
        (parse_size, "100B", 100),
        (parse_size, "512KiB", 524288),
        (parse_size, "1MiB", 2**20),
        (parse_size, "10MB", 10**7),
        (parse_size, "1.5KiB", 1536),
        (parse_size, 0, 0),
    ],
)
def test_a_duration_is_read_as_seconds_and_a_size_as_bytes(read: Read, text: Any, value: float) -> None:
    """Binary and decimal units are told apart; only 0 needs none."""
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "value", "message"),
    [
        (parse_duration, 10, DURATION + "10"),
        (parse_duration, 2.5, DURATION + "2.5"),
        (parse_duration, "10", DURATION + "'10'"),
        (parse_duration, "10 s", DURATION + "'10 s'"),
        (parse_duration, "10S", DURATION + "'10S'"),
        (parse_duration, "1m30s", DURATION + "'1m30s'"),
        (parse_duration, "ten", DURATION + "'ten'"),
        (parse_duration, "", DURATION + "''"),
        (parse_duration, True, DURATION + "true"),
        (parse_duration, None, DURATION + "nothing"),
        (parse_duration, ["1s"], DURATION + "a list"),
        (parse_duration, "36501d", "need at most 100 years, got '36501d'"),
        (parse_size, 1000, SIZE + "1000"),
        (parse_size, "1mb", SIZE + "'1mb'"),
        (parse_size, "1Mib", SIZE + "'1Mib'"),
        (parse_size, "1s", SIZE + "'1s'"),
        (parse_size, {}, SIZE + "a mapping"),
        (parse_size, "1.5B", "need a whole number of bytes, got '1.5B'"),
        (parse_size, "9999999999GiB", "need at most 1073741824GiB, got '9999999999GiB'"),
    ],
)
def test_a_wrong_value_is_refused_with_the_units(read: Read, value: Any, message: str) -> None:
    """A number without unit is never guessed at; half bytes and unknown units are named as they were written."""
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the whole message is compared
        read(value)
    assert str(refusal.value) == message


@given(st.integers(0, 10**12).map(lambda ms: ms / 1000), st.integers(0, 2**60))
def test_what_is_written_is_read_back(seconds: float, count: int) -> None:
    """Durations and sizes come back as the same number."""
    assert (parse_duration(format_duration(seconds)), parse_size(format_size(count))) == (seconds, count)


def test_the_largest_plain_unit_is_written() -> None:
    """People read `7d`, not `604800s`, and never `0.3s`."""
    assert [format_duration(s) for s in (0, 0.3, 90, 7200, 604800)] == ["0s", "300ms", "90s", "2h", "7d"]
    assert [format_size(n) for n in (0, 1000, 1024, 2**20 * 10)] == ["0B", "1000B", "1KiB", "10MiB"]
