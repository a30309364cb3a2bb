"""The state of a partition at an earlier time.

The journal of the process has it, or the ledger, which reaches further back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inbound.config import LedgerConfig
from inbound.errors import InboundError
from inbound.ledger.jsonl import Entry, LedgerFile
from inbound.ledger.reader import list_files, read_file
from inbound.observe.explain.facts import Cause
from inbound.partition.journal import Happened
from inbound.topic_partition import TopicPartition

#: The event that ends an earlier state of a partition, or of a channel.
_ENDS = {
    "stall-over": "stalled",
    "resumed": "paused",
    "certain": "in-doubt",
    "verified": "suspended",
    "broker-back": "broker-away",
    "ledger-over": "ledger-trouble",
}
#: The cause that lasts from an event until its end.
_CAUSES = {
    "paused": Cause.PAUSED,
    "in-doubt": Cause.IN_DOUBT,
    "suspended": Cause.SESSION_SUSPENDED,
    "broker-away": Cause.BROKER_AWAY,
    "ledger-trouble": Cause.LEDGER,
}
#: After these events another process knows the partition.
_GIVEN_UP = frozenset({"released", "lost", "fenced", "abandoned"})
#: Events, or lines of the ledger, right before and after the time.
AROUND = 5


def at_time(at: float, partition: Sequence[Happened], channel: Sequence[Happened]) -> dict[str, Any]:
    """Return the state at `at` (Unix time), and the events around it.

    `known` is False if the kept events begin after `at`.
    """
    before = [event for event in partition if event.at <= at]
    known = bool(before)
    ownership = next((e for e in reversed(before) if e.kind == "claimed" or e.kind in _GIVEN_UP), None)
    held = (ownership.kind == "claimed") if ownership is not None else known
    around = sorted([*partition, *channel], key=lambda event: event.at)
    earlier, later = [e for e in around if e.at <= at], [e for e in around if e.at > at]
    answer: dict[str, Any] = {
        "known": known,
        "was_held": held,
        "oldest": min((e.at for e in partition), default=None),
        "before": [as_json(e) for e in earlier[-AROUND:]],
        "after": [as_json(e) for e in later[:AROUND]],
    }
    if not known:
        return answer | {"cause": None, "text": "the events in memory do not reach back so far", "since": None}
    if not held and ownership is not None:
        return answer | {"cause": None, "text": f"not held here: {ownership.text}", "since": ownership.at}
    state = _standing(at, partition) or _standing(at, channel)
    if state is not None:
        cause = _CAUSES[state.kind].value if state.kind in _CAUSES else str(state.facts.get("cause", state.kind))
        return answer | {"cause": cause, "text": state.text, "since": state.at}
    text = "nothing stood against it: it moved, or there was nothing to read"
    return answer | {"cause": Cause.HEALTHY.value, "text": text, "since": ownership.at if ownership else None}


def _standing(at: float, events: Sequence[Happened]) -> Happened | None:
    """Return the last event before `at` whose state lasted until `at`."""
    ended: set[str] = set()
    for event in reversed(events):
        if event.at > at:
            continue
        if event.kind in _ENDS:
            ended.add(_ENDS[event.kind])
        elif event.kind in _GIVEN_UP or event.kind == "claimed":
            return None
        elif event.kind in {"stalled", "held"} | _CAUSES.keys() and event.kind not in ended:
            return event
    return None


def as_json(event: Happened) -> dict[str, Any]:
    """Return an event of the journal for JSON, without its facts."""
    again = {"count": event.count, "last": event.last} if event.count > 1 else {}
    return {"at": event.at, "kind": event.kind, "text": event.text, **again}


#: Files last written before the time: so many, the newest, are read.
BEFORE = 8
#: A batch that took longer is named as the cause. Seconds.
LONG = 5.0


@dataclass(frozen=True)
class Recorded:
    """The state in the ledger."""

    cause: str | None
    text: str
    since: float | None
    lines: tuple[tuple[float, str], ...]  # around the time: Unix time, text

    def as_dict(self) -> dict[str, Any]:
        return {"text": self.text, "since": self.since, "lines": [{"at": at, "text": text} for at, text in self.lines]}


def recorded(ledger: LedgerConfig, group: str, tp: TopicPartition, at: float) -> Recorded | None:
    """Return the state in the ledger's lines around `at` (Unix time).

    None: no ledger in a folder here knows the partition. A ledger behind a URI, or in a topic, is not read: that would take
    too long for a question at night.
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
    lines = tuple((e.wall, _in_words(e)) for e in [*before[-AROUND:], *after[:AROUND]])
    last = before[-1]
    ended = after[0].wall if after else None
    if last.kind in {"released", "lost"}:
        return Recorded(None, f"{last.consumer} had given it up: {_in_words(last)}", last.wall, lines)
    if last.kind == "begun":
        took = (
            "and no end of it is recorded: it hung, or its process died" if ended is None else f"until {_clock(ended)}"
        )
        text = f"{last.consumer} was in a batch, offsets {last.first} to {(last.next or 0) - 1}, since {_clock(last.wall)} {took}"
        slow = ended is None or ended - last.wall >= LONG
        return Recorded((Cause.SLOW_PROCESSOR if slow else Cause.HEALTHY).value, text, last.wall, lines)
    gap = "nothing after it is recorded" if ended is None else f"the next line is of {_clock(ended)}"
    text = f"{last.consumer} held it and was in no batch: {_in_words(last)} at {_clock(last.wall)}; {gap}"
    return Recorded(Cause.IDLE.value, text, last.wall, lines)


def _around(files: list[LedgerFile], at: float) -> list[LedgerFile]:
    """Return the files written after `at`, and the newest before it.

    The latter belong to processes that had died by then.
    """
    ours = [file for file in files if file.format != "foreign"]
    before = sorted((file for file in ours if file.modified < at), key=lambda file: file.modified)
    return [*before[-BEFORE:], *(file for file in ours if file.modified >= at)]


def _in_words(entry: Entry) -> str:
    if entry.kind == "begun":
        return f"begun offsets {entry.first} to {(entry.next or 0) - 1} under epoch {entry.epoch}"
    if entry.kind == "done":
        return f"done up to {entry.next}"
    if entry.kind == "settled":
        return f"commit {entry.commit} {entry.outcome}"
    return f"{entry.kind} {', '.join(f'{name} {value}' for name, value in entry.facts.items())}".strip()


def _clock(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).astimezone().strftime("%H:%M:%S")
