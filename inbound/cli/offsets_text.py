"""Offsets as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from inbound.cli.table import Cell, count, number, one_line, table
from inbound.explain.cause import duration
from inbound.offsets.changes import Change
from inbound.offsets.model import GroupNodes, Row, Total

_HEADERS = ("TOPIC", "PARTITION", "COMMITTED", "LOG-START", "LOG-END", "LAG", "OWNER", "EPOCH", "LAST COMMIT", "NOTES")
_CHANGES = ("GROUP", "TOPIC", "PARTITION", "OLD-OFFSET", "NEW-OFFSET")
#: So many members are named.
_NAMED = 5


def shown(groups: Sequence[tuple[GroupNodes, Sequence[Row]]], now: float) -> str:
    """Return a heading and a table for each group; `now` is in seconds since 1970."""
    if not groups:
        return "no groups"
    return "\n\n".join(_group(nodes, rows, now) for nodes, rows in groups)


def changes_table(groups: Sequence[tuple[str, Sequence[Change]]]) -> str:
    """Return old and new offset of each partition."""
    rows = [(group, c.topic, c.partition, c.old, c.new) for group, changes in groups for c in changes]
    return table(_CHANGES, rows)


def _group(nodes: GroupNodes, rows: Sequence[Row], now: float) -> str:
    total = Total.of(rows)
    lag = "?" if total.lag is None else number(total.lag)
    parts = [_members(nodes), count(total.partitions, "partition")]
    if total.unowned:
        parts.append(f"{total.unowned:,} without an owner")
    if total.uncommitted:
        parts.append(f"{total.uncommitted:,} without an offset")
    heading = f"group {one_line(nodes.group)}: {', '.join(parts)}, lag {lag}"
    return f"{heading}\n{table(_HEADERS, [_cells(row, now) for row in rows])}" if rows else heading


def _members(nodes: GroupNodes) -> str:
    if not nodes.members:
        return "no members" if nodes.exists else "no members yet, and no offsets"
    more = f" and {len(nodes.members) - _NAMED} more" if len(nodes.members) > _NAMED else ""
    return f"{count(len(nodes.members), 'member')} ({', '.join(map(one_line, nodes.members[:_NAMED]))}{more})"


def _cells(row: Row, now: float) -> tuple[Cell, ...]:
    return (
        row.topic, row.partition, row.committed, row.start, row.end, "?" if row.lag is None else row.lag, row.owner,
        row.epoch, _when(row.committed_at, now), "; ".join(row.notes),
    )  # fmt: skip


def _when(at: float | None, now: float) -> str | None:
    if at is None:
        return None
    return f"{datetime.fromtimestamp(at).strftime('%Y-%m-%d %H:%M:%S')} ({duration(now - at)} ago)"
