"""Mutants of the proof, and of what ledgers note for it: a verdict that a witness of it all would contradict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from inbound.ledger.memory import MemoryLedger
from inbound.partition.ledger_notes import LedgerNotes
from inbound.proof import chain, judge
from inbound.proof.claims import JudgedClaim
from inbound.proof.evidence import Evidence
from inbound.proof.intervals import Growing, difference
from inbound.proof.model import OffsetRange, ZooKeeperState
from inbound.topic_partition import TopicPartition
from tests.simulation.planting import Mutant, Plant, all_of, storm_has

Original = Callable[..., Any]


def _nobody_responsible(plant: Plant) -> None:
    def unclaimed(original: Original, evidence: Evidence, *rest: Any) -> None:
        known = len(evidence.findings)
        original(evidence, *rest)
        if len(evidence.findings) > known:
            plant.bite()
            del evidence.findings[known:]

    plant.around(judge, "unclaimed", unclaimed)


def _begins_at_any_offset(plant: Plant) -> None:
    def begins(
        original: Original, evidence: Evidence, claim: JudgedClaim, offset: int, *, before: JudgedClaim | None
    ) -> None:
        holes, missing = len(evidence.holes), len(evidence.missing)
        original(evidence, claim, offset, before=before)
        if (len(evidence.holes), len(evidence.missing)) != (holes, missing):
            plant.bite()
            del evidence.holes[holes:], evidence.missing[missing:]

    plant.around(chain, "_begins_uncommitted", begins)


def _excused_always(plant: Plant) -> None:
    """Why something was passed over counts, whether it is read again or not."""

    def wanted(original: Original, self: Evidence, *rest: Any) -> None:
        had, left = list(self.excused.ranges), list(self.left_out)
        original(self, *rest)
        if self.excused.ranges != had or self.left_out != left:
            plant.bite()
            self.excused, self.left_out = Growing(), left
            for first, end in had:
                self.excused.add(first, end)

    def wanted_from(original: Original, self: Evidence, first: int) -> None:
        if self.excused.overlaps(first, 1 << 62):
            plant.bite()

    plant.around(Evidence, "wanted", wanted)
    plant.around(Evidence, "wanted_from", wanted_from)


def _never_come_to(plant: Plant) -> None:
    """What reading has gone back over is wanted, also where it never came to it again."""

    def passed_again(original: Original, self: Evidence, *rest: Any) -> None:
        if self._suspended_left_out:
            plant.bite()
            self._suspended, self._suspended_left_out = Growing(), []

    plant.around(Evidence, "passed_again", passed_again)


def _skipped_counts(plant: Plant) -> None:
    def left_out(original: Original, *arguments: Any) -> list[OffsetRange]:
        if original(*arguments):
            plant.bite()
        return []

    plant.around(judge, "left_out", left_out)


def _delivered_before_counts(plant: Plant) -> None:
    """What was delivered at any time is not skipped, also where it was delivered before that."""

    def left_out(original: Original, evidence: Evidence, committed: int | None) -> list[OffsetRange]:
        before = len(evidence.findings)
        ranges: list[OffsetRange] = original(evidence, committed)
        named = evidence.findings[before:]
        skipped = [finding for finding in named if finding.kind in ("passed-over", "jumped")]
        if any(evidence.handed.overlaps(finding.first, finding.next) for finding in skipped):
            plant.bite()
            evidence.findings[before:] = [
                replace(finding, first=first, next=end)
                for finding in named
                for first, end in difference(
                    [(finding.first, finding.next)], evidence.handed.ranges if finding in skipped else []
                )
            ]
            return difference(ranges, evidence.handed.ranges)
        return ranges

    plant.around(judge, "left_out", left_out)


def _gaps_unsaid(plant: Plant) -> None:
    def lacks(original: Original, *arguments: Any) -> None:
        plant.bite()

    plant.around(MemoryLedger, "lacks", lacks)


def _successors_unsaid(plant: Plant) -> None:
    def note(original: Original, self: LedgerNotes, kind: str, tp: TopicPartition, epoch: int, **facts: Any) -> None:
        if facts.get("reason") == "successor":
            plant.bite()
        else:
            original(self, kind, tp, epoch, **facts)

    plant.around(LedgerNotes, "note", note)


def _delivered_is_processed(plant: Plant) -> None:
    """Deliveries that were not answered for do not matter once retention has deleted it."""

    def unanswered(original: Original, self: Evidence, ranges: list[OffsetRange]) -> list[OffsetRange]:
        if original(self, ranges):
            plant.bite()
        return []

    plant.around(Evidence, "unanswered", unanswered)


def _topic_without_a_start(plant: Plant) -> None:
    """A recreated topic begins where the first claim of it does that has a line."""

    def go_through(
        original: Callable[..., Evidence], claims: Sequence[JudgedClaim], former: JudgedClaim | None
    ) -> Evidence:
        if former is not None and not claims[0].recreated:
            plant.bite()
        return original(claims, None)

    plant.around(judge, "go_through", go_through)


def _first_position_unknown(plant: Plant) -> None:
    """A first commit that was announced, and of which no line says that it landed, has not."""

    def stood_at(
        original: Callable[..., int | None], evidence: Evidence, claim: JudgedClaim, position: int
    ) -> int | None:
        if evidence.expected is None and evidence.opens:
            plant.bite()
            return None
        return original(evidence, claim, position)

    plant.around(chain, "_stood_at", stood_at)


def _put_back_is_another(plant: Plant) -> None:
    """A commit that a hand has put back is one that no ledger knows."""

    def as_told(
        original: Callable[..., ZooKeeperState], claims: Sequence[JudgedClaim], coordination: ZooKeeperState
    ) -> ZooKeeperState:
        if original(claims, coordination) != coordination:
            plant.bite()
        return coordination

    plant.around(judge, "as_told", as_told)


PROOFS = (
    Mutant(
        "proof-knows-no-unclaimed", "the proof: records for which no member was ever responsible are named",
        "a never claimed partition counts as processed", _nobody_responsible,
    ),
    Mutant(
        "proof-starts-over-anywhere", "the proof: a claim that finds no offset is held against the last commit",
        "PROVEN, although what lies between was never delivered", _begins_at_any_offset,
        drawn=all_of(storm_has("offset emptied", "offset deleted"), lambda plan: plan.setup.latest),
    ),
    Mutant(
        "proof-excuses-for-ever", "the proof: what a reset or a revert wants again is not left out any more",
        "PROVEN, although what was skipped once, and then wanted, was never delivered", _excused_always, "reset",
    ),
    Mutant(
        "proof-forgets-what-was-left-out", "the proof: what was given up is named, unless it is redelivered",
        "what failed, was gone back over, and passed, is nowhere to be found", _never_come_to,
    ),
    Mutant(
        "proof-takes-delivered-for-processed", "the proof: what no processor answered for was to be redelivered",
        "PROVEN, although a batch failed, and retention deleted it before it came again", _delivered_is_processed,
        drawn=storm_has("retain"),
    ),
    Mutant(
        "proof-counts-what-is-skipped", "the proof: the headline counts deliveries",
        "records that were given up count as processed", _skipped_counts,
    ),
    Mutant(
        "proof-counts-what-was-delivered-before-a-skip", "the proof: a skip counts also what was delivered before it",
        "PROVEN, and it counts a record that the processor skipped, as one that was cut off had been delivered",
        _delivered_before_counts, drawn=storm_has("cut"),
    ),
    Mutant(
        "gaps-unsaid", "the ledger says of which claims lines are missing",
        "PROVEN, although what was done is in no ledger", _gaps_unsaid, drawn=storm_has("ledger fails"),
    ),
    Mutant(
        "proof-begins-a-topic-anywhere", "the proof: a recreated topic begins at its offset 0",
        "PROVEN, although its first records were never delivered", _topic_without_a_start,
        drawn=storm_has("recreate"),
    ),
    Mutant(
        "proof-knows-no-first-position", "the proof: a first position that was announced counts",
        "PROVEN, although what stands behind it was never delivered", _first_position_unknown,
        drawn=storm_has("reposition"),
    ),
    Mutant(
        "proof-takes-what-is-put-back-for-another", "the proof: a commit that a hand has put back is the ledger's",
        "a noted cut counts as an unnoticed one", _put_back_is_another, drawn=storm_has("cut"),
    ),
    Mutant(
        "successors-unsaid", "the ledger says where a processor's successor begins",
        "what was skipped and wanted again looks lost", _successors_unsaid, "reload",
    ),
)  # fmt: skip
