"""Ledgers as stories: what runs did with one partition, line by line, and what the judge says of it.

ledger = Story()
a = ledger.run("a")
a.claim(1, at=0).batch(10).batch(10).dies()
ledger.run("b").claim(2, at=20).batch(5).releases()
assert ledger.proof().verdict is Verdict.PROVEN
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inbound.ledger.base import Outcome
from inbound.ledger.jsonl import Entry
from inbound.proof.judge import judge
from inbound.proof.model import (
    Damage,
    Finding,
    LedgerEvent,
    LogExtent,
    OffsetRange,
    PartitionKey,
    PartitionProof,
    Span,
    ZooKeeperState,
)
from inbound.proof.spans import RunSource, RunStory, joined
from tests.proof.collapser import Collapser

KEY = PartitionKey("group", "orders", 0)


@dataclass
class Zxid:
    """Numbers all that ZooKeeper does."""

    last: int = 100

    def next(self) -> int:
        self.last += 1
        return self.last


class TelledRun:
    """One run of a consumer: its verbs write its lines, as inbound would."""

    def __init__(self, zxid: Zxid, run: str, consumer: str | None = None) -> None:
        self.source = RunSource(KEY.group, consumer or run, run, f"{run}.jsonl")
        self.lines: list[Entry] = []
        self.ended = False
        self.epoch = 0
        self.position = 0
        self.committed: int | None = None
        self.advanced: int | None = None  # up to where it was answered
        self._windowed = False  # its claim says how much may be in flight, and its batches what they come after
        self._first = 0  # where its last batch began
        self._firsts: dict[int, int] = {}  # of the batches that were answered, by the commit
        self._zxid = zxid
        self._seq = 0

    # -- verbs -------------------------------------------------------------------------------------------------------

    def claim(self, epoch: int, at: int | None, **facts: Any) -> TelledRun:
        self.epoch, self.position, self.committed, self.advanced = epoch, at or 0, at, at
        self._windowed = "window" in facts
        return self.note("claimed", position=at, session=1, **facts)

    def batch(self, records: int, *, lacking: int = 0) -> TelledRun:
        """Deliver, answer, commit. `lacking`: offsets of the range that the log does not have."""
        return self.begin(records, lacking=lacking).answer().land()

    def begin(self, records: int, *, lacking: int = 0) -> TelledRun:
        self._first, self.position = self.position, self.position + records + lacking
        told = {"commit": self.advanced} if self._windowed else {}
        return self.line("begun", first=self._first, next=self.position, records=records, **told)

    def advance(self, to: int | None = None) -> TelledRun:
        """Answer for the last batch, or a part of it; the committer has it now, and no line says so yet."""
        self.advanced = self.position = self.position if to is None else to
        self._firsts[self.advanced] = min(self._first, self.advanced)
        return self

    def send(self, commit: int | None = None) -> TelledRun:
        """Send what was answered for: the newest, or up to there."""
        assert self.advanced is not None
        self._answered = self.advanced if commit is None else commit
        first = self._firsts.get(self._answered, self._answered)
        return self.line("done", first=first, next=self._answered, commit=self._answered)

    def withhold(self) -> TelledRun:
        """The last batch is not delivered after all."""
        first, end, self.position = self._first, self.position, self._first
        return self.note("withheld", first=first, next=end, records=end - first)

    def answer(self, commit: int | None = None) -> TelledRun:
        """Answer for the last batch, or a part of it."""
        self._answered = self.position if commit is None else commit
        self.position = self.advanced = self._answered
        return self.line("done", first=min(self._first, self._answered), next=self._answered, commit=self._answered)

    def leave(self, commit: int) -> TelledRun:
        """Commit what was left uncommitted before."""
        self._answered = commit
        return self.line("done", first=commit, next=commit, commit=commit)

    def land(self, commit: int | None = None, *, mzxid: int | None = None) -> TelledRun:
        self.committed = self._answered if commit is None else commit
        return self.settle("landed", self.committed, mzxid=self._zxid.next() if mzxid is None else mzxid)

    def settle(self, outcome: Outcome, commit: int | None = None, *, mzxid: int | None = None) -> TelledRun:
        commit = self._answered if commit is None else commit
        return self.line("settled", commit=commit, outcome=outcome, mzxid=mzxid)

    def revert(self, to: int) -> TelledRun:
        before, self.position = self.position, to
        return self.note("revert", **{"from": before, "to": to})

    def skip(self, to: int, reason: str = "processor") -> TelledRun:
        before, self.position = self.position, to
        return self.note("skip", **{"from": before, "to": to, "reason": reason})

    def jump(self, to: int) -> TelledRun:
        """Go on elsewhere, and say nothing: what must not happen."""
        self.position = to
        return self

    def releases(self) -> TelledRun:
        return self.note("released")

    def loses(self) -> TelledRun:
        return self.note("lost")

    def closes(self) -> TelledRun:
        self.ended = True
        return self

    def omit(self, lines: int) -> TelledRun:
        """Lines that are missing from the files."""
        self._seq += lines
        return self

    def note(self, kind: str, **facts: Any) -> TelledRun:
        return self.line(kind, facts=facts)

    def line(self, kind: str, **members: Any) -> TelledRun:
        self._seq += 1
        self.lines.append(
            Entry(
                Path(self.source.where), len(self.lines) + 1, kind, self.source.run, self._seq, self.source.group,
                self.source.consumer, 1000.0 + len(self.lines), KEY.topic, KEY.partition, self.epoch, **members,
            )
        )  # fmt: skip
        return self

    # -- what became of it -------------------------------------------------------------------------------------------

    def story(self) -> RunStory:
        """Return the run."""
        collapser = Collapser(self.source)
        for line in self.lines:
            collapser.add(line)
        if self.ended:
            collapser.add(Entry(Path("x"), 0, "end", self.source.run, self._seq, "", "", 0.0, facts={"why": "closed"}))
        return joined([collapser.piece()])


@dataclass
class Story:
    """The runs of a group, the log and ZooKeeper."""

    extent: LogExtent | None = None
    coordination: ZooKeeperState | None = None
    damage: list[Damage] = field(default_factory=list)
    zxid: Zxid = field(default_factory=Zxid)
    runs: list[TelledRun] = field(default_factory=list)

    def run(self, name: str, consumer: str | None = None) -> TelledRun:
        self.runs.append(TelledRun(self.zxid, name, consumer))
        return self.runs[-1]

    def log(self, end: int, *, start: int = 0, lacks: tuple[OffsetRange, ...] = (), exact: bool = True) -> Story:
        present: list[OffsetRange] = []
        at = start
        for first, after in lacks:
            present += [(at, first)] if first > at else []
            at = after
        present += [(at, end)] if end > at else []
        self.extent = LogExtent(start, end, tuple(present) if exact else None, start)
        return self

    def zookeeper(
        self, committed: int | None, *, epoch: int = 0, owner: str | None = None, mzxid: int | None = None
    ) -> Story:
        self.coordination = ZooKeeperState(committed, self.zxid.next() if mzxid is None else mzxid, epoch, owner)
        return self

    def proof(self, *, since: int | None = None) -> PartitionProof:
        stories = [run.story() for run in self.runs]
        spans: list[Span] = [span for story in stories for span in story.spans]
        events: list[LedgerEvent] = [event for story in stories for event in story.events]
        damage = [*self.damage, *(item for story in stories for item in story.damage)]
        runs = [story.run for story in stories]
        return judge(KEY, runs, spans, events, damage, self.extent, self.coordination, since=since)

    def found(self, *, since: int | None = None) -> list[tuple[str, int, int]]:
        """Return the findings: kind and range."""
        return [brief(finding) for finding in self.proof(since=since).findings]


def windowed(story: Story, name: str, epoch: int, at: int, window: int = 100) -> TelledRun:
    """Return a run that claims the partition, and may have so many records in flight."""
    return story.run(name).claim(epoch, at=at, window=window)


def brief(finding: Finding) -> tuple[str, int, int]:
    return finding.kind, finding.first, finding.next
