"""Defines a metric, and writes all metrics as text for Prometheus.

prometheus-client takes ten times as long for 1,000 partitions (docs/decisions/0030-metrics.md). Its parsers read every line in
the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, Generic, TypeVar

from inbound.observe.status.status import ChannelStatus, ProcessStatus
from inbound.runtime.instruments import HistogramStatus

S = TypeVar("S")

#: A number; numbers by the value of a further label; or a histogram. None: unknown, without a series.
Value = float | Mapping[str, float] | HistogramStatus | None
#: The further label of all series where one port serves several processes.
PID = "pid"


@dataclass(frozen=True, slots=True)
class Metric(Generic[S]):
    """One metric of its section's subjects."""

    name: str  # of its samples; a counter's ends in `_total`, a histogram's omits `_bucket`, `_sum` and `_count`
    help: str  # one line, without a full stop
    read: Callable[[S], Value]
    label: str | None = None  # besides those of the section
    values: int = 0  # of the label, at most
    bounds: Sequence[float] = ()  # of a histogram

    @property
    def kind(self) -> str:
        """`counter`, `gauge` or `histogram`."""
        return "histogram" if self.bounds else "counter" if self.name.endswith("_total") else "gauge"

    @property
    def unit(self) -> str:
        """`seconds`, `bytes`, or empty."""
        last = self.family.rpartition("_")[2]
        return last if last in ("seconds", "bytes") else ""

    @property
    def family(self) -> str:
        """The name in OpenMetrics, where a counter's samples alone have `_total`."""
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name

    @property
    def most(self) -> int:
        """The most series of one subject."""
        if self.kind == "histogram":
            return len(self.bounds) + 3  # a bucket for each bound and for all, the sum and the count
        return self.values if self.label is not None else 1


@dataclass(frozen=True, slots=True)
class MetricGroup(Generic[S]):
    """Metrics of the same subjects, such as partitions."""

    title: str
    text: str  # for docs/metrics.md: the subjects
    labels: tuple[str, ...]
    #: Returns a process's subjects, each with its label values; takes also all processes behind the same port.
    subjects: Callable[[ProcessStatus, Sequence[ProcessStatus]], Iterable[tuple[tuple[str, ...], S]]]
    metrics: tuple[Metric[S], ...]
    has_pid: bool = True  # `pid` distinguishes the series of several processes

    @property
    def most(self) -> int:
        """The most series of one subject."""
        return sum(metric.most for metric in self.metrics)


#: A section of any subjects.
AnySection = MetricGroup[Any]
Subjects = Callable[[ProcessStatus, Sequence[ProcessStatus]], Iterable[tuple[tuple[str, ...], S]]]


def of_process(part: Callable[[ProcessStatus], S | None]) -> Subjects[S]:
    """Return subjects: one for each process with this part."""

    def subjects(process: ProcessStatus, others: Sequence[ProcessStatus]) -> Iterable[tuple[tuple[str, ...], S]]:
        found = part(process)
        return () if found is None else (((), found),)

    return subjects


def of_channels(part: Callable[[ChannelStatus], S | None]) -> Subjects[S]:
    """Return subjects: one for each channel with this part."""

    def subjects(process: ProcessStatus, others: Sequence[ProcessStatus]) -> Iterable[tuple[tuple[str, ...], S]]:
        parts = ((channel, part(channel)) for channel in process.channels)
        return (((channel.name, channel.group), found) for channel, found in parts if found is not None)

    return subjects


_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_ODD = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}


def lines_of(
    sections: Sequence[AnySection], processes: Sequence[ProcessStatus], *, strict: bool, pid: bool
) -> list[str]:
    """Return the lines of all metrics that have a series.

    `strict` writes OpenMetrics, without its last line; `pid` adds the label.
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


def _head(metric: Metric[object], strict: bool) -> list[str]:
    name = metric.family if strict else metric.name
    help_text = metric.help.replace("\\", r"\\").replace("\n", r"\n")
    head = [f"# HELP {name} {help_text}", f"# TYPE {name} {metric.kind}"]
    return [*head, f"# UNIT {name} {metric.unit}"] if strict and metric.unit else head


def _several(metric: Metric[object], labels: str, value: Value) -> Iterator[str]:
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
    """Return a label; each scrape has the same ones."""
    return f'{name}="{value.translate(_ESCAPED)}"'


def _number(value: float) -> str:
    number = repr(float(value))
    return _ODD.get(number, number)
