"""The ledgers of simulated consumers, judged: what they noted in memory, the fake log, the fake ensemble's nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from inbound.coordinators.nodes import decode_offset
from inbound.ledger.base import Done, Range, Settled
from inbound.ledger.memory import Note
from inbound.ledger.reader import Entry
from inbound.processors.batch import Batch
from inbound.proof.collapse import Collapser, Source, joined
from inbound.proof.intervals import union
from inbound.proof.judge import judge
from inbound.proof.model import ANOMALIES, Coordination, LogExtent, PartitionKey, PartitionProof, Verdict
from inbound.testing.simulation.judge import HandOut
from inbound.testing.simulation.plan import make_plan
from inbound.testing.simulation.run import Run
from inbound.testing.simulation.stage import Stage
from inbound.testing.world import GROUP, Consumer, World
from inbound.topic_partition import TopicPartition

#: What was handed out, how often: by partition and offset. Of records only.
HandedOut = dict[TopicPartition, Counter[int]]


def entries(consumer: Consumer) -> Iterator[Entry]:
    """Yield what a consumer has noted, as lines of a file."""
    for seq, noted in enumerate(consumer.ledger.entries, start=1):
        if not isinstance(noted, Range | Done | Settled | Note):
            continue
        members = {name: getattr(noted, name) for name in noted.__dataclass_fields__}
        kind = members.pop("kind", type(noted).__name__.lower().replace("range", "begun"))
        yield Entry(
            Path(consumer.name), seq, kind, consumer.name, seq, GROUP, consumer.consumer_id, float(seq), **members
        )


def proofs_of(world: World, piece: int = 1 << 30) -> dict[TopicPartition, PartitionProof]:
    """Judge every partition that there is, from ledgers that are read in pieces of so many lines."""
    stories = []
    for consumer in world.consumers.values():
        lines, pieces = list(entries(consumer)), []
        for start in range(0, max(1, len(lines)), piece):
            collapser = Collapser(Source(GROUP, consumer.consumer_id, consumer.name, consumer.name))
            for entry in lines[start : start + piece]:
                collapser.add(entry)
            pieces.append(collapser.piece())
        stories.append(joined(pieces))
    runs = [story.run for story in stories]
    spans = [span for story in stories for span in story.spans]
    events = [event for story in stories for event in story.events]
    partitions = [TopicPartition(t, p) for t, meta in world.kafka.topics().items() for p in range(meta.partitions)]
    return {
        tp: judge(PartitionKey(GROUP, *tp), runs, spans, events, [], _extent(world, tp), _coordination(world, tp))
        for tp in partitions
    }


def _extent(world: World, tp: TopicPartition) -> LogExtent | None:
    limits = world.kafka.log_range(tp)
    if limits is None:
        return None
    present = union((offset, offset + 1) for offset in world.kafka.offsets(*tp))
    return LogExtent(limits.start, limits.end, tuple(present))


def _coordination(world: World, tp: TopicPartition) -> Coordination:
    tree, paths = world.ensemble.tree, world.paths
    offset, epoch, owner = (tree.get(path(*tp)) for path in (paths.offset, paths.epoch, paths.owner))
    return Coordination(
        decode_offset(paths.offset(*tp), offset.data) if offset is not None else None,
        offset.stat.mzxid if offset is not None else None,
        epoch.stat.version if epoch is not None else None,
        owner.data.decode() if owner is not None else None,
    )


def repeated_by(proof: PartitionProof) -> set[int]:
    """Return the offsets that a proof says were handed out again, for whatever reason."""
    ranges = [(finding.first, finding.next) for finding in proof.findings if finding.kind in ("repeated", "duplicate")]
    return {offset for first, end in (*ranges, *proof.explained) for offset in range(first, end)}


@dataclass
class Played:
    """A simulated run, with a record of its own of what the processors were handed."""

    stage: Stage
    handed_out: HandedOut
    kinds: frozenset[str]  # of what happened
    violations: tuple[str, ...]

    def disagreements(self) -> list[str]:
        """Return where the proof from the ledgers and what was seen differ."""
        found = []
        in_pieces = proofs_of(self.stage.world, piece=7)
        for tp, proof in proofs_of(self.stage.world).items():
            if in_pieces[tp] != proof:
                found.append(f"{tp}: read in pieces the ledgers prove something else: {in_pieces[tp]}")
            seen = self.handed_out.get(tp, Counter())
            anomalies = [f for f in proof.findings if f.kind in ANOMALIES]
            if any(f.kind != "lost-to-retention" or "retain" not in self.kinds for f in anomalies):
                found.append(f"{tp}: {anomalies}")
            if proof.verdict is Verdict.NOT_PROVABLE and not self.kinds & {"reposition", "recreate"}:
                found.append(f"{tp}: not provable: {proof.missing}")
            if tp.topic in self.stage.recreated:
                continue  # the same offsets are other records
            again = {offset for offset, times in seen.items() if times > 1}
            if repeated_by(proof) & seen.keys() != again:
                found.append(
                    f"{tp}: {sorted(again)} were handed out again, the proof says {sorted(repeated_by(proof))}"
                )
        return found


def play(seed: int) -> Played:
    """Play a seed of the simulator, and write down what is handed out."""
    plan = make_plan(seed)
    stage = Stage(plan)
    handed_out: HandedOut = {}
    begins = stage.judge.begins

    def recorded(consumer: Consumer, batch: Batch) -> HandOut:
        tp = TopicPartition(batch.topic, batch.partition)
        handed_out.setdefault(tp, Counter()).update(record.offset for record in batch.records)
        return begins(consumer, batch)

    stage.judge.begins = recorded  # type: ignore[method-assign]
    outcome = Run(stage).play()
    return Played(stage, handed_out, frozenset(action.kind for action in plan.storm), outcome.violations)
