"""Delays between attempts."""

from __future__ import annotations

from inbound.runtime.backoff import Backoff


def test_delays_double_up_to_the_longest() -> None:
    """None before a failure; the longest after any number of them."""
    backoff = Backoff(first=1.0, longest=60.0)

    assert [backoff.delay(failures) for failures in (0, 1, 2, 3, 6, 7, 10**9)] == [0.0, 1.0, 2.0, 4.0, 32.0, 60.0, 60.0]
