"""A proof as JSON, and back. What an incremental proof goes on from is such a file.

Members are those of `inbound.proof.model`, under the same names; ranges are `[first, next]`, half open. `verdict` of the whole,
`lag`, `headline` and `totals` are computed again on reading.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from inbound.errors import InboundError
from inbound.proof.model import ANOMALIES, ClaimBar, Finding, FormerTopic, PartitionKey, PartitionProof, Proof
from inbound.proof.words import (
    KINDS,
    VERDICTS,
    amount,
    amounts,
    explained_offsets,
    headline,
    left_out_offsets,
    proven_offsets,
)

#: Of the members and their meaning. New members may come without a new version: ignore what you don't know.
VERSION = 1

_FORMAT = "inbound-proof"
_VERDICT_OF = {word: verdict for verdict, word in VERDICTS.items()}
_T = TypeVar("_T")


class ProofFormatError(InboundError):
    """What should be a proof in JSON cannot be read as one."""


def to_json(proof: Proof) -> str:
    """Return the whole proof as a JSON document, with a newline at its end."""
    members = {
        "format": _FORMAT,
        "v": VERSION,
        "verdict": VERDICTS[proof.verdict],
        "headline": headline(proof),
        "mode": proof.mode,
        "made": proof.made,
        "seconds": proof.seconds,
        "writer": proof.writer,
        "continued": proof.continued,
        "missing": list(proof.missing),
        "totals": totals(proof),
        "partitions": [_partition(partition) for partition in proof.partitions],
    }
    return json.dumps(members, indent=1, allow_nan=False) + "\n"


def from_json(text: str | bytes, where: str = "proof") -> Proof:
    """Read back what `to_json` wrote; `where` names it in errors, such as a file's path.

    Raises:
        ProofFormatError: it is no proof, is damaged, or is of a newer version than this reader.
    """
    try:
        members = json.loads(text)
    except ValueError as error:
        raise ProofFormatError(f"{where}: is not JSON ({error}); name a file that `spark validate` wrote") from None
    if not isinstance(members, dict) or members.get("format") != _FORMAT:
        raise ProofFormatError(f"{where}: is no proof; name a file that `spark validate` wrote")
    version = members.get("v")
    if not isinstance(version, int) or version > VERSION:
        raise ProofFormatError(
            f"{where}: has format version {version}, this inbound reads up to {VERSION}; upgrade inbound"
        )
    try:
        return Proof(
            mode=members["mode"],
            made=members["made"],
            seconds=members["seconds"],
            partitions=tuple(_read_partition(one) for one in members["partitions"]),
            missing=tuple(members["missing"]),
            writer=members["writer"],
            continued=members["continued"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ProofFormatError(f"{where}: is damaged, {error!r} is wrong in it; run the proof again") from None


def totals(proof: Proof) -> dict[str, Any]:
    """Return sums over all partitions; `offsets` of findings count each offset of the log once per finding."""
    told = amounts(proof.partitions)
    return {
        "partitions": len(proof.partitions),
        "proven_offsets": proven_offsets(proof),
        "handed_out": sum(partition.handed_out for partition in proof.partitions),
        "lag": sum(partition.lag or 0 for partition in proof.partitions),
        "in_flight": sum(next_ - first for partition in proof.partitions for first, next_ in partition.in_flight),
        "explained": explained_offsets(proof.partitions),
        "left_out": left_out_offsets(proof.partitions),
        "offsets": {kind: some.offsets for kind, some in told.items()},
    }


def _partition(proof: PartitionProof) -> dict[str, Any]:
    return {
        "group": proof.key.group,
        "topic": proof.key.topic,
        "partition": proof.key.partition,
        "verdict": VERDICTS[proof.verdict],
        "start": proof.start,
        "proven": proof.proven,
        "committed": proof.committed,
        "log_start": proof.log_start,
        "log_end": proof.log_end,
        "lag": proof.lag,
        "handed_out": proof.handed_out,
        "in_flight": [list(one) for one in proof.in_flight],
        "findings": [_members(finding) for finding in proof.findings],
        "missing": list(proof.missing),
        "claims": [_members(claim) for claim in proof.claims],
        "explained": [list(one) for one in proof.explained],
        "left_out": [list(one) for one in proof.left_out],
        "former": [_members(former) for former in proof.former],
    }


def _read_partition(members: Mapping[str, Any]) -> PartitionProof:
    return PartitionProof(
        key=PartitionKey(members["group"], members["topic"], members["partition"]),
        verdict=_VERDICT_OF[members["verdict"]],
        start=members["start"],
        proven=members["proven"],
        committed=members["committed"],
        log_start=members["log_start"],
        log_end=members["log_end"],
        handed_out=members["handed_out"],
        in_flight=tuple((first, next_) for first, next_ in members["in_flight"]),
        findings=tuple(_made(Finding, one, epochs=tuple, consumers=tuple) for one in members["findings"]),
        missing=tuple(members["missing"]),
        claims=tuple(_made(ClaimBar, one) for one in members["claims"]),
        explained=tuple((first, next_) for first, next_ in members.get("explained", ())),
        left_out=tuple((first, next_) for first, next_ in members.get("left_out", ())),
        former=tuple(_made(FormerTopic, one) for one in members.get("former", ())),
    )


def _members(value: Finding | ClaimBar | FormerTopic) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _made(cls: Callable[..., _T], members: Mapping[str, Any], **readers: Callable[[Any], Any]) -> _T:
    """Make a `cls` of those of `members` that it knows."""
    known: tuple[str, ...] = cls.__slots__  # type: ignore[attr-defined]
    return cls(**{name: readers[name](members[name]) if name in readers else members[name] for name in known})


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
    """Return a row per partition; the columns of kinds hold offsets (at most so many, in quick mode)."""
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
