"""Makes table rows of a proof, per partition and per finding."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from inbound.proof.model import ANOMALIES, Proof
from inbound.proof.words import KINDS, VERDICTS, amount, explained_offsets, left_out_offsets

#: As in Arrow; a time is in microseconds since 1970, UTC. All may be null.
ColumnType = Literal["string", "int64", "bool", "timestamp", "list<int64>", "list<string>"]
Row = dict[str, Any]

#: Columns of `partition_rows`, in order. Offsets are half open: `start` is in, `proven` is not.
PARTITION_COLUMNS: Mapping[str, ColumnType] = MappingProxyType(
    {
        "made": "timestamp",
        "mode": "string",
        "group": "string",
        "topic": "string",
        "partition": "int64",
        "verdict": "string",
        "start": "int64",
        "proven": "int64",
        "committed": "int64",
        "log_start": "int64",
        "log_end": "int64",
        "lag": "int64",
        "handed_out": "int64",
        "in_flight": "int64",
        **{kind.replace("-", "_"): "int64" for kind in KINDS},
        "explained": "int64",
        "left_out": "int64",
        "claims": "int64",
        "missing": "list<string>",
    }
)

#: Columns of `finding_rows`, in order.
FINDING_COLUMNS: Mapping[str, ColumnType] = MappingProxyType(
    {
        "made": "timestamp",
        "mode": "string",
        "group": "string",
        "topic": "string",
        "partition": "int64",
        "kind": "string",
        "anomaly": "bool",
        "first": "int64",
        "next": "int64",
        "offsets": "int64",
        "times": "int64",
        "cause": "string",
        "epochs": "list<int64>",
        "consumers": "list<string>",
        "wall": "timestamp",
    }
)


def partition_rows(proof: Proof) -> list[Row]:
    """Return a row per partition; quick mode's offsets are upper bounds."""
    return [
        {
            "made": _microseconds(proof.made),
            "mode": proof.mode,
            "group": partition.key.group,
            "topic": partition.key.topic,
            "partition": partition.key.partition,
            "verdict": VERDICTS[partition.verdict],
            "start": partition.start,
            "proven": partition.proven,
            "committed": partition.committed,
            "log_start": partition.log_start,
            "log_end": partition.log_end,
            "lag": partition.lag,
            "handed_out": partition.handed_out,
            "in_flight": sum(next_ - first for first, next_ in partition.in_flight),
            **{
                kind.replace("-", "_"): amount(f for f in partition.findings if f.kind == kind).offsets
                for kind in KINDS
            },
            "explained": explained_offsets([partition]),
            "left_out": left_out_offsets([partition]),
            "claims": len(partition.claims),
            "missing": list(partition.missing),
        }
        for partition in proof.partitions
    ]


def finding_rows(proof: Proof) -> list[Row]:
    """Return a row per finding."""
    return [
        {
            "made": _microseconds(proof.made),
            "mode": proof.mode,
            "group": partition.key.group,
            "topic": partition.key.topic,
            "partition": partition.key.partition,
            "kind": finding.kind,
            "anomaly": finding.kind in ANOMALIES,
            "first": finding.first,
            "next": finding.next,
            "offsets": finding.offsets,
            "times": finding.times,
            "cause": finding.cause,
            "epochs": list(finding.epochs),
            "consumers": list(finding.consumers),
            "wall": _microseconds(finding.wall),
        }
        for partition in proof.partitions
        for finding in partition.findings
    ]


def _microseconds(wall: float | None) -> int | None:
    return None if wall is None else round(wall * 1e6)
