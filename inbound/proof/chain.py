"""Claim after claim: each must begin where the ones before it have left the commit."""

from __future__ import annotations

from collections.abc import Sequence

from inbound.proof.claims import Claim
from inbound.proof.evidence import BEGAN_PAST, COMMITTED, Evidence, Hole
from inbound.proof.intervals import difference, union
from inbound.proof.walk import Walk


def go_through(claims: Sequence[Claim]) -> Evidence:
    evidence = Evidence()
    unfenced = _unfenced(claims, evidence)
    for claim in claims:
        position = _begins(evidence, claim)
        walk = Walk(evidence, claim, position)
        if position is not None and evidence.late:
            evidence.floor = min(evidence.floor, position)
        elif position is not None and position < evidence.floor and _moved_on_purpose(evidence, claim, position):
            walk.ask(position, evidence.high)
            evidence.floor = evidence.high = position
        _say_what_is_missing(evidence, claim)
        evidence.loose, evidence.late = False, claim in unfenced
        walk.go()
        if walk.landed is not None:
            evidence.expected = walk.landed
        elif evidence.expected is None and claim.known:
            evidence.expected = position
        evidence.opens |= walk.unsettled
        evidence.last_epoch = max(evidence.last_epoch, claim.last_epoch)
    return evidence


def _unfenced(claims: Sequence[Claim], evidence: Evidence) -> set[Claim]:
    """Find commits of older epochs that landed after one of a newer epoch: ZooKeeper numbers all changes (mzxid)."""
    found = set()
    newest: tuple[int, Claim] | None = None  # of the claims behind: the one whose first commit landed first
    for claim in reversed(claims):
        late = [
            span for span in claim.spans if newest and span.landed is not None and (span.last_mzxid or 0) > newest[0]
        ]
        for span in late:
            assert newest is not None
            mzxid, first = newest
            theirs = next(other.landed for other in first.spans if other.landed is not None)
            low, high = sorted((span.landed or 0, theirs))
            evidence.found(
                "unfenced", [(low, max(high, low + 1))],
                f"{claim.consumer} committed {span.landed} under epoch {claim.epoch} (mzxid {span.last_mzxid}) after "
                f"{first.consumer} had committed under epoch {first.epoch} (mzxid {mzxid})", [claim, first], span.last_wall,
            )  # fmt: skip
            found.add(claim)
        own = claim.first_mzxid
        if own is not None and (newest is None or own < newest[0]):
            newest = own, claim
    return found


def _begins(evidence: Evidence, claim: Claim) -> int | None:
    """Hold where a claim begins against the commits before it. Returns the position; None: not known."""
    position = claim.position
    expected, evidence_opens = evidence.expected, evidence.opens
    if evidence.start is None and position is not None:
        evidence.start = position
        evidence.floor = evidence.high = max(evidence.high, position)
    if not claim.known or position is None:
        evidence.opens = set()
        return None
    evidence.opens = set()
    evidence.sure_from(position)
    if expected is None or position == expected:
        evidence.expected = position
        return position
    evidence.expected = position
    if evidence.late:
        return position  # what was committed then is not to be told from what was committed late
    if position > expected:
        _began_past(evidence, claim, expected, position, evidence_opens)
    elif not (evidence.loose or _reset_to(claim, position)) and _unknown_epochs(evidence, claim):
        evidence.lacks(_unknown_mover(evidence, claim, expected, position), position, expected)
    return position


def _began_past(evidence: Evidence, claim: Claim, expected: int, position: int, opens: set[int]) -> None:
    passed = [(expected, position)]
    if _reset_to(claim, position):
        evidence.excused += passed
    elif position in opens or evidence.loose:
        # That commit landed, then; what it passed must have been handed out before, by whoever announced it.
        passed = evidence.never_handed(passed) if not evidence.loose else []
        evidence.holes += [Hole(first, end, COMMITTED, claim, claim.items[0].wall) for first, end in passed]
    elif _unknown_epochs(evidence, claim):
        evidence.lacks(_unknown_mover(evidence, claim, expected, position), expected, position)
        evidence.excused += passed
    else:
        passed = difference(passed, union(evidence.excused))
        evidence.holes += [Hole(first, end, BEGAN_PAST, claim, claim.items[0].wall) for first, end in passed]
    evidence.floor = max(evidence.floor, position)
    evidence.high = max(evidence.high, position)


def _moved_on_purpose(evidence: Evidence, claim: Claim, position: int) -> bool:
    """Whether it begins below what was committed for a reason that is known, or that can't be known."""
    return _reset_to(claim, position) or evidence.loose or _unknown_epochs(evidence, claim)


def _reset_to(claim: Claim, position: int) -> bool:
    return any(event.kind == "reset" and event.facts.get("new") == position for event in claim.before)


def _unknown_epochs(evidence: Evidence, claim: Claim) -> bool:
    return claim.epoch > evidence.last_epoch + 1


def _unknown_mover(evidence: Evidence, claim: Claim, expected: int, position: int) -> str:
    low, high = evidence.last_epoch + 1, claim.epoch - 1
    epochs = f"epoch {low}" if low == high else f"epochs {low} to {high}"
    return (
        f"the commit moved from {expected} to {position} under {epochs}, of which the ledger has no line: somebody set the "
        "offset from outside, or a consumer's ledger is missing; give the ledgers of all consumers of the group"
    )


def _say_what_is_missing(evidence: Evidence, claim: Claim) -> None:
    """Note what no place in the claim can be named for; missing lines are noted where they are missed."""
    low = evidence.expected
    for item in claim.blind:
        if item.degraded:
            evidence.lacks(f"{item.what}; what was done meanwhile is not known", low)
    if not claim.known and not claim.blind and evidence.by_claim:
        text = f"run {claim.run} has hand-outs under epoch {claim.epoch} without its `claimed` line; give all its files"
        evidence.lacks(text, low)
