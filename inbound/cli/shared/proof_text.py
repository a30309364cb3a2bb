"""A proof as text for people. Pure: a proof in, lines out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from inbound.cli.shared.output import Cell, first_of, one_line, table
from inbound.proof.model import FindingKind, PartitionProof, Proof, Verdict
from inbound.proof.words import (
    KINDS,
    VERDICTS,
    amount,
    by_urgency,
    counted,
    explained_offsets,
    findings_by_urgency,
    headline,
    kinds_told,
    missing_by_reason,
    moment,
    offsets,
    recreated_topics,
)

#: So many partitions and findings are shown; the others are counted.
PARTITIONS_SHOWN = 40
FINDINGS_SHOWN = 20
REASONS_SHOWN = 20

_COLUMNS: dict[FindingKind, str] = {
    "lost": "LOST",
    "duplicate": "DUPLICATE",
    "repeated": "REPEATED",
    "skipped": "SKIPPED",
    "reordered": "REORDERED",
    "unfenced": "UNFENCED",
    "over-window": "OVER WINDOW",
    "beyond-end": "BEYOND END",
    "lost-to-retention": "RETENTION",
    "unclaimed": "UNCLAIMED",
    "given-up": "GIVEN UP",
    "dead-lettered": "DEAD-LETTERED",
    "passed-over": "PASSED OVER",
    "jumped": "JUMPED",
    "uncommitted": "UNCOMMITTED",
}
_COLOURS = {Verdict.PROVEN: "32", Verdict.ANOMALIES: "31", Verdict.NOT_PROVABLE: "33", Verdict.UNCLAIMED: "31"}


def shown(proof: Proof, *, width: int | None = None, colour: bool = False, rest: str = "proof.json") -> str:
    """Return the proof for people, the verdict first.

    Args:
        width: of the terminal in characters; empty columns make room. None: no limit.
        colour: print the verdict in colour.
        rest: where to find the rows that are not shown.
    """
    parts = [_verdict(proof, colour)]
    if proof.partitions:
        parts.append("\n".join(_partitions(proof, width, rest)))
    reasons = [f"{where}: {reason}" if where else reason for where, reason in missing_by_reason(proof)]
    others = (
        _findings(proof, width, rest),
        _listed("Recreated:", recreated_topics(proof.partitions), FINDINGS_SHOWN, width),
        _listed("Missing for a proof:", reasons, REASONS_SHOWN, width),
    )
    parts += ["\n".join(lines) for lines in map(list, others) if lines]
    return "\n\n".join(parts)


def _verdict(proof: Proof, colour: bool) -> str:
    word = VERDICTS[proof.verdict].upper()
    if colour:
        word = f"\033[1;{_COLOURS[proof.verdict]}m{word}\033[0m"
    how = "ranges of the ledger" if proof.mode == "quick" else "each offset of the log"
    since = ", from where the last proof ended" if proof.continued else ""
    return (
        f"{word}  {one_line(headline(proof))}\n"
        f"{proof.mode} mode ({how}){since}, {moment(proof.made)}, took {proof.seconds:,.1f} s"
    )


def _partitions(proof: Proof, width: int | None, rest: str) -> Iterator[str]:
    everything = by_urgency(proof.partitions)
    some = everything[:PARTITIONS_SHOWN]
    if all(partition.verdict is Verdict.PROVEN and not partition.findings for partition in some):
        some.sort(key=lambda partition: partition.key)
    kinds = list(_COLUMNS)
    text = _table(proof, some, kinds)
    if width is not None and _width(text) > width:
        kinds = [kind for kind in _COLUMNS if kinds_told(proof)[kind]]
        text = _table(proof, some, kinds)
    yield text
    none = [kind for kind in _COLUMNS if kind not in kinds]
    if none:
        yield f"No offsets {', '.join(none)}."
    if asked := explained_offsets(proof.partitions):
        yield f"{asked:,} more were redelivered on request: a revert, a reset, or an answer for a part of a batch."
    if len(everything) > len(some):
        others = everything[len(some) :]
        what = "all proven" if all(one.verdict is Verdict.PROVEN for one in others) else "less urgent ones"
        yield f"and {len(others):,} more, {what}: in {rest}"


def _table(proof: Proof, partitions: Sequence[PartitionProof], kinds: Sequence[FindingKind]) -> str:
    groups = len({partition.key.group for partition in proof.partitions}) > 1
    topics = len({partition.key.topic for partition in proof.partitions}) > 1
    headers = [
        *(["GROUP"] if groups else []),
        *(["TOPIC"] if topics else []),
        *("PARTITION", "PROVEN", "COMMITTED", "LOG END", "LAG"),
        *(_COLUMNS[kind] for kind in kinds),
        *("IN FLIGHT", "VERDICT"),
    ]
    rows: list[list[Cell]] = [
        [
            *([one.key.group] if groups else []),
            *([one.key.topic] if topics else []),
            *(one.key.partition, _range(one.start, one.proven), one.committed, one.log_end, one.lag),
            *(_cell(one, kind) for kind in kinds),
            sum(next_ - first for first, next_ in one.in_flight),
            VERDICTS[one.verdict],
        ]
        for one in partitions
    ]
    return table(headers, rows)


def _range(first: int | None, next_: int | None) -> str:
    if first is None or next_ is None:
        return "-"
    return f"{first:,} to {next_ - 1:,}" if next_ > first else "nothing yet"


def _cell(partition: PartitionProof, kind: FindingKind) -> Cell:
    found = amount(finding for finding in partition.findings if finding.kind == kind)
    return found.offsets if found.exact else str(found)


def _findings(proof: Proof, width: int | None, rest: str) -> Iterator[str]:
    found = findings_by_urgency(proof)
    if not found:
        return
    yield "Findings:"
    groups = len({partition.key.group for partition in proof.partitions}) > 1
    for partition, finding in found[:FINDINGS_SHOWN]:
        group = f"{partition.key.group} " if groups else ""
        times = f", {finding.times:,} times" if finding.times > 1 else ""
        held = counted(finding.offsets, "record") if finding.offsets is not None else "records not counted"
        yield from _wrapped(
            f"{finding.kind}: {group}{partition.key.topic}/{partition.key.partition} "
            f"{offsets(finding.first, finding.next)} ({held}{times}): {finding.cause}",
            width,
        )
    if len(found) > FINDINGS_SHOWN:
        yield f"  and {len(found) - FINDINGS_SHOWN:,} more in {rest}"
    yield "What to do:"
    told = kinds_told(proof)
    for kind, word in KINDS.items():
        if told[kind]:
            yield from _wrapped(f"{kind} ({word.meaning}): {word.advice}", width)


def _listed(title: str, lines: Sequence[str], most: int, width: int | None) -> Iterator[str]:
    """Yield a title and the first lines; nothing if there are none."""
    if lines:
        yield title
    for line in first_of(lines, most):
        yield from _wrapped(line, width)


def _wrapped(text: str, width: int | None) -> list[str]:
    line = one_line(text)
    if width is None:
        return [f"  {line}"]
    return textwrap.wrap(line, max(40, width), initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _width(text: str) -> int:
    return max(map(len, text.splitlines()))
