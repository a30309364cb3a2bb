"""The page of `spark report`: each group's throughput, lag and delay."""

from __future__ import annotations

from inbound.proof.words import counted, moment
from inbound.report.charts import ChartLine, legend_of, time_chart
from inbound.report.figures import DeliveryReport, Series, TimeWindow, largest, mean_rate, peak_rate
from inbound.report.page import Cell, Markup, element, legend, number, page, paragraphs, reasons, table, tiles
from inbound.report.style import COLOURS

#: Unfolded charts.
UNFOLDED = 8


def report_page(report: DeliveryReport) -> str:
    window = report.window
    title = f"{moment(window.begin)} to {moment(window.end)}"
    return page(
        f"inbound report, {title}",
        element("h1", "Throughput, lag and delivery latency"),
        element(
            "p",
            f"{title}, in steps of {duration(window.width)}. Made {moment(report.made)} in {report.seconds:,.1f} s"
            f"{f', by {report.writer}' if report.writer else ''}.",
            class_="soft",
        ),
        tiles(
            (
                ("records landed", f"{sum(sum(one.landed) for one in report.series):,}", False),
                ("lag at the end", f"{sum(one.lag[-1] for one in report.series):,}", False),
                ("longest p99", delay(largest(one.overall_p99 for one in report.series)), False),
            )
        ),
        reasons("Notes", (element("li", note) for note in report.notes)),
        element("h2", "Groups"),
        table(_HEADERS, (_row(one, window) for one in report.series), caption="Each group's reading of each topic"),
        element("h2", "Over time"),
        paragraphs(
            "A record has landed when the commit past it is in ZooKeeper; its delay is from its timestamp in Kafka until "
            "then. Where producers set the timestamps (CreateTime), their clocks are in the delay; the consumers' always are."
        ),
        *(_card(one, window, place) for place, one in enumerate(report.series)),
    )


def delay(milliseconds: float | None) -> str:
    """Return a delay in its unit, as `1.5 s`, or a dash."""
    if milliseconds is None:
        return "-"
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if milliseconds >= size:
            return f"{milliseconds / size:.3g} {unit}"
    return f"{milliseconds:.3g} ms"


def duration(seconds: float) -> str:
    """Return a duration in its largest whole unit, as `5 min`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


_HEADERS = (
    "group", "topic", "partitions", "published", "landed", "redelivered", "mean /s", "peak /s", "lag at the end", "p50", "p99",
    "longest",
)  # fmt: skip


def _row(one: Series, window: TimeWindow) -> list[Cell | str]:
    return [
        one.group,
        one.topic,
        number(one.partitions),
        number(sum(one.published)),
        number(sum(one.landed)),
        number(max(0, sum(one.handed_out) - sum(one.landed))),
        number(round(mean_rate(one, window), 1)),
        number(round(peak_rate(one, window), 1)),
        number(one.lag[-1]),
        *(
            Cell(delay(value), -1.0 if value is None else value)
            for value in (one.overall_p50, one.overall_p99, largest(one.longest))
        ),
    ]


def _card(one: Series, window: TimeWindow, place: int) -> Markup:
    colour = place % COLOURS
    landed = ChartLine("landed", [n / window.width for n in one.landed], colour)
    published = ChartLine("published", [n / window.width for n in one.published], (colour + 7) % COLOURS, dashed=True)
    lag = ChartLine("lag", one.lag, colour)
    delays = [ChartLine("p50", one.p50, colour), ChartLine("p99", one.p99, (colour + 7) % COLOURS, dashed=True)]
    summary = element(
        "summary",
        element("h3", f"{one.group} reading {one.topic}"),
        element(
            "span", f"{counted(one.partitions, 'partition')}, {counted(sum(one.landed), 'record')}", class_="soft small"
        ),
    )
    return element(
        "details",
        summary,
        time_chart("records per second", window, [published, landed]),
        legend(legend_of([landed, published])),
        time_chart("lag in records, at the end of each step", window, [lag]),
        time_chart("delay from Kafka's timestamp to the landed commit", window, delays, write=delay, steep=True),
        legend(legend_of(delays)),
        class_="card",
        open=place < UNFOLDED,
    )
