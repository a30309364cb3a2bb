"""The evidence of the claims gone through, and the findings in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from inbound.proof.claims import JudgedClaim
from inbound.proof.intervals import CountedRanges, Growing, difference, intersection
from inbound.proof.model import (
    ANOMALIES,
    LEFT_OUT,
    Finding,
    FindingKind,
    LedgerEvent,
    LeftOutKind,
    LogExtent,
    OffsetRange,
)

#: How a hole came about: deliveries went past it; the same after it was delivered and given back; a commit went past it; the
#: next claim began past it; the same, and that claim found no commit of the group.
PASSED, GIVEN_BACK, COMMITTED, BEGAN_PAST, BEGAN_UNCOMMITTED = (
    "passed",
    "given back",
    "committed",
    "began past",
    "began without a commit",
)
#: Greater than any offset.
NO_END = 1 << 63


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets that were passed over; a later delivery may bring them."""

    first: int
    next: int
    how: str
    claim: JudgedClaim
    wall: float


@dataclass(frozen=True, slots=True)
class OmittedRange:
    """Offsets that are committed past on purpose."""

    first: int
    next: int
    kind: LeftOutKind
    cause: str
    claim: JudgedClaim
    wall: float
    #: It failed and was committed past: it stays left out until it is redelivered.
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Left:
    """What a claim left: answered up to `advanced`, landed up to `committed`."""

    claim: JudgedClaim
    committed: int
    advanced: int
    found_by: JudgedClaim | None  # the claim that began at `committed`; None: ZooKeeper has it
    given_back: tuple[OffsetRange, ...] = ()  # delivered to it, given back, and not redelivered


def unwritten(gap: LedgerEvent) -> str:
    """Describe the gap that a ledger notes of itself (`degraded`)."""
    since, until = gap.facts.get("from"), gap.facts.get("to")
    when = ""
    if isinstance(since, int | float) and isinstance(until, int | float):
        start, end = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}" for at in (since, until))
        when = f" from {start} to {end} UTC"
    return (
        f"{gap.consumer} could not write its ledger{when}: its work in that time, under epoch {gap.epoch}, is not known"
    )


@dataclass(slots=True)
class Missing:
    """What would tell what became of some offsets."""

    text: str
    low: int | None  # below it all is known; None: nothing is
    high: int | None = None  # from there on it is known again; None: nowhere


