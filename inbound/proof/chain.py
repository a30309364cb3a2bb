"""Each claim must begin where the claims before it left the commit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from inbound.proof.claims import JudgedClaim
from inbound.proof.commit_window import left_by
from inbound.proof.evidence import BEGAN_PAST, BEGAN_UNCOMMITTED, COMMITTED, Evidence, OmittedRange, unwritten
from inbound.proof.intervals import Growing
from inbound.proof.model import LedgerEvent
from inbound.proof.walk import Walk


def go_through(claims: Sequence[JudgedClaim], former: JudgedClaim | None = None) -> Evidence:
    """Walk through the claims of one topic, and return the evidence.

    `former` is the last claim of the deleted topic of the same name.
    """
    evidence = Evidence()
    if former is not None or (claims and claims[0].recreated):
        # The group begins at the new topic's start, whether or not a ledger says so.
        evidence.expected = evidence.start = 0
    if former is not None:
        _follow(evidence, former, claims)
    unfenced = _unfenced(claims, evidence)
    for before, claim in zip([None, *claims], claims, strict=False):
        if before is not None:
            left_by(evidence, before, claim)
        position = _begins(evidence, claim, before)
        walk = Walk(evidence, claim, position, partial(_begins_uncommitted, before=before))
        if position is not None and evidence.late:
            evidence.floor = min(evidence.floor, position)
        elif (
            position is not None
            and position < evidence.floor
            and (_moved_on_purpose(evidence, claim, position) or _unknown_epochs(evidence, claim))
        ):
            walk.ask(position, evidence.high)
            evidence.floor = evidence.high = position
        evidence.over_cut = None
        _say_what_is_missing(evidence, claim)
        if position is not None:
            evidence.recent = Growing()
        evidence.loose, evidence.late, evidence.first_position = False, claim in unfenced, None
        walk.go()
        if walk.landed is not None:
            evidence.landed(walk.landed)
        elif evidence.expected is None and claim.known:
            evidence.expected = position if position is not None else walk.began
        evidence.opens |= walk.unsettled
        evidence.last_epoch = max(evidence.last_epoch, claim.last_epoch)
    return evidence


def _follow(evidence: Evidence, former: JudgedClaim, claims: Sequence[JudgedClaim]) -> None:
    # The topic was deleted during `former` or after it; if lines are missing, that claim may have begun the new topic.
    evidence.last_epoch = former.last_epoch
    at = claims[0].position if claims and not claims[0].recreated else None
    if at and (former.has_gaps or former.unsure or not former.known):
        evidence.loose = True
        evidence.lacks(
            f"{former.consumer} (epoch {former.epoch}) could not write its ledger, or lines of it are missing: its work on "
            "the recreated topic is not known", 0, at,
        )  # fmt: skip


def _unfenced(claims: Sequence[JudgedClaim], evidence: Evidence) -> set[JudgedClaim]:
    """Find commits that landed after one of a newer epoch (by mzxid)."""
    found = set()
    newest: tuple[int, JudgedClaim] | None = None  # the later claim whose first commit landed first
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


def _begins(evidence: Evidence, claim: JudgedClaim, before: JudgedClaim | None) -> int | None:
    """Compare a claim's position with the commits before it, and return it."""
    position, expected = claim.position, evidence.expected
    for gap in (event for event in claim.before if event.kind == "degraded"):
        evidence.lacks(unwritten(gap), expected)
        evidence.loose = True
    if position is not None:
        expected = _stood_at(evidence, claim, position)
    for event in claim.before:
        evidence.taken_back(event)
    if evidence.start is None and position is not None:
        evidence.start = position
        evidence.floor = evidence.high = max(evidence.high, position)
    if not claim.known or position is None:
        evidence.may_have_landed, evidence.opens = evidence.opens, set()
        return None
    opens, evidence.opens = evidence.opens, set()
    reset = _reset_to(claim, position)
    evidence.sure_from(position, explained=reset is not None)
    evidence.begins_again(position, expected)
    evidence.given_back.cut(0, position)
    evidence.reverted = Growing()
    evidence.expected = position
    if expected is None or evidence.late:  # a late commit can't be told from the last one
        return position
    jumped_from = position
    if position > expected:
        jumped_from = _began_past(evidence, claim, before, expected, position, opens)
    elif position < expected and not _moved_on_purpose(evidence, claim, position) and _unknown_epochs(evidence, claim):
        evidence.lacks(_unknown_epoch(evidence, claim, expected, position), position, expected)
    if reset is not None:
        _jumps(evidence, claim, reset, expected, jumped_from)
    return position


