"""What the ledger of this machine says of a partition at a time: it reaches further back than journals in memory."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inbound.config import LedgerConfig
from inbound.errors import InboundError
from inbound.explain.cause import Cause
from inbound.ledger.items import Entry, LedgerFile
from inbound.ledger.reader import list_files, read_file
from inbound.topic_partition import TopicPartition

#: Lines that are told before and after the time.
AROUND = 5
#: So many files are read that were written to last before the time.
BEFORE = 8
#: A batch that was begun and not done after so long was what the partition stood still for. Seconds.
LONG = 5.0


@dataclass(frozen=True)
class Recorded:
    """What the ledger says."""

    cause: str | None
    text: str
    since: float | None
    lines: tuple[tuple[float, str], ...]  # around the time: Unix time, what was

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return {"text": self.text, "since": self.since, "lines": [{"at": at, "text": text} for at, text in self.lines]}


def recorded(ledger: LedgerConfig, group: str, tp: TopicPartition, at: float) -> Recorded | None:
    """Return what the lines around `at` (Unix time) say; None: there is no ledger in a folder here, or nothing of the partition.

    A ledger behind a URI, or in a topic, is not read: that would take too long for a question at night.
    """
    if ledger.type != "files" or "://" in str(ledger.path):
        return None
    try:
        entries = [
            item
            for file in _around(list_files(Path(ledger.path), group), at)
            for item in read_file(file.path)
            if isinstance(item, Entry) and (item.topic, item.partition) == tuple(tp)
        ]
    except InboundError:
        return None
    entries.sort(key=lambda entry: entry.wall)
    before, after = [e for e in entries if e.wall <= at], [e for e in entries if e.wall > at]
    if not before:
        return None
    lines = tuple((e.wall, _told(e)) for e in [*before[-AROUND:], *after[:AROUND]])
    last = before[-1]
    ended = after[0].wall if after else None
    if last.kind in {"released", "lost"}:
        return Recorded(None, f"{last.consumer} had given it up: {_told(last)}", last.wall, lines)
    if last.kind == "begun":
        took = (
            f"until {_clock(ended)}"
            if ended is not None
            else "and no end of it is recorded: it hung, or its process died"
        )
        text = f"{last.consumer} was in a batch, offsets {last.first} to {(last.next or 0) - 1}, since {_clock(last.wall)} {took}"
        slow = ended is None or ended - last.wall >= LONG
        return Recorded((Cause.SLOW_PROCESSOR if slow else Cause.HEALTHY).value, text, last.wall, lines)
    gap = "nothing after it is recorded" if ended is None else f"the next line is of {_clock(ended)}"
    text = f"{last.consumer} held it and was in no batch: {_told(last)} at {_clock(last.wall)}; {gap}"
    return Recorded(Cause.IDLE.value, text, last.wall, lines)


def _around(files: list[LedgerFile], at: float) -> list[LedgerFile]:
    """Return the files that were written to after `at`, and the newest of those that were not: who died before it is there."""
    ours = [file for file in files if file.format != "foreign"]
    before = sorted((file for file in ours if file.modified < at), key=lambda file: file.modified)
    return [*before[-BEFORE:], *(file for file in ours if file.modified >= at)]


def _told(entry: Entry) -> str:
    if entry.kind == "begun":
        return f"begun offsets {entry.first} to {(entry.next or 0) - 1} under epoch {entry.epoch}"
    if entry.kind == "done":
        return f"done up to {entry.next}"
    if entry.kind == "settled":
        return f"commit {entry.commit} {entry.outcome}"
    return f"{entry.kind} {', '.join(f'{name} {value}' for name, value in entry.facts.items())}".strip()


def _clock(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).astimezone().strftime("%H:%M:%S")
