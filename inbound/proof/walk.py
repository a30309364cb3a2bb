"""Walks through one claim, delivery by delivery and commit by commit."""

from __future__ import annotations

from collections.abc import Callable

from inbound.proof.claims import JudgedClaim
from inbound.proof.evidence import COMMITTED, GIVEN_BACK, NO_END, PASSED, Evidence, OmittedRange, unwritten
from inbound.proof.intervals import Growing, difference, intersection, union
from inbound.proof.model import Damage, LedgerEvent, LeftOutKind, OffsetRange, Span

#: How a claim ended before its deliveries were committed, as part of a sentence.
_ENDED = {
    "released": "gave the partition up without committing it",
    "lost": "lost the partition before it was committed",
    "fenced": "was fenced: its commit was refused, for another consumer had claimed the partition",
    "died": "ended without a word (killed, or cut off) before it was committed",
    "holds": "had not committed it",
}
#: The finding of a `skip`, by the first word of its reason, and the words for it.
_SKIPPED: dict[str, tuple[LeftOutKind, str]] = {
    "skip": ("given-up", "gave it up when it had failed for good (on_error: skip)"),
    "dead-letter": ("dead-lettered", "sent it to the dead-letter topic when it had failed for good"),
    "processor": ("passed-over", "passed over it, as its processor said (skip=True)"),
    "truncation": ("jumped", "moved past it when the log was cut"),
}
#: Characters of a processor's error that are shown.
_SAID = 200


