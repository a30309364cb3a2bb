"""A proof as `spark validate` may make it, for tests of what shows it."""

from __future__ import annotations

from typing import Any

from inbound.proof.model import ClaimBar, Finding, PartitionKey, PartitionProof, Proof, Verdict

#: 2025-01-31 12:00:00 UTC.
NOON = 1738324800.0


def claim(consumer: str, epoch: int, begins: float, ends: float, first: int, next_: int, **changes: Any) -> ClaimBar:
    """A claim from and to minutes after noon, all of it committed and released if not told otherwise."""
    members: dict[str, Any] = {
        "consumer": consumer,
        "epoch": epoch,
        "wall": NOON + 60 * begins,
        "last_wall": NOON + 60 * ends,
        "position": first,
        "next": next_,
        "landed": next_,
        "batches": (next_ - first) // 100,
        "records": next_ - first,
        "ending": "released",
    }
    return ClaimBar(**(members | changes))


def finding(kind: Any, first: int, next_: int, minute: float | None = 20, **changes: Any) -> Finding:
    """A finding at a minute after noon."""
    members: dict[str, Any] = {
        "kind": kind,
        "first": first,
        "next": next_,
        "cause": f"host-1 (epoch 3) was at {first}",
        "offsets": next_ - first,
        "epochs": (3,),
        "consumers": ("host-1",),
        "wall": None if minute is None else NOON + 60 * minute,
    }
    return Finding(**(members | changes))


def partition(number: int, *findings: Finding, **changes: Any) -> PartitionProof:
    """A partition of 100,000 offsets that three claims of two consumers went through; proven if not told otherwise."""
    members: dict[str, Any] = {
        "key": PartitionKey("orders-svc", "orders", number),
        "verdict": Verdict.PROVEN,
        "start": 0,
        "proven": 98_000,
        "committed": 98_000,
        "log_start": 0,
        "log_end": 98_500,
        "handed_out": 98_000,
        "in_flight": ((98_000, 98_200),),
        "findings": findings,
        "missing": (),
        "claims": (
            claim("host-1", 1, 0, 18, 0, 40_000),
            claim("host-2", 2, 18.5, 41, 40_000, 80_400, ending="died", landed=80_000),
            claim("host-1", 3, 43, 60, 80_000, 98_200, ending="holds", landed=98_000),
        ),
    }
    return PartitionProof(**(members | changes))


def proof(*partitions: PartitionProof, **changes: Any) -> Proof:
    """An exact proof of these partitions."""
    members: dict[str, Any] = {
        "mode": "exact",
        "made": NOON + 3600,
        "seconds": 12.34,
        "partitions": partitions,
        "writer": "inbound 0.1.0, Spark 4.0.0",
    }
    return Proof(**(members | changes))


def repeated(first: int = 80_000, next_: int = 80_400) -> Finding:
    """What a crash repeats."""
    cause = "host-2 (epoch 2) died before it committed these; host-1 (epoch 3) was handed them again"
    return finding("repeated", first, next_, 43, cause=cause, epochs=(2, 3), consumers=("host-2", "host-1"))
