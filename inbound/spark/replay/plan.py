"""The plan of a replay: processor, and offsets cut into units. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from inbound.errors import ConfigError, LedgerError
from inbound.kafka.base import LogRange
from inbound.proof.model import OffsetRange
from inbound.proof.words import listed
from inbound.topic_partition import TopicPartition

#: Of the plan's file. A newer one is refused.
PLAN_VERSION = 1

#: Returns, by partition, the first offset with a timestamp (ms) at or after the given one; None: there is none.
AskTime = Callable[[int], Mapping[TopicPartition, int | None]]


class Unit(NamedTuple):
    """Offsets [first, next) that one task replays in order."""

    number: int
    topic: str
    partition: int
    first: int
    next: int

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class RequestedOffsets:
    """The offsets of a replay, in the user's words.

    Two runs with the same words go on with the same replay. `start` and `end` are `earliest` or `latest`, an offset, or a time
    as RFC 3339 text beginning with `@`. `given` are ranges one by one, as (topic, partition, first, next); then `start`, `end`
    and `partitions` are not used.
    """

    topics: tuple[str, ...]
    start: str | int = "earliest"
    end: str | int = "latest"
    partitions: tuple[int, ...] | None = None
    given: tuple[tuple[str, int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The identity of a replay, written before its first batch."""

    name: str
    channel: str
    group: str
    asked: RequestedOffsets
    processor: str
    options: str  # a digest: options can hold secrets
    shadow: str | None
    units: tuple[Unit, ...]

    def to_json(self) -> str:
        return json.dumps({"v": PLAN_VERSION, **asdict(self), "units": [list(unit) for unit in self.units]}, indent=1)

    @classmethod
    def from_json(cls, text: str, where: str) -> ReplayPlan:
        """Return the plan in a text of `to_json`.

        Raises:
            LedgerError: it is damaged, or of a newer version.
        """
        try:
            members: dict[str, Any] = json.loads(text)
            if (version := members.pop("v")) > PLAN_VERSION:
                raise LedgerError(
                    f"{where}: it has version {version}, this inbound reads up to {PLAN_VERSION}; use a newer one"
                )
            return TypeAdapter(cls).validate_python(members)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LedgerError(
                f"{where}: it is no plan of a replay ({error!r}); take another --name, or delete the folder to start again"
            ) from None

    def refuse_other(self, other: ReplayPlan, *, marked: bool) -> None:
        """Raise ConfigError if `other`, of the same name, is another replay.

        A processor's options may be corrected as long as nothing is `marked` done.
        """
        names = {"channel": "channel", "group": "group", "asked": "offsets", "shadow": "--shadow"}
        if marked:
            names |= {"processor": "processor", "options": "options of the processor"}
        differ = [said for field, said in names.items() if getattr(self, field) != getattr(other, field)]
        if differ:
            raise ConfigError(
                f"replay {self.name}: it was begun with other {listed(differ)}; it had channel {self.channel}, processor "
                f"{self.processor}, offsets {described(self.asked)}. Give the same again to go on with it, or another --name"
            )


def described(asked: RequestedOffsets) -> str:
    if asked.given:
        return ", ".join(f"{topic}/{partition}:{first}:{end}" for topic, partition, first, end in asked.given)
    start, end = (str(bound).removeprefix("@") for bound in (asked.start, asked.end))
    which = "" if asked.partitions is None else f", partitions {', '.join(map(str, asked.partitions))}"
    return f"of {', '.join(asked.topics)} from {start} to {end}{which}"


def chosen(asked: RequestedOffsets, partitions: Mapping[str, int]) -> list[TopicPartition]:
    """Return the requested partitions; `partitions` has the topics' sizes.

    Raises:
        ConfigError: there is no such topic, or partition.
    """
    for topic in asked.topics:
        if topic not in partitions:
            raise ConfigError(f"topic {topic}: Kafka has no such topic; it was deleted, or its name is misspelt")
    if asked.given:
        wanted = [TopicPartition(topic, partition) for topic, partition, _, _ in asked.given]
    else:
        all_of = {topic: range(partitions[topic]) for topic in asked.topics}
        wanted = [TopicPartition(t, p) for t, every in all_of.items() for p in asked.partitions or every]
    for topic, partition in wanted:
        if partition >= partitions[topic]:
            raise ConfigError(f"topic {topic} has no partition {partition}: it has 0 to {partitions[topic] - 1}")
    return wanted


