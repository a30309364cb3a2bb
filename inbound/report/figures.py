"""The figures of a report: throughput, lag and delay, over time. Pure."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

#: Of the JSON and its meaning. New members may come without a new version: ignore unknown ones.
VERSION = 1
#: The approximate number of buckets, if no width is given.
BUCKETS = 60
#: A report with more buckets would be unreadable.
MOST_BUCKETS = 2000
#: The round widths of a bucket. Seconds.
_WIDTHS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A report's time, in buckets."""

    begin: float  # of the first bucket, in seconds since 1970
    width: float  # of each bucket, in seconds
    buckets: int

    @property
    def end(self) -> float:
        return self.begin + self.width * self.buckets


def window_of(first: float, last: float, width: float | None = None) -> TimeWindow:
    """Return the window for times from `first` to `last`.

    Without a `width` there are about `BUCKETS` buckets of a round one.

    Raises:
        ValueError: `width` makes more than `MOST_BUCKETS` buckets.
    """
    span = max(0.0, last - first)
    if width is None:
        weeks = math.ceil(span / BUCKETS / _WIDTHS[-1])
        width = next((one for one in _WIDTHS if one * BUCKETS >= span), weeks * _WIDTHS[-1])
    begin = first // width * width
    buckets = int((last - begin) // width) + 1
    if buckets > MOST_BUCKETS:
        raise ValueError(f"{buckets:,} buckets of {width:g} s are too many, {MOST_BUCKETS:,} are possible")
    return TimeWindow(begin, width, buckets)


@dataclass(slots=True)
class Tally:
    """Counts for one group and topic, by bucket."""

    published: Counter[int] = field(default_factory=Counter)  # records in the log
    landed: Counter[int] = field(default_factory=Counter)  # records whose commit landed; each once
    handed_out: Counter[int] = field(default_factory=Counter)  # delivered records, repeats included
    before: int = 0  # published before the window, landed in it or not yet
    delays: dict[int, Counter[int]] = field(default_factory=dict)  # by bucket: how many records in each bin
    longest: dict[int, float] = field(default_factory=dict)  # milliseconds
    ahead: int = 0  # records with a timestamp after they landed: clocks differ


@dataclass(frozen=True, slots=True)
class Series:
    """One group's reading of one topic.

    Tuples have a value per bucket. Delays are in milliseconds, None where nothing landed.
    """

    group: str
    topic: str
    partitions: int
    published: tuple[int, ...]
    landed: tuple[int, ...]
    handed_out: tuple[int, ...]
    lag: tuple[int, ...]  # records that are published and not landed, at the end of the bucket
    p50: tuple[float | None, ...]
    p99: tuple[float | None, ...]
    longest: tuple[float | None, ...]
    overall_p50: float | None
    overall_p99: float | None
    ahead: int


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """The figures of all reported groups and topics."""

    made: float  # seconds since 1970
    seconds: float
    window: TimeWindow
    series: tuple[Series, ...]
    notes: tuple[str, ...] = ()
    writer: str = ""


def series_of(group: str, topic: str, partitions: int, tally: Tally, window: TimeWindow) -> Series:
    places = range(window.buckets)
    lag, lags = tally.before, []
    for place in places:
        lag += tally.published[place] - tally.landed[place]
        lags.append(max(0, lag))  # below zero where a producer's clock is ahead
    overall: Counter[int] = Counter()
    for counts in tally.delays.values():
        overall.update(counts)
    return Series(
        group,
        topic,
        partitions,
        published=tuple(tally.published[place] for place in places),
        landed=tuple(tally.landed[place] for place in places),
        handed_out=tuple(tally.handed_out[place] for place in places),
        lag=tuple(lags),
        p50=tuple(quantile(tally.delays.get(place, {}), 0.5) for place in places),
        p99=tuple(quantile(tally.delays.get(place, {}), 0.99) for place in places),
        longest=tuple(tally.longest.get(place) for place in places),
        overall_p50=quantile(overall, 0.5),
        overall_p99=quantile(overall, 0.99),
        ahead=tally.ahead,
    )


def to_json(report: DeliveryReport) -> str:
    """Return the report as JSON, with the members of its classes."""
    members: dict[str, Any] = {"format": "inbound-report", "v": VERSION, **asdict(report)}
    return json.dumps(members, indent=1, allow_nan=False) + "\n"


def largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def mean_rate(series: Series, window: TimeWindow) -> float:
    """Return landed records per second, between first and last landing."""
    busy = [place for place, n in enumerate(series.landed) if n]
    return sum(series.landed) / ((busy[-1] - busy[0] + 1) * window.width) if busy else 0.0


def peak_rate(series: Series, window: TimeWindow) -> float:
    """Return landed records per second in the fullest bucket."""
    return max(series.landed, default=0) / window.width


#: The ratio of neighbouring bins: the error of a quantile is at most half of it.
GROWTH = 1.01
#: From a delay in milliseconds to its bin: `int(log1p(delay) * BINS_PER_E)`.
BINS_PER_E = 1 / math.log(GROWTH)


def milliseconds_of(bin_: int) -> float:
    """Return the middle of a bin, or its only whole millisecond."""
    low, high = math.expm1(bin_ / BINS_PER_E), math.expm1((bin_ + 1) / BINS_PER_E)
    whole = math.ceil(low - 1e-9)
    return float(whole) if whole < high and whole + 1 >= high else (low + high) / 2


def quantile(counts: Mapping[int, int], share: float) -> float | None:
    """Return the delay (ms) that a `share` of delays does not exceed."""
    total = sum(counts.values())
    if not total:
        return None
    wanted = max(1, math.ceil(share * total))
    for bin_ in sorted(counts):
        wanted -= counts[bin_]
        if wanted <= 0:
            return milliseconds_of(bin_)
    return None
