"""The plan and summary of `spark replay`, as text and JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from inbound.cli.shared.output import first_of, table
from inbound.spark.replay.marks import Standing
from inbound.spark.replay.plan import ReplayPlan, described

if TYPE_CHECKING:
    from inbound.spark.replay.job import ReplayResult
    from inbound.spark.replay.shadow import Difference

#: So many lines of one kind are printed; the JSON has all.
SHOWN = 20
_MORE = "... and {:,} more; --json has all"


def plan_text(plan: ReplayPlan, standings: Sequence[Standing]) -> str:
    """Return a table of each unit's offsets and progress."""
    marks = {one.unit.number: one.mark for one in standings}
    rows = [
        (unit.topic, str(unit.partition), unit.first, unit.next, marks.get(unit.number, unit.first) - unit.first,
         unit.next - marks.get(unit.number, unit.first))
        for unit in plan.units
    ]  # fmt: skip
    left = sum(row[5] for row in rows)
    head = f"replay {plan.name}: channel {plan.channel}, processor {plan.processor}, offsets {described(plan.asked)}"
    return f"{head}\n{table(('topic', 'partition', 'first', 'next', 'done', 'left'), rows)}\n{left:,} offsets to replay"


def as_json(
    plan: ReplayPlan, before: Sequence[Standing], ended: ReplayResult, seconds: float, difference: Difference | None
) -> dict[str, Any]:
    """Return the summary for programs: counts of all runs and this run."""
    earlier = {one.unit.number: one for one in before}
    units = []
    for one in ended.standings:
        was = earlier.get(one.unit.number)
        tried = len(was.attempts) if was is not None else 0
        units.append(
            {
                "unit": one.unit.number,
                "topic": one.unit.topic,
                "partition": one.unit.partition,
                "first": one.unit.first,
                "next": one.unit.next,
                "mark": one.mark,
                "complete": one.complete,
                "attempts": len(one.attempts),
                "handed_out": sum(attempt.records for attempt in one.attempts),
                "handed_out_now": sum(attempt.records for attempt in one.attempts[tried:]),
                "batches": sum(attempt.batches for attempt in one.attempts),
                "reverts": one.reverts,
                "skipped": [{"from": low, "to": high, "reason": why} for low, high, why in one.skips],
                "repeated": [{"first": r.first, "next": r.next, "why": r.why} for r in one.repeated()],
                "held": ended.held.get(one.unit.number),
            }
        )
    return {
        "name": plan.name,
        "channel": plan.channel,
        "processor": plan.processor,
        "complete": ended.complete,
        "seconds": round(seconds, 3),
        "offsets": sum(unit.next - unit.first for unit in plan.units),
        "done": sum(one.mark - one.unit.first for one in ended.standings),
        "units": units,
        "shadow": plan.shadow,
        "difference": None if difference is None else asdict(difference),
    }


def summary_text(summary: Mapping[str, Any]) -> str:
    """Return the summary for people: a line per partition, and all exceptions."""
    units = summary["units"]
    rows = [
        (u["topic"], str(u["partition"]), u["first"], u["next"], u["mark"] - u["first"], u["handed_out_now"], u["batches"],
         u["attempts"], sum(r["next"] - r["first"] for r in u["repeated"]))
        for u in units
    ]  # fmt: skip
    heads = ("topic", "partition", "first", "next", "done", "delivered now", "batches", "attempts", "repeated")
    lines = [table(heads, rows)]
    lines += first_of(
        [
            f"{_of(u)}: offsets {r['first']} to {r['next'] - 1} were redelivered: {r['why']}"
            for u in units
            for r in u["repeated"]
        ],
        SHOWN,
        _MORE,
    )
    lines += first_of(
        [
            f"{_of(u)}: offsets {s['from']} to {s['to'] - 1} were passed over: {s['reason']}"
            for u in units
            for s in u["skipped"]
        ],
        SHOWN,
        _MORE,
    )
    lines += [f"{_of(u)}: held: {u['held']}" for u in units if u["held"]]
    lines += [
        f"{_of(u)}: offsets {u['mark']} to {u['next'] - 1} are not marked done: the processor has not advanced over them"
        for u in units
        if not u["complete"] and not u["held"]
    ]
    state = "done" if summary["complete"] else "NOT done"
    lines.append(
        f"replay {summary['name']}: {state}, {summary['done']:,} of {summary['offsets']:,} offsets in {summary['seconds']:.1f} s"
    )
    if summary["difference"] is not None:
        lines.append(_difference_text(summary["difference"]))
    return "\n".join(lines)


def _of(unit: Mapping[str, Any]) -> str:
    return f"{unit['topic']}/{unit['partition']}"


def _difference_text(found: Mapping[str, Any]) -> str:
    words = (
        f"{found['only_here']:,} only here, {found['only_there']:,} only there, {found['different']:,} different, "
        f"{found['same']:,} the same; repeats: {found['repeats_here']:,} here, {found['repeats_there']:,} there"
    )
    examples = [
        f"  {one['kind']}: {one['source']} {one['id']}{': ' + ', '.join(one['differs']) if one['differs'] else ''}"
        for one in found["examples"][:SHOWN]
    ]
    return "\n".join([f"shadow: {words}", *examples])
