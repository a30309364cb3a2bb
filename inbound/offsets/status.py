"""What the exporter of offsets tells of itself and of the groups that it looks at. Plain values."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class PartitionOffsets:
    """One partition of one group. None: not known."""

    channel: str  # of the configuration; empty: none of its channels reads it
    group: str
    topic: str
    partition: int
    committed: int | None
    lag: int | None


@dataclass(frozen=True, kw_only=True)
class GroupOffsets:
    """One group."""

    group: str
    members: int  # alive
    unowned: int  # partitions without an owner
    uncommitted: int  # partitions without an offset
    unreadable: int  # partitions whose offset cannot be read
    closed_gates: int  # topics whose gate a reset has closed


@dataclass(frozen=True, kw_only=True)
class OffsetsStatus:
    """What the last look found. Without an answer of ZooKeeper there is nothing of groups and partitions: never old numbers."""

    looks_total: int = 0
    looked_at: float | None = None  # Unix time of the end of the last look that ZooKeeper answered
    look_seconds: float | None = None  # how long the last look took
    zookeeper_problem: str | None = None  # why ZooKeeper cannot be asked; None: it answers
    kafka_problem: str | None = None  # why lags are missing; None: all leaders answer
    groups: list[GroupOffsets] = field(default_factory=list)
    partitions: list[PartitionOffsets] = field(default_factory=list)
