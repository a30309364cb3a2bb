"""What became of every record, by somebody who saw each hand-out and each byte of the log; the proof must say the same.

It knows neither ledger nor epoch of a commit: a record counts as handed out if that very record was in a batch, not one that
later stood at its offset. Where the proof says PROVEN and the witness knows of a record that was passed over, the proof is wrong.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from inbound.processors.batch import Batch, Record
from inbound.proof.intervals import contains, difference, intersection, union
from inbound.proof.model import ANOMALIES, FindingKind, OffsetRange, PartitionProof, Verdict
from inbound.testing.kafka import FakeKafka, Gone
from inbound.topic_partition import TopicPartition


@dataclass(eq=False)
class _Seen:
    """One partition, since its topic was created."""

    at: int | None = None  # the group's offset; None: it never had one
    #: What commits have gone past: each record of it was handed out, or somebody said why not.
    passed: list[OffsetRange] = field(default_factory=list)
    handed: dict[int, Record] = field(default_factory=dict)
    times: Counter[int] = field(default_factory=Counter)  # how often an offset was handed out
    #: What a processor or a reset has left out.
    left_out: list[OffsetRange] = field(default_factory=list)
    deleted: dict[int, Record] = field(default_factory=dict)  # by retention
    #: What stood at an offset before the log was cut, or the topic was deleted.
    gone: dict[int, list[Record]] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)  # where the log was cut
    handed_to: int = 0  # one past the highest offset that was handed out
    counts_from: int = 0  # what was handed out under an older epoch is to be handed out again
    #: What happened that no ledger could tell.
    unaccountable: list[str] = field(default_factory=list)
    untold: bool = False  # it was cut, and nobody had to notice: the proof may say anything


class Witness:
    """Told by the judge; asked when all is over."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka
        self._seen: dict[TopicPartition, _Seen] = defaultdict(_Seen)
        self._ledgers_failed = False
        kafka.on_gone = self._gone

    # -- what it sees --------------------------------------------------------------------------------------------------

    def handed(self, tp: TopicPartition, batch: Batch) -> None:
        """A processor is handed these."""
        seen = self._seen[tp]
        seen.handed_to = max(seen.handed_to, batch.next_offset)
        there = [r for r in batch.records if all(gone is not r for gone in seen.gone.get(r.offset, ()))]
        seen.times.update(record.offset for record in there)
        if batch.epoch >= seen.counts_from:
            seen.handed.update((record.offset, record) for record in there)

    def left_out(self, tp: TopicPartition, first: int, end: int) -> None:
        """A processor says that nobody needs these."""
        self._seen[tp].left_out.append((first, end))

    def committed(self, tp: TopicPartition, offset: int) -> None:
        """The group's offset is set by who owns the partition."""
        seen = self._seen[tp]
        if seen.at is not None:
            seen.passed = union([*_below(seen.passed, offset), (seen.at, offset)])
        seen.at = offset

    def reset(self, tp: TopicPartition, offset: int, epoch: int) -> None:
        """The group's offset is set by a command: what lies beyond is wanted, whether it was handed out before or not."""
        seen = self._seen[tp]
        seen.left_out = _below(seen.left_out, offset)
        if seen.at is not None and offset > seen.at:
            seen.left_out.append((seen.at, offset))
        self._wanted_from(seen, offset, epoch)

    def set_from_outside(self, tp: TopicPartition, offset: int, epoch: int) -> None:
        """Somebody has set the group's offset who writes no ledger."""
        seen = self._seen[tp]
        seen.unaccountable.append(f"set to {offset} from outside")
        if seen.at is not None and offset > seen.at:
            seen.passed = union([*seen.passed, (seen.at, offset)])
        self._wanted_from(seen, offset, epoch)

    def created_anew(self, tp: TopicPartition) -> None:
        """The group begins at the start of a topic that was created anew."""
        before = self._seen[tp]
        self._seen[tp] = _Seen(at=0, unaccountable=before.unaccountable, gone=before.gone)

    def cannot_tell(self, tp: TopicPartition) -> None:
        """A log was cut below a commit of which nobody knows under which leader the records before it were written."""
        self._seen[tp].untold = True

    def ledger_failed(self) -> None:
        """A ledger takes nothing for a while: then the proof may say that it cannot tell."""
        self._ledgers_failed = True

    def _wanted_from(self, seen: _Seen, offset: int, epoch: int) -> None:
        seen.at, seen.counts_from = offset, epoch
        seen.passed = _below(seen.passed, offset)
        seen.handed = {at: record for at, record in seen.handed.items() if at < offset}

    def _gone(self, gone: Gone) -> None:
        """Records have left the log."""
        seen = self._seen[gone.tp]
        for record in gone.records:
            if gone.why == "retention":
                seen.deleted[record.offset] = record  # it may still be handed out: it can have been read before
            else:
                seen.handed.pop(record.offset, None)
                seen.times.pop(record.offset, None)
                seen.gone.setdefault(record.offset, []).append(record)
        if gone.why == "deleted":
            seen.deleted.clear()
        if gone.why == "cut":
            seen.cuts.append(gone.end)
            seen.left_out = _below(seen.left_out, gone.end)
            if seen.at is not None:  # also where the group began behind that: others stand there now
                seen.passed = union([*seen.passed, (gone.end, seen.at)])

    # -- what it says --------------------------------------------------------------------------------------------------

    def lost(self, tp: TopicPartition) -> list[int]:
        """Return the offsets that are committed past and in the log, and whose record nobody was handed."""
        return self._never_handed(tp, self._kafka.records(tp))

    def deleted(self, tp: TopicPartition) -> list[int]:
        """Return the offsets that retention took before anybody was handed them, and that are committed past."""
        seen = self._seen[tp]  # where retention has deleted the place of a cut, nobody can tell what stood behind it
        return self._never_handed(tp, [r for r in seen.deleted.values() if all(r.offset < end for end in seen.cuts)])

    def _never_handed(self, tp: TopicPartition, records: Iterable[Record]) -> list[int]:
        """Return the offsets of those that are committed past although nobody was handed them, or said that nobody need be."""
        seen = self._seen[tp]
        wanted = difference(seen.passed, union(seen.left_out))
        return sorted(r.offset for r in records if contains(wanted, r.offset) and seen.handed.get(r.offset) is not r)

    def disagreements(self, proofs: Mapping[TopicPartition, PartitionProof]) -> Iterator[str]:
        """Yield where proofs, made of the same moment, and what was seen differ."""
        for tp, proof in proofs.items():
            if not self._seen[tp].untold:
                yield from (f"{tp}: {what}" for what in self._about(tp, proof))

    def _about(self, tp: TopicPartition, proof: PartitionProof) -> Iterator[str]:
        seen, lost, deleted = self._seen[tp], self.lost(tp), self.deleted(tp)
        if proof.verdict is Verdict.PROVEN and (lost or deleted):
            yield f"PROVEN, and nobody was handed {lost or deleted}"
        if proof.verdict is Verdict.NOT_PROVABLE:
            deleted_cut = any(end <= self._kafka.start(tp) for end in seen.cuts)
            if not (seen.unaccountable or self._ledgers_failed or deleted_cut):
                yield f"not provable, although the ledgers have it all: {'; '.join(proof.missing)}"
            return
        said = [record.offset for record in self._kafka.records(tp) if contains(_ranges(proof, "lost"), record.offset)]
        # What is held because of a cut is not looked at again: where it is cut once more below, more is lost than is said.
        held = (
            len(seen.cuts) > 1 and proof.verdict is Verdict.ANOMALIES and set(said) <= set(lost) <= {*said, *seen.gone}
        )
        if said != lost and not held:
            yield f"lost {said} by the proof, {lost} in truth"
        gone = union([*_ranges(proof, "lost-to-retention"), *_ranges(proof, "lost")])  # whichever came first
        if not (seen.unaccountable or all(contains(gone, offset) for offset in deleted)):
            yield f"deleted before anybody was handed it {gone} by the proof, {deleted} in truth"
        beyond = seen.cuts and max(seen.at or 0, seen.handed_to) > self._kafka.end(tp)
        if beyond and (seen.at or 0) > self._kafka.end(tp) and not _ranges(proof, "beyond-end"):
            yield f"the commit {seen.at} is beyond the log's end, and the proof does not say so"
        others = [f for f in proof.findings if f.kind in ANOMALIES - {"lost", "lost-to-retention"}]
        others = [finding for finding in others if not (beyond and finding.kind == "beyond-end")]
        if others and not seen.unaccountable:
            yield f"nothing of this happened: {others}"
        again = sorted(offset for offset, times in seen.times.items() if times > 1)
        named = union([*_ranges(proof, "repeated"), *_ranges(proof, "duplicate"), *proof.explained])
        told = sorted(offset for offset in seen.times if contains(named, offset))
        # Where nobody had to notice a cut, the ledgers cannot tell one record at an offset from another.
        if not set(again) <= set(told) <= {*again, *seen.gone}:
            yield f"handed out again {told} by the proof, {again} in truth"


def _below(ranges: Iterable[OffsetRange], end: int) -> list[OffsetRange]:
    return intersection(union(ranges), [(0, end)]) if end > 0 else []


def _ranges(proof: PartitionProof, kind: FindingKind) -> list[OffsetRange]:
    return union((finding.first, finding.next) for finding in proof.findings if finding.kind == kind)
