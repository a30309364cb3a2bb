"""What a metric is: its name, kind, labels and words, and how its value is read from the status of the process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from inbound.instruments import HistogramStatus
from inbound.status import ChannelStatus, ProcessStatus

S = TypeVar("S")

Kind = Literal["counter", "gauge", "histogram"]
#: A number; numbers by the value of one more label; or a histogram. None: it is not known, and has no series.
Value = float | Mapping[str, float] | HistogramStatus | None
#: The further label of all series where one port serves several processes: each counts for itself.
PID = "pid"


@dataclass(frozen=True, slots=True)
class Definition(Generic[S]):
    """One metric of the subjects of its section."""

    name: str  # as its samples are named; a histogram's without `_bucket`, `_sum` and `_count`
    kind: Kind
    help: str  # one line, also for people: without a full stop
    read: Callable[[S], Value]
    label: str | None = None  # besides those of the section
    values: int = 0  # how many the label may have at most
    bounds: Sequence[float] = ()  # of a histogram

    @property
    def unit(self) -> str:
        """`seconds`, `bytes`, or empty."""
        last = self.family.rpartition("_")[2]
        return last if last in ("seconds", "bytes") else ""

    @property
    def family(self) -> str:
        """The name in OpenMetrics: a counter's samples have `_total` besides."""
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name

    @property
    def most(self) -> int:
        """How many series one subject has at most."""
        if self.kind == "histogram":
            return len(self.bounds) + 3  # a bucket for each bound and for all, the sum and the count
        return self.values if self.label is not None else 1


@dataclass(frozen=True, slots=True)
class Section(Generic[S]):
    """Metrics of the same subjects, such as partitions."""

    title: str
    text: str  # for docs/metrics.md: what there is a series for
    labels: tuple[str, ...]
    #: The subjects of one process, each with the values of the labels; beside it all processes behind the same port.
    subjects: Callable[[ProcessStatus, Sequence[ProcessStatus]], Iterable[tuple[tuple[str, ...], S]]]
    metrics: tuple[Definition[S], ...]
    has_pid: bool = True  # whether series of several processes are told apart by `pid`

    @property
    def most(self) -> int:
        """How many series one subject has at most."""
        return sum(metric.most for metric in self.metrics)


#: A section of whatever subjects.
AnySection = Section[Any]
Subjects = Callable[[ProcessStatus, Sequence[ProcessStatus]], Iterable[tuple[tuple[str, ...], S]]]


def of_process(part: Callable[[ProcessStatus], S | None]) -> Subjects[S]:
    """Return the subjects of a section with one for each process: that part of it, where it has one."""

    def subjects(process: ProcessStatus, others: Sequence[ProcessStatus]) -> Iterable[tuple[tuple[str, ...], S]]:
        found = part(process)
        return () if found is None else (((), found),)

    return subjects


def of_channels(part: Callable[[ChannelStatus], S | None]) -> Subjects[S]:
    """Return the subjects of a section with one for each channel: that part of it, where it has one."""

    def subjects(process: ProcessStatus, others: Sequence[ProcessStatus]) -> Iterable[tuple[tuple[str, ...], S]]:
        parts = ((channel, part(channel)) for channel in process.channels)
        return (((channel.name, channel.group), found) for channel, found in parts if found is not None)

    return subjects


def gauge(name: str, text: str, read: Callable[[S], Value], label: str | None = None, values: int = 0) -> Definition[S]:
    """Return a gauge."""
    return Definition(name, "gauge", text, read, label, values)


def counter(
    name: str, text: str, read: Callable[[S], Value], label: str | None = None, values: int = 0
) -> Definition[S]:
    """Return a counter; its name ends in `_total`."""
    return Definition(name, "counter", text, read, label, values)


def histogram(
    name: str, text: str, read: Callable[[S], HistogramStatus | None], bounds: Sequence[float]
) -> Definition[S]:
    """Return a histogram with these upper bounds."""
    return Definition(name, "histogram", text, read, bounds=bounds)
