"""Which facts of a ledger's events can be used: a line whose seal is right may still be none that a release writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from inbound.proof.model import Damage, Event
from inbound.topic_partition import MOST_OFFSET

#: Offsets, by kind: those that must be there, and those that may be null or missing.
_MUST: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "revert": ("from", "to"),
        "skip": ("from", "to"),
        "retention": ("first", "next"),
        "withheld": ("first", "next"),
        "truncated": ("position",),
    }
)
_MAY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "claimed": ("position", "window"),
        "reset": ("old", "new", "since"),
        "withheld": ("records",),
        "truncated": ("to", "cut", "start", "end"),
    }
)
_TEXTS = ("reason", "topic_id", "former", "on_failure")
#: The last second of year 9999.
_LATEST = 253_402_300_799


def sound(events: Iterable[Event]) -> tuple[list[Event], list[Damage]]:
    """Return the events that can be used, and each of the others as a line that is missing."""
    kept, damage = [], []
    for event in events:
        if _usable(event):
            kept.append(event)
            continue
        what = (
            f"line number {event.seq} of run {event.run} ({event.kind} of {event.key.topic}/{event.key.partition}) says what no "
            f"release writes: {str(dict(event.facts))[:200]}"
        )
        damage.append(Damage(f"run {event.run}", what, event.key.group, event.run, event.seq - 1))
    return kept, damage


def _usable(event: Event) -> bool:
    facts, kind = event.facts, event.kind
    if kind == "degraded":
        return all(_is_number(facts.get(name), _LATEST) for name in ("from", "to") if facts.get(name) is not None)
    may = (facts.get(name) for name in _MAY.get(kind, ()))
    offsets = [*(facts.get(name) for name in _MUST.get(kind, ())), *(value for value in may if value is not None)]
    return all(isinstance(offset, int) and _is_number(offset, MOST_OFFSET) for offset in offsets) and all(
        facts.get(name) is None or isinstance(facts[name], str) for name in _TEXTS
    )


def _is_number(value: Any, most: int) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most
