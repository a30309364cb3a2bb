"""Resets as tables for people, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from inbound.cli.table import one_line, table
from inbound.controller.reset_offset import Condition, Moved, RefInfo, ResetCommand
from inbound.controller.reset_offset.targets import in_words, time_text

#: Of the JSON.
FORMAT = 1

_MOVED = ("TOPIC", "PARTITION", "OLD-OFFSET", "NEW-OFFSET", "MOVES-BY")
_LIST = ("NAME", "SUBMITTED", "GROUP", "TOPIC", "STATE", "WHAT", "BY")
_CONDITIONS = ("CONDITION", "STATUS", "REASON", "TIME", "MESSAGE")


def moved_table(topic: str, moved: Iterable[Moved]) -> str:
    """Return old and new offset of each partition, and by how much it moves."""
    rows = [(topic, m.partition, m.old, m.new, None if m.old is None else _signed(m.new - m.old)) for m in moved]
    return table(_MOVED, rows)


def list_table(commands: Sequence[ResetCommand]) -> str:
    """Return a line for each reset."""
    if not commands:
        return "no resets"
    rows = []
    for one in commands:
        group, topic = (one.info.group, one.info.topic) if one.info is not None else (str(one.ref), None)
        rows.append((one.name, time_text(one.created), group, topic, one.state.value, in_words(one.spec), one.by))
    return table(_LIST, rows)


def conditions_table(conditions: Sequence[Condition]) -> str:
    """Return a line for each condition."""
    return table(_CONDITIONS, [(c.type, c.status, c.reason, c.time, c.message) for c in conditions])


def condition_line(condition: Condition) -> str:
    """Return `ConsumerGroupsStopped: True (Stopped): nobody owns a partition`."""
    reason = f" ({condition.reason})" if condition.reason else ""
    message = f": {one_line(condition.message)}" if condition.message else ""
    return f"{condition.type}: {condition.status}{reason}{message}"


def as_json(info: RefInfo | None, moved: Iterable[Moved], command: ResetCommand | None = None) -> dict[str, Any]:
    """Return a reset as JSON takes it; without a command it is a dry run. Names as Knative's status has them."""
    return {
        "format": FORMAT,
        "dry_run": command is None,
        "name": command.name if command is not None else None,
        "group": info.group if info is not None else None,
        "topic": info.topic if info is not None else None,
        "state": command.state.value if command is not None else None,
        "created": command.created if command is not None else None,
        "ended": command.ended if command is not None else None,
        "partitions": [{"partition": m.partition, "oldOffset": m.old, "newOffset": m.new} for m in moved],
        "conditions": [_condition(c) for c in command.conditions] if command is not None else [],
    }


def _condition(condition: Condition) -> dict[str, str]:
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": condition.time,
    }


def _signed(number: int) -> str:
    return f"{number:+,}" if number else "0"
