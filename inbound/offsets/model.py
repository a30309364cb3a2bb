"""Builds rows of a group's offsets from ZooKeeper's nodes and logs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from inbound.kafka.base import LogRange, TopicMeta
from inbound.topic_partition import TopicPartition

#: The format of the JSON of `inbound offsets show --json`.
FORMAT = 1
#: The first offset of a group in a partition without a committed one.
First = Literal["earliest", "latest"]


@dataclass(frozen=True, kw_only=True)
class PartitionNodes:
    """One partition's nodes in ZooKeeper."""

    committed: int | None = None
    committed_at: float | None = None  # seconds since 1970; None: unknown
    problem: str | None = None  # why the offset cannot be read
    epoch: int | None = None  # the node's version: the fencing token; None: there is no node
    claimed_by: str | None = None  # the last claimant
    owner: str | None = None


@dataclass(frozen=True, kw_only=True)
class TopicNodes:
    """One topic's nodes of a group in ZooKeeper."""

    gate: str | None = None  # the path of the reset that closed it; None: it is open
    #: Partitions from this number on were added after the group's start: they begin at their smallest offset.
    known_from_start: int = 1 << 31
    partitions: Mapping[int, PartitionNodes] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GroupSnapshot:
    """One group's nodes in ZooKeeper."""

    group: str
    exists: bool = True
    members: tuple[str, ...] = ()
    topics: Mapping[str, TopicNodes] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Logs:
    """The brokers' answers; `ranges` lacks partitions whose leader has not answered."""

    topics: Mapping[str, TopicMeta] = field(default_factory=dict)
    ranges: Mapping[TopicPartition, LogRange] = field(default_factory=dict)
    problem: str | None = None  # why some or all values are unknown

    @property
    def silent(self) -> bool:
        """Whether even the topics are unknown."""
        return self.problem is not None and not self.topics


@dataclass(frozen=True, kw_only=True)
class PartitionSelection:
    """The selected topics of a group, and their partitions. None: all."""

    topics: Mapping[str, frozenset[int] | None] | None = None

    def has(self, topic: str, partition: int | None = None) -> bool:
        """Whether a topic, or a partition of it, is selected."""
        if self.topics is None:
            return True
        if topic not in self.topics:
            return False
        some = self.topics[topic]
        return partition is None or some is None or partition in some


ALL = PartitionSelection()


@dataclass(frozen=True, kw_only=True)
class Row:
    """One partition of one group."""

    group: str
    topic: str
    partition: int
    committed: int | None
    committed_at: float | None
    start: int | None  # of the log; None: not known
    end: int | None
    #: Uncommitted records in the log; without an offset, from where the group would begin.
    lag: int | None
    owner: str | None
    epoch: int | None
    gate: str | None
    notes: tuple[str, ...] = ()  # unusual conditions, for people
    broken: bool = False  # the offset's node cannot be read

    def as_dict(self) -> dict[str, Any]:
        """Return the row as a JSON object."""
        return {
            "partition": self.partition,
            "committed": self.committed,
            "committed_at": self.committed_at,
            "log_start": self.start,
            "log_end": self.end,
            "lag": self.lag,
            "owner": self.owner,
            "epoch": self.epoch,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, kw_only=True)
class Total:
    """The sums over a topic's or group's partitions."""

    partitions: int
    uncommitted: int  # without an offset
    unowned: int
    lag: int | None  # None: a partition's lag is unknown

    @classmethod
    def of(cls, rows: Collection[Row]) -> Total:
        """Return the sums over `rows`."""
        lags = [row.lag for row in rows if row.lag is not None]
        return cls(
            partitions=len(rows),
            uncommitted=sum(row.committed is None for row in rows),
            unowned=sum(row.owner is None for row in rows),
            lag=sum(lags) if len(lags) == len(rows) else None,
        )


