"""Random histories: what went right is proven with exactly its repeats, and one planted fault is found, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inbound.proof.intervals import union
from inbound.proof.model import ANOMALIES, OffsetRange, PartitionProof, Verdict
from tests.proof_histories import History, faults

pytestmark = pytest.mark.slow
seeds = st.integers(0, 1 << 32)


def with_records(history: History, ranges: list[OffsetRange]) -> set[int]:
    """Return the offsets of ranges that have a record."""
    return {o for first, end in ranges for o in range(first, end) if not any(a <= o < b for a, b in history.lacks)}


@settings(max_examples=50)
@given(seeds)
def test_a_legal_history_is_proven_with_exactly_its_repeats(seed: int) -> None:
    """Kills, fences, reverts, answers for parts, lost lines, moved epochs, gaps in the log: no false alarm."""
    history = History(seed)
    history.play(60)

    proof = history.story.proof()

    repeated = [(f.first, f.next) for f in proof.findings if f.kind == "repeated"]
    assert (proof.verdict, proof.missing, proof.committed) == (Verdict.PROVEN, (), history.committed)
    assert {f.kind for f in proof.findings} <= {"repeated"}
    assert with_records(history, repeated) == with_records(history, union((o, o + 1) for o in history.repeated))
    assert {o for first, end in proof.explained for o in range(first, end)} >= history.explained - history.repeated


@pytest.mark.parametrize("kind", sorted(faults()))
@settings(max_examples=12)
@given(seed=seeds)
def test_one_planted_fault_is_found_and_nothing_else(kind: str, seed: int) -> None:
    """Whatever else went on, its kind and its offsets are named."""
    history = History(seed)
    planted: list[OffsetRange | None] = []
    history.play(40, lambda history: planted.append(faults()[kind](history)))

    proof = history.story.proof()

    anomalies = [finding for finding in proof.findings if finding.kind in ANOMALIES]
    (where,) = planted
    if where is not None and not with_records(history, [where]) and kind != "lost-to-retention":
        assert anomalies == []  # what has no record cannot be lost
        return
    assert {finding.kind for finding in anomalies} == {kind.split()[0]}
    if where is not None and kind != "lost inside":
        found = with_records(history, [(finding.first, finding.next) for finding in anomalies])
        assert found == with_records(history, [where])


@settings(max_examples=25)
@given(seed=seeds, kind=st.sampled_from(["", *faults()]), piece=st.integers(1, 40))
def test_how_a_ledger_is_cut_into_pieces_changes_nothing(seed: int, kind: str, piece: int) -> None:
    """Files, and chunks of files, are read by themselves and put together: the same judgement."""
    history = History(seed)
    fault = faults().get(kind)
    history.play(40, fault)

    whole, cut = history.story.proof(), history.story.proof(piece=piece)

    assert said(cut) == said(whole)


def said(proof: PartitionProof) -> object:
    """Return what a proof says, without clocks."""
    findings = [(f.kind, f.first, f.next, f.offsets, f.times, f.cause) for f in proof.findings]
    return proof.verdict, proof.proven, proof.committed, proof.in_flight, findings, proof.explained, proof.missing
