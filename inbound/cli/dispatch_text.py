"""What a dispatcher says of itself, for people: one line, and why partitions stand still."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def dispatch_line(said: Mapping[str, Any]) -> str | None:
    """Return the line below a channel's table; None where the processor is no dispatcher."""
    if "subscriber" not in said:
        return None
    answers = ", ".join(
        f"{number:,} x {'no answer' if status == '0' else status}" for status, number in said["answers"].items()
    )
    line = (
        f"Dispatch to {said['subscriber']}: {said['delivered_total']:,} events delivered, "
        f"{said['in_flight']:,} requests under way, {said['retries_total']:,} sent again"
    )
    for name, words in (
        ("dead_lettered", "dead-lettered"),
        ("delayed", "delayed"),
        ("filtered", "filtered out"),
        ("undecodable", "no events"),
        ("replied", "replies posted"),
    ):
        if count := said.get(f"{name}_total", 0):
            line += f", {count:,} {words}"
    return f"{line}; answers: {answers or 'none yet'}"


def why_standing(said: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each partition that waits for an event."""
    for where, why in sorted(said.get("partitions", {}).items()):
        yield f"{where}: {why}"
