"""Definitions and a snapshot in, the text that Prometheus scrapes out.

Written here and not by prometheus-client, which takes ten times as long for 1,000 partitions: see
docs/decisions/0030-metrics.md. Its parsers read every line of this in the tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate

from inbound.instruments import HistogramStatus
from inbound.metrics.definition import PID, AnySection, Definition, Value
from inbound.status import ProcessStatus

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_ODD = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}


def lines_of(
    sections: Sequence[AnySection], processes: Sequence[ProcessStatus], *, strict: bool, pid: bool
) -> list[str]:
    """Return the lines of all metrics that have a series.

    `strict` makes it OpenMetrics, without its last line; with `pid` series say whose they are.
    """
    lines: list[str] = []
    for section in sections:
        names = (*section.labels, PID) if pid and section.has_pid else section.labels
        subjects = [
            (_labels(names, (*values, str(process.pid))), subject)
            for process in processes
            for values, subject in section.subjects(process, processes)
        ]
        if not subjects:
            continue
        for metric in section.metrics:
            before = len(lines)
            name, read = metric.name, metric.read
            if metric.label is None and metric.kind != "histogram":  # nearly all series are of these
                for labels, subject in subjects:
                    value = read(subject)
                    if value is not None:
                        number = repr(float(value))  # type: ignore[arg-type]
                        lines.append(f"{name}{{{labels}}} {_ODD.get(number, number)}" if labels else f"{name} {number}")
            else:
                for labels, subject in subjects:
                    lines += _several(metric, labels, read(subject))
            if len(lines) > before:
                lines[before:before] = _head(metric, strict)
    return lines


def _head(metric: Definition[object], strict: bool) -> list[str]:
    name = metric.family if strict else metric.name
    help_text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
    head = [f"# HELP {name} {help_text}", f"# TYPE {name} {metric.kind}"]
    return [*head, f"# UNIT {name} {metric.unit}"] if strict and metric.unit else head


def _several(metric: Definition[object], labels: str, value: Value) -> Iterator[str]:
    comma = "," if labels else ""
    if isinstance(value, Mapping):
        for kind, number in value.items():
            yield f"{metric.name}{{{labels}{comma}{_pair(metric.label or '', kind)}}} {_number(number)}"
    elif isinstance(value, HistogramStatus):
        seen = 0
        for bound, seen in zip((*value.bounds, float("inf")), accumulate(value.counts), strict=True):
            yield f'{metric.name}_bucket{{{labels}{comma}le="{_number(bound)}"}} {_number(seen)}'
        braced = f"{{{labels}}}" if labels else ""
        yield f"{metric.name}_count{braced} {_number(seen)}"
        yield f"{metric.name}_sum{braced} {_number(value.sum)}"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    return ",".join(map(_pair, names, values))  # of several processes each value has a name, else the pid has none


@lru_cache(8192)
def _pair(name: str, value: str) -> str:
    """Return a label; the same ones come again with each series and each scrape."""
    return f'{name}="{value.translate(_ESCAPED)}"'


def _number(value: float) -> str:
    number = repr(float(value))
    return _ODD.get(number, number)
