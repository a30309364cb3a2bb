"""Checks a claim's uncommitted records against `max_uncommitted_records`.

They were answered before the claim's last batch. That batch and its answers do not count, as the next claim gets it
again in any case: the `commit` of the last `begun` is compared with where the next claim began, or with ZooKeeper's
offset. Nor do records that were delivered, given back and then passed over: none of them is in flight. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from inbound.proof.claims import JudgedClaim
from inbound.proof.evidence import Evidence, Left, LogRecords
from inbound.proof.intervals import Growing, difference, size
from inbound.proof.model import Finding, OffsetRange, Span, ZooKeeperState


def left_by(evidence: Evidence, claim: JudgedClaim, following: JudgedClaim) -> None:
    """Note what `claim` left, unless something else may have moved the commit."""
    unknown_between = following.epoch > evidence.last_epoch + 1
    if following.known and not following.before and not unknown_between:
        _left(evidence, claim, following.position, following)


def left_to_zookeeper(
    evidence: Evidence, claims: Sequence[JudgedClaim], coordination: ZooKeeperState | None, committed: int | None
) -> None:
    """Note what the last claim left, if it ended and none followed."""
    if not claims or coordination is None or not coordination.known or coordination.owner is not None:
        return
    moved = coordination.moved is not None or coordination.cut is not None
    if not moved and coordination.epoch == evidence.last_epoch and coordination.committed == committed:
        _left(evidence, claims[-1], committed, None)


def _left(evidence: Evidence, claim: JudgedClaim, committed: int | None, found_by: JudgedClaim | None) -> None:
    expected, advanced = evidence.expected, claim.advanced
    if claim.window is None or advanced is None or committed is None or expected is None:
        return
    missing = evidence.loose or evidence.late or claim.has_gaps or claim.unsure
    if not missing and expected <= committed < advanced:  # below: the commit was moved back, and other findings say so
        # 1. A batch fails, and its first record is delivered alone; 2. that is answered with what goes past the others.
        given_back = tuple(evidence.given_back.overlaps(committed, advanced))
        evidence.left.append(Left(claim, committed, advanced, found_by, given_back))


def over_window(evidence: Evidence, log: LogRecords) -> None:
    """Find claims that left more than their window."""
    for left in evidence.left:
        claim, first, end = left.claim, left.committed, left.advanced
        handed = next((ranges.overlaps(first, end) for other, ranges in evidence.by_claim if other is claim), [])
        handed = difference(handed, left.given_back)
        told = [log.count(*part) for part in handed]
        exact = None if None in told else sum(count for count in told if count is not None)
        records = exact if exact is not None else _at_least(claim.spans, first, end, left.given_back)
        if claim.window is None or records <= claim.window:
            continue
        by = (
            "ZooKeeper has"
            if left.found_by is None
            else f"{left.found_by.consumer} (epoch {left.found_by.epoch}) found"
        )
        claims = [claim] if left.found_by is None else [claim, left.found_by]
        cause = (
            f"{claim.consumer} (epoch {claim.epoch}) had been answered up to {end} before its last batch, and {by} the commit "
            f"{first}: {records:,} records between, where max_uncommitted_records allows {claim.window:,}"
        )
        epochs, consumers = tuple(one.epoch for one in claims), tuple(dict.fromkeys(one.consumer for one in claims))
        finding = Finding("over-window", first, end, cause, exact, 1, epochs, consumers, claim.items[-1].wall)
        evidence.findings.append(finding)


def _at_least(spans: Iterable[Span], first: int, end: int, given_back: Iterable[OffsetRange]) -> int:
    """Return how many records of [first, end) were delivered at least."""
    total, counted = 0, Growing()
    counted.include(given_back)
    for span in spans:
        low, high = max(span.first, first), min(span.next, end)
        inside = size(difference([(low, high)] if low < high else [], counted.ranges))
        counted.add(low, high)
        outside = span.next - span.first - inside
        total += min(inside, max(0, span.records - outside))
    return total
