"""Line charts over time, as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from inbound.proof.words import moment
from inbound.report.figures import Window
from inbound.report.html import Markup, element, joined
from inbound.report.scales import Scale, round_ticks, short, time_ticks

_WIDTH, _LEFT, _RIGHT, _TOP, _HEIGHT = 1060, 72, 48, 10, 150
#: Where the largest value is so many times the smallest, small ones would be no more than the axis.
_STEEP = 30.0


@dataclass(frozen=True, slots=True)
class Line:
    """A name, a value per bucket (None: a gap), and how it is drawn."""

    name: str
    values: Sequence[float | None]
    colour: int
    dashed: bool = False


def time_chart(
    title: str,
    window: Window,
    lines: Sequence[Line],
    *,
    write: Callable[[float], str] = short,
    steep: bool = False,
) -> Markup:
    """Return a chart whose lines have a step per bucket.

    Args:
        write: How a value is written at the axis and in tooltips, with its unit.
        steep: Values that differ much may be drawn on a logarithmic scale; the title then says so.
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


def legend_of(lines: Sequence[Line]) -> list[tuple[Markup, str]]:
    """Return the entries of a legend."""
    return [(element("path", class_=f"line {_class(line)}", d="M0 7H14"), line.name) for line in lines]


class _Chart:
    def __init__(self, window: Window, most: float, least: float | None, write: Callable[[float], str]) -> None:
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

    def line(self, line: Line) -> Markup:
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

    def _tip(self, line: Line, place: int) -> Markup | None:
        """A spot that shows its value when pointed at."""
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


def _class(line: Line) -> str:
    return f"s{line.colour} second" if line.dashed else f"s{line.colour}"


def _most(line: Line, write: Callable[[float], str]) -> str:
    most = max((value for value in line.values if value is not None), default=None)
    return "not known" if most is None else write(most)
