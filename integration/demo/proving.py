"""Every test whose consumers read a topic ends with a proof: `inbound spark validate`, held against what processors wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from inbound.cli.main import parser
from inbound.cli.shared.files import load_config
from inbound.cli.spark.options import spark_settings
from inbound.cli.spark.validate import Wish, prove
from inbound.proof.model import LEFT_OUT, FindingKind, OffsetRange, PartitionProof, Proof

#: Why the commit may have passed what no processor wrote down.
UNREAD: frozenset[FindingKind] = frozenset({"lost", "lost-to-retention", "unclaimed", *LEFT_OUT})
#: Why an offset may have been delivered twice.
TWICE: frozenset[FindingKind] = frozenset({"repeated", "duplicate", "reordered"})


def proof_of(config: Path, *options: str) -> Proof:
    """Return what the command says, in this process, with the quick mode: no JVM, some tenths of a second.

    Quick mode takes every offset of the log for a record, which is stricter: a topic without transactions and compaction
    has no others.
    """
    args = parser().parse_args(["spark", "validate", "--quick", "-c", str(config), *options])
    said: list[str] = []
    wish = Wish(tuple(args.channel), args.group, tuple(args.topic), args.partitions, "quick", args.no_repeats)
    return prove(load_config(args), wish, spark_settings(args), said.append)


def disagreements(
    proof: Proof, topic: str, before: Counter[tuple[int, int]], after: Counter[tuple[int, int]]
) -> list[str]:
    """Return where a proof says something else of a topic than its processors, which wrote down all that they were handed.

    Args:
        proof: Of the group.
        topic: Its topic.
        before: How often processors were handed each (partition, offset), by then, before the proof was made.
        after: The same after it.
    """
    return [
        f"{topic}/{one.key.partition}: {text}"
        for one in proof.partitions
        if one.key.topic == topic
        for text in (*_unread(one, after), *_twice(one, before))
    ]


def _unread(one: PartitionProof, seen: Counter[tuple[int, int]]) -> Iterable[str]:
    named = [(f.first, f.next) for f in one.findings if f.kind in UNREAD]
    for offset in range(one.start or 0, one.proven or 0):
        if not seen[one.key.partition, offset] and not _in(offset, (*named, *one.left_out)):
            yield f"offset {offset} is proven, and no processor was handed it"


def _twice(one: PartitionProof, seen: Counter[tuple[int, int]]) -> Iterable[str]:
    named = [(f.first, f.next) for f in one.findings if f.kind in TWICE]
    for (partition, offset), times in seen.items():
        if partition == one.key.partition and times > 1 and not _in(offset, (*named, *one.explained)):
            yield f"offset {offset} was delivered {times} times, and the proof does not say so"


def _in(offset: int, ranges: Iterable[OffsetRange]) -> bool:
    return any(first <= offset < following for first, following in ranges)
