"""More answered for and not committed than `max_uncommitted_records`: a broken promise, and what looks like it and is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inbound.proof.model import Verdict, ZooKeeperState
from tests.proof.proof_stories import Story, TelledRun, windowed


def crashed(story: Story, *, batches: int, window: int) -> TelledRun:
    """A claim that was answered for so many batches of ten, none of which was committed, and had one more in hand."""
    a = windowed(story, "a", 1, at=0, window=window)
    for _ in range(batches):
        a.begin(10).advance()
    return a.begin(10)


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "quick"])
@pytest.mark.parametrize(("window", "over"), [(30, False), (29, True), (0, True)])
def test_more_in_flight_than_the_window_is_a_broken_promise(window: int, over: bool, exact: bool) -> None:
    """Thirty records were answered for and not committed; the batch in hand does not count."""
    story = Story().log(60, exact=exact)
    crashed(story, batches=3, window=window)
    windowed(story, "b", 2, at=0, window=window).batch(40)
    story.zookeeper(40, epoch=2, owner="b")

    proof = story.proof()

    assert [(f.first, f.next) for f in proof.findings if f.kind == "over-window"] == ([(0, 30)] if over else [])
    assert proof.verdict is (Verdict.ANOMALIES if over else Verdict.PROVEN)


def test_what_was_left_over_says_how_much_and_who_found_it() -> None:
    """The numbers that an operator needs."""
    story = Story().log(60)
    crashed(story, batches=3, window=20)
    windowed(story, "b", 2, at=0).batch(40)

    (finding,) = [finding for finding in story.proof().findings if finding.kind == "over-window"]

    assert finding.cause == (
        "a (epoch 1) had been answered up to 30 before its last batch, and b (epoch 2) found the commit 0: 30 records "
        "between, where max_uncommitted_records allows 20"
    )
    assert (finding.offsets, finding.epochs, finding.consumers) == (30, (1, 2), ("a", "b"))


def test_an_answer_for_the_batch_in_hand_does_not_count() -> None:
    """A strict claim (0) that was killed between `done` and the commit."""
    story = Story().log(60)
    windowed(story, "a", 1, at=0, window=0).begin(10).advance().send()
    windowed(story, "b", 2, at=0, window=0).batch(10)

    assert story.found() == [("repeated", 0, 10)]


def test_what_landed_does_not_count() -> None:
    """Also where its line was lost with the process: the next claim begins behind it."""
    story = Story().log(60)
    a = windowed(story, "a", 1, at=0, window=10)
    a.begin(10).advance().send().begin(10).advance().begin(10)
    windowed(story, "b", 2, at=10, window=10).batch(20)

    assert story.found() == [("repeated", 10, 30)]


def test_offsets_without_records_do_not_count() -> None:
    """Markers of transactions, compacted offsets, and what was skipped."""
    story = Story().log(60, lacks=((5, 10), (15, 20)))
    a = windowed(story, "a", 1, at=0, window=10)
    a.begin(5, lacking=5).advance().begin(5, lacking=5).advance().skip(to=40)
    a.advanced = 40
    a.begin(10)
    windowed(story, "b", 2, at=0, window=10).begin(5, lacking=5)

    assert [kind for kind, _, _ in story.found() if kind == "over-window"] == []


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "quick"])
@pytest.mark.parametrize("found", [True, False], ids=["claimed since", "in ZooKeeper"])
@pytest.mark.parametrize(("alone", "over"), [(1, False), (2, True)])
def test_what_was_given_back_and_then_passed_over_does_not_count(
    alone: int, over: bool, found: bool, exact: bool
) -> None:
    """A batch failed, and its records came one by one; the answer for the last of these went past the others."""
    story = Story().log(60, exact=exact)
    a = windowed(story, "a", 1, at=0, window=1).begin(10).revert(to=0)
    for _ in range(alone):
        a.begin(1).advance()
    a.skip(to=10).advance(10).begin(10)
    if found:
        windowed(story, "b", 2, at=0, window=1).batch(30)
    else:
        story.zookeeper(0, epoch=1)

    assert [f.kind for f in story.proof().findings if f.kind == "over-window"] == ["over-window"] * over


@pytest.mark.parametrize(("again", "window"), [(0, 4), (2, 6)], ids=["none of it", "a part of it"])
@pytest.mark.parametrize("over", [False, True])
def test_what_an_answer_for_a_part_of_a_batch_gave_back_does_not_count(again: int, window: int, over: bool) -> None:
    """No line says so where a newer commit stands for that one: it shows by where reading goes on, or passes over the rest."""
    story = Story().log(60)
    a = windowed(story, "a", 1, at=0, window=window - over).begin(10).advance(4)
    if again:
        a.begin(again).advance()
    a.skip(to=15).advance(15).begin(10)
    story.zookeeper(0, epoch=1)

    assert [f.kind for f in story.proof().findings if f.kind == "over-window"] == ["over-window"] * over


def test_zookeeper_has_what_the_last_claim_left() -> None:
    """No claim followed, and its process is gone."""
    story = Story().log(60)
    crashed(story, batches=3, window=20)
    story.zookeeper(0, epoch=1)

    assert story.found() == [("over-window", 0, 30), ("uncommitted", 0, 30)]


def test_a_claim_that_goes_on_has_not_left_anything() -> None:
    """Its owner node is there: its commits may land yet."""
    story = Story().log(60)
    crashed(story, batches=3, window=20)
    story.zookeeper(0, epoch=1, owner="a")

    assert story.found() == []


def test_a_claim_that_says_no_window_leaves_what_it_likes() -> None:
    """Of an earlier release."""
    story = Story().log(60)
    a = story.run("a").claim(1, at=0)
    for first in (0, 10, 20):
        a.line("begun", first=first, next=first + 10, records=10, commit=first)
    story.run("b").claim(2, at=0).batch(30)

    assert story.found() == [("repeated", 0, 30)]


@pytest.mark.parametrize("why", ["reset", "recreation", "gap", "degraded", "unsure", "unknown epoch", "cut"])
def test_what_else_may_have_moved_the_commit_is_no_broken_promise(why: str) -> None:
    """A reset, a topic that was recreated, lines or claims that are missing, a log that was cut."""
    story = Story().log(60)
    a = crashed(story, batches=3, window=20)
    b, epoch = story.run("b"), 2
    b.epoch = epoch
    if why == "reset":
        b.note("reset", old=30, new=0, since=30, reason="offsets reset", command="/c")
    elif why == "recreation":
        b.note("reset", old=30, new=0, reason="topic created anew")
    elif why == "gap":
        a.omit(2).begin(10)
    elif why == "degraded":
        a.note("degraded", **{"from": 1.0, "to": 2.0}).begin(10)
    elif why == "unsure":
        a.lines[0] = replace(a.lines[0], facts={**a.lines[0].facts, "on_failure": "degrade"})
    elif why == "unknown epoch":
        epoch = 3
    elif why == "cut":
        a.note("truncated", position=40, to=0, cut=0, start=0, end=0).revert(to=0)
    b.claim(epoch, at=0, window=20).batch(40)

    assert [kind for kind, _, _ in story.found() if kind == "over-window"] == []


@pytest.mark.parametrize("why", ["claimed since", "cut", "no commit"])
def test_what_zookeeper_has_for_another_reason_is_no_broken_promise(why: str) -> None:
    """A claim without a ledger came between, the log was cut, or the offset node is gone."""
    story = Story().log(60)
    crashed(story, batches=3, window=20)
    story.coordination = ZooKeeperState(
        None if why == "no commit" else 0, 1, 2 if why == "claimed since" else 1, None, cut=5 if why == "cut" else None
    )

    assert [kind for kind, _, _ in story.found() if kind == "over-window"] == []


def test_a_commit_that_was_moved_back_is_no_broken_promise() -> None:
    """Its landed commit is redelivered: that is another finding's business."""
    story = Story().log(60)
    a = windowed(story, "a", 1, at=0, window=25).begin(10).advance().send().land()
    a.begin(10).advance().begin(10).advance().begin(10)
    windowed(story, "b", 2, at=0).batch(40)

    assert story.found() == [("duplicate", 0, 10), ("repeated", 10, 40)]


def test_in_quick_mode_only_what_was_surely_delivered_counts() -> None:
    """Half of the offsets have no record, and the log was not read."""
    story = Story().log(80, exact=False)
    a = windowed(story, "a", 1, at=0, window=14)
    for _ in range(3):
        a.begin(5, lacking=5).advance()
    a.begin(5, lacking=5)
    windowed(story, "b", 2, at=0, window=14).begin(5, lacking=5)

    assert [kind for kind, _, _ in story.found() if kind == "over-window"] == []


def test_a_window_of_words_is_a_line_that_no_release_writes() -> None:
    """Its seal is right, and it cannot be used: it counts as missing."""
    story = Story().log(60)
    story.run("a").claim(1, at=0).batch(10).releases()
    story.run("b").claim(2, at=10, window="many").batch(10)

    assert story.proof().verdict is Verdict.NOT_PROVABLE
