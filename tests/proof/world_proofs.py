"""The ledgers of a world's consumers, judged as `spark validate` does: their lines, the fake log, the fake ensemble's nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from inbound.coordinators.nodes import BadNodeError, EpochInfo, decode_epoch, decode_offset, same_topic
from inbound.ledger.base import Done, Range, Settled
from inbound.ledger.jsonl import Entry
from inbound.ledger.memory import MemoryLedger
from inbound.proof.intervals import union
from inbound.proof.judge import judge
from inbound.proof.model import (
    GRAVEST,
    Damage,
    LedgerEvent,
    LogExtent,
    NotedReset,
    PartitionKey,
    PartitionProof,
    Span,
    Verdict,
    ZooKeeperState,
)
from inbound.proof.spans import EVENTS, Piece, RunSource, degraded, joined
from inbound.testing.simulation.witness import Scene
from inbound.topic_partition import TopicPartition

#: What lines of a ledger are called that are no notes.
KINDS = {Range: "begun", Done: "done", Settled: "settled"}


def proofs_of(world: Scene) -> dict[TopicPartition, PartitionProof]:
    """Judge every partition that exists now."""
    stories = []
    for name, consumer_id, ledger in world.ledgers():
        source = RunSource(world.group, consumer_id, name, name)
        stories.append(joined([_piece(source, list(_entries(world.group, name, consumer_id, ledger)))]))
    runs = [story.run for story in stories]
    spans = [span for story in stories for span in story.spans]
    events = [event for story in stories for event in story.events]
    damage = [damage for story in stories for damage in story.damage]
    partitions = [TopicPartition(t, p) for t, meta in world.kafka.topics().items() for p in range(meta.partitions)]
    proofs = {}
    for tp in partitions:
        key, coordination = PartitionKey(world.group, *tp), _coordination(world, tp)
        proof = judge(key, runs, spans, events, damage, _extent(world, tp), coordination)
        if coordination is None:  # how far the group has come is not known, and the ledgers may lack it
            verdict = min(proof.verdict, Verdict.NOT_PROVABLE, key=GRAVEST.index)
            proof = replace(proof, verdict=verdict, missing=(*proof.missing, "its offset node cannot be read"))
        proofs[tp] = proof
    return proofs


def _entries(group: str, name: str, consumer_id: str, ledger: MemoryLedger) -> Iterator[Entry]:
    """Yield what a consumer has noted, as lines of a file."""
    for seq, noted in enumerate(ledger.entries, start=1):
        members: dict[str, Any] = (
            noted._asdict()
            if isinstance(noted, Range)
            else {name: getattr(noted, name) for name in noted.__dataclass_fields__}
        )
        kind = members.pop("kind", KINDS.get(type(noted)))
        yield Entry(Path(name), seq, kind, name, seq, group, consumer_id, float(seq), **members)


def _piece(source: RunSource, entries: Sequence[Entry]) -> Piece:
    """Return each line as a span or an event of its own; `joined` merges the spans that go straight on."""
    spans: list[Span] = []
    events: list[LedgerEvent] = []
    damage: list[Damage] = []
    for entry in entries:
        if entry.topic is None or entry.partition is None:
            damage += degraded(source, entry.seq, entry.facts) if entry.kind == "degraded" else []
            continue
        key = PartitionKey(source.group, entry.topic, entry.partition)
        epoch = -1 if entry.epoch is None else entry.epoch
        kind, facts, commit = entry.kind, entry.facts, entry.commit
        if kind == "settled" and entry.outcome != "landed":
            kind, facts = "commit", {"commit": commit, "outcome": entry.outcome}
        if kind in EVENTS or kind == "commit":
            events.append(LedgerEvent(key, source.consumer, source.run, epoch, entry.seq, kind, entry.wall, facts))
            continue
        begun, landed = kind == "begun", kind == "settled"
        first, end = (entry.first, entry.next) if begun else (commit, commit)
        answered = commit if kind == "done" else None
        if (not begun and answered is None and not landed) or first is None or end is None:
            continue
        spans.append(
            Span(
                key, source.consumer, source.run, epoch, entry.seq, entry.seq, first, end, int(begun),
                (entry.records or 0) if begun else 0, answered, commit if landed else None,
                entry.mzxid if landed else None, entry.mzxid if landed else None, entry.wall, entry.wall,
                first if begun else None,
                entry.first if answered is not None and entry.first is not None and entry.first < answered else None,
                commit if begun else None, commit if begun else None,
            )
        )  # fmt: skip
    numbers = union((entry.seq, entry.seq + 1) for entry in entries)
    return Piece(source, tuple(spans), tuple(events), tuple(numbers), tuple(damage))


def _extent(world: Scene, tp: TopicPartition) -> LogExtent | None:
    limits = world.kafka.log_range(tp)
    if limits is None:
        return None
    present = union((offset, offset + 1) for offset in world.kafka.offsets(*tp))
    return LogExtent(limits.start, limits.end, tuple(present))


def _coordination(world: Scene, tp: TopicPartition) -> ZooKeeperState | None:
    """Return what ZooKeeper says of a partition; None: its offset node holds no offset."""
    tree, paths = world.ensemble.tree, world.paths
    offset, epoch, owner = (tree.get(path(*tp)) for path in (paths.offset, paths.epoch, paths.owner))
    claim = decode_epoch(paths.epoch(*tp), epoch.data) if epoch is not None else None
    try:
        committed = decode_offset(paths.offset(*tp), offset.data) if offset is not None else None
    except BadNodeError:
        return None
    return ZooKeeperState(
        committed,
        offset.stat.mzxid if offset is not None else None,
        epoch.stat.version if epoch is not None else None,
        owner.data.decode() if owner is not None else None,
        True,
        NotedReset.noted_in(claim),
        _cut(world, tp, committed, claim),
        claim.topic_id if claim is not None else None,
    )


def _cut(world: Scene, tp: TopicPartition, committed: int | None, claim: EpochInfo | None) -> int | None:
    told = world.kafka.topics()[tp.topic].topic_id
    if claim is None or claim.leader_epoch is None or not committed:
        return None
    if claim.topic_id is not None and told is not None and not same_topic(claim.topic_id, told):
        return None  # the commit is about another topic
    return world.kafka.cut_below(tp, committed, claim.leader_epoch)
