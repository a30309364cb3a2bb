"""Charts over time, as SVG: scales, round ticks and lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from inbound.proof.words import moment
from inbound.report.figures import TimeWindow
from inbound.report.page import Markup, element, joined

_STEPS_OF_TIME = (
    *(1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800),
    *(3600, 7200, 10800, 21600, 43200),
    *(86400, 2 * 86400, 7 * 86400, 14 * 86400, 30 * 86400, 91 * 86400, 365 * 86400),
)


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values from `low` to `high` to places from `begin` to `end`."""

    low: float
    high: float
    begin: float  # may be above `end`
    end: float

    def at(self, value: float) -> float:
        """Return the place of a value; values outside are at the edge."""
        if self.high <= self.low:
            return (self.begin + self.end) / 2
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.begin + share * (self.end - self.begin), 1)


def round_ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Return about so many round values within [low, high]."""
    if not high - low > 1e-9 * max(abs(low), abs(high), 1e-9):
        return [low]
    step = _round_step((high - low) / max(1, about))
    return [step * i for i in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


def time_ticks(low: float, high: float, about: int = 6) -> list[tuple[float, str]]:
    """Return round times in UTC, seconds since 1970, and their texts."""
    span = high - low
    if not span > 0:
        return [(low, time_text(low, 1))]
    if span < 5:
        return [(low, time_text(low, 1)), (high, time_text(high, 1))]
    step = next((step for step in _STEPS_OF_TIME if step >= span / max(1, about)), _STEPS_OF_TIME[-1])
    return [(step * i, time_text(step * i, step)) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def time_text(wall: float, step: float) -> str:
    """Return the text of a tick, where ticks are `step` seconds apart."""
    try:
        moment = datetime.fromtimestamp(wall, UTC)
    except (OverflowError, OSError, ValueError):
        return "-"
    if step >= 86400:
        return f"{moment:%d %b}" if step < 91 * 86400 else f"{moment:%b %Y}"
    if step >= 3600 and moment.hour == 0:
        return f"{moment:%d %b}"
    return f"{moment:%H:%M}" if step >= 60 else f"{moment:%H:%M:%S}"


def short(value: float) -> str:
    """Return a number in few characters: `0.25`, `12`, `1.5k`, `80M`."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"


def _round_step(least: float) -> float:
    size = 10.0 ** math.floor(math.log10(least))
    return next(size * factor for factor in (1, 2, 5, 10) if size * factor >= least * 0.999999)


_WIDTH, _LEFT, _RIGHT, _TOP, _HEIGHT = 1060, 72, 48, 10, 150
#: Above this ratio of the largest to the smallest value, small ones would vanish in the axis.
_STEEP = 30.0


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A named line of a chart."""

    name: str
    values: Sequence[float | None]  # one per bucket; None: a gap
    colour: int
    dashed: bool = False


def time_chart(
    title: str,
    window: TimeWindow,
    lines: Sequence[ChartLine],
    *,
    write: Callable[[float], str] = short,
    steep: bool = False,
) -> Markup:
    """Return a chart whose lines have a step per bucket.

    Args:
        write: Returns a value's text for axis and tooltips, with its unit.
        steep: Very different values get a logarithmic scale, which the title names.
    """
    known = [value for line in lines for value in line.values if value is not None]
    least = min((value for value in known if value > 0), default=0.0)
    logarithmic = steep and bool(known) and max(known) > _STEEP * least
    chart = _Chart(window, max(known, default=0.0) or 1.0, least if logarithmic else None, write)
    name = f"{title} (logarithmic scale)" if logarithmic else title
    told = "; ".join(f"{line.name} at most {_most(line, write)}" for line in lines)
    return element(
        "svg",
        element("title", name),
        element("desc", told),
        chart.frame(),
        *map(chart.line, lines),
        element("text", name, x=_LEFT, y=_TOP + 2, class_="name"),
        viewBox=f"0 0 {_WIDTH} {_TOP + _HEIGHT + 32}",
        role="img",
        aria_label=f"{name}: {told}",
        class_="chart",
    )


def legend_of(lines: Sequence[ChartLine]) -> list[tuple[Markup, str]]:
    return [(element("path", class_=f"line {_class(line)}", d="M0 7H14"), line.name) for line in lines]


class _Chart:
    def __init__(self, window: TimeWindow, most: float, least: float | None, write: Callable[[float], str]) -> None:
        self._window = window
        self._x = Scale(window.begin, window.end, _LEFT, _WIDTH - _RIGHT)
        self._logarithmic = least is not None
        self._write = write
        low, high = (0.0, most * 1.05) if least is None else (math.log10(least), math.log10(most * 1.2))
        self._y = Scale(low, high, _TOP + 12 + _HEIGHT, _TOP + 12)
        self._ticks = (
            round_ticks(0.0, most, 3) if least is None
            else [10.0**power for power in range(math.ceil(low), math.floor(high) + 1)]
        )  # fmt: skip

    def frame(self) -> Markup:
        bottom = _TOP + 12 + _HEIGHT
        across = (
            (
                element("line", class_="grid", x1=_LEFT, y1=self._at(value), x2=_WIDTH - _RIGHT, y2=self._at(value)),
                element("text", self._write(value), x=_LEFT - 8, y=self._at(value) + 4, text_anchor="end"),
            )
            for value in self._ticks
        )
        upright = (
            element("text", text, x=self._x.at(wall), y=bottom + 16, text_anchor="middle")
            for wall, text in time_ticks(self._window.begin, self._window.end, 8)
        )
        return joined((*across, *upright))

    def line(self, line: ChartLine) -> Markup:
        steps = list(self._steps(line.values))
        path = element("path", class_=f"line {_class(line)}", d=" ".join(steps)) if steps else None
        return element("g", path, (self._tip(line, place) for place in range(len(line.values))))

    def _steps(self, values: Sequence[float | None]) -> Iterator[str]:
        pen = False
        for place, value in enumerate(values):
            if value is None:
                pen = False
                continue
            begin, end = self._edges(place)
            yield f"{'L' if pen else 'M'}{begin} {self._at(value)}H{end}"
            pen = True

    def _tip(self, line: ChartLine, place: int) -> Markup | None:
        value = line.values[place]
        if value is None:
            return None
        begin, end = self._edges(place)
        at = self._window.begin + place * self._window.width
        return element(
            "circle",
            element("title", f"{line.name}: {self._write(value)}\n{moment(at)}, {self._window.width:g} s"),
            class_=f"dot f{line.colour}",
            cx=round((begin + end) / 2, 1),
            cy=self._at(value),
            r=5,
        )

    def _edges(self, place: int) -> tuple[float, float]:
        begin = self._window.begin + place * self._window.width
        return self._x.at(begin), self._x.at(begin + self._window.width)

    def _at(self, value: float) -> float:
        if self._logarithmic:
            return self._y.at(math.log10(value) if value > 0 else -math.inf)
        return self._y.at(value)


def _class(line: ChartLine) -> str:
    return f"s{line.colour} second" if line.dashed else f"s{line.colour}"


def _most(line: ChartLine, write: Callable[[float], str]) -> str:
    most = max((value for value in line.values if value is not None), default=None)
    return "not known" if most is None else write(most)
