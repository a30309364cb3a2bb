"""What `inbound spark report` shows: on the terminal, compared whole, and as a page."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from inbound.cli.spark.report_text import shown, sparkline
from inbound.report.charts import ChartLine, time_chart
from inbound.report.figures import DeliveryReport, Tally, TimeWindow, series_of
from inbound.report.page import element
from inbound.report.report_page import UNFOLDED, delay, duration, report_page
from tests.proof.made_proof import NOON
from tests.report.bins import bin_of
from tests.report.test_proof_html import HOSTILE, Parsed

WINDOW = TimeWindow(NOON, 60, 4)


def made(group: str = "orders-svc", topic: str = "orders") -> DeliveryReport:
    """Four minutes: at work, at a standstill for two, catching up."""
    tally = Tally()
    tally.published.update(dict.fromkeys(range(4), 600))
    tally.landed.update({0: 600, 3: 1200})
    tally.handed_out.update({0: 650, 3: 1200})
    tally.delays = {0: Counter({bin_of(20): 600}), 3: Counter({bin_of(20): 600, bin_of(150_000): 600})}
    tally.longest = {0: 20.0, 3: 150_000.0}
    return DeliveryReport(NOON + 240, 3.5, WINDOW, (series_of(group, topic, 8, tally, WINDOW),), (), "inbound 0.1.0")


def test_the_table_on_the_terminal() -> None:
    """Rates, lag and delays in one row, and their course in small bars."""
    text = shown(replace(made(), notes=("orders/3: left out, for it is gone",)), width=80)

    assert text.splitlines() == [
        "2025-01-31 12:00:00 UTC to 2025-01-31 12:04:00 UTC, in steps of 1 min, took 3.5 s",
        "",
        "GROUP       TOPIC   LANDED  AGAIN  MEAN/S  PEAK/S  LAG  P50    P99       LONGEST",
        "orders-svc  orders   1,800     50     7.5    20.0  600  20 ms  2.49 min  2.5 min",
        "",
        "OVER TIME          LANDED/S  LAG   P99",
        "orders-svc orders  ▄__█      _▄█▄  ▁··█",
        "",
        "To know:",
        "  orders/3: left out, for it is gone",
    ]


def test_bars_are_left_out_where_they_cannot_be_written() -> None:
    """A terminal that knows only ASCII gets the table alone."""
    assert shown(made(), bars=False).isascii()


@pytest.mark.parametrize(
    ("values", "bars"),
    [([], ""), ([0, 0], "__"), ([None, 1, 8], "·▁█"), ([0.0] * 59 + [5.0], "_" * 29 + "█")],
)
def test_small_bars(values: list[float | None], bars: str) -> None:
    """Nothing, nothing known, little and most look different; sixty values share thirty bars."""
    assert sparkline(values) == bars


def test_the_page_has_a_row_and_three_charts_for_each_group() -> None:
    """With values beside the axes, and in tooltips."""
    page = Parsed(report_page(made()))

    assert page.text("h3") == ["orders-svc reading orders"]
    assert [a["aria-label"] for a in page.of_class("chart")] == [
        "records per second: published at most 10; landed at most 20",
        "lag in records, at the end of each step: lag at most 1.2k",
        "delay from Kafka's timestamp to the landed commit (logarithmic scale): p50 at most 20 ms; p99 at most 2.49 min",
    ]
    assert "p99: 2.49 min\n2025-01-31 12:03:00 UTC, 60 s" in page.text("title")
    assert page.text("th")[-1] == "orders-svc"
    assert {"2.49 min", "2.5 min"} <= set(page.text("td"))


def test_many_groups_are_folded() -> None:
    """The first stand open."""
    one = made().series[0]

    page = Parsed(report_page(replace(made(), series=tuple(replace(one, group=f"g{i}") for i in range(30)))))

    assert ["open" in a for tag, a in page.elements if tag == "details"] == [i < UNFOLDED for i in range(30)]


def test_no_name_is_ever_markup() -> None:
    """Groups, topics and notes are text on the page, and steer no terminal."""
    report = replace(made(HOSTILE, HOSTILE), notes=(HOSTILE,), writer=HOSTILE)

    page = Parsed(report_page(report))

    assert [tag for tag, _ in page.elements if tag in ("script", "img")] == ["script"]
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert "\x1b" not in shown(report)


def test_a_line_has_gaps_where_nothing_is_known() -> None:
    """Steps that touch are one stroke; a gap begins another; nothing at all draws nothing."""
    chart = Parsed(time_chart("t", WINDOW, [ChartLine("a", (1, 2, None, 3), 0), ChartLine("b", (None,) * 4, 1)]))

    (path,) = [a["d"] or "" for tag, a in chart.elements if tag == "path"]
    assert [part[0] for part in path.split(" ") if not part[0].isdigit()] == ["M", "L", "M"]
    assert len(chart.of_class("dot")) == 3


def test_delays_and_widths_in_words() -> None:
    """In the unit that fits."""
    assert [delay(ms) for ms in (None, 0, 12.4, 1500, 90_000, 7_200_000, 200_000_000)] == [
        "-", "0 ms", "12.4 ms", "1.5 s", "1.5 min", "2 h", "2.31 d",
    ]  # fmt: skip
    assert [duration(s) for s in (1, 90, 300, 7200, 86400)] == ["1 s", "90 s", "5 min", "2 h", "1 d"]


def test_an_element_escapes_all_but_markup() -> None:
    """Texts, attributes and what is inside iterables; what is None or False is left out."""
    inner = element("b", "<", 1, None, ["&", element("i", '"')], title='"<', hidden=True, open=False, class_=None)

    assert inner == '<b title="&quot;&lt;" hidden>&lt;1&amp;<i>&quot;</i></b>'
