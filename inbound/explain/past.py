"""What was at a time, from the events of a journal. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inbound.explain.cause import Cause
from inbound.journal import Happened

#: What ends an earlier state of a partition, or of a channel.
_ENDS = {
    "stall-over": "stalled",
    "resumed": "paused",
    "certain": "in-doubt",
    "verified": "suspended",
    "broker-back": "broker-away",
    "ledger-over": "ledger-trouble",
}
#: What an event says was so until something ended it.
_CAUSES = {
    "paused": Cause.PAUSED,
    "in-doubt": Cause.IN_DOUBT,
    "suspended": Cause.SESSION_SUSPENDED,
    "broker-away": Cause.BROKER_AWAY,
    "ledger-trouble": Cause.LEDGER,
}
#: A partition that this process had given up, or lost, is no more its to tell of.
_GIVEN_UP = frozenset({"released", "lost", "fenced", "abandoned"})
#: Events right before and after the time that are told.
AROUND = 5


def at_time(at: float, partition: Sequence[Happened], channel: Sequence[Happened]) -> dict[str, Any]:
    """Return what is known of `at` (seconds since 1970): `cause`, `text`, `since`, whether it was held, and events around it.

    `known` is False where the events that are kept begin after it.
    """
    before = [event for event in partition if event.at <= at]
    known = bool(before)
    ownership = next((e for e in reversed(before) if e.kind == "claimed" or e.kind in _GIVEN_UP), None)
    held = (ownership.kind == "claimed") if ownership is not None else known
    state = _standing(at, partition) or _standing(at, channel)
    around = sorted([*partition, *channel], key=lambda event: event.at)
    earlier, later = [e for e in around if e.at <= at], [e for e in around if e.at > at]
    answer: dict[str, Any] = {
        "known": known,
        "was_held": held,
        "oldest": min((e.at for e in partition), default=None),
        "before": [_told(e) for e in earlier[-AROUND:]],
        "after": [_told(e) for e in later[:AROUND]],
    }
    if not known:
        return answer | {"cause": None, "text": "what is kept in memory does not reach back so far", "since": None}
    if not held and ownership is not None:
        return answer | {"cause": None, "text": f"not held here: {ownership.text}", "since": ownership.at}
    if state is not None:
        return answer | {"cause": _cause(state), "text": state.text, "since": state.at}
    text = "nothing stood against it: it moved, or there was nothing to read"
    return answer | {"cause": Cause.HEALTHY.value, "text": text, "since": ownership.at if ownership else None}


def _standing(at: float, events: Sequence[Happened]) -> Happened | None:
    """Return the last event before `at` whose state had not ended by then."""
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


def _cause(event: Happened) -> str:
    known = _CAUSES.get(event.kind)
    return known.value if known is not None else str(event.facts.get("cause", event.kind))


def _told(event: Happened) -> dict[str, Any]:
    again = {"count": event.count, "last": event.last} if event.count > 1 else {}
    return {"at": event.at, "kind": event.kind, "text": event.text, **again}