def rows_of(
    nodes: GroupSnapshot,
    logs: Logs,
    begins: Mapping[str, First],
    selection: PartitionSelection = ALL,
) -> list[Row]:
    """Return a row per partition that ZooKeeper or the brokers know, sorted.

    `begins` has the first offsets of topics that a configuration reads; they are shown even without nodes.
    """
    rows = []
    for topic in sorted(filter(selection.has, {*nodes.topics, *begins})):
        of_topic = nodes.topics.get(topic, TopicNodes())
        meta = logs.topics.get(topic)
        numbers = {*of_topic.partitions, *range(meta.partitions if meta is not None else 0)}
        for partition in sorted(numbers):
            if selection.has(topic, partition):
                rows.append(_row(nodes.group, TopicPartition(topic, partition), of_topic, logs, begins.get(topic)))
    return rows


def _row(group: str, tp: TopicPartition, topic: TopicNodes, logs: Logs, begins: First | None) -> Row:
    nodes = topic.partitions.get(tp.partition, PartitionNodes())
    meta, limits = logs.topics.get(tp.topic), logs.ranges.get(tp)
    added_later = tp.partition >= topic.known_from_start
    first: First | None = "earliest" if added_later else begins
    notes = []
    if not logs.silent and (meta is None or tp.partition >= meta.partitions):
        notes.append(
            "not in Kafka: there is no such topic"
            if meta is None
            else f"not in Kafka: the topic has {meta.partitions} partitions"
        )
    if topic.gate is not None:
        notes.append(f"gate closed by {topic.gate}")
    if nodes.problem is not None:
        notes.append(f"offset unreadable: {nodes.problem}")
    elif nodes.committed is None:
        notes.append(_uncommitted(first, limits, added_later=added_later))
    elif limits is not None and nodes.committed < limits.start:
        notes.append(f"below the log's start: {limits.start - nodes.committed:,} offsets are lost to retention")
    elif limits is not None and nodes.committed > limits.end:
        notes.append(f"beyond the log's end by {nodes.committed - limits.end:,}: see on_truncation")
    return Row(
        group=group, topic=tp.topic, partition=tp.partition, committed=nodes.committed,
        committed_at=nodes.committed_at if nodes.committed is not None else None,
        start=limits.start if limits is not None else None, end=limits.end if limits is not None else None,
        lag=_lag(nodes, limits, first), owner=nodes.owner, epoch=nodes.epoch, gate=topic.gate, notes=tuple(notes),
        broken=nodes.problem is not None,
    )  # fmt: skip


def _lag(nodes: PartitionNodes, limits: LogRange | None, first: First | None) -> int | None:
    if limits is None or nodes.problem is not None:
        return None
    if nodes.committed is not None:
        return max(0, limits.end - nodes.committed)
    return {"earliest": limits.end - limits.start, "latest": 0, None: None}[first]


def _uncommitted(first: First | None, limits: LogRange | None, *, added_later: bool) -> str:
    if first is None:
        return "nothing committed"
    where = "" if limits is None else f" ({limits.start if first == 'earliest' else limits.end:,})"
    return f"nothing committed; {'added later: ' if added_later else ''}begins at the {first} offset{where}"


def as_json(
    groups: Sequence[tuple[GroupSnapshot, Sequence[Row]]], *, at: float, problems: Iterable[str]
) -> dict[str, Any]:
    """Return all groups as a JSON object; `at` is the Unix time.

    `{format, at, problems: [text], groups: [{group, members: [id], total, topics: [{topic, gate, total, partitions:
    [...]}]}]}`; `gate` is `open` or the path of the reset that closed it. A total has partitions, uncommitted, unowned
    and lag; a partition what `Row.as_dict` says. Unknown values are null.
    """
    return {
        "format": FORMAT,
        "at": at,
        "problems": list(problems),
        "groups": [
            {
                "group": nodes.group,
                "members": list(nodes.members),
                "total": asdict(Total.of(rows)),
                "topics": [
                    {
                        "topic": topic,
                        "gate": some[0].gate or "open",
                        "total": asdict(Total.of(some)),
                        "partitions": [row.as_dict() for row in some],
                    }
                    for topic, some in by_topic(rows).items()
                ],
            }
            for nodes, rows in groups
        ],
    }


def by_topic(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows of one group by topic, in their order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.topic, []).append(row)
    return found
