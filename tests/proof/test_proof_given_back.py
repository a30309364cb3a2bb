"""What a claim was handed and gave back, by an answer or as a batch failed, it is to be handed again before it goes on."""

from __future__ import annotations

import pytest

from inbound.proof.model import Verdict
from tests.proof.proof_stories import Story, TelledRun, windowed


def gives_back(story: Story) -> TelledRun:
    """Begin a story: 0 to 10 is committed, 10 to 20 was delivered and given back."""
    return windowed(story, "a", 1, at=0).batch(10).begin(10).revert(10)


@pytest.mark.parametrize(("alone", "lost"), [(0, (10, 20)), (1, (11, 20))], ids=["all of it", "all but the first"])
def test_what_was_given_back_and_gone_past_is_lost(alone: int, lost: tuple[int, int]) -> None:
    """It was not in flight when the commit went past it."""
    story = Story().log(60)
    a = gives_back(story)
    if alone:
        a.batch(alone)
    a.jump(20).batch(10)
    proof = story.zookeeper(30, epoch=1, owner="a").proof()
    told = [(f.kind, f.first, f.next, f.cause) for f in proof.findings]
    went_on = "a (epoch 1) had got it, had given it back, and went on at 20"
    cause = f"{went_on}; it was never redelivered, and it is committed past"
    assert (proof.verdict, told) == (Verdict.ANOMALIES, [("lost", *lost, cause)])


def test_what_was_given_back_and_gone_past_may_be_delivered_in_the_end() -> None:
    """By the next claim, as it was not committed past; or late, by the same."""
    story = Story().log(60)
    gives_back(story).jump(20).begin(10)
    windowed(story, "b", 2, at=10).batch(20)
    late = Story().log(60)
    gives_back(late).jump(20).begin(5).revert(10).batch(10)
    told = [
        (proof.verdict, [(f.kind, f.first, f.next) for f in proof.findings if f.kind not in ("repeated", "duplicate")])
        for proof in (story.zookeeper(30, epoch=2, owner="b").proof(), late.zookeeper(20, epoch=1, owner="a").proof())
    ]
    assert told == [(Verdict.ANOMALIES, [("reordered", 10, 20)])] * 2


@pytest.mark.parametrize("by", ["answer", "skip", "reset"])
def test_what_was_given_back_and_answered_for_or_left_out_is_not_lost(by: str) -> None:
    story = Story().log(60)
    a = gives_back(story)
    if by == "answer":
        a.batch(10)
    elif by == "skip":
        a.skip(20)
    else:
        a.note("reset", old=10, new=20, reason="inbound offsets reset").jump(20)
    a.batch(10)
    proof = story.zookeeper(30, epoch=1, owner="a").proof()
    assert (proof.verdict, [f.kind for f in proof.findings if f.kind in ("lost", "skipped", "reordered")]) == (
        Verdict.PROVEN,
        [],
    )