def _jumps(evidence: Evidence, claim: JudgedClaim, reset: LedgerEvent, expected: int, jumped_from: int) -> None:
    """Leave out the records that a reset passes."""
    old, position = reset.facts.get("old"), int(reset.facts["new"])
    if isinstance(old, int) and old < position and old != reset.facts.get("since", old):
        # An earlier reset, which no ledger has, wanted the records behind its end again.
        evidence.begins_again(old, expected)
        jumped_from = min(jumped_from, old)
    cause = f"reset {reset.facts.get('command') or reset.facts.get('reason')} moved the group from {jumped_from} to {position}"
    evidence.leave_out(OmittedRange(jumped_from, position, "jumped", cause, claim, reset.wall))


def _stood_at(evidence: Evidence, claim: JudgedClaim, position: int) -> int | None:
    """Return the last commit before a claim.

    An announced commit has landed if a reset found it. So has the group's first one, as far as the evidence shows, if
    the claim begins behind it and no reset explains why.
    """
    expected = evidence.expected
    found: int | None = None
    for reset in claim.before:
        told = reset.facts.get("since", reset.facts.get("old"))
        if isinstance(told, int) and told in evidence.opens and (expected is None or told > expected):
            found = told
            break
    if found is None and expected is None and _reset_to(claim, position) is None:
        found = min((commit for commit in evidence.opens if commit < position), default=None)
    if found is None:
        return expected
    if expected is not None:
        evidence.passed(evidence.never_announced([(expected, found)]), COMMITTED, claim, claim.items[0].wall)
    elif evidence.start is None:  # a first position
        evidence.start = min(found, position)
    evidence.floor, evidence.high = max(evidence.floor, found), max(evidence.high, found)
    return found


def _began_past(
    evidence: Evidence, claim: JudgedClaim, before: JudgedClaim | None, expected: int, position: int, opens: set[int]
) -> int:
    """Find what moved the commit; return where its reset began to."""
    reset = _reset_to(claim, position)
    moved_to = position
    if reset is not None:  # from `old` on this reset moved it; before that another reset, or another cause
        old = reset.facts.get("old")
        moved_to = max(expected, min(old, position)) if isinstance(old, int) else expected
        stood = {expected}
        if before is not None and before.committed is not None and not (before.unsure or evidence.loose):
            stood.add(before.committed)  # behind a cut
        if reset.facts.get("since") in stood or _goes_on_from(before, expected, reset):
            moved_to = expected
    if moved_to > expected:
        _moved_on(evidence, claim, before, expected, moved_to, opens)
    evidence.floor = max(evidence.floor, position)
    evidence.high = max(evidence.high, position)
    return moved_to


def _goes_on_from(before: JudgedClaim | None, expected: int, reset: LedgerEvent) -> bool:
    """Return whether nothing was committed between `before`'s reset and this one."""
    earlier = None if before is None else _reset_to(before, expected)
    if earlier is None or "since" not in earlier.facts or "since" not in reset.facts:
        return False
    return bool(earlier.facts["since"] == reset.facts["since"])


def _moved_on(
    evidence: Evidence, claim: JudgedClaim, before: JudgedClaim | None, expected: int, moved_to: int, opens: set[int]
) -> None:
    passed, wall = [(expected, moved_to)], claim.items[0].wall
    if evidence.loose:
        return  # lines are missing, and a note says so
    if moved_to in opens:
        # So that commit landed, and the claim that announced it had been delivered the passed records.
        evidence.passed(evidence.never_announced(passed), COMMITTED, claim, wall)
    elif (lack := _unknown_mover(evidence, claim, before, expected, moved_to)) is not None:
        evidence.lacks(lack, expected, moved_to)
        evidence.excused.add(expected, moved_to)
    else:
        evidence.passed(passed, BEGAN_PAST, claim, wall)


