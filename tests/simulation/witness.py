"""What became of every record, by a witness of each delivery and each byte of the log; the proof must say the same.

It knows neither ledger nor epoch of a commit: a record counts as delivered if that very record was in a batch, not one that
later stood at its offset. Where the proof says PROVEN and the witness knows of a record that was passed over, the proof is wrong;
where it says that it cannot tell, something must have happened that no ledger could tell, and it must be right up to there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from inbound.ledger.base import Done, Range, Settled
from inbound.ledger.memory import Note, Recorded
from inbound.processors.batch import Batch
from inbound.proof.claims import RECREATED
from inbound.proof.evidence import NO_END
from inbound.proof.intervals import contains, difference, intersection, union
from inbound.proof.model import ANOMALIES, LEFT_OUT, FindingKind, LeftOutKind, OffsetRange, PartitionProof, Verdict
from inbound.testing.kafka import FakeKafka, Gone
from inbound.testing.simulation.witness import Scene, Witness
from inbound.topic_partition import TopicPartition
from tests.proof.world_proofs import proofs_of
from tests.simulation.witnessed import LeftOutRange, SeenPartition, Unaccountable, cut_off

#: What a proof calls records that are given up.
LEFT_OUT_BY: Mapping[str, LeftOutKind] = {"skip": "given-up", "dead-letter": "dead-lettered"}


class ProofWitness(Witness):
    """Remembers each partition as it was seen, and compares the proof with that."""

    def __init__(self, kafka: FakeKafka) -> None:
        super().__init__(kafka)
        self._kafka = kafka
        self._seen: dict[TopicPartition, SeenPartition] = defaultdict(SeenPartition)
        kafka.observers.append(self._gone)

    # -- events ---------------------------------------------------------------------------------------------------------

    def claimed(self, tp: TopicPartition, epoch: int) -> None:
        """A consumer of the group has claimed the partition; its ledger will say so, unless it dies before."""
        seen = self._seen[tp]
        seen.claim = epoch
        seen.claimed, seen.noted, seen.silent = True, False, seen.silent + 1
        if seen.at is not None:  # who comes begins at the commit, and need not pass over what lies behind it again
            seen.left_out = cut_off(seen.left_out, seen.at)

    def fenced(self, tp: TopicPartition) -> None:
        """A reset has moved the epoch on. The epoch of a never claimed partition does not say by whom."""
        self._seen[tp].noted &= self._seen[tp].claimed

    def handed(self, tp: TopicPartition, batch: Batch) -> None:
        seen = self._seen[tp]
        if batch.epoch < seen.since:
            return  # of the topic that is deleted
        seen.handed_to = max(seen.handed_to, batch.next_offset)
        # It may have been read before the log was cut.
        there = [r for r in batch.records if all(gone is not r for gone in seen.cut_off.get(r.offset, ()))]
        seen.times.update(record.offset for record in there)
        if len(there) < len(batch.records):  # so the log was cut below what the group has read
            lowest = min(r.offset for r in batch.records if all(r is not held for held in there))
            cut = max((end for end in seen.cuts if end <= lowest), default=lowest)
            seen.untold_cut = cut if seen.untold_cut is None else min(cut, seen.untold_cut)
        if batch.epoch >= seen.counts_from:
            seen.handed.update((record.offset, record) for record in there)
            seen.answered.update((record.offset, record) for record in there if record.offset < (seen.at or 0))
        for record in there:
            seen.delivered(record.offset, batch.epoch)
            if seen.newest.get(record.offset, 0) <= batch.epoch:
                seen.newest[record.offset] = batch.epoch
                seen.failed.discard(record.offset)
                seen.given_up.discard(record.offset)
                seen.given_up_before.discard(record.offset)
                seen.undecided.discard(record.offset)

    def answered(self, tp: TopicPartition, first: int, end: int, epoch: int) -> None:
        """A processor that was handed what is from `first` on says that what is before `end` may be committed: also what its
        claim was handed before.
        """
        seen = self._seen[tp]
        for offset, record in seen.handed.items():
            if offset < end and (first <= offset or epoch >= seen.newest[offset] >= seen.claim):
                seen.answered[offset] = record

    def fails_alone(self, tp: TopicPartition, offset: int, epoch: int) -> None:
        """A processor failed on this one record, and had nothing to say to that."""
        seen = self._seen[tp]
        if seen.newest.get(offset) == epoch:
            seen.failed.add(offset)
            if self.gives_up == "skip":
                seen.given_up.add(offset)

    def dead_lettered(self, tp: TopicPartition, offset: int) -> None:
        if offset in self._seen[tp].failed:
            self._seen[tp].given_up.add(offset)

    def failure_answered(self, tp: TopicPartition, offset: int) -> None:
        self._seen[tp].failed.discard(offset)
        self._seen[tp].given_up.discard(offset)

    def abandons(self, tp: TopicPartition, offset: int) -> None:
        """Its owner lets go of a record that failed: whether it had time to give it up cannot be seen from outside."""
        seen = self._seen[tp]
        seen.undecided.add(offset)
        seen.failed.discard(offset)
        seen.given_up.discard(offset)

    def passes_over(self, tp: TopicPartition, first: int, end: int, epoch: int) -> None:
        """A processor skips these, also records that failed in an earlier claim and were not committed past."""
        seen = self._seen[tp]
        if epoch >= seen.claim:
            seen.left_out.append(LeftOutRange(first, end, "passed-over", epoch))
        still = range(max(first, seen.at or 0), end)
        over = {at for at in seen.failed | seen.given_up if at in still and seen.newest.get(at, 0) < epoch}
        seen.failed -= over
        seen.given_up -= over

    def passes_over_a_cut(self, tp: TopicPartition, first: int, end: int, epoch: int) -> None:
        """The group goes on behind a cut, as it is configured to, and leaves these out."""
        self._seen[tp].untold_cut = None
        self._seen[tp].left_out.append(LeftOutRange(first, end, "jumped", epoch))

    def committed(self, tp: TopicPartition, offset: int) -> None:
        """The group's offset is set by who owns the partition."""
        seen = self._seen[tp]
        if seen.at is not None:
            seen.passed = union([*_below(seen.passed, offset), (seen.at, offset)])
            seen.given_up_before |= {at for at in seen.given_up if offset <= at < seen.at}  # it goes back for a cut
        seen.began = True
        seen.moves_to(offset)

    def begins_without_offset(self, tp: TopicPartition, offset: int) -> None:
        """The owner of the partition found no offset of the group, and begins here."""
        seen = self._seen[tp]
        if seen.inside is not None:  # it has not seen where a tool had moved it
            (seen.at, seen.passed), seen.inside = seen.inside, None
        low = min(seen.recorded, seen.at or 0)
        seen.unaccountable += [Unaccountable(doubt, low) for doubt in seen.doubts if seen.at is not None]
        seen.wants_from(offset)
        if seen.at is not None and offset > seen.at:
            seen.began_past.append((seen.at, offset))
        self.committed(tp, offset)

    def reset(self, tp: TopicPartition, offset: int, epoch: int, cut: int | None = None) -> None:
        """The group's offset is set by a command: what lies beyond is wanted, delivered before or not.

        `cut`: where the log was cut, and the group has not gone back for that: the reset leaves out what stands there, too.
        """
        seen = self._seen[tp]
        seen.given_up_before |= {at for at in seen.given_up if offset <= at < (seen.at or 0)}
        undecided = set(seen.undecided)
        seen.wants_from(offset)
        seen.is_reset(offset)
        seen.undecided |= undecided
        low = seen.at if seen.at is None or cut is None else min(seen.at, cut)
        if low is not None and offset > low:
            if seen.began:
                seen.left_out.append(LeftOutRange(low, offset, "jumped", epoch))
            else:  # an earlier reset has put it there: the next claim may find that out
                seen.perhaps_jumped.append((low, offset))
        seen.undecided |= {at for at in seen.failed | seen.given_up if at >= (seen.at or 0)}
        seen.failed -= seen.undecided
        seen.given_up -= seen.undecided
        seen.unnoticed |= seen.untold_cut is not None and seen.untold_cut < offset
        seen.unnoticed |= seen.offset_taken and bool(seen.cuts)  # from where it goes on, the ledger alone says
        seen.untold_cut = None
        seen.counts_from = epoch
        seen.moves_to(offset)
        seen.passed = _below(seen.passed, offset)
        seen.handed = {at: record for at, record in seen.handed.items() if at < offset}

    def takes_offset(self, tp: TopicPartition) -> None:
        """An operator takes the group's offset out of its node: it is in no node."""
        seen = self._seen[tp]
        seen.offset_taken = seen.offset_was_taken = seen.told_of_recreation = True

    def mends_offset(self, tp: TopicPartition) -> None:
        self._seen[tp].offset_taken = False

    def set_from_outside(self, tp: TopicPartition, offset: int) -> None:
        """A tool without a ledger has set the group's offset: whether it wants records again is unknown."""
        seen = self._seen[tp]
        known = [seen.recorded, offset, *([seen.at] if seen.at is not None else [])]
        seen.unaccountable.append(Unaccountable(f"set to {offset} from outside", min(known)))
        if seen.inside is None:
            seen.inside = seen.at, seen.passed
        at, passed = seen.inside  # of several such moves, the group sees what the last one has come to
        seen.passed = union([*_below(passed, offset), *([(at, offset)] if at is not None and at < offset else [])])
        seen.at, seen.offset_taken = offset, False

    def cannot_tell(self, tp: TopicPartition) -> None:
        """A log was cut below a position, and no node says which leader wrote the records before it."""
        self._seen[tp].unnoticed = True

    def recreated(self, tp: TopicPartition) -> None:
        self._seen[tp].gone = True

    def begins_recreated(self, tp: TopicPartition, epoch: int) -> None:
        """The group begins at the start of a recreated topic."""
        old = self._seen[tp]
        # Deliveries behind a cut say nothing of that topic, if its ledger came to note the cut.
        told = (old.at, old.handed_to) if old.noted and not (old.unaccountable or old.cuts) else None
        self._seen[tp] = SeenPartition(
            at=0, began=True, since=epoch, claimed=True, noted=False, former=[*old.former, told], deleted=old.deleted,
            told_of_recreation=False, unaccountable=old.of_either_topic(),
        )  # fmt: skip

    def wrote(self, entries: Sequence[Recorded]) -> None:
        for entry in entries:
            seen = self._seen[TopicPartition(entry.topic, entry.partition)]
            if isinstance(entry, Note) and entry.kind == "reset":
                seen.told = entry.facts["new"]
                seen.told_of_recreation |= entry.facts["reason"] == RECREATED
            elif isinstance(entry, Note) and entry.kind == "truncated":
                seen.untold_cut = None
                self._cut_is_noticed(seen, entry.facts)
            elif isinstance(entry, Note) and entry.kind == "claimed":
                seen.noted = True
                unsure, seen.unsure = seen.unsure, entry.facts.get("on_failure") == "degrade"
                doubts = {
                    "who had it before may have moved the commit without its ledger": unsure,
                    "of claims before it no ledger tells": seen.silent > 1,
                    "the first commit may have landed": seen.announced and not seen.recorded_under,
                }
                seen.doubts, seen.silent = [doubt for doubt, so in doubts.items() if so], 0
                if entry.facts["position"] is not None:
                    # Behind a cut, a commit from before it is not to be told from one that no ledger has.
                    if unsure and any(end < entry.facts["position"] for end in seen.cuts):
                        what = "who had it before may have moved the commit over a cut without its ledger"
                        seen.unaccountable.append(Unaccountable(what, min([seen.recorded, *seen.cuts])))
                    seen.recorded, seen.began, seen.inside = entry.facts["position"], True, None
                    seen.moved_to = None
                    seen.recorded_under[entry.epoch] = seen.recorded
                    self._known_again(seen, NO_END if seen.told == seen.recorded else seen.recorded)
                seen.told = None
            elif isinstance(entry, Note) and entry.kind in ("released", "lost"):
                seen.unsure = False
            elif isinstance(entry, Done):
                seen.announced = True
            elif isinstance(entry, Settled) and entry.outcome == "landed":
                seen.recorded = seen.recorded_under[entry.epoch] = entry.commit
            elif isinstance(entry, Range):
                self._known_again(seen, entry.first)

    def _cut_is_noticed(self, seen: SeenPartition, facts: Mapping[str, Any]) -> None:
        """A ledger says where the log was cut: as the brokers said, and it may have been cut below that since.

        Who goes on behind a cut has read nothing there, so that one need not show any more.
        """
        since, seen.noticed = seen.cuts[seen.noticed :], len(seen.cuts)
        cut = facts["cut"]
        if cut is not None:
            seen.counts_to(cut)
        if facts["to"] is not None and cut is not None and cut > facts["start"]:
            seen.unnoticed |= any(end < cut for end in since)
        if facts["to"] is not None and cut is None and seen.cuts:
            seen.unaccountable.append(Unaccountable("no broker could tell where the log was cut", 0))

    def _known_again(self, seen: SeenPartition, offset: int) -> None:
        """A ledger says where something goes on: if that is lower, without a reason, what was before is unknown."""
        seen.unaccountable = [
            replace(one, low=min(one.low, offset), open=False) if one.open else one for one in seen.unaccountable
        ]

    def refused(self, entries: Sequence[Recorded], *, degrade: bool) -> None:
        """A ledger has not taken these; events happen all the same, and with `degrade` everything does."""
        for entry in entries:
            if isinstance(entry, Note) or (degrade and isinstance(entry, Range | Done)):
                seen = self._seen[TopicPartition(entry.topic, entry.partition)]
                # What one says that was overtaken stands behind its own commits, not behind those of who came after it.
                own = max((epoch for epoch in seen.recorded_under if epoch <= entry.epoch), default=None)
                low = seen.recorded if own is None else min(seen.recorded, seen.recorded_under[own])
                seen.unaccountable.append(Unaccountable(f"{entry} is in no ledger", low, unwritten=True, open=True))

    def _gone(self, gone: Gone) -> None:
        """Records have left the log."""
        seen = self._seen[gone.tp]
        for record in gone.records:
            if gone.why == "retention":
                seen.deleted[record.offset] = record  # it may still be delivered: it can have been read before
            else:
                seen.handed.pop(record.offset, None)
                seen.times.pop(record.offset, None)
                seen.newest.pop(record.offset, None)  # a member that still has it fails on what is gone
        if gone.why == "deleted":
            seen.deleted.clear()
            seen.cuts.clear()
            seen.noticed = 0
            seen.cut_off.clear()
        elif gone.why == "cut":
            seen.cuts.append(gone.end)
            if gone.end < max(seen.at or 0, seen.handed_to):
                seen.untold_cut = gone.end if seen.untold_cut is None else min(gone.end, seen.untold_cut)
            for record in gone.records:
                seen.cut_off.setdefault(record.offset, []).append(record)
            seen.wants_from(gone.end)
            seen.given_up_before = {at for at in seen.given_up_before if at < gone.end}
            if seen.at is not None:  # also where the group began behind that: others stand there now
                seen.passed = union([*seen.passed, (gone.end, seen.at)])

    # -- answers -------------------------------------------------------------------------------------------------------

    def lost(self, tp: TopicPartition) -> list[int]:
        """Return the offsets that are committed past and in the log, and whose record was never delivered."""
        seen = self._seen[tp]
        return seen.lacking(self._kafka.records(tp), seen.passed, seen.handed)

    def deleted(self, tp: TopicPartition, owner: str | None, *, unanswered: bool = False) -> list[int]:
        """Return the offsets that retention took before they were delivered, and that are committed past; without an
        owner also those that the next owner will not find.

        `unanswered`: also those delivered and not answered for, so that they were to be redelivered.
        """
        seen = self._seen[tp]
        ahead = [(seen.at, NO_END)] if owner is None and seen.at is not None else []
        passed = union([*seen.passed, *ahead])
        if not unanswered:
            return seen.lacking(seen.deleted.values(), passed, seen.handed)
        over = seen.failed | seen.given_up | seen.undecided
        return [at for at in seen.lacking(seen.deleted.values(), passed, seen.answered) if at not in over]

    def left_out(self, tp: TopicPartition, kind: LeftOutKind) -> set[int]:
        """Return the offsets that are committed past on purpose, of those that the log has.

        What was delivered before that does not count. What had failed for good is named as that alone.
        """
        seen = self._seen[tp]
        there = {record.offset for record in self._kafka.records(tp)}
        failed = {offset for offset in (seen.given_up | seen.given_up_before) & there if offset < (seen.at or 0)}
        if kind in ("given-up", "dead-lettered"):
            return failed if kind == LEFT_OUT_BY.get(self.gives_up) else set()
        ranges = union((left.first, left.next) for left in seen.left_out if left.kind == kind)
        done = intersection(ranges, [(0, seen.at)] if seen.at else [])
        return {offset for offset in there - failed - seen.undecided if contains(done, offset)}

    def unclaimed(self, tp: TopicPartition) -> bool:
        """Whether there are records, or were some, and no member was ever responsible for them."""
        limits = self._kafka.log_range(tp)
        return not self._seen[tp].claimed and bool(self._kafka.records(tp) or (limits is not None and limits.start))

    def compare(
        self, world: Scene, owner: Callable[[TopicPartition], str | None], *, midst: bool = False
    ) -> Iterator[str]:
        return self.disagreements(proofs_of(world), owner, midst=midst)

    def disagreements(
        self,
        proofs: Mapping[TopicPartition, PartitionProof],
        owner: Callable[[TopicPartition], str | None],
        *,
        midst: bool = False,
    ) -> Iterator[str]:
        """Yield where proofs, made of the same moment, and what was seen differ; in the midst of faults some cannot be told."""
        for tp, proof in proofs.items():
            seen = self._seen[tp]
            # Until a cut is noticed, offsets tell old records from new ones no more.
            unknown = seen.gone or self._kafka.log_range(tp) is None or (midst and bool(seen.cuts))
            if not (unknown or seen.unnoticed):
                yield from (f"{tp}: {what}" for what in self._about(tp, proof, owner(tp)))

    def _about(self, tp: TopicPartition, proof: PartitionProof, owner: str | None) -> Iterator[str]:
        seen, lost, deleted = self._seen[tp], self.lost(tp), self.deleted(tp, owner)
        # Where retention has deleted the place of a cut, no ledger can tell what stood behind it; nor whether there was one, unless
        # a member has noticed it before.
        behind = [offset for offset in deleted if any(offset >= end for end in seen.cuts)]
        deleted = [offset for offset in deleted if offset not in behind]
        yield from self._verdict(
            tp, proof, owner, lost or deleted or (behind if seen.noticed == len(seen.cuts) else [])
        )
        known = proof.proven or 0 if proof.missing else NO_END  # from there on, the proof does not say that it knows
        unwritten = any(one.unwritten for one in seen.unaccountable)
        offsets = [record.offset for record in self._kafka.records(tp) if record.offset < known]
        lost, deleted = [o for o in lost if o < known], [o for o in deleted if o < known]

        def said(kinds: Collection[FindingKind]) -> list[int]:
            ranges = union((f.first, f.next) for f in proof.findings if f.kind in kinds and not _of_former(f.cause))
            return [offset for offset in offsets if contains(ranges, offset)]

        # What is held because of a cut is not looked at again: where it is cut once more below, more is lost than the proof says.
        held = len(seen.cuts) > 1 and proof.verdict is Verdict.ANOMALIES
        named = said(["lost"])
        cut_unwritten = unwritten and seen.untold_cut is not None
        if named != lost and not cut_unwritten and not (held and set(named) <= set(lost) <= {*named, *seen.cut_off}):
            yield f"lost {named} by the proof, {lost} in truth"
        # Whichever came first: that the commit went past it, or that it was deleted.
        gone = union((f.first, f.next) for f in proof.findings if f.kind in ("lost", "lost-to-retention"))
        in_hand = [o for o in self.deleted(tp, owner, unanswered=True) if o < known and o not in behind]
        # Who found no commit has passed over it, and may have been delivered it before.
        over = union([*gone, *((f.first, f.next) for f in proof.findings if f.kind == "skipped")])
        if not (unwritten or all(contains(over, offset) for offset in in_hand)):
            yield f"deleted before it was answered for: {over} by the proof, {in_hand} in truth"
        if not all(contains(gone, offset) for offset in deleted):
            yield f"deleted before it was delivered: {gone} by the proof, {deleted} in truth"
        others = [f for f in proof.findings if f.kind in ANOMALIES - {"lost", "lost-to-retention"} and f.first < known]
        others = [finding for finding in others if not seen.explains(finding)]
        if seen.cuts and max(seen.at or 0, seen.handed_to) > self._kafka.end(tp):
            others = [finding for finding in others if finding.kind != "beyond-end"]
            beyond = any(finding.kind == "beyond-end" for finding in proof.findings)
            if (seen.at or 0) > self._kafka.end(tp) and not beyond:
                yield f"the commit {seen.at} is beyond the log's end, and the proof does not say so"
        if others:
            yield f"nothing of this happened: {others}"
        for kind in LEFT_OUT:
            unsure = seen.taken_back if kind in ("jumped", "passed-over") else []
            truth = sorted(at for at in self.left_out(tp, kind) if at < known and not contains(unsure, at))
            told = {at for at in said([kind]) if not contains(unsure, at)} - seen.undecided
            same = told == set(truth) or (held and set(truth) <= told <= {*truth, *seen.cut_off})
            # Where the group's offset was taken out of its node, the proof goes by the last commit that a ledger knows.
            same |= seen.offset_taken or (seen.offset_was_taken and set(truth) <= told)
            if kind == "jumped":
                same |= set(truth) == {offset for offset in told if not contains(union(seen.perhaps_jumped), offset)}
            if not (same or unwritten):
                yield f"{kind} {sorted(told)} by the proof, {truth} in truth"
        again = sorted(offset for offset, times in seen.times.items() if times > 1 and offset < known)
        repeats = [f for f in proof.findings if f.kind in ("repeated", "duplicate") and not _of_former(f.cause)]
        ranges = union([*((f.first, f.next) for f in repeats), *proof.explained])
        twice = sorted(offset for offset in seen.times if offset < known and contains(ranges, offset))
        # What was not written may have been redelivered, too. And where no member had to notice a cut, the ledgers cannot tell
        # one record at an offset from another, as where none could say that the topic was recreated.
        same = set(() if unwritten else again) <= set(twice) <= {*again, *seen.cut_off}
        if not (same or (unwritten and not seen.told_of_recreation)):
            yield f"redelivered {twice} by the proof, {again} in truth"
        if seen.noted and not seen.unaccountable:
            yield from self._former(seen, proof)
            if not seen.told_of_recreation:
                yield "the topic was recreated, and no ledger says so"

    def _verdict(self, tp: TopicPartition, proof: PartitionProof, owner: str | None, wrong: list[int]) -> Iterator[str]:
        seen = self._seen[tp]
        if proof.verdict is Verdict.PROVEN:
            if wrong:
                yield f"PROVEN, and never delivered: {wrong}"
            # What the headline counts.
            known = proof.start is not None and proof.proven is not None
            counted = difference([(proof.start or 0, proof.proven or 0)] if known else [], proof.left_out)
            never = [r.offset for r in self._kafka.records(tp) if contains(counted, r.offset)]
            if never := [offset for offset in never if not seen.times[offset]]:
                yield f"PROVEN, and it counts {never}, which were never delivered"
        told = (Verdict.ANOMALIES, Verdict.NOT_PROVABLE, Verdict.UNCLAIMED)
        if proof.verdict not in told if self.unclaimed(tp) else proof.verdict is Verdict.UNCLAIMED:
            yield f"{proof.verdict.name}, and a member has {'' if seen.claimed else 'never '}claimed it"
        if not proof.missing:
            # In no node, it is where the ledger says: a commit can have landed whose line is not written yet.
            at = {seen.at, seen.recorded} if seen.offset_taken else {seen.at}
            if proof.committed not in at and seen.at is not None:
                yield f"committed is {proof.committed} by the proof, {seen.at} in truth"
            return
        reasons = list(seen.unaccountable)
        if not seen.noted:
            reasons.append(Unaccountable("who claimed it has not said so, or died before it could", 0))
        if seen.offset_taken:
            low = min([seen.recorded, seen.at or 0, *seen.cuts])
            reasons.append(Unaccountable("the group's offset is in no node", low))
        if any(end <= self._kafka.start(tp) for end in seen.cuts):
            reasons.append(Unaccountable("retention has deleted the place of a cut", 0))
        if seen.untold_cut is not None and (owner is None or self._read_again(tp, seen.untold_cut)):
            reasons.append(Unaccountable("no member has to act on a cut", seen.untold_cut))
        known_below = [seen.at or 0, *(reason.low for reason in reasons)]
        if seen.untold_cut is not None:  # the brokers say where it is
            known_below.append(seen.untold_cut)
        if not reasons:
            yield f"not provable, although the ledgers have it all: {'; '.join(proof.missing)}"
        elif (proof.proven or 0) < min(known_below):
            what = "; ".join(f"{reason.what}: all is known below {reason.low}" for reason in reasons)
            yield f"proven up to {proof.proven} alone, although {what}"

    def _read_again(self, tp: TopicPartition, end: int) -> bool:
        """Whether the owner has read what stands between a cut and the commit now: it had gone back there, and the
        place of the cut tells nothing to who reads on from it.
        """
        seen = self._seen[tp]
        there = [record for record in self._kafka.records(tp) if end <= record.offset < (seen.at or 0)]
        return bool(there) and all(seen.handed.get(record.offset) is record for record in there)

    def _former(self, seen: SeenPartition, proof: PartitionProof) -> Iterator[str]:
        """Compare deleted topics: a commit whose line is missing may be left out."""
        said = [(former.committed, former.handed_to) for former in proof.former]
        known = [former for former in seen.former if former is not None]
        if len(known) < len(seen.former):
            return
        same = len(said) == len(known) and all(
            (told or 0) <= (at or 0) and handed_to == end
            for (told, handed_to), (at, end) in zip(said, known, strict=False)
        )
        if not same:
            yield f"of deleted topics {said} was committed and delivered by the proof, {known} in truth"


def _of_former(cause: str) -> bool:
    return cause.startswith("in the topic that was deleted")


def _below(ranges: Iterable[OffsetRange], end: int) -> list[OffsetRange]:
    return intersection(union(ranges), [(0, end)]) if end > 0 else []
