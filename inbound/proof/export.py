"""Writes a proof as JSON; an incremental proof reads it back.

Members are those of `inbound.proof.model`, under the same names; ranges are `[first, next]`, half open. `verdict` of
the whole, `lag`, `headline` and `totals` are computed again on reading.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from inbound.errors import InboundError
from inbound.proof.model import ClaimBar, Finding, FormerTopic, PartitionKey, PartitionProof, Proof
from inbound.proof.words import (
    VERDICTS,
    amounts,
    explained_offsets,
    headline,
    left_out_offsets,
    proven_offsets,
)

#: Version of the members and their meaning. A release may add members under the same version: ignore unknown ones.
VERSION = 1

_FORMAT = "inbound-proof"
_VERDICT_OF = {word: verdict for verdict, word in VERDICTS.items()}
_T = TypeVar("_T")


class ProofFormatError(InboundError):
    """A file is not a proof in JSON that this release reads."""


def to_json(proof: Proof) -> str:
    """Return the proof as a JSON document that ends with a newline."""
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
    """Read a proof that `to_json` wrote.

    `where` names it in errors, for example a file's path.

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
    """Return sums; `offsets` count each offset of the log once per finding."""
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
    known: tuple[str, ...] = cls.__slots__  # type: ignore[attr-defined]
    return cls(**{name: readers[name](members[name]) if name in readers else members[name] for name in known})