@dataclass(eq=False)
class Evidence:
    """The evidence of one topic's partition; a recreated topic has its own."""

    handed: Growing = field(default_factory=Growing)  # by the claims gone through
    counts: Growing = field(default_factory=Growing)  # of that, what no reset has wanted again
    #: Delivered since the last claim with a known position began. Such a claim commits only its own deliveries: where
    #: earlier claims had not committed, the log may hold other records now.
    recent: Growing = field(default_factory=Growing)
    reset: LedgerEvent | None = None  # the last one, as long as nothing was committed since
    by_claim: list[tuple[JudgedClaim, Growing]] = field(default_factory=list)
    expected: int | None = None  # where the next claim must begin: what is committed, as far as the ledger says
    opens: set[int] = field(default_factory=set)  # commits that may have landed since
    may_have_landed: set[int] = field(default_factory=set)  # the same, before a claim that found no commit
    #: A first position that the claim before announced when it found no commit; it may have landed.
    first_position: int | None = None
    over_cut: int | None = None  # where a log was cut, the commit may go back to here
    loose: bool = False  # lines are missing: where the next claim begins is not known
    floor: int = 0  # below it all was committed, and no reset or revert wants it again
    #: Delivered and answered, whether or not it was committed.
    answered: Growing = field(default_factory=Growing)
    high: int = 0  # highest offset delivered or committed since the group was last moved back
    start: int | None = None
    late: bool = False  # the claim committed after a newer epoch: the next one need not begin there
    last_mzxid: int | None = None  # of all commits that landed
    last_landed: int | None = None  # and the offset of that commit
    last_epoch: int = -1
    #: What may be passed over: on purpose, deleted by Kafka, or moved past by an unknown cause. Reading that goes back takes
    #: it out again.
    excused: Growing = field(default_factory=Growing)
    left_out: list[OmittedRange] = field(default_factory=list)
    _suspended: Growing = field(default_factory=Growing)  # excuses behind an offset that reading went back to
    _suspended_left_out: list[OmittedRange] = field(default_factory=list)
    #: What the claim before gave back, by its answers, and did not redeliver.
    given_back: Growing = field(default_factory=Growing)
    #: Ranges that a claim reverted to and was not redelivered, and the parts of them that it then went past.
    reverted: Growing = field(default_factory=Growing)
    left_behind: Growing = field(default_factory=Growing)
    explained: list[OffsetRange] = field(default_factory=list)  # redelivered on request
    holes: list[Hole] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)

    def found(
        self,
        kind: FindingKind,
        ranges: Iterable[OffsetRange],
        cause: str,
        claims: Sequence[JudgedClaim],
        wall: float | None,
    ) -> None:
        """Note a finding for each range; offsets are counted at the end."""
        epochs = tuple(dict.fromkeys(claim.epoch for claim in claims))
        consumers = tuple(dict.fromkeys(claim.consumer for claim in claims if claim.consumer))
        self.findings += [
            Finding(kind, first, end, cause, None, epochs=epochs, consumers=consumers, wall=wall)
            for first, end in ranges
        ]

    def lacks(self, text: str, low: int | None, high: int | None = None) -> None:
        """Note that evidence is missing."""
        self.missing.append(Missing(text, low, high))

    def sure_from(self, offset: int, *, explained: bool = False) -> None:
        """Note that the evidence goes on from here.

        If that is below where it ended, and no reset explains it, what was there before is not known.
        """
        for missing in self.missing:
            if missing.high is None:
                missing.high = offset
                if missing.low is not None and not explained:
                    missing.low = min(missing.low, offset)

    def delivered_by(self, claim: JudgedClaim, handed: Growing) -> None:
        """Note what a claim delivered, after the walk through it."""
        self.by_claim.append((claim, handed))
        for known in (self.handed, self.counts, self.recent):
            known.include(handed.ranges)

    def owner_of(self, first: int, end: int) -> JudgedClaim | None:
        """Return the last claim that delivered any of these offsets."""
        for claim, handed in reversed(self.by_claim):
            if handed.overlaps(first, end):
                return claim
        return None

    def unanswered(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Return the offsets without an answer, which must be redelivered.

        If lines of their owner are missing, the answer may be among them.
        """
        left = difference(difference(ranges, [(0, self.floor)]), self.answered.ranges)
        return [(first, end) for first, end in left if not self._may_have_gaps(first, end)]

    def _may_have_gaps(self, first: int, end: int) -> bool:
        return any(claim.has_gaps or claim.unsure for claim, handed in self.by_claim if handed.overlaps(first, end))

    def never_delivered(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Return the offsets of these neither delivered nor excused."""
        return difference(difference(ranges, self.counts.ranges), self.excused.ranges)

    def never_announced(self, ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        """Return the offsets neither delivered to the announcing claim nor excused."""
        delivered = self.counts if self.loose else self.recent
        return difference(difference(ranges, delivered.ranges), self.excused.ranges)

    def passed(self, ranges: Sequence[OffsetRange], how: str, claim: JudgedClaim, wall: float) -> None:
        """Note a hole for the offsets of these that are not excused."""
        self.holes += [Hole(first, end, how, claim, wall) for first, end in difference(ranges, self.excused.ranges)]

    def leave_out(self, left: OmittedRange) -> None:
        """Note offsets that are committed past on purpose."""
        if left.first < left.next:
            self.passed_again(left.first, left.next)
            self.excused.add(left.first, left.next)
            self.left_out.append(left)

    def taken_back(self, reset: LedgerEvent) -> None:
        """Note once that a reset wants the offsets behind it again."""
        new = reset.facts.get("new")
        if isinstance(new, int) and (self.reset is None or self.reset.facts != reset.facts):
            self.counts.cut(new, NO_END)
            self.answered.cut(new, NO_END)
            self.reset = reset

    def landed(self, commit: int) -> None:
        """Note the last commit of a claim."""
        self.expected = commit
        if self.reset is not None and self.reset.facts.get("new") != commit:
            self.reset = None

    def wanted(self, first: int, end: int = NO_END) -> None:
        """Note that these are read again: no excuse counts any more."""
        for excused in (self.excused, self._suspended):
            excused.cut(first, end)
        if self.left_out:
            self.left_out = _outside(self.left_out, first, end)
        if self._suspended_left_out:
            self._suspended_left_out = _outside(self._suspended_left_out, first, end)

    def begins_again(self, first: int, committed: int | None) -> None:
        """Begin again at `first`; failed records committed past stay left out."""
        failed = [
            replace(left, first=max(left.first, first), next=end, failed=True)
            for left in self.left_out
            if left.failed or left.kind in ("given-up", "dead-lettered")
            if (end := left.next if left.failed else min(left.next, committed or 0)) > max(left.first, first)
        ]
        self.wanted(first)
        self.left_out += failed

    def wanted_from(self, first: int) -> None:
        """Note that reading goes back to `first`; excuses behind it are suspended."""
        self._suspended.include(self.excused.overlaps(first, NO_END))
        self.excused.cut(first, NO_END)
        self._suspended_left_out += _outside(self.left_out, 0, first)
        self.left_out = _outside(self.left_out, first, NO_END)

    def passed_again(self, first: int, end: int) -> None:
        """Note that reading did not come back here: the excuses count again."""
        self.excused.include(self._suspended.overlaps(first, end))
        self._suspended.cut(first, end)
        self.left_out += _outside(_outside(self._suspended_left_out, 0, first), end, NO_END)
        self._suspended_left_out = _outside(self._suspended_left_out, first, end)

    def came_to(self, position: int) -> None:
        """Note where a claim ended: suspended excuses behind it count again."""
        self.passed_again(position, NO_END)
        self._suspended, self._suspended_left_out = Growing(), []


def _outside(left_out: Iterable[OmittedRange], first: int, end: int) -> list[OmittedRange]:
    return [
        replace(left, first=low, next=high)
        for left in left_out
        for low, high in difference([(left.first, left.next)], [(first, end)])
    ]


class LogRecords:
    """Counts the offsets of ranges that the log has."""

    def __init__(self, extent: LogExtent | None) -> None:
        self.extent = extent
        self._present = CountedRanges(extent.present) if extent is not None and extent.present is not None else None

    def count(self, first: int, end: int) -> int | None:
        """Return how many offsets the log has; None: unread or deleted there."""
        extent = self.extent
        if extent is None or self._present is None:
            return None
        if first < max(extent.start, extent.scanned_from) or end > extent.end:
            return None
        return self._present.within(first, end)

    def counted(self, finding: Finding) -> Iterable[Finding]:
        """Yield the finding with its count, divided at the log's start."""
        if (
            finding.kind in ("unfenced", "over-window", "beyond-end", "lost-to-retention")
            or self._present is None
            or self.extent is None
        ):
            yield finding
            return
        read_from = max(self.extent.start, self.extent.scanned_from)
        if finding.first < min(read_from, finding.next):
            yield replace(finding, next=min(read_from, finding.next))
        first, end = max(finding.first, read_from), min(finding.next, self.extent.end)
        if first >= end:
            return
        offsets = self._present.within(first, end) if finding.offsets is None else finding.offsets
        if not offsets:
            return
        if finding.kind in ("lost", "skipped", "reordered", "unclaimed", *LEFT_OUT):
            # Offsets at the ends that the log lacks are not part of it.
            there = intersection([(first, end)], self._present.ranges)
            first, end = there[0][0], there[-1][1]
        yield replace(finding, first=first, next=end, offsets=offsets)


def neighbours(findings: Iterable[Finding]) -> list[Finding]:
    """Join findings that adjoin and say the same."""
    result: list[Finding] = []
    for finding in sorted(findings, key=lambda f: (f.kind, f.cause, f.epochs, f.first)):
        last = result[-1] if result else None
        if last is not None and last.next == finding.first and last == replace(
            finding, first=last.first, next=last.next, offsets=last.offsets, wall=last.wall
        ):  # fmt: skip
            offsets = None if last.offsets is None or finding.offsets is None else last.offsets + finding.offsets
            result[-1] = replace(last, next=finding.next, offsets=offsets)
        else:
            result.append(finding)
    return result


def grouped(findings: Iterable[Finding]) -> list[Finding]:
    """Join findings about the same range, with how many times."""
    kept: dict[tuple[FindingKind, int, int], Finding] = {}
    for finding in neighbours(findings):
        place = (finding.kind, finding.first, finding.next)
        before = kept.get(place)
        if before is None:
            kept[place] = finding
            continue
        again = finding.kind in ("repeated", "duplicate")
        kept[place] = replace(
            before,
            times=before.times + finding.times if again else before.times,
            cause=before.cause if finding.cause in before.cause else f"{before.cause}; {finding.cause}",
            epochs=tuple(dict.fromkeys((*before.epochs, *finding.epochs))),
            consumers=tuple(dict.fromkeys((*before.consumers, *finding.consumers))),
        )
    return list(kept.values())


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings by kind (anomalies first) and offset."""
    return sorted(findings, key=lambda f: (f.kind not in ANOMALIES, f.first, f.next, f.kind))
