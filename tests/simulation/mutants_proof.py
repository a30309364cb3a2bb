"""Mutants of the proof, and of what ledgers note for it: a verdict that nobody who saw it all would agree with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from inbound.ledger.memory import MemoryLedger
from inbound.parts import Parts
from inbound.proof import chain, claims, judge, rules
from inbound.proof.claims import Claim
from inbound.proof.evidence import Evidence
from inbound.proof.intervals import Growing
from inbound.proof.model import Coordination, Event, OffsetRange, Span
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


def _begins_anew_anywhere(plant: Plant) -> None:
    def begins_anew(original: Original, evidence: Evidence, claim: Claim, offset: int, *, before: Claim | None) -> None:
        holes, missing = len(evidence.holes), len(evidence.missing)
        original(evidence, claim, offset, before=before)
        if (len(evidence.holes), len(evidence.missing)) != (holes, missing):
            plant.bite()
            del evidence.holes[holes:], evidence.missing[missing:]

    plant.around(chain, "_begins_anew", begins_anew)


def _excused_for_ever(plant: Plant) -> None:
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


def _withheld_counts(plant: Plant) -> None:
    def handed_out(original: Original, items: Iterable[Span | Event]) -> list[Span | Event]:
        begun = [item for item in items if isinstance(item, Span) or item.kind != "withheld"]
        if begun != original(items):
            plant.bite()
        return begun

    plant.around(claims, "_handed_out", handed_out)


def _unnoted_resets(plant: Plant) -> None:
    def untold(original: Original, coordination: Coordination | None, of: Sequence[Claim]) -> list[Claim]:
        if original(coordination, of):
            plant.bite()
        return []

    plant.around(judge, "untold", untold)


def _commit_of_a_reset_stands(plant: Plant) -> None:
    """A commit that was announced, and never answered, did not land."""

    def stood_at(original: Original, evidence: Evidence, *rest: Any) -> int | None:
        if original(evidence, *rest) != evidence.expected:
            plant.bite()
        return evidence.expected

    plant.around(chain, "_stood_at", stood_at)


def _claimed_since_is_not_asked(plant: Plant) -> None:
    def never_committed(original: Original, coordination: Coordination) -> bool:
        moved = coordination.moved
        if moved is None or not moved.claimed:
            return bool(original(coordination))
        unclaimed = bool(original(replace(coordination, moved=replace(moved, claimed=False))))
        if unclaimed:
            plant.bite()
        return unclaimed

    plant.around(rules, "_never_committed", never_committed)


def _gaps_unsaid(plant: Plant) -> None:
    def lacks(original: Original, *arguments: Any) -> None:
        plant.bite()

    plant.around(MemoryLedger, "lacks", lacks)


def _successors_unsaid(plant: Plant) -> None:
    def note(original: Original, self: Parts, kind: str, tp: TopicPartition, epoch: int, **facts: Any) -> None:
        if facts.get("reason") == "successor":
            plant.bite()
        else:
            original(self, kind, tp, epoch, **facts)

    plant.around(Parts, "note", note)


PROOFS = (
    Mutant(
        "proof-knows-no-unclaimed", "the proof: records for which nobody was ever responsible are named",
        "a partition that nobody ever claimed counts as processed", _nobody_responsible,
    ),
    Mutant(
        "proof-begins-anew-anywhere", "the proof: a claim that finds no offset is held against the last commit",
        "PROVEN, although what lies between was handed to nobody", _begins_anew_anywhere,
        drawn=all_of(storm_has("offset emptied", "offset deleted"), lambda plan: plan.setup.latest),
    ),
    Mutant(
        "proof-excuses-for-ever", "the proof: what a reset or a revert wants again is not left out any more",
        "PROVEN, although what was skipped once, and then wanted, was handed to nobody", _excused_for_ever, "reset",
    ),
    Mutant(
        "proof-forgets-what-was-left-out", "the proof: what was given up is named, unless it is handed out again",
        "what failed, was gone back over, and passed, is nowhere to be found", _never_come_to,
    ),
    Mutant(
        "proof-counts-what-is-skipped", "the proof: the headline counts what was handed out",
        "records that were given up count as processed", _skipped_counts,
    ),
    Mutant(
        "proof-counts-what-is-withheld", "the proof: what was begun, and not handed out, is not handed out",
        "it says repeated of what no processor had twice", _withheld_counts,
    ),
    Mutant(
        "proof-waits-for-the-next-claim", "the proof: a reset that no claim has noted stands in the epoch node",
        "what it wants again counts as processed", _unnoted_resets, "reset",
    ),
    Mutant(
        "proof-takes-announced-for-void", "the proof: an announced commit that a reset has found had landed",
        "what the reset has passed is not named", _commit_of_a_reset_stands, "reset",
    ),
    Mutant(
        "proof-asks-not-who-claimed", "the proof: who has claimed after a reset may have handed out",
        "it says that nobody ever claimed a partition of which a ledger is missing", _claimed_since_is_not_asked, "reset",
    ),
    Mutant(
        "gaps-unsaid", "the ledger says of which claims lines are missing",
        "PROVEN, although what was done is in no ledger", _gaps_unsaid, drawn=storm_has("ledger fails"),
    ),
    Mutant(
        "successors-unsaid", "the ledger says where a processor's successor begins",
        "what was skipped and wanted again looks lost", _successors_unsaid, "reload",
    ),
)  # fmt: skip
