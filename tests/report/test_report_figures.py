"""Delays in bins, times in buckets, and what is made of counts. Pure."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inbound.report.charts import Scale, round_ticks, short, time_ticks
from inbound.report.figures import (
    MOST_BUCKETS,
    DeliveryReport,
    Tally,
    TimeWindow,
    mean_rate,
    milliseconds_of,
    peak_rate,
    quantile,
    series_of,
    to_json,
    window_of,
)
from tests.proof.made_proof import NOON
from tests.report.bins import bin_of


@pytest.mark.slow
@given(st.lists(st.integers(0, 10**11), min_size=1, max_size=50), st.sampled_from([0.5, 0.99, 1.0]))
@example([0], 0.5)
def test_a_quantile_is_that_of_the_delays_but_for_the_width_of_a_bin(delays: list[int], share: float) -> None:
    """Within one percent, or a millisecond, of the delay that so many do not exceed."""
    counts: dict[int, int] = {}
    for delay in delays:
        counts[bin_of(delay)] = counts.get(bin_of(delay), 0) + 1

    said = quantile(counts, share)

    assert said == pytest.approx(sorted(delays)[math.ceil(share * len(delays)) - 1], rel=0.01, abs=1)


def test_short_delays_are_exact_and_clocks_that_differ_make_none() -> None:
    """Up to 60 ms every whole millisecond has a bin of its own; a delay below zero is none; of nothing there is no quantile."""
    assert [milliseconds_of(bin_of(delay)) for delay in range(60)] == list(range(60))
    assert bin_of(-5) == bin_of(0)
    assert quantile({}, 0.5) is None


@given(st.floats(0, 4e9), st.floats(0, 1e9))
def test_a_window_holds_all_of_its_time_in_few_buckets_of_round_width(first: float, span: float) -> None:
    """Every time is inside, and the buckets can be read."""
    window = window_of(first, first + span)

    assert window.begin <= first
    assert window.end > first + span
    assert 1 <= window.buckets <= MOST_BUCKETS


def test_a_width_that_is_asked_for_is_taken_or_refused() -> None:
    """Buckets begin at whole multiples of their width."""
    assert window_of(NOON + 61, NOON + 179, 60) == TimeWindow(NOON + 60, 60, 2)
    with pytest.raises(ValueError, match="86,401 buckets of 1 s are too many, 2,000 are possible"):
        window_of(NOON, NOON + 86400, 1)


def test_a_series_tells_lag_and_rates() -> None:
    """What was published before the window and not landed is the lag that it begins with; clocks never make it less than none."""
    tally = Tally(before=5)
    tally.published.update({0: 20, 1: 10})
    tally.landed.update({0: 15, 1: 10, 3: 12})
    tally.handed_out.update({0: 15, 1: 20})
    tally.delays = {0: Counter({bin_of(10): 14, bin_of(40): 1}), 3: Counter({bin_of(50): 12})}
    tally.longest = {0: 40.0, 3: 55.0}

    series = series_of("g", "t", 2, tally, TimeWindow(NOON, 10, 4))

    assert series.lag == (10, 10, 10, 0)
    assert (series.p50, series.p99) == ((10, None, None, 50), (40, None, None, 50))
    assert (series.overall_p50, series.overall_p99, series.longest) == (10, 50, (40, None, None, 55))
    assert (mean_rate(series, TimeWindow(NOON, 10, 4)), peak_rate(series, TimeWindow(NOON, 10, 4))) == (37 / 40, 1.5)
    report = json.loads(to_json(DeliveryReport(NOON, 1.5, TimeWindow(NOON, 10, 4), (series,), ("note",), "inbound")))
    assert (report["format"], report["v"], report["window"]["width"]) == ("inbound-report", 1, 10)
    assert report["series"][0]["lag"] == [10, 10, 10, 0]


@given(st.floats(-1e12, 1e12), st.floats(0, 1e12))
def test_ticks_are_few_and_inside(low: float, span: float) -> None:
    """An axis of any length has marks that lie on it."""
    high = low + span
    ticks = round_ticks(low, high)

    assert 1 <= len(ticks) <= 12
    assert all(low - 1e-6 * span <= tick <= high + 1e-6 * span + 1e-9 for tick in ticks)


@pytest.mark.parametrize("span", [0, 3, 59, 3600, 86400, 40 * 86400, 3 * 365 * 86400])
def test_times_beside_an_axis(span: float) -> None:
    """From seconds to years there are some marks, in order, each with a text."""
    ticks = time_ticks(NOON, NOON + span)

    assert 1 <= len(ticks) <= 8
    assert [wall for wall, _ in ticks] == sorted(wall for wall, _ in ticks)
    assert all(text for _, text in ticks)


def test_places_on_a_chart() -> None:
    """Values outside stand at the edge; one value alone stands in the middle."""
    scale = Scale(0, 10, 100, 200)

    assert [scale.at(value) for value in (-5, 0, 5, 99)] == [100, 100, 150, 200]
    assert Scale(3, 3, 0, 10).at(3) == 5
    assert [short(value) for value in (0, 0.25, 999, 1500, 2e6, 3e9)] == ["0", "0.25", "999", "1.5k", "2M", "3G"]
