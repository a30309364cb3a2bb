"""Resolves holes, and compares the evidence with ZooKeeper and log."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from inbound.proof.chain import first_taken_away, unsure_of
from inbound.proof.claims import JudgedClaim
from inbound.proof.evidence import (
    BEGAN_PAST,
    BEGAN_UNCOMMITTED,
    COMMITTED,
    GIVEN_BACK,
    PASSED,
    Evidence,
    LogRecords,
    Missing,
)
from inbound.proof.intervals import difference, intersection, union
from inbound.proof.model import Damage, Finding, LeftOutKind, LogExtent, OffsetRange, PartitionKey, Span, ZooKeeperState

#: Left out because it failed, so it had been delivered.
_FAILED: frozenset[LeftOutKind] = frozenset({"given-up", "dead-lettered"})
_DELIVERED_BEFORE = "what was delivered of it before does not count, as the log may hold other records there since"


def other_damage(evidence: Evidence, key: PartitionKey, damage: Sequence[Damage]) -> None:
    """Note damage without a run, which can concern any partition."""
    for item in damage:
        if item.run is None and not item.harmless and item.group in (None, key.group):
            evidence.lacks(f"{item.where}: {item.what}; restore it", evidence.start)


def held_against_zookeeper(
    evidence: Evidence,
    claims: Sequence[JudgedClaim],
    coordination: ZooKeeperState | None,
    since: int | None,
    told_of: Collection[int | None],
) -> int | None:
    """Compare the ledger's last commit with ZooKeeper's; return the committed offset.

    Notes what is missing if the ledger does not lead there. `told_of`: the commits that landed by its lines, by mzxid.
    """
    expected = evidence.expected
    if coordination is None or not coordination.known:
        return expected
    committed, mzxid, epoch = coordination.committed, coordination.mzxid, coordination.epoch
    if expected is None and committed is not None and evidence.opens and committed > min(evidence.opens):
        expected = evidence.start = min(evidence.opens)  # the group's first commit, which was moved on since
    if expected is None:
        if not claims:
            _without_a_line(evidence, coordination, since)
        elif committed is None and evidence.opens and epoch is not None and epoch > evidence.last_epoch:
            announced = min(evidence.opens)
            evidence.lacks(first_taken_away(announced, "it holds none"), announced)
        return committed
    known = evidence.last_mzxid
    if committed == expected or (mzxid is not None and mzxid == known and committed == evidence.last_landed):
        return committed
    if mzxid is not None and known is not None and mzxid <= known:
        return expected  # the ledger was read later, and knows better
    if epoch is not None and epoch < evidence.last_epoch:
        return expected  # the last claim came later
    if committed is None:
        _no_commit(evidence, expected)
        return expected
    last, wall = claims[-1], claims[-1].items[-1].wall
    if committed in evidence.opens or (evidence.loose and committed > expected):
        if not evidence.loose:
            evidence.passed(evidence.never_announced([(expected, committed)]), COMMITTED, last, wall)
        evidence.floor = max(evidence.floor, committed)
        return committed
    unknown = epoch is not None and epoch > evidence.last_epoch
    if committed > expected and not unknown and (mzxid in told_of or not last.unsure):
        evidence.passed([(expected, committed)], COMMITTED, last, wall)
        return committed
    by = (
        f"under epoch {epoch}, of which the ledger has no line" if unknown else "and no line of the ledger says by whom"
    )
    text = (
        f"the commit was moved from {expected} to {committed}, {by}: the offset was set from outside, or a consumer's "
        "ledger is missing; give the ledgers of all consumers of the group"
    )
    if committed > expected and not unknown:
        text = unsure_of(last, expected, committed)
    evidence.lacks(text, min(expected, committed))
    if committed > expected:
        evidence.excused.add(expected, committed)
    return committed


def _without_a_line(evidence: Evidence, coordination: ZooKeeperState, since: int | None) -> None:
    """Note the gap of a partition that no ledger mentions."""
    committed, epoch = coordination.committed, coordination.epoch
    if since is None and _never_committed(coordination):
        return
    if committed is None and since is not None:
        _no_commit(evidence, since)
    elif committed not in (None, 0, since):
        evidence.lacks(
            f"the group's commit is {committed}, and no ledger has a line of this partition; give the ledgers", since
        )
    elif epoch and since is None:
        evidence.lacks(
            f"the partition was claimed (epoch {epoch}), and no ledger has a line of it; give the ledgers", since
        )


def _never_committed(coordination: ZooKeeperState) -> bool:
    """Return whether a reset made the first commit, before any claim."""
    moved = coordination.moved
    return moved is not None and not moved.claimed and moved.since is None and moved.new == coordination.committed


def _no_commit(evidence: Evidence, last: int) -> None:
    evidence.lacks(
        f"ZooKeeper has no commit of the group, and the last one was {last}: its offset node was deleted or emptied. The "
        f"next claim begins where auto_offset_reset says; set the offset to {last} before (`inbound offsets reset`)",
        last,
    )


def unnoticed_cut(coordination: ZooKeeperState) -> Missing:
    """Describe the gap of a log that was cut below the commit."""
    where = f" at {coordination.cut}" if coordination.cut else ", where is not known,"
    return Missing(
        f"the log was cut{where} below the commit {coordination.committed}: what was delivered from there on is not what the "
        "log holds now. Start a consumer of the group, which acts on it (on_truncation), and validate again",
        coordination.cut,
    )


def unclaimed(
    evidence: Evidence, claims: Sequence[JudgedClaim], extent: LogExtent | None, coordination: ZooKeeperState | None
) -> None:
    """Find records of a partition that no ledger and no epoch mentions."""
    if claims or coordination is None or extent is None:
        return
    if not _never_committed(coordination) and (coordination.epoch or coordination.committed):
        return
    text = "no consumer of the group has ever claimed the partition"
    evidence.found("unclaimed", [(extent.start, extent.end)] if extent.end > extent.start else [], text, [], None)
    if extent.start:
        evidence.found("unclaimed", [(0, extent.start)], f"Kafka has deleted it, and {text}", [], None)


def left_out(evidence: Evidence, committed: int | None) -> list[OffsetRange]:
    """Find what is committed past on purpose, and return it.

    An earlier delivery does not count: it was not committed, or was wanted again since, and above the commit no
    consumer need notice that the log was cut and holds other records now. A later delivery has taken its offsets off
    the list.
    """
    done = [(0, committed)] if committed else []
    parts = [(left, intersection([(left.first, left.next)], done)) for left in evidence.left_out]
    failed = union(part for left, ranges in parts if left.kind in _FAILED for part in ranges)
    found: list[OffsetRange] = []
    for left, ranges in parts:
        found += ranges
        cause = left.cause
        if left.kind not in _FAILED:
            ranges = difference(ranges, failed)
            cause += f"; {_DELIVERED_BEFORE}" if intersection(ranges, evidence.handed.ranges) else ""
        evidence.found(left.kind, ranges, cause, [left.claim], left.wall)
    return union(found)


def start_of_evidence(evidence: Evidence, since: int | None) -> None:
    if since is not None and evidence.start is not None and evidence.start > since:
        evidence.lacks(
            f"the ledger begins at offset {evidence.start}, and the proof before this one ended at {since}; give the files "
            "between, or judge all of it (--from-start)",
            since,
        )


def resolve_holes(evidence: Evidence, committed: int) -> None:
    """Decide for each hole: lost, delivered late, or delivered by another claim."""
    for hole in evidence.holes:
        ranges = [(hole.first, hole.next)]
        counts = evidence.counts.ranges
        if hole.how == GIVEN_BACK:  # only what was redelivered since
            counts = difference(counts, evidence.left_behind.ranges)
        never, handed = difference(ranges, counts), intersection(ranges, counts)
        claim, wall = hole.claim, hole.wall
        who = f"{claim.consumer} (epoch {claim.epoch})"
        how = {
            PASSED: f"{who} went on at {hole.next} after {hole.first}, and nothing says why",
            GIVEN_BACK: f"{who} had got it, had given it back, and went on at {hole.next}",
            COMMITTED: f"the commit of {who} went past it to {hole.next}",
            BEGAN_PAST: f"{who} began at {hole.next}, although only {hole.first} was committed",
            BEGAN_UNCOMMITTED: f"{who} found no commit of the group, whose last one was {hole.first}, and began at {hole.next}",
        }[hole.how]
        lost = intersection(never, [(0, committed)] if committed else [])
        again = "re" if hole.how == GIVEN_BACK else ""
        evidence.found("lost", lost, f"{how}; it was never {again}delivered, and it is committed past", [claim], wall)
        evidence.found("skipped", difference(never, lost), f"{how}; it is not committed past yet", [claim], wall)
        own = next((given.ranges for other, given in evidence.by_claim if other is claim), [])
        late = intersection(handed, own) if hole.how in (PASSED, GIVEN_BACK) else []
        evidence.found("reordered", late, f"{how}; it was delivered after them", [claim], wall)
        for first, end in difference(handed, late):
            owner = evidence.owner_of(first, end) or claim
            text = f"{how}; {owner.consumer} (epoch {owner.epoch}) got it at another time"
            evidence.found("skipped", [(first, end)], text, [claim, owner], wall)


def left_out_inside(evidence: Evidence, claims: Sequence[JudgedClaim], log: LogRecords, committed: int | None) -> None:
    """Find batches with fewer records than the log has in their range."""
    short: list[tuple[int, JudgedClaim, Span, int]] = []
    whole: list[tuple[int, OffsetRange]] = []
    for number, claim in enumerate(claims):
        for span in claim.spans:
            if not span.batches:
                continue
            has = log.count(span.first, span.next)
            if has is not None and has > span.records:
                short.append((number, claim, span, has - span.records))
            else:
                whole.append((number, (span.first, span.next)))
    for number, claim, span, lacking in short:
        # This claim or a later one: an earlier one may have been delivered records that were cut off since.
        handed_whole = union(
            part for by, part in whole if by >= number and part[0] < span.next and span.first < part[1]
        )
        for first, end in difference([(span.first, min(span.next, committed or 0))], handed_whole)[:1]:
            evidence.findings.append(
                Finding(
                    "lost",
                    first,
                    min(span.next, committed or end),
                    f"{claim.consumer} (epoch {claim.epoch}) got {span.records} records of it, {lacking} fewer than "
                    "the log has",
                    lacking,
                    epochs=(claim.epoch,),
                    consumers=(claim.consumer,),
                    wall=span.wall,
                )
            )


def past_the_end(
    evidence: Evidence, claims: Sequence[JudgedClaim], extent: LogExtent | None, committed: int | None
) -> None:
    if extent is None:
        return
    blind = any(claim.has_gaps for claim in claims)  # deliveries before missing lines may be of a deleted topic
    high = max(0 if blind or evidence.start is None else evidence.high, committed or 0)
    if high > extent.end:
        what = f"committed or delivered up to {high}, and the log ends at {extent.end}: the topic was deleted and recreated, "
        evidence.found("beyond-end", [(extent.end, high)], what + "or the brokers have lost its end", claims[-1:], None)


def deleted_unread(
    evidence: Evidence, extent: LogExtent | None, coordination: ZooKeeperState | None, committed: int | None
) -> None:
    """Find undelivered records that Kafka has deleted above the commit."""
    if extent is None or committed is None or coordination is None or coordination.owner is not None:
        return  # a live owner reports it in its ledger
    ahead = [(committed, extent.start)] if extent.start > committed else []
    gone = evidence.never_delivered(ahead)
    evidence.found("lost-to-retention", gone, "Kafka has deleted it, and it was never delivered", [], None)
    again = evidence.unanswered(intersection(ahead, evidence.counts.ranges))
    evidence.found(
        "lost-to-retention", again, "it was delivered and not answered for, and Kafka has deleted it", [], None
    )


def in_flight(evidence: Evidence, claims: Sequence[JudgedClaim], committed: int | None) -> list[OffsetRange]:
    if not claims or committed is None:
        return []
    return difference(evidence.by_claim[-1][1].ranges, [(0, committed)] if committed else [])


def uncommitted(
    evidence: Evidence, claims: Sequence[JudgedClaim], coordination: ZooKeeperState | None, committed: int | None
) -> None:
    if not claims or committed is None or coordination is None or coordination.owner is not None:
        return
    answered = max([claims[-1].advanced or 0, *evidence.opens])
    if answered > committed:
        claim = claims[-1]
        text = (
            f"{claim.consumer} (epoch {claim.epoch}) had answered for it when it ended, and the commit did not land: the "
            "next owner gets it again"
        )
        evidence.found("uncommitted", [(committed, answered)], text, [claim], claim.items[-1].wall)
