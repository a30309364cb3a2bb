"""The words of a proof for terminal, page and JSON. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from inbound.proof.intervals import size
from inbound.proof.model import (
    ANOMALIES,
    GRAVEST,
    LEFT_OUT,
    Finding,
    FindingKind,
    FormerTopic,
    PartitionProof,
    Proof,
    Verdict,
)


class Word(NamedTuple):
    """A kind of finding, in words."""

    meaning: str
    advice: str


#: Worst first: the order in which findings are shown.
KINDS: Mapping[FindingKind, Word] = MappingProxyType(
    {
        "lost": Word(
            "committed past, in the log, and never delivered",
            "hand these offsets out: `inbound spark replay` over the range, or reset the group to the first of them",
        ),
        "beyond-end": Word(
            "committed or delivered past the end of the log",
            "check whether the topic was deleted and recreated, or the brokers lost their newest records; then reset the group",
        ),
        "lost-to-retention": Word(
            "deleted by Kafka before it was delivered, or before it was redelivered after a failure",
            "nothing brings these back from Kafka; raise the topic's retention above the longest outage, or watch the lag",
        ),
        "unfenced": Word(
            "a commit of an older claim landed after one of a newer claim",
            "the offset may have gone back: compare it with the table, and report this with the ledger, it must not happen",
        ),
        "over-window": Word(
            "answered for by a claim that ended, and not committed: more than its max_uncommitted_records",
            "count on more repeats after a crash than are configured; report this with the ledger, it must not happen",
        ),
        "duplicate": Word(
            "redelivered although it had been committed, and without a reset or revert",
            "find out what set the offset back outside of inbound, or report this with the ledger",
        ),
        "reordered": Word(
            "delivered after higher offsets of the same claim",
            "check what the processor did with these records; report this with the ledger, it must not happen",
        ),
        "skipped": Word(
            "passed over in the order of deliveries, not committed past, or delivered later",
            "check what the processor did with these records; report this with the ledger, it must not happen",
        ),
        "unclaimed": Word(
            "in the log, and no consumer of the group ever owned it",
            "start consumers that claim these partitions, or prove the others alone (--partitions, --topic)",
        ),
        "given-up": Word(
            "failed for good, and skipped (on_error: skip)",
            "correct the processor, then hand these offsets out: `inbound spark replay` over the range",
        ),
        "dead-lettered": Word(
            "failed for good, and sent to the dead-letter topic (on_error: dead-letter)", "read the dead-letter topic"
        ),
        "passed-over": Word(
            "never delivered: the processor passed over it (skip=True)", "nothing, if that is what the processor meant"
        ),
        "jumped": Word(
            "never delivered: a reset, on_claim or on_truncation moved the group past it",
            "nothing, if it was meant so; after a cut log (on_truncation: latest) reset the group to the first of these offsets "
            "to have what the log holds there now",
        ),
        "uncommitted": Word(
            "answered, but the commit did not land and the partition has no owner: it will be redelivered",
            "start a consumer of the group; it begins at the commit",
        ),
        "repeated": Word(
            "redelivered because it had not been committed, as at-least-once allows",
            "nothing, if the processor can take an event twice",
        ),
    }
)

#: Verdicts as people and programs read them.
VERDICTS: Mapping[Verdict, str] = MappingProxyType(
    {
        Verdict.PROVEN: "proven",
        Verdict.ANOMALIES: "anomalies",
        Verdict.NOT_PROVABLE: "not provable",
        Verdict.UNCLAIMED: "never claimed",
    }
)
#: The words for offsets of these kinds, in the headline after the delivered and committed ones.
_BESIDES: Mapping[FindingKind, str] = MappingProxyType(
    {
        "given-up": "given up (on_error: skip)",
        "dead-lettered": "dead-lettered",
        "passed-over": "passed over by the processor",
        "jumped": "jumped over (by a reset, on_claim or on_truncation)",
        "repeated": "repeated, as at-least-once allows",
        "uncommitted": "answered and not committed yet",
    }
)


class Amount(NamedTuple):
    """How many offsets findings cover; not `exact`: at most so many."""

    offsets: int
    exact: bool

    def __str__(self) -> str:
        return f"{self.offsets:,}" if self.exact else f"<={self.offsets:,}"


def amount(findings: Iterable[Finding]) -> Amount:
    """Return how many offsets these findings cover together."""
    total, exact = 0, True
    for finding in findings:
        total += finding.next - finding.first if finding.offsets is None else finding.offsets
        exact = exact and finding.offsets is not None
    return Amount(total, exact)


def amounts(partitions: Iterable[PartitionProof]) -> dict[FindingKind, Amount]:
    """Return the offsets of each kind of finding present, worst kind first."""
    found = [finding for partition in partitions for finding in partition.findings]
    present = {finding.kind for finding in found}
    return {kind: amount(f for f in found if f.kind == kind) for kind in KINDS if kind in present}


def headline(proof: Proof) -> str:
    """Return the one sentence that a person needs, without the verdict."""
    told = amounts(proof.partitions)
    whom, partitions = subject(proof), counted(len(proof.partitions), "partition")
    bad = {kind: some for kind, some in told.items() if kind in ANOMALIES}
    if bad:
        hit = sum(partition.verdict is Verdict.ANOMALIES for partition in proof.partitions)
        what = listed(f"{some} {kind}" for kind, some in bad.items())
        return f"{whom}: {what} in {hit:,} of {partitions}{_others(proof, told)}"
    if proof.verdict is Verdict.UNCLAIMED:
        never = sum(partition.verdict is Verdict.UNCLAIMED for partition in proof.partitions)
        some = told.get("unclaimed", 0)
        return f"{whom}: {some} offsets of {never:,} of {partitions} that no consumer ever owned{_others(proof, told)}"
    if proof.verdict is Verdict.NOT_PROVABLE:
        open_ = sum(partition.verdict is not Verdict.PROVEN for partition in proof.partitions)
        where = f" of {open_:,} of {partitions}" if open_ else ""
        return f"{whom}: nothing wrong was found, but the evidence{where} is not complete{_others(proof, told)}"
    if not proof.partitions:
        return "there is no partition to judge"
    text = f"{whom}: {proven_offsets(proof):,} offsets of {partitions} delivered and committed, none lost"
    text += "".join(f"; {told[kind]} {besides}" for kind, besides in _BESIDES.items() if kind in told)
    if recreated := sum(bool(partition.former) for partition in proof.partitions):
        text += (
            f"; {counted(recreated, 'partition')} of a recreated topic, whose deleted predecessor is no longer judged"
        )
    return text


def _others(proof: Proof, told: Mapping[FindingKind, Amount]) -> str:
    """Return the lesser verdicts and the offsets left out, as sentence parts."""
    lesser = GRAVEST[GRAVEST.index(proof.verdict) + 1 : -1]
    verdicts = [partition.verdict for partition in proof.partitions]
    text = "".join(f"; {verdicts.count(one):,} {VERDICTS[one]}" for one in lesser if one in verdicts)
    return text + "".join(f"; {told[kind]} {_BESIDES[kind]}" for kind in LEFT_OUT if kind in told)


def subject(proof: Proof) -> str:
    """Return whose proof it is: `group orders-svc, topic orders`, or numbers."""
    groups = sorted({partition.key.group for partition in proof.partitions})
    topics = sorted({partition.key.topic for partition in proof.partitions})
    group = f"group {groups[0]}" if len(groups) == 1 else counted(len(groups), "group")
    topic = f"topic {topics[0]}" if len(topics) == 1 else counted(len(topics), "topic")
    return f"{group}, {topic}"


def proven_offsets(proof: Proof) -> int:
    """Return how many offsets of the proven ranges were delivered."""
    return sum(
        partition.proven - partition.start - size(partition.left_out)
        for partition in proof.partitions
        if partition.proven is not None and partition.start is not None
    )


def left_out_offsets(partitions: Iterable[PartitionProof]) -> int:
    """Return how many proven offsets were committed past on purpose."""
    return sum(size(partition.left_out) for partition in partitions)


def recreated_topics(partitions: Iterable[PartitionProof]) -> list[str]:
    """Return a sentence for each topic that was recreated under the group."""
    return [
        f"{partition.key.topic}/{partition.key.partition}: the topic was deleted and recreated; epoch {former.epoch} began "
        f"the new one ({moment(former.wall)}). Of the deleted one {_known_of(former)}. What stood behind that, and whether its log "
        "had more than was delivered, is not judged any more"
        for partition in partitions
        for former in partition.former
    ]


def _known_of(former: FormerTopic) -> str:
    if former.start is None or former.committed is None:
        return "no commit is known"
    handed = f", delivered up to {former.handed_to}" if former.handed_to > former.committed else ""
    return f"{former.start} to {former.committed} was committed{handed}"


def explained_offsets(partitions: Iterable[PartitionProof]) -> int:
    """Return how many offsets were redelivered on request."""
    return sum(next_ - first for partition in partitions for first, next_ in partition.explained)


def by_urgency(partitions: Iterable[PartitionProof]) -> list[PartitionProof]:
    """Sort partitions by verdict, gravest first, then those with findings."""
    return sorted(partitions, key=lambda p: (GRAVEST.index(p.verdict), not p.findings, p.key))


def findings_by_urgency(proof: Proof) -> list[tuple[PartitionProof, Finding]]:
    """Return all findings, worst kind first."""
    rank = {kind: place for place, kind in enumerate(KINDS)}
    found = [(partition, finding) for partition in proof.partitions for finding in partition.findings]
    return sorted(found, key=lambda pair: (rank[pair[1].kind], pair[0].key, pair[1].first))


def missing_by_reason(proof: Proof) -> list[tuple[str, str]]:
    """Return each reason for missing evidence, with its partitions ("": all)."""
    where: dict[str, list[PartitionProof]] = {}
    for partition in proof.partitions:
        for reason in dict.fromkeys(partition.missing):
            where.setdefault(reason, []).append(partition)
    general = [("", reason) for reason in dict.fromkeys(proof.missing)]
    return general + [(_places(partitions), reason) for reason, partitions in where.items()]


def offsets(first: int, next_: int) -> str:
    """Return `offset 7` or `offsets 7 to 12`, ungrouped, to be copied."""
    return f"offset {first}" if next_ == first + 1 else f"offsets {first} to {next_ - 1}"


def moment(wall: float | None) -> str:
    """Format seconds since 1970: `2025-01-31 23:59:59 UTC`; a dash for no time."""
    if wall is None:
        return "-"
    try:
        return f"{datetime.fromtimestamp(wall, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, OSError, ValueError):
        return "-"


def counted(n: int, singular: str) -> str:
    """Return `1 partition`, `1,234 partitions`."""
    return f"{n:,} {singular}{'' if n == 1 else 'es' if singular.endswith('ch') else 's'}"


def kinds_told(proof: Proof) -> Counter[FindingKind]:
    """Return how many findings there are of each kind."""
    return Counter(finding.kind for partition in proof.partitions for finding in partition.findings)


def _places(partitions: Sequence[PartitionProof], most: int = 8) -> str:
    names = [f"{partition.key.topic}/{partition.key.partition}" for partition in partitions]
    if len({partition.key.group for partition in partitions}) > 1:
        names = [f"{p.key.group} {name}" for p, name in zip(partitions, names, strict=True)]
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def listed(parts: Iterable[str]) -> str:
    """Return `a, b and c`."""
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last