class Walk:
    """Goes through a claim's items in order; notes findings in the evidence."""

    def __init__(
        self,
        evidence: Evidence,
        claim: JudgedClaim,
        position: int | None,
        begins_uncommitted: Callable[[Evidence, JudgedClaim, int], None],
    ) -> None:
        """`begins_uncommitted` gets the offset where a claim without a commit begins."""
        self.evidence = evidence
        self.claim = claim
        self.position = position  # where its next delivery should begin; None: not known
        self.began: int | None = None  # where it began, if it found no commit of the group
        self._begins_uncommitted = begins_uncommitted
        self.own = Growing()  # its deliveries
        self.landed: int | None = None  # the last commit of its own
        self.unsettled: set[int] = set()  # commits announced, of which it is not known that they landed
        self._asked = Growing()  # requested again, and not yet redelivered
        self._asked.include(evidence.given_back.ranges)
        self._announced: int | None = None
        self._named = -1  # the newest commit that its lines name since its last reset, cut or gap
        self._commit = claim.position  # the answered commit when its last batch was delivered
        self._last_first: int | None = None
        self._answered = False  # the last delivery was
        self._given: int | None = None  # the first position, if the processor gave it
        self._fresh = claim.known  # no item of it has been seen
        self._blind = sorted((item for item in claim.blind if not item.degraded), key=_line_of)
        #: Up to this line, lines may be missing between any two: they were never written.
        self._blind_until = max((item.seq or 0 for item in claim.blind if item.degraded), default=-1)
        self._last_seq = 0  # of the lines gone through
        if self._blind_until >= 0:
            self.ask(0, max([evidence.high, *(span.next for span in claim.spans if span.seq <= self._blind_until)]))

    def ask(self, first: int, end: int) -> None:
        """Note that these are wanted again."""
        self._asked.add(first, end)

    def go(self) -> None:
        for item in self.claim.items:
            self._look_for_missing_lines(item)
            if isinstance(item, LedgerEvent):
                self._event(item)
                continue
            if item.batches:
                self._deliver(item)
            if item.commit is not None:
                self._answered_before(item, item.commit)
            self._commits(item)
        if self._blind_until >= 0:
            self.evidence.loose = True
        for missed in self._blind:
            self._miss(missed)
        self.evidence.came_to(self.position if self.position is not None else NO_END)
        self.evidence.delivered_by(self.claim, self.own)

    # -- deliveries ---------------------------------------------------------------------------------------------------

    def _deliver(self, span: Span) -> None:
        evidence, position = self.evidence, self.position
        if span.first_commit is not None and span.first_commit < self._named and span.seq > self._blind_until:
            self._committed_unanswered(span, span.first_commit)
        if position is None:
            self._begin_at(span.first)
        elif span.first > position:
            self._passed_over(position, span, span.first)
        elif span.first < position:
            evidence.wanted_from(span.first)
            if self._went_back_for_a_reason(span):
                self.ask(span.first, position)
                evidence.given_back.add(span.first, position)
        evidence.wanted(span.first, span.next)
        before = evidence.handed.overlaps(span.first, span.next)
        again = self.own.add(span.first, span.next)
        self._again(again, span)
        self._delivered_before(difference(before, again), span)
        if span.seq > self._blind_until:
            self._asked.cut(span.first, span.next)
        evidence.given_back.cut(span.first, span.next)
        evidence.reverted.cut(span.first, span.next)
        evidence.left_behind.cut(span.first, span.next)
        self.position = span.next
        evidence.high = max(evidence.high, span.next)
        # Not known of several batches whose last one was withheld.
        self._last_first = span.first if span.last_first is None and span.batches == 1 else span.last_first
        self._answered = False  # its answers follow
        self._commit = span.commit

    def _went_back_for_a_reason(self, span: Span) -> bool:
        """Return whether reading went back because the batch was answered in part."""
        if span.seq <= self._blind_until:
            return True
        answered, same_batch = span.first_commit, span.first == self._last_first and not self._answered
        if answered is None:
            committed = self.landed if self.landed is not None else self.claim.position
            return span.first in (self._announced, committed) or same_batch
        if same_batch and answered <= span.first:
            return True
        # The answer's own line may come later. An answer that leads back is a new one, or a `revert`.
        newer = self._commit is None or answered > self._commit
        return newer and span.first == answered >= self._named

    def _answered_before(self, span: Span, commit: int) -> None:
        self.claim.advanced = commit
        begun = span.last_first if span.last_first is not None else span.next
        self.evidence.answered.include(self.own.overlaps(0, min(commit, begun)))
        if span.batches or self.position is None or self._last_first is None:
            return
        if span.first == commit and self._last_first < commit:  # withheld, after the answer was for a part of a batch
            self.evidence.given_back.add(commit, self.position)

    def _committed_unanswered(self, span: Span, commit: int) -> None:
        claim, named = self.claim, self._named
        self.evidence.lacks(
            f"{claim.consumer} (epoch {claim.epoch}) announced the commit {named}, and its next batch, at {span.first}, says "
            f"that it had been answered up to {commit}: whether what lies between was processed is not known", commit, named,
        )  # fmt: skip

    def _passed_over(self, position: int, item: Span | LedgerEvent, to: int) -> None:
        if item.seq > self._blind_until:
            evidence, gap = self.evidence, [(position, to)]
            evidence.passed(difference(gap, self.own.ranges), PASSED, self.claim, item.wall)
            own = intersection(gap, self.own.ranges)
            given_back = difference(intersection(own, evidence.reverted.ranges), evidence.answered.ranges)
            evidence.left_behind.include(given_back)
            evidence.passed(given_back, GIVEN_BACK, self.claim, item.wall)

    def _again(self, ranges: list[OffsetRange], span: Span) -> None:
        """Judge offsets that this claim was delivered before."""
        explained = intersection(ranges, self._asked.ranges)
        self.evidence.explained += explained
        for first, end in difference(ranges, self._asked.ranges):
            claim, floor = self.claim, self.evidence.floor
            self.evidence.found(
                "duplicate", _below(first, end, floor),
                f"{claim.consumer} redelivered it under the same claim, although it had committed {floor}, and "
                "no reset or revert wanted it", [claim], span.wall,
            )  # fmt: skip
            self.evidence.found(
                "reordered", _above(first, end, floor),
                f"{claim.consumer} went back to it from {self.position} under the same claim, and no reset or revert wanted it",
                [claim], span.wall,
            )  # fmt: skip

    def _delivered_before(self, ranges: list[OffsetRange], span: Span) -> None:
        """Judge offsets that earlier claims were delivered."""
        evidence, claim = self.evidence, self.claim
        evidence.explained += intersection(ranges, self._asked.ranges)
        for first, end in difference(ranges, self._asked.ranges):
            for low, high in _below(first, end, evidence.floor):
                owner = evidence.owner_of(low, high) or claim
                evidence.found(
                    "duplicate", [(low, high)],
                    f"{claim.consumer} (epoch {claim.epoch}) began at {self._began_at()}, although {evidence.floor} had been "
                    f"committed; {owner.consumer} (epoch {owner.epoch}) had got it before", [owner, claim], span.wall,
                )  # fmt: skip
            for low, high in _above(first, end, evidence.floor):
                owner = evidence.owner_of(low, high) or claim
                evidence.found(
                    "repeated", [(low, high)],
                    f"{owner.consumer} (epoch {owner.epoch}) {_ENDED[owner.ending]}{_in_flight(owner, claim)}; "
                    f"{claim.consumer} (epoch {claim.epoch}) went on at {self._began_at()}", [owner, claim], span.wall,
                )  # fmt: skip

    def _began_at(self) -> str:
        return "an unknown offset" if self.claim.position is None else str(self.claim.position)

    # -- commits -----------------------------------------------------------------------------------------------------

    def _commits(self, span: Span) -> None:
        if span.answered is not None:
            self._announced = span.answered
            self._named = max(self._named, span.answered)
            self._answered = self._answered or self._last_first is None or span.answered > self._last_first
            if span.answer_of is not None and span.answer_of == self._last_first and self.position is not None:
                self.evidence.given_back.add(span.answered, self.position)  # the answer was for a part of the batch
            self.unsettled.add(span.answered)
            self.evidence.answered.include(self.own.overlaps(0, span.answered))
            if self.position is None and self._fresh:
                self.evidence.first_position = span.answered
        if span.landed is None:
            return
        evidence, landed = self.evidence, span.landed
        evidence.first_position = None
        if (self.position is None and self._fresh) or landed == self._given:
            self._begin_at(landed)
        elif self.position is not None and landed > max(self.position, self.own.end):
            passed = difference([(self.position, landed)], self.own.ranges)
            evidence.passed(passed, COMMITTED, self.claim, span.wall)
        if landed == evidence.over_cut:
            evidence.over_cut = None
            self._went_back(landed)
        elif self.landed is not None and landed < self.landed:
            evidence.found(
                "unfenced", [(landed, self.landed)],
                f"{self.claim.consumer} committed {landed} after {self.landed} under the same claim: an older request "
                "took effect after a newer one", [self.claim], span.wall,
            )  # fmt: skip
        self.unsettled = {commit for commit in self.unsettled if commit > landed}
        self.landed, evidence.loose = landed, False
        evidence.floor = max(evidence.floor, landed)
        evidence.high = max(evidence.high, landed)
        if span.last_mzxid is not None and span.last_mzxid > (evidence.last_mzxid or -1):
            evidence.last_mzxid, evidence.last_landed = span.last_mzxid, landed

    def _went_back(self, landed: int) -> None:
        """Go back over a cut: the records behind it are read again.

        Answers below the cut count: if retention deletes their records first, they were processed.
        """
        evidence = self.evidence
        if landed < evidence.floor:
            self.ask(landed, evidence.high)
            evidence.floor = evidence.high = landed

    # -- events ------------------------------------------------------------------------------------------------------

    def _event(self, event: LedgerEvent) -> None:
        facts = event.facts
        if event.kind in ("truncated", "reset"):
            self._named, self.claim.advanced = -1, None
        if event.kind == "truncated":
            self.evidence.over_cut = facts.get("to")
        elif event.kind == "revert":
            self._move_back(int(facts["from"]), int(facts["to"]), successor=facts.get("reason") == "successor")
        elif event.kind == "skip":
            self._skip(int(facts["from"]), int(facts["to"]), event)
        elif event.kind == "retention":
            self._deleted(int(facts["first"]), int(facts["next"]), event)
        elif event.kind == "reset":
            self._reset(facts.get("old"), facts.get("new"), event)
        elif event.kind == "degraded":
            self._lose_sight(unwritten(event))
        elif event.kind == "commit" and facts.get("commit") is not None:
            commit = int(facts["commit"])
            if facts.get("outcome") == "fenced":
                self.unsettled.discard(commit)
            else:
                self.unsettled.add(commit)

    def _move_back(self, position: int, target: int, *, successor: bool) -> None:
        """Revert from `position` to `target`.

        The processor asked for it, the log was cut, or another processor begins at the commit (`successor`). That one
        reads on as the next claim would, also where reading had gone back before the commit.
        """
        if successor and position < target:
            self.evidence.came_to(position)
            self._move_on(target)
            return
        if self.position is not None and target > self.position:
            return  # no revert: the next delivery shows the passed records
        self.ask(target, max(position, target, self.position or 0))
        self.evidence.wanted_from(target)
        reached = max(position, self.position or 0)
        self.evidence.given_back.add(target, reached)
        self.evidence.reverted.add(target, reached)
        self.position = target

    def _skip(self, first: int, end: int, event: LedgerEvent) -> None:
        if self.position is not None and self.position < first:
            self._passed_over(self.position, event, first)
        why, _, said = str(event.facts.get("reason", "")).partition(": ")
        kind, what = _SKIPPED.get(why, _SKIPPED["processor"])
        cause = f"{self.claim.consumer} (epoch {self.claim.epoch}) {what}{f': {said[:_SAID]}' if said else ''}"
        self.evidence.leave_out(OmittedRange(first, end, kind, cause, self.claim, event.wall))
        if kind == "passed-over" and self.position is not None:  # the answer before was for a part of the batch
            self.evidence.given_back.add(first, min(end, self.position))
        self._move_on(end)

    def _move_on(self, end: int) -> None:
        if self.position is None or self.position <= end:
            self.position = end

    def _deleted(self, first: int, end: int, event: LedgerEvent) -> None:
        self._deleted_in_hand(first, end, event)
        if self.position is not None:  # whether the log had records up to `first` is not known any more
            first = min(first, self.position)
        gone = difference(difference([(first, end)], self.evidence.counts.ranges), self.own.ranges)
        self.evidence.passed_again(first, end)
        self.evidence.excused.add(first, end)
        self.evidence.found(
            "lost-to-retention", gone,
            f"Kafka had deleted it when {self.claim.consumer} (epoch {self.claim.epoch}) came to read it", [self.claim],
            event.wall,
        )  # fmt: skip
        self._move_on(end)
        if self._given is not None and first <= self._given < end:
            self._given = end

    def _deleted_in_hand(self, first: int, end: int, event: LedgerEvent) -> None:
        """Find delivered records that Kafka deleted before they were answered."""
        evidence = self.evidence
        if self.claim.has_gaps or self.claim.unsure:
            return  # the answer may be in lines that are missing
        for low, high in evidence.unanswered(
            intersection([(first, end)], union([*evidence.counts.ranges, *self.own.ranges]))
        ):
            owner = evidence.owner_of(low, high) or self.claim
            evidence.found(
                "lost-to-retention", [(low, high)],
                f"{owner.consumer} (epoch {owner.epoch}) had got it and had not answered for it, and Kafka had deleted it "
                f"when {self.claim.consumer} (epoch {self.claim.epoch}) came to read it again", [owner, self.claim], event.wall,
            )  # fmt: skip

    def _reset(self, old: object, new: object, event: LedgerEvent) -> None:
        if not isinstance(new, int):
            return
        evidence = self.evidence
        before = old if isinstance(old, int) else self.position if self.position is not None else evidence.expected
        evidence.wanted(new)
        if before is not None and new > before:
            if self.position is not None and self.position < before:
                self._passed_over(self.position, event, before)
            cause = f"{event.facts.get('reason') or 'a reset'} moved {self.claim.consumer} from {before} to {new}"
            evidence.leave_out(OmittedRange(before, new, "jumped", cause, self.claim, event.wall))
        self.ask(new, max(evidence.floor, before or 0, self.position or 0))
        # Offsets further on count when they are committed.
        evidence.floor, evidence.high = min(evidence.floor, new), min(evidence.high, new)
        self.position = self._given = new
        evidence.answered.cut(new, NO_END)
        if self.landed is not None:
            self.landed = new

    # -- inside ------------------------------------------------------------------------------------------------------

    def _begin_at(self, offset: int) -> None:
        """Begin here, or go on here after missing lines."""
        evidence = self.evidence
        evidence.sure_from(offset)
        if self._fresh and self.position is None:
            self.began = offset
            self._begins_uncommitted(evidence, self.claim, offset)
        self.position = offset
        if evidence.start is None:
            evidence.start = offset
        elif offset < evidence.floor:  # the group's offset had been deleted, or was moved unseen
            self.ask(offset, evidence.high)
            evidence.floor = evidence.high = offset
        self._fresh = False

    def _look_for_missing_lines(self, item: Span | LedgerEvent) -> None:
        """Forget the position, and the topic even, where lines are missing."""
        while self._blind and item.seq > _line_of(self._blind[0]):
            self._miss(self._blind.pop(0))
        if self._last_seq <= self._blind_until:
            self._forget_commit()
            if item.seq > self._blind_until:
                self._forget_position()
        self._last_seq = item.last_seq if isinstance(item, Span) else item.seq

    def _miss(self, item: Damage) -> None:
        if self.evidence.by_claim or self.claim.known or item.seq:
            self._lose_sight(f"{item.what}; restore it, or begin after it")
        else:  # before the beginning of all evidence: its files were deleted, by retention
            self.position, self._fresh = None, False

    def _lose_sight(self, text: str) -> None:
        """Forget the position until the next delivery or landed commit."""
        self._forget_commit()
        self.evidence.lacks(text, self.evidence.expected)
        self.evidence.loose = True
        self._forget_position()

    def _forget_commit(self) -> None:
        """Forget the commit: another one, even another topic's, may have landed."""
        self._named, self.claim.advanced = -1, None
        if self.landed is not None:
            self.evidence.landed(self.landed)
        self.landed = None

    def _forget_position(self) -> None:
        self.position, self._fresh = None, False
        self.ask(0, max(self.evidence.high, self.own.end))


def _in_flight(owner: JudgedClaim, claim: JudgedClaim) -> str:
    """Return the words for repeats whose answered commit was in flight."""
    if owner.advanced is None or claim.position is None or owner.advanced <= claim.position:
        return ""
    return f" (it had answered up to {owner.advanced}, and that commit was in flight)"


def _line_of(item: Damage) -> int:
    return item.seq if item.seq is not None else 0


def _below(first: int, end: int, limit: int) -> list[OffsetRange]:
    return [(first, min(end, limit))] if first < limit else []


def _above(first: int, end: int, limit: int) -> list[OffsetRange]:
    return [(max(first, limit), end)] if end > limit else []
