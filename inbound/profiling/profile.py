"""What a profile is made of, whatever it was taken of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Frame(NamedTuple):
    """A place in the code."""

    function: str  # with its module: `inbound.channel.worker.Worker.run_once`
    file: str
    line: int  # 0: unknown
    first_line: int = 0  # of the function; 0: unknown


class ValueType(NamedTuple):
    """What is counted, and in what: `cpu`, `nanoseconds`."""

    name: str
    unit: str


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured at one place."""

    stack: tuple[Frame, ...]  # the innermost call first
    values: tuple[int, ...]  # as many as the profile has types
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Measurements by place."""

    title: str
    types: tuple[ValueType, ...]
    default: str  # the name of the type that is shown first
    samples: Sequence[Sample]
    period: tuple[ValueType, int]  # what lies between two samples
    time_ns: int = 0  # when it was begun, since the Unix epoch
    duration_ns: int = 0
    comments: tuple[str, ...] = ()
