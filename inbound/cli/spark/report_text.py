"""The figures of `spark report` as text for people. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from inbound.cli.shared.output import Cell, one_line, table
from inbound.proof.words import moment
from inbound.report.figures import DeliveryReport, Series, TimeWindow, largest, mean_rate, peak_rate
from inbound.report.report_page import delay, duration

#: At most so many bars: a line of a terminal.
_STEPS = 30
_BARS = "_▁▂▃▄▅▆▇█"
_HEADERS = ("GROUP", "TOPIC", "LANDED", "AGAIN", "MEAN/S", "PEAK/S", "LAG", "P50", "P99", "LONGEST")


def shown(report: DeliveryReport, *, width: int | None = None, bars: bool = True) -> str:
    """Return the table, small bars over time, and the notes."""
    window = report.window
    parts = [
        f"{moment(window.begin)} to {moment(window.end)}, in steps of {duration(window.width)}, took {report.seconds:,.1f} s",
        table(_HEADERS, [_row(one, window) for one in report.series]),
    ]
    if bars:
        parts.append(table(("OVER TIME", "LANDED/S", "LAG", "P99"), [_bars(one) for one in report.series]))
    lines = "\n\n".join(parts).splitlines()
    if report.notes:
        lines += ["", "To know:"]
        for note in report.notes:
            text = one_line(note)
            wrapped = [f"  {text}"] if width is None else textwrap.wrap(
                text, max(40, width), initial_indent="  ", subsequent_indent="    "
            )  # fmt: skip
            lines += wrapped
    return "\n".join(lines)


def sparkline(values: Sequence[float | None]) -> str:
    """Return values as one row of bars.

    The largest has the highest bar; many values share bars with their neighbours. A dot is
    unknown, a line at the foot zero; the lowest bar is above zero.
    """
    per_bar = -(-len(values) // _STEPS) or 1
    highs = [largest(values[at : at + per_bar]) for at in range(0, len(values), per_bar)]
    most = largest(highs) or 0.0
    return "".join(
        "·" if high is None else _BARS[0] if not high else _BARS[1 + min(7, int(high / most * 7.999))] for high in highs
    )


def _row(one: Series, window: TimeWindow) -> list[Cell]:
    return [
        one.group,
        one.topic,
        sum(one.landed),
        max(0, sum(one.handed_out) - sum(one.landed)),
        round(mean_rate(one, window), 1),
        round(peak_rate(one, window), 1),
        one.lag[-1],
        delay(one.overall_p50),
        delay(one.overall_p99),
        delay(largest(one.longest)),
    ]


def _bars(one: Series) -> list[Cell]:
    return [f"{one.group} {one.topic}", *map(sparkline, (one.landed, one.lag, one.p99))]
