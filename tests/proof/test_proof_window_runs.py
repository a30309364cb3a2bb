"""Chance runs of a channel with commits in flight: what is right is proven, what is lost or too much is found."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from inbound.ledger.base import Done, Range, Settled
from inbound.ledger.format import seal
from inbound.ledger.jsonl import Entry
from inbound.ledger.lines import LedgerLines
from inbound.proof.columns import parse_block
from inbound.proof.intervals import union
from inbound.proof.judge import judge
from inbound.proof.model import PartitionProof, Verdict, ZooKeeperState
from inbound.proof.spans import RunStory, joined
from inbound.proof.words import KINDS
from inbound.spark.stories import collapsed, story_of
from tests.proof.collapser import Collapser
from tests.proof.proof_stories import KEY, Story, TelledRun

LOG_END = 10_000


#: What may happen next, and how often.
STEPS = {
    "batch": 10, "send": 5, "execute": 5, "settle": 5, "finish": 1, "skip": 1, "withhold": 1, "lose_answer": 1, "forget": 1,
    "crash": 1, "release": 1, "overtaken": 1,
}  # fmt: skip


@dataclass
class Group:
    """Consumers that take a partition from each other; what the processor was delivered and answered for is known."""

    random: Random
    window: int
    fault: str = ""
    story: Story = field(default_factory=lambda: Story().log(LOG_END))
    committed: int = 0  # as ZooKeeper has it
    mzxid: int = 100
    epoch: int = 0
    delivered: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)  # by the fault, until it is redelivered
    left_behind: set[int] = field(default_factory=set)  # the same, of what a claim had been delivered and went back for
    answered: set[int] = field(default_factory=set)  # by any claim that was delivered it
    too_much: bool = False  # left by a claim that had ended
    run: TelledRun = field(init=False)
    claimed: bool = False

    def claim(self) -> None:
        self.epoch += 1
        self.run = self.story.run(f"run{self.epoch}").claim(self.epoch, at=self.committed, window=self.window)
        self.position = self.landed = self.advanced = self.committed
        self.next_commit: int | None = None  # with the committer, not sent
        self.sent: int | None = None
        self.executed = False
        self.claimed = True
        self.left: set[int] = set()  # commits that are of no batch
        self.unanswered: set[int] = set()  # and those that were sent before
        self.taken: set[int] = set()  # its deliveries
        self.own: set[int] = set()  # offsets that it was delivered, and has not given back
        self.wanted_again: set[int] = set()  # that it went back for, and was not delivered again
        self.gone_past: set[int] = set()  # of these; it counts when something behind is delivered

    def step(self) -> None:
        if not self.claimed:
            self.claim()
            return
        name = self.random.choices(list(STEPS), list(STEPS.values()))[0]
        getattr(self, name)()
        self.answered |= {offset for offset in self.taken if offset < self.advanced}

    # -- the worker --------------------------------------------------------------------------------------------------

    def begin(self) -> int:
        """Write `begun`, if the window allows it; returns where the batch ends, or 0."""
        if self.advanced - self.landed > self.window and self.fault != "no window":
            return 0
        if self.fault == "hole" and self.random.random() < 0.1:
            gap = self.random.randint(1, 5)
            self.lost |= set(range(self.position, self.position + gap)) - self.delivered
            self.gone_past |= self.wanted_again.intersection(range(self.position, self.position + gap))
            self.position += gap
            self.run.jump(self.position)
        self.run.advanced = self.advanced
        records = self.random.randint(1, 9)
        self.run.jump(self.position).begin(records)
        return self.position + records

    def batch(self) -> None:
        if not (end := self.begin()):
            return
        first = self.position
        self.delivered |= set(range(first, end))
        self.own |= set(range(first, end))
        self.taken |= set(range(first, end))
        self.left_behind |= self.gone_past
        for gone in (self.lost, self.left_behind, self.wanted_again, self.gone_past):
            gone -= set(range(first, end))
        answer = self.random.choice(("all", "all", "all", "part", "next", "fails", "hangs"))
        if answer == "hangs":
            self.crash()
        elif answer == "fails" and self.advanced < end:
            self.position = max(self.advanced, 0) if self.random.random() < 0.5 else first
            self.go_back(end)
        elif answer == "next" or first < self.advanced:
            self.position = end
        else:
            self.position = end if answer != "part" else self.random.randint(first, end)
            if self.position > self.advanced:
                self.advanced = self.next_commit = self.position
                self.run.jump(end).advance(self.position)
            elif self.position < end:
                self.go_back(end)
        self.own -= set(range(self.position, end))

    def go_back(self, end: int) -> None:
        self.run.jump(end).revert(self.position)
        self.wanted_again |= self.taken.intersection(range(max(self.position, self.advanced), end))

    def finish(self) -> None:
        """What was answered with `next` is finished in part, or all of it: that is committed now, and reading goes on."""
        if self.position > self.advanced:
            self.advanced = self.next_commit = self.random.randint(self.advanced + 1, self.position)
            self.left.add(self.advanced)

    def skip(self) -> None:
        """The processor passes over some offsets, and says so."""
        if self.position >= self.advanced and self.fault != "hole":
            target = self.position + self.random.randint(1, 9)
            self.run.jump(self.position).skip(target)
            self.wanted_again -= set(range(self.position, target))
            self.position = self.advanced = self.next_commit = target
            self.left.add(target)

    def withhold(self) -> None:
        if self.begin():
            for step in self.random.choices((self.send, self.execute, self.settle), k=2):
                step()
            self.run.withhold()

    # -- the committer -----------------------------------------------------------------------------------------------

    def send(self) -> None:
        if self.sent is None and self.next_commit is not None:
            self.sent, self.next_commit, self.executed = self.next_commit, None, False
            if self.sent in self.left:
                self.run.leave(self.sent)
            else:
                self.run.send(self.sent)

    def execute(self) -> None:
        """ZooKeeper takes the commit; the answer is on its way."""
        if self.sent is not None and not self.executed:
            self.executed, self.committed, self.mzxid = True, self.sent, self.mzxid + 1

    def settle(self) -> None:
        if self.sent is not None and self.executed:
            self.landed, self.sent = self.sent, None
            self.run.land(self.landed, mzxid=self.mzxid)

    def lose_answer(self) -> None:
        """Whether ZooKeeper has taken it is not known: the newest commit is sent instead, under the next line."""
        if self.sent is not None:
            self.next_commit, self.sent = max(self.sent, self.next_commit or 0), None
            self.executed = False
            self.unanswered.add(self.next_commit)

    def forget(self) -> None:
        """It has landed, and its line could not be written."""
        if self.sent is not None and self.executed:
            self.landed, self.sent = self.sent, None

    # -- ends --------------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        answered = range(self.committed, self.answered_before())
        self.too_much |= len(self.own.intersection(answered)) > self.window
        self.claimed = False

    def answered_before(self) -> int:
        """What the claim had been answered for when it begun its last batch, as its lines say."""
        begun = [line for line in self.run.lines if line.kind == "begun"]
        return (begun[-1].commit or 0) if begun else 0

    def release(self) -> None:
        if self.sent is None:
            self.send()
        self.execute()
        self.settle()
        self.run.releases()
        self.crash()

    def overtaken(self) -> None:
        """Another claims; the commit that is in flight is refused, or was taken before."""
        if self.sent is not None and not self.executed and self.random.random() < 0.5:
            self.run.settle("unknown" if self.sent in self.unanswered else "fenced", self.sent)
        self.run.loses()
        self.crash()

    # -- the proof ---------------------------------------------------------------------------------------------------

    def proof(self, piece: int = 1 << 30) -> PartitionProof:
        """Judge the ledgers, read in pieces of so many lines."""
        stories = []
        for run in self.story.runs:
            pieces = []
            for start in range(0, len(run.lines), piece):
                collapser = Collapser(run.source)
                for line in run.lines[start : start + piece]:
                    collapser.add(line)
                pieces.append(collapser.piece())
            stories.append(joined(pieces))
        return self.judged(stories)

    def proof_by_columns(self, piece: int, at: int) -> PartitionProof:
        """Judge them as Spark reads them: whole columns, with spans that are split at an offset."""
        stories = []
        for run in self.story.runs:
            lines = [line_of(run, entry) for entry in run.lines]
            chunks = [b"".join(lines[start : start + piece]) for start in range(0, len(lines), piece)]
            passages = [collapsed(parse_block(chunk, run.source), {KEY: at}) for chunk in chunks]
            stories.append(story_of(passages, lambda _: pytest.fail("no line stands twice")))
        return self.judged(stories)

    def judged(self, stories: list[RunStory]) -> PartitionProof:
        owner = self.run.source.consumer if self.claimed else None
        return judge(
            KEY, [one.run for one in stories], [span for one in stories for span in one.spans],
            [event for one in stories for event in one.events], [], self.story.extent,
            ZooKeeperState(self.committed, self.mzxid if self.committed else 1, self.epoch, owner),
        )  # fmt: skip


def line_of(run: TelledRun, entry: Entry) -> bytes:
    """Return an entry as it stands in a file."""
    lines, place = LedgerLines(KEY.group, run.source.consumer), (KEY.topic, KEY.partition, entry.epoch or 0)
    if entry.kind == "begun":
        batch = Range(*place, entry.first or 0, entry.next or 0, entry.records or 0, entry.commit)
        body = lines.begun(batch, entry.wall)
    elif entry.kind == "done":
        body = lines.done(Done(*place, entry.first or 0, entry.next or 0, entry.commit), entry.wall)
    elif entry.kind == "settled":
        assert entry.outcome is not None
        body = lines.settled(Settled(*place, entry.commit or 0, entry.outcome, entry.mzxid), entry.wall)
    else:
        body = lines.note(entry.kind, *place, entry.facts, entry.wall)
    return seal(f'{body},"seq":{entry.seq}'.encode())


def told(proof: PartitionProof) -> object:
    """What a proof says, however its lines were put together: a finding may stand in two parts that are next to each other."""
    ranges = {kind: union((f.first, f.next) for f in proof.findings if f.kind == kind) for kind in KINDS}
    return proof.verdict, ranges, proof.missing, proof.explained


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1 << 30), st.integers(0, 40), st.integers(1, 120), st.integers(1, 7))
def test_what_a_channel_does_right_is_proven(seed: int, window: int, steps: int, piece: int) -> None:
    """Repeats and what is not committed yet are all there is to say; read at once, or in pieces."""
    group = Group(Random(seed), window)
    for _ in range(steps):
        group.step()

    proof = group.proof()

    assert proof.verdict is Verdict.PROVEN, told(proof)
    assert {finding.kind for finding in proof.findings} <= {"repeated", "uncommitted", "passed-over"}
    assert told(group.proof(piece)) == told(proof)


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1 << 30), st.sampled_from(("", "hole", "no window")), st.integers(1, 40), st.integers(0, 100))
@example(30, "", 7, 0)  # a chunk whose commits stand before and behind a skip
def test_columns_tell_the_same(seed: int, fault: str, piece: int, at: int) -> None:
    """As Spark reads a ledger: in chunks, and from an offset on in spans of their own."""
    group = Group(Random(seed), 20, fault)
    for _ in range(80):
        group.step()

    assert told(group.proof_by_columns(piece, at)) == told(group.proof())


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1 << 30), st.integers(0, 40), st.integers(20, 150), st.integers(1, 7))
def test_what_is_lost_is_found(seed: int, window: int, steps: int, piece: int) -> None:
    """Passed over, committed past, and never delivered; or given back before that."""
    group = Group(Random(seed), window, fault="hole")
    for _ in range(steps):
        group.step()

    found = {offset for f in group.proof(piece).findings if f.kind == "lost" for offset in range(f.first, f.next)}

    lost, left_behind = group.lost - group.delivered, group.left_behind
    committed = set(range(group.committed))
    # An answer may be in no line.
    assert (lost | (left_behind - group.answered)) & committed <= found <= (lost | left_behind) & committed


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1 << 30), st.integers(0, 20), st.integers(20, 150), st.integers(1, 7))
def test_what_is_left_above_the_window_is_found(seed: int, window: int, steps: int, piece: int) -> None:
    """Whenever a claim that has ended had left more, and never else."""
    group = Group(Random(seed), window, fault="no window")
    for _ in range(steps):
        group.step()

    kinds = {finding.kind for finding in group.proof(piece).findings}

    assert ("over-window" in kinds) == group.too_much
