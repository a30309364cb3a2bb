"""A group's offsets: what ZooKeeper has, what the brokers say, and the rows of both. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from inbound.kafka.base import LogRange, TopicMeta
from inbound.topic_partition import TopicPartition

#: Of the JSON that `inbound offsets show --json` prints.
FORMAT = 1
#: Where a group begins to read a partition that it has no offset of.
First = Literal["earliest", "latest"]


@dataclass(frozen=True, kw_only=True)
class PartitionNodes:
    """What ZooKeeper has of one partition. Times are seconds since 1970, None where they are not known."""

    committed: int | None = None
    committed_at: float | None = None
    problem: str | None = None  # why the offset cannot be read
    epoch: int | None = None  # the node's version: the fencing token; None: there is no node
    claimed_by: str | None = None  # who claimed it last
    owner: str | None = None


@dataclass(frozen=True, kw_only=True)
class TopicNodes:
    """What ZooKeeper has of one topic of a group."""

    gate: str | None = None  # the path of the reset that closed it; None: it is open
    #: Partitions from this number on were added after the group had begun: they begin at their smallest offset.
    known_from_start: int = 1 << 31
    partitions: Mapping[int, PartitionNodes] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GroupSnapshot:
    """What ZooKeeper has of one group."""

    group: str
    exists: bool = True
    members: tuple[str, ...] = ()
    topics: Mapping[str, TopicNodes] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Logs:
    """What the brokers say. Partitions whose leader has not answered are not in `ranges`."""

    topics: Mapping[str, TopicMeta] = field(default_factory=dict)
    ranges: Mapping[TopicPartition, LogRange] = field(default_factory=dict)
    problem: str | None = None  # why something, or everything, is not known

    @property
    def silent(self) -> bool:
        """Whether not even the topics are known."""
        return self.problem is not None and not self.topics


@dataclass(frozen=True, kw_only=True)
class PartitionSelection:
    """Which topics of a group are meant, and which partitions of each. None: all."""

    topics: Mapping[str, frozenset[int] | None] | None = None

    def has(self, topic: str, partition: int | None = None) -> bool:
        """Whether a topic, or a partition of it, is meant."""
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
    #: Records in the log that are not committed: from where the group would begin, where it has no offset.
    lag: int | None
    owner: str | None
    epoch: int | None
    gate: str | None
    notes: tuple[str, ...] = ()  # what is out of the ordinary, for people
    broken: bool = False  # the offset's node cannot be read

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
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
    """A topic's, or a group's, partitions together."""

    partitions: int
    uncommitted: int  # without an offset
    unowned: int
    lag: int | None  # None: that of some partition is not known

    @classmethod
    def of(cls, rows: Collection[Row]) -> Total:
        """Return what `rows` come to."""
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
    """Return a row for each partition that ZooKeeper or the brokers know of the group's topics, sorted.

    `begins` says where the group begins, for topics that a configuration reads; they are shown also where the group has no
    nodes yet.
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
    """Return everything as JSON takes it. `at` is the Unix time of the look.

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