def _begins_uncommitted(evidence: Evidence, claim: JudgedClaim, offset: int, *, before: JudgedClaim | None) -> None:
    """Compare where a claim that found no commit begins with earlier commits."""
    opens, evidence.may_have_landed = evidence.may_have_landed, set()
    expected, evidence.expected = evidence.expected, offset
    evidence.wanted(offset)
    if evidence.late or evidence.loose:
        return
    announced = min(opens, default=offset)
    if expected is None and announced < offset and _unknown_epochs(evidence, claim):
        evidence.lacks(
            first_taken_away(announced, f"{claim.consumer} (epoch {claim.epoch}) began at {offset}"), announced, offset
        )
        evidence.start = announced if evidence.start is None else min(evidence.start, announced)
    elif expected is None and before is not None and before.unsure and _unknown_epochs(evidence, claim):
        evidence.lacks(unsaid_and_taken_away(before, claim, offset), 0, offset)
    if expected is None or offset <= expected:
        return
    # A commit may have landed before the node was emptied: the claim that announced it was delivered the passed records.
    landed = max((commit for commit in opens if expected < commit <= offset), default=expected)
    if landed < offset and (lack := _unknown_mover(evidence, claim, before, expected, offset)) is not None:
        evidence.lacks(lack, expected, offset)
        evidence.excused.add(expected, offset)
        return
    wall = claim.items[0].wall
    evidence.passed(evidence.never_announced([(expected, landed)]), COMMITTED, claim, wall)
    evidence.passed([(landed, offset)] if landed < offset else [], BEGAN_UNCOMMITTED, claim, wall)


def _moved_on_purpose(evidence: Evidence, claim: JudgedClaim, position: int) -> bool:
    """Return whether a known reason or missing lines explain a lower position."""
    landed_unsaid = position in (evidence.over_cut, evidence.first_position)  # no line says that it landed, but it did
    return landed_unsaid or evidence.loose or _reset_to(claim, position) is not None


def _reset_to(claim: JudgedClaim, position: int) -> LedgerEvent | None:
    return next((event for event in reversed(claim.before) if event.facts.get("new") == position), None)


def _unknown_epochs(evidence: Evidence, claim: JudgedClaim) -> bool:
    return claim.epoch > evidence.last_epoch + 1


def _unknown_mover(
    evidence: Evidence, claim: JudgedClaim, before: JudgedClaim | None, expected: int, position: int
) -> str | None:
    """Return what would tell who moved the commit; None: nothing is missing."""
    if _unknown_epochs(evidence, claim):
        return _unknown_epoch(evidence, claim, expected, position)
    return unsure_of(before, expected, position) if before is not None and before.unsure else None


def unsure_of(claim: JudgedClaim, expected: int, committed: int) -> str:
    """Describe the gap if a claim may have committed without its ledger."""
    return (
        f"the commit moved from {expected} to {committed} under epoch {claim.last_epoch}, and the ledger of {claim.consumer} (run "
        f"{claim.run}) ends before that: it could not be written (on_failure: degrade), or its last lines are missing"
    )


def first_taken_away(announced: int, since: str) -> str:
    """Describe the gap if the group's first commit may have been removed."""
    return (
        f"the group's first commit, {announced}, may have landed, as the epoch has moved on since it was announced; then it was "
        f"taken out of the offset node: {since}, and whether the records between are the group's is not known"
    )


def unsaid_and_taken_away(before: JudgedClaim, claim: JudgedClaim, offset: int) -> str:
    """Describe the gap if commits without a line may have been removed."""
    return (
        f"the epoch has moved on under {before.consumer} (run {before.run}), whose ledger could not be written (on_failure: "
        f"degrade), and then {claim.consumer} (epoch {claim.epoch}) found no commit and began at {offset}: one may "
        "have been taken out of the offset node, and whether the records before are the group's is not known"
    )


def _unknown_epoch(evidence: Evidence, claim: JudgedClaim, expected: int, position: int) -> str:
    low, high = evidence.last_epoch + 1, claim.epoch - 1
    epochs = f"epoch {low}" if low == high else f"epochs {low} to {high}"
    return (
        f"the commit moved from {expected} to {position} under {epochs}, of which the ledger has no line: the offset was "
        "set from outside, or a consumer's ledger is missing; give the ledgers of all consumers of the group"
    )


def _say_what_is_missing(evidence: Evidence, claim: JudgedClaim) -> None:
    """Note what the whole claim lacks; the walk notes missing lines."""
    low = evidence.expected
    for item in claim.blind:
        if item.degraded:
            evidence.lacks(f"{item.what}; what was done in that time is not known", low)
    if not claim.known and not claim.blind and evidence.by_claim:
        evidence.lacks(
            f"run {claim.run} has deliveries under epoch {claim.epoch} without its `claimed` line; give all its files",
            low,
        )
