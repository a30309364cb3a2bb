"""An explanation as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from inbound.cli.shared.output import one_line
from inbound.observe.explain.facts import Cause, duration

#: So many events are shown, the newest last.
EVENTS = 10

_HEADLINES = {
    Cause.HEALTHY: "moves",
    Cause.CATCHING_UP: "is catching up",
    Cause.IDLE: "has nothing to read",
    Cause.STARTING: "is being started",
    Cause.RELEASING: "is being released",
    Cause.PAUSED: "is paused",
    Cause.WAITING: "waits, as its processor asked",
    Cause.RATE: "keeps to its rate",
    Cause.RESET: "is stopped by a reset",
    Cause.BEING_CLAIMED: "is being claimed",
}


def shown(found: Mapping[str, Any], now: float) -> str:
    """Return the text of `inbound explain`; `now` is Unix time."""
    return "\n".join(_lines(found, now))


def _lines(found: Mapping[str, Any], now: float) -> Iterator[str]:
    name = f"{found['topic']}/{found['partition']}"
    yield f"{name} {_headline(found, now)}"
    if found["text"]:
        yield f"  {one_line(found['text'])}"
    if found["todo"]:
        yield f"What to do: {one_line(found['todo'])}"
    stack = [line for text in found["evidence"] for line in text.splitlines()]
    if stack:
        yield "Seen by:"
        yield from (f"  {line.rstrip()}" for line in stack)
    yield from _owner(found, now)
    yield from _numbers(found, now)
    yield from (f"Notice: {one_line(notice)}" for notice in (found.get("owner") or {}).get("notices", ()))
    if found.get("at") is not None:
        yield from _around(found)
    else:
        yield from _events((found.get("owner") or {}).get("events", ()))
    for problem in found["problems"]:
        yield f"Not answered: {one_line(problem)}"


def _headline(found: Mapping[str, Any], now: float) -> str:
    at = found.get("at")
    when = "" if at is None else f" at {clock(at, now)}"
    if found["cause"] is None:
        return f"in group {found['group']}{when}: not known"
    cause = Cause(found["cause"])
    since = "" if found["since"] is None else f", since {clock(found['since'], now)}"
    if since and at is None:
        since += f" ({duration(now - found['since'])})"
    if at is not None:
        return f"in group {found['group']}{when}: {cause.value}{since}"
    said = _HEADLINES.get(cause, f"STALLED: {cause.value}")
    return f"in group {found['group']} {said}{since}"


def _owner(found: Mapping[str, Any], now: float) -> Iterator[str]:
    nodes, owner = found.get("zookeeper"), found.get("owner") or {}
    claimed = owner.get("claimed")
    if nodes is not None:
        members = nodes["members"]
        if nodes["owner"] is None:
            yield f"Owner: none; {len(members)} member{'s' if len(members) != 1 else ''} in the group"
        else:
            info = next((m for m in members if m["consumer"] == nodes["owner"]), None)
            where = f" (pid {info['pid']} on {info['host']}, {info['coordinator']})" if info is not None else ""
            since = f", since {clock(nodes['owner_since'], now)}" if nodes["owner_since"] else ""
            yield one_line(f"Owner: {nodes['owner']}{where}{since}, epoch {nodes['epoch']}")
    elif owner.get("held"):
        yield f"Owner: {owner['consumer']}, as it says; ZooKeeper does not answer"
    if claimed is not None and owner.get("held"):
        yield f"  {one_line(claimed['text'])}"


def _numbers(found: Mapping[str, Any], now: float) -> Iterator[str]:
    numbers, nodes, log = (found.get("owner") or {}).get("numbers"), found.get("zookeeper"), found.get("kafka")
    if numbers:
        last = numbers["last_batch_at"]
        yield (
            f"Position: {numbers['position']}, committed {_or(numbers['committed'])}, end of the log {_or(numbers['end'])}, "
            f"lag {_or(numbers['lag'])}; {numbers['buffered_records']} records read ahead, last batch "
            f"{'none yet' if last is None else clock(last, now)}"
        )
    elif nodes is not None:
        committed_at = f" at {clock(nodes['committed_at'], now)}" if nodes["committed_at"] else ""
        text = f"Committed: {_or(nodes['committed'])}{committed_at}"
        if log is not None and log["end"] is not None:
            lag = max(0, log["end"] - (nodes["committed"] if nodes["committed"] is not None else log["start"]))
            text += f", end of the log {log['end']}, lag {lag}"
        yield text


def _around(found: Mapping[str, Any]) -> Iterator[str]:
    owner, ledger = found.get("owner"), found.get("ledger")
    if owner is not None:
        for when, name in (("before", "Before"), ("after", "After")):
            if owner[when]:
                yield f"{name} (by {owner['consumer']}):"
                yield from (_event(event) for event in owner[when])
    if ledger is not None:
        yield "From the ledger of this machine:"
        yield from (f"  {_stamp(line['at'])}  {one_line(line['text'])}" for line in ledger["lines"])


def _events(events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if events:
        yield "Last events:"
        yield from (_event(event) for event in events[-EVENTS:])


def _event(event: Mapping[str, Any]) -> str:
    again = f" ({event['count']} times, last {_stamp(event['last'])})" if event.get("count", 1) > 1 else ""
    text, kind = one_line(event["text"]), event["kind"]
    return f"  {_stamp(event['at'])}  {text if text.startswith(kind) else f'{kind}: {text}'}{again}"


def clock(wall: float, now: float) -> str:
    """Return a Unix time as text, with its date beyond 20 hours."""
    form = "%H:%M:%S" if abs(now - wall) < 72000 else "%Y-%m-%d %H:%M:%S"
    return datetime.fromtimestamp(wall).strftime(form)


def _stamp(wall: float) -> str:
    return datetime.fromtimestamp(wall).strftime("%m-%d %H:%M:%S")


def _or(number: int | None) -> str:
    return "-" if number is None else str(number)
