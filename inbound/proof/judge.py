"""Judges one partition by its claims, its log and ZooKeeper.

`docs/proof.md` says what is proven, from what, and in which words. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from inbound.coordinators.nodes import same_topic
from inbound.proof.chain import go_through
from inbound.proof.claims import JudgedClaim, claims_of, sound, untold
from inbound.proof.commit_window import left_to_zookeeper, over_window
from inbound.proof.evidence import LogRecords, grouped, in_order
from inbound.proof.intervals import intersection, union
from inbound.proof.log_cuts import as_told, ended_at, noticed_at, without_cut_off
from inbound.proof.model import (
    ANOMALIES,
    Damage,
    Finding,
    FormerTopic,
    LedgerEvent,
    LedgerRun,
    LogExtent,
    PartitionKey,
    PartitionProof,
    Span,
    Verdict,
    ZooKeeperState,
)
from inbound.proof.rules import (
    deleted_unread,
    held_against_zookeeper,
    in_flight,
    left_out,
    left_out_inside,
    other_damage,
    past_the_end,
    resolve_holes,
    start_of_evidence,
    unclaimed,
    uncommitted,
    unnoticed_cut,
)


def judge(
    key: PartitionKey,
    runs: Sequence[LedgerRun],
    spans: Sequence[Span],
    events: Sequence[LedgerEvent],
    damage: Sequence[Damage],
    extent: LogExtent | None,
    coordination: ZooKeeperState | None,
    *,
    since: int | None = None,
) -> PartitionProof:
    """Judge one partition.

    What is given must be of one cut: ZooKeeper read first, then the ledger, then the log. So every commit is in the
    ledger, and every delivery of the ledger is in the log; progress during the reading is no fault.

    Args:
        key: Which partition; spans and events of others are left aside.
        runs: All runs of the group.
        spans: As `collapse` made them, merged or not.
        events: The same.
        damage: Of the whole group; each concerns the partitions that its run held.
        extent: What the log holds; None: not known.
        coordination: What ZooKeeper says; None: not known.
        since: An earlier proof proved all up to here: what lies below is not judged again.
    """
    spans = [span for span in spans if span.key == key]
    events, unusable = sound(event for event in events if event.key == key)
    claims = claims_of(runs, spans, events, [*damage, *unusable], coordination)
    log = LogRecords(extent)
    moved = untold(coordination, claims)
    chapters = _chapters([*claims, *moved])
    told: list[Finding] = []
    former: list[FormerTopic] = []
    before: JudgedClaim | None = None  # the last one of the topic that was deleted
    for chapter, following in pairwise(chapters):
        evidence = go_through(without_cut_off(chapter, None)[0], before)
        before = chapter[-1]
        resolve_holes(evidence, evidence.floor)
        left_out(evidence, evidence.expected)
        over_window(evidence, LogRecords(None))
        told += [replace(f, cause=f"in the topic that was deleted since: {f.cause}") for f in evidence.findings]
        former.append(
            FormerTopic(
                following[0].epoch, evidence.start, evidence.expected, evidence.handed.end, following[0].items[0].wall
            )
        )
    now = chapters.pop() if chapters else []
    now, moved = now[: len(now) - len(moved)], now[len(now) - len(moved) :]
    coordination = as_told(now, coordination) if coordination is not None else None
    last, uncertain, lowest = without_cut_off(now, coordination.committed if coordination is not None else None)
    if coordination is not None and (cut := coordination.cut) is not None:
        noticed = noticed_at(now, coordination)
        if noticed is None or (not cut and noticed):
            uncertain.append(unnoticed_cut(coordination))
        elif 0 < cut < noticed:  # the log may have been cut once more while the partition was held
            last = [ended_at(claim, cut) for claim in last]
        lowest = min(cut, cut if lowest is None else lowest)
    if since is not None and lowest is not None:
        since = min(since, lowest)  # what was proven from there on was about other records
    last += moved
    evidence = go_through(last, before)
    evidence.missing += uncertain
    other_damage(evidence, key, damage)
    # Also of commits above a cut: the commit is theirs as long as no later write replaced it.
    told_of = {span.last_mzxid for claim in now for span in claim.spans}
    committed = held_against_zookeeper(evidence, last, coordination, since, told_of - {None})
    start_of_evidence(evidence, since)
    resolve_holes(evidence, committed if committed is not None else evidence.floor)
    left_out_inside(evidence, last, log, committed)
    past_the_end(evidence, last, extent, committed)
    deleted_unread(evidence, extent, coordination, committed)
    left = left_out(evidence, committed)
    if since is None:
        unclaimed(evidence, claims, extent, coordination)
    pending = in_flight(evidence, last, committed)
    uncommitted(evidence, last, coordination, committed)
    left_to_zookeeper(evidence, last, coordination, committed)
    over_window(evidence, log)
    findings = [part for finding in evidence.findings for part in log.counted(finding)]
    findings = in_order([*grouped(told), *grouped(f for f in findings if since is None or _concerns(f, since))])
    missing = [lack for lack in evidence.missing if since is None or lack.high is None or lack.high > since]
    proven = _proven(committed, [lack.low for lack in missing], since)
    start = since if since is not None else evidence.start
    judged = [(start, proven)] if start is not None and proven is not None else []
    return PartitionProof(
        key, _verdict(findings, missing), start, proven, committed,
        extent.start if extent else None, extent.end if extent else None,
        sum(span.records for claim in claims for span in claim.spans),
        tuple(pending), tuple(findings), tuple(dict.fromkeys(lack.text for lack in missing)),
        tuple(claim.bar() for claim in claims), tuple(union(evidence.explained)),
        tuple(intersection(left, judged)), tuple(former),
    )  # fmt: skip


def _chapters(claims: Sequence[JudgedClaim]) -> list[list[JudgedClaim]]:
    """Cut the claims where the topic was deleted and recreated.

    Offsets before and after have nothing to do with each other. The claim that began the new topic may have died before
    its ledger said so; then the next claim names another topic id. Until something is committed, each claim says that
    the topic was recreated.
    """
    chapters: list[list[JudgedClaim]] = []
    topic_id: str | None = None
    for claim in claims:
        another = topic_id is not None and claim.topic_id is not None and same_topic(topic_id, claim.topic_id) is False
        same = topic_id is not None and claim.topic_id is not None and not another
        if not chapters or another or (claim.recreated and not same):
            chapters.append([])
        topic_id = claim.topic_id or (None if claim.recreated else topic_id)
        chapters[-1].append(claim.goes_on() if chapters[-1] else claim)
    return chapters


def _concerns(finding: Finding, since: int) -> bool:
    """Return whether a finding concerns what no earlier proof has seen."""
    return finding.next > since or finding.kind in ("duplicate", "unfenced")


def _proven(committed: int | None, lows: Iterable[int | None], since: int | None) -> int | None:
    lows = list(lows)
    if committed is None or (None in lows and since is None):
        return since
    return max([since or 0, min([committed, *(low if low is not None else since or 0 for low in lows)])])


def _verdict(findings: Sequence[Finding], missing: Sequence[object]) -> Verdict:
    if any(finding.kind in ANOMALIES for finding in findings):
        return Verdict.ANOMALIES
    if any(finding.kind == "unclaimed" for finding in findings):
        return Verdict.UNCLAIMED
    return Verdict.NOT_PROVABLE if missing else Verdict.PROVEN
