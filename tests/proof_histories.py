"""Random histories of one partition in which all goes as it should, written as ledgers; with the truth beside them.

The model knows what Kafka has, what ZooKeeper holds, and who was handed what. It can also do, once, what must not happen.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from inbound.proof.intervals import union
from inbound.proof.model import OffsetRange
from tests.proof_stories import Story, TelledRun


class History:
    """A partition of `end` offsets, some of them without a record, read by consumers that die, lose and fail."""

    def __init__(self, seed: int, end: int = 400) -> None:
        self.rng = random.Random(seed)
        self.end = end
        lacks = [(at, min(end, at + self.rng.randint(1, 3))) for at in range(0, end, 17) if self.rng.random() < 0.4]
        self.lacks = union(lacks)
        self.story = Story().log(end, lacks=tuple(self.lacks))
        self.committed = 0
        self.epoch = 0
        self.holder: TelledRun | None = None
        self.former: TelledRun | None = None  # overtaken, and it does not know yet
        self.runs = 0
        self.repeated: set[int] = set()
        self.explained: set[int] = set()
        self._mine: set[int] = set()  # handed out by the claim that holds it
        self._theirs: set[int] = set()

    def present(self, first: int, end: int) -> int:
        return end - first - sum(max(0, min(end, b) - max(first, a)) for a, b in self.lacks)

    def play(self, steps: int, fault: Callable[[History], object] | None = None) -> None:
        """Let things happen; with the fault once, in the middle."""
        for step in range(steps):
            if fault is not None and step == steps // 2:
                self.settle()
                fault(self)
            self.step()
        self.settle()
        assert self.holder is not None
        self.story.zookeeper(self.committed, epoch=self.epoch, owner=self.holder.source.consumer, mzxid=10_000)

    def settle(self) -> None:
        """Have somebody hold the partition, and commit all that it was handed."""
        holder = self.holder or self.claim()
        high = max(self._mine | self._theirs, default=0) + 1
        if holder.position < max(high, self.committed + 1):
            self.hand_out(holder, max(high, self.committed + 1) - holder.position)
        self.commit(holder, holder.position)

    # -- what happens ------------------------------------------------------------------------------------------------

    def step(self) -> None:
        holder = self.holder
        if holder is None:
            self.claim()
            return
        if holder.position >= self.end - 60:
            return
        what = self.rng.choices(
            ("batch", "prefix", "next", "revert", "none", "skip", "kill", "release", "fence", "move epoch", "doubled"),
            (12, 2, 2, 2, 1, 1, 2, 2, 2, 1, 1),
        )[0]
        if what == "kill":
            self.kill(holder)
        elif what == "release":
            holder.releases()
            if self.rng.random() < 0.5:
                holder.closes()
            self.holder = None
        elif what == "move epoch":
            self.epoch += 1
            holder.epoch = self.epoch
        elif what == "skip":
            target = holder.position + self.rng.randint(1, 5)
            holder.skip(target)
            self.commit(holder, target)
        else:
            first = holder.position
            self.hand_out(holder, self.rng.randint(1, 12))
            self.answer(what, holder, first)

    def answer(self, what: str, holder: TelledRun, first: int) -> None:
        """What becomes of a batch that began at `first`."""
        if what == "revert":
            holder.revert(self.rng.randint(self.committed, first))
        elif what == "none":
            holder.jump(self.committed)  # `advance` to the commit itself: nothing is written
        elif what == "fence":
            self.fence(holder)
        elif what != "next":
            commit = holder.position if what != "prefix" else self.rng.randint(first + 1, holder.position)
            if what == "doubled":
                holder.answer(commit)
            self.commit(holder, commit)

    def claim(self) -> TelledRun:
        self.epoch += self.rng.choice((1, 1, 1, 2))  # a claim whose answer was lost leaves no line
        self.runs += 1
        holder = self.story.run(f"run-{self.runs}", self.rng.choice("abc"))
        holder.claim(self.epoch, at=self.committed)
        self.holder = holder
        self._theirs |= self._mine
        self._mine = set()
        return holder

    def hand_out(self, holder: TelledRun, length: int, *, lacking: int = 0) -> OffsetRange:
        """Hand out the next `length` offsets, leaving out `lacking` records."""
        first, end = holder.position, holder.position + length
        records = self.present(first, end) - lacking
        holder.begin(records, lacking=length - records)
        for offset in range(first, end):
            if offset in self._mine:
                self.explained.add(offset)
            elif offset in self._theirs:
                self.repeated.add(offset)
            self._mine.add(offset)
        return first, end

    def commit(self, holder: TelledRun, offset: int) -> None:
        """Commit, sometimes without the last line."""
        holder.answer(offset).land()
        self.committed = offset

    def kill(self, holder: TelledRun) -> None:
        """SIGKILL: before the commit, with it on its way, or just after it."""
        if self.rng.random() < 0.7:
            self.hand_out(holder, self.rng.randint(1, 12))
            if self.rng.random() < 0.6:
                holder.answer()
                if self.rng.random() < 0.5:
                    self.committed = holder.position  # it landed, and nobody could write that down
                elif self.rng.random() < 0.5:
                    holder.settle("unknown").loses()
        self.holder = None

    def fence(self, holder: TelledRun) -> None:
        """Another consumer claims while the batch is in the callback."""
        self.claim()
        holder.answer().settle("fenced").loses()


def faults() -> dict[str, Callable[[History], OffsetRange | None]]:
    """Return what must not happen, by the finding that it is: each does it to a history, and returns where."""
    return {
        "lost": _pass_over,
        "lost inside": _leave_out,
        "lost between claims": _begin_above,
        "duplicate": _hand_out_again,
        "duplicate between claims": _begin_below,
        "reordered": _reorder,
        "unfenced": _commit_late,
        "skipped": _commit_too_much,
        "lost-to-retention": _come_too_late,
    }


def _holder(history: History) -> TelledRun:
    assert history.holder is not None
    return history.holder


def _pass_over(history: History) -> OffsetRange:
    holder = _holder(history)
    first = holder.position
    holder.jump(first + 5)
    history.hand_out(holder, 4)
    history.commit(holder, holder.position)
    return first, first + 5


def _leave_out(history: History) -> OffsetRange:
    holder = _holder(history)
    lost = history.hand_out(holder, 8, lacking=1)
    history.commit(holder, holder.position)
    return lost


def _begin_above(history: History) -> OffsetRange:
    _holder(history).releases()
    first = history.committed
    history.committed += 5
    history.epoch += 1
    history.runs += 1
    history.holder = history.story.run(f"run-{history.runs}").claim(history.epoch, at=history.committed)
    return first, history.committed


def _hand_out_again(history: History) -> OffsetRange:
    holder = _holder(history)
    first, end = history.hand_out(holder, 6)
    history.commit(holder, end)
    holder.jump(first).begin(history.present(first, end), lacking=6 - history.present(first, end)).answer(end).land()
    return first, end


def _begin_below(history: History) -> OffsetRange:
    holder = _holder(history)
    first, end = history.hand_out(holder, 6)
    history.commit(holder, end)
    holder.releases()
    history.epoch += 1
    history.runs += 1
    again = history.story.run(f"run-{history.runs}").claim(history.epoch, at=first)
    again.begin(history.present(first, end), lacking=6 - history.present(first, end)).answer(end).land()
    history.holder = again
    return first, end


def _reorder(history: History) -> OffsetRange:
    holder = _holder(history)
    first = holder.position
    holder.jump(first + 6)
    history.hand_out(holder, 6)
    holder.jump(first)
    history.hand_out(holder, 6)
    holder.jump(first + 12)
    history.commit(holder, first + 12)
    return first, first + 6


def _commit_late(history: History) -> None:
    old = _holder(history)
    history.claim()
    history.hand_out(_holder(history), 6)
    history.commit(_holder(history), _holder(history).position)
    old.answer(history.committed - 6).land()


def _commit_too_much(history: History) -> OffsetRange:
    holder = _holder(history)
    first = holder.position
    history.commit(holder, first + 5)
    holder.jump(first)
    history.hand_out(holder, 6)
    history.commit(holder, holder.position)
    return first, first + 5


def _come_too_late(history: History) -> OffsetRange:
    holder = _holder(history)
    first = holder.position
    holder.note("retention", first=first, next=first + 7).jump(first + 7)
    history.hand_out(holder, 6)
    history.commit(holder, holder.position)
    return first, first + 7
