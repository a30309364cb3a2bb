"""What `benchmarks.drain` prints and draws."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.chart import Panel, bars
from benchmarks.participants import TOPIC, Comparison, Participant
from benchmarks.report import finish, spread
from inbound.cli.shared.output import count, table

CHART = "docs/benchmarks-drain.svg"
#: What each participant measured in one round: records, seconds, cpu (seconds), rss_mib.
Round = Mapping[str, Mapping[str, float]]


def report(
    rounds: Sequence[Round],
    present: Sequence[Participant],
    missing: Mapping[str, str],
    comparisons: Sequence[Comparison],
    chart: Path | None,
) -> None:
    """Print table, ratios and the closing JSON line; draw the chart where one is wanted.

    `missing` has those that could not run, by label, and why.
    """
    figures: dict[str, float | int | None] = {}
    rows, said = [], []
    for comparison in comparisons:
        figures[comparison.figure] = None
        if {comparison.over, comparison.under} <= set(rounds[0]):
            ratios = [_rate(found[comparison.over]) / _rate(found[comparison.under]) for found in rounds]
            figures[comparison.figure] = statistics.median(ratios)
            said.append(f"{comparison.figure}: {spread(ratios)}")
    for one in present:
        rate, cpu, rss = _medians(rounds, one.name)
        figures |= {f"{one.name}_records_per_s": rate, f"{one.name}_cpu_s_per_100k": cpu, f"{one.name}_rss_mib": rss}
        cpu_spread = spread([_cpu(found[one.name]) for found in rounds])
        rows.append([one.label, f"{rate:,.0f}", cpu_spread, f"{rss:,.0f}", f"{rounds[0][one.name]['records']:,.0f}"])
    rows += [[label, reason, "", "", ""] for label, reason in missing.items()]
    print(table(["", "records/s", "CPU s per 100,000 records", "peak MiB", "records a run"], rows))
    print(f"\nmedian (range) of {count(len(rounds), 'round')}:", *said, sep="\n")
    if chart is not None:
        chart.write_text(draw(rounds, [one for one in present if one.topics == (TOPIC,)]))
    finish("drain", figures)


def line(run: Mapping[str, float]) -> str:
    """Return one run, to be read."""
    return f"{_rate(run):,.0f}/s ({_cpu(run):.2f} CPU s per 100,000, {run['rss_mib']:,.0f} MiB)"


def draw(rounds: Sequence[Round], participants: Sequence[Participant]) -> str:
    """Return the chart: the fastest first."""
    medians = {one.label: _medians(rounds, one.name) for one in participants}
    rows = sorted(medians, key=lambda label: -medians[label][0])
    return bars(
        "Draining a topic: records of 1 KiB with 4 headers, 8 partitions",
        rows,
        [
            Panel("records/s", [medians[label][0] for label in rows]),
            Panel("CPU s per 100,000 records", [medians[label][1] for label in rows], "{:.2f}"),
        ],
        ours={label for label in rows if label.startswith(("channel", "inbound"))},
        note=f"Medians of {count(len(rounds), 'round')}; the broker runs on the same cores.",
    )


def _medians(rounds: Sequence[Round], name: str) -> tuple[float, float, float]:
    """Return records per second, CPU seconds per 100,000 records, and MiB."""
    runs = [found[name] for found in rounds]
    return (
        statistics.median(_rate(run) for run in runs),
        statistics.median(_cpu(run) for run in runs),
        statistics.median(run["rss_mib"] for run in runs),
    )


def _rate(run: Mapping[str, float]) -> float:
    return run["records"] / run["seconds"]


def _cpu(run: Mapping[str, float]) -> float:
    return run["cpu"] / run["records"] * 1e5