def resolved(
    asked: RequestedOffsets,
    wanted: Sequence[TopicPartition],
    logs: Mapping[TopicPartition, LogRange],
    ask_time: AskTime,
) -> dict[TopicPartition, list[OffsetRange]]:
    """Return each partition's offsets to replay, if it has any.

    Raises:
        ConfigError: the offsets are not in the log, or there are none; the message names partition and offsets.
    """
    if asked.given:
        return _given(asked, logs)
    starts = _bound(asked.start, wanted, logs, ask_time)
    ends = _bound(asked.end, wanted, logs, ask_time)
    found = {}
    for tp in wanted:
        first, end, log = starts[tp], ends[tp], logs[tp]
        if first < log.start and isinstance(asked.start, int) and log.start < log.end:
            raise ConfigError(_gone(tp, first, min(log.start, end), log))
        if end > log.end:
            raise ConfigError(_to_come(tp, end, log))
        first = max(first, log.start)
        if first < end:
            found[tp] = [(first, end)]
    if not found:
        lasting = ", ".join(f"{tp} {logs[tp].start} to {logs[tp].end}" for tp in wanted)
        raise ConfigError(
            f"nothing to replay {described(asked)}: no partition has records there. The logs hold (end excluded): {lasting}"
        )
    return found


def cut(
    ranges: Mapping[TopicPartition, Sequence[OffsetRange]], tasks: int | None, *, ordered: bool
) -> tuple[Unit, ...]:
    """Return one unit per range, or about `tasks` units if not `ordered`.

    Raises:
        ConfigError: there are more tasks than partitions, and order matters.
    """
    pieces = [(tp, first, end) for tp, found in sorted(ranges.items()) for first, end in found]
    if tasks is not None and ordered and tasks > len(pieces):
        raise ConfigError(
            f"--tasks {tasks}: {len(pieces)} partitions are replayed, each in order on one task. More is possible only where "
            "the processor's class says `ordered = False`"
        )
    total = sum(end - first for _, first, end in pieces)
    units: list[Unit] = []
    for tp, first, end in pieces:
        parts = 1 if ordered or tasks is None else max(1, round(tasks * (end - first) / total))
        parts = min(parts, end - first)
        edges = [first + (end - first) * i // parts for i in range(parts + 1)]
        for low, high in pairwise(edges):
            units.append(Unit(len(units), *tp, low, high))
    return tuple(units)


def layers(units: Iterable[Unit]) -> list[dict[str, dict[int, Unit]]]:
    """Deal units into layers: one Spark scan takes one unit per partition."""
    dealt: list[dict[str, dict[int, Unit]]] = []
    before: Counter[TopicPartition] = Counter()
    for unit in units:
        if before[unit.tp] == len(dealt):
            dealt.append({})
        dealt[before[unit.tp]].setdefault(unit.topic, {})[unit.partition] = unit
        before[unit.tp] += 1
    return dealt


def _given(asked: RequestedOffsets, logs: Mapping[TopicPartition, LogRange]) -> dict[TopicPartition, list[OffsetRange]]:
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for topic, partition, first, end in sorted(asked.given):
        tp = TopicPartition(topic, partition)
        log = logs[tp]
        if first >= end:
            raise ConfigError(f"--range {topic}/{partition}:{first}:{end}: it is empty; NEXT must be more than FIRST")
        if tp in found and first < found[tp][-1][1]:
            raise ConfigError(f"--range {topic}/{partition}:{first}:{end}: it overlaps another; give each offset once")
        if first < log.start:
            raise ConfigError(_gone(tp, first, min(log.start, end), log))
        if end > log.end:
            raise ConfigError(_to_come(tp, end, log))
        found.setdefault(tp, []).append((first, end))
    return found


def _bound(
    bound: str | int,
    wanted: Sequence[TopicPartition],
    logs: Mapping[TopicPartition, LogRange],
    ask_time: AskTime,
) -> Mapping[TopicPartition, int]:
    """Return each partition's bound; a time after all records is the end."""
    if isinstance(bound, int):
        return dict.fromkeys(wanted, bound)
    if bound.startswith("@"):
        # Milliseconds of RFC 3339 text, which was checked when it was read.
        answers = ask_time(round(datetime.fromisoformat(bound.removeprefix("@")).timestamp() * 1000))
        found = {tp: answers.get(tp) for tp in wanted}
        return {tp: logs[tp].end if offset is None else offset for tp, offset in found.items()}
    return {tp: logs[tp].start if bound == "earliest" else logs[tp].end for tp in wanted}


def _gone(tp: TopicPartition, first: int, end: int, log: LogRange) -> str:
    return (
        f"{tp}: offsets {first} to {end - 1} are not in the log any more, which holds {log.start} to {log.end - 1} "
        f"(retention); begin at {log.start} or later"
    )


def _to_come(tp: TopicPartition, end: int, log: LogRange) -> str:
    return f"{tp}: the log ends before {log.end}, so offset {end - 1} cannot be replayed; end at {log.end}, or use --to-latest"
