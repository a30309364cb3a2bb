"""Resolves where a reset moves each partition, and refuses impossible ones.

Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime

from inbound.controller.reset_offset.model import Moved, ResetSpec, To, TopicLog
from inbound.coordinators.rights import named, runs
from inbound.errors import ResetError

#: A time at most so many seconds ahead counts as now: clocks of machines differ.
CLOCK_ALLOWANCE = 5.0
#: Partitions named in one message.
NAMED = 10

#: The field of the specification that each needs.
_FIELD: Mapping[To, str | None] = {
    To.EARLIEST: None,
    To.LATEST: None,
    To.TIME: "time",
    To.SHIFT: "shift",
    To.OFFSET: "offset",
    To.OFFSETS: "offsets",
}


def check(spec: ResetSpec, log: TopicLog, now: float) -> None:
    """Refuse what cannot be done, before anything stops.

    `now` is in seconds since 1970. The group's offsets are known only once it has stopped: `resolve` checks what
    depends on them.

    Raises:
        ResetError: a field is missing or one too many, the time lies ahead, or a partition or an offset does not exist;
            the message says which there are.
    """
    _check_fields(spec, log.topic)
    if spec.time is not None:
        _check_time(spec.time, log.topic, now)
    _check_offsets(spec, chosen(spec, log), log)


def resolve(spec: ResetSpec, committed: Mapping[int, int | None], log: TopicLog) -> list[Moved]:
    """Return every partition's move, in order: the old and new offset.

    `committed` holds the group's offsets; a partition that is missing there, or None, has none. A time needs `at_time`
    of the log for each partition. A partition whose offset is already the new one is moved all the same, as requested.

    Raises:
        ResetError: a partition or an offset does not exist (any more), or there is no offset to shift from.
    """
    _check_fields(spec, log.topic)
    partitions = chosen(spec, log)
    _check_offsets(spec, partitions, log)
    never = [p for p in partitions if committed.get(p) is None]
    if spec.to is To.SHIFT and never:
        # Where the group begins there is its claimant's decision (`auto_offset_reset`), and claimants may differ.
        raise ResetError(
            f"{log.topic}: the group has no offset yet in {partitions_text(never)}, so there is nothing to shift from; name the "
            "other partitions, or give an offset, a time, earliest or latest"
        )
    return [Moved(p, committed.get(p), _target(spec, p, committed.get(p), log)) for p in partitions]


def chosen(spec: ResetSpec, log: TopicLog) -> list[int]:
    """Return the partitions that move, in order.

    These are the requested ones, those with an offset of their own, or all.

    Raises:
        ResetError: one of them does not exist, none is left, or one that was asked for has no offset of its own.
    """
    given = spec.offsets if spec.offsets is not None else log.ranges
    wanted = sorted(set(given) if spec.partitions is None else set(spec.partitions))
    if unknown := [p for p in wanted if p not in log.ranges]:
        raise ResetError(
            f"{log.topic} has no {partitions_text(unknown)}; it has {partitions_text(log.ranges)}: name those, or leave them out"
        )
    if missing := [p for p in wanted if p not in given]:
        raise ResetError(
            f"{log.topic}: no offset is given for {partitions_text(missing)}, only for {partitions_text(given)}; add it, or leave "
            "it out of the partitions"
        )
    if not wanted:
        raise ResetError(f"{log.topic}: no partition is named; it has {partitions_text(log.ranges)}")
    return wanted


def in_words(spec: ResetSpec) -> str:
    """Return the request: `to the earliest offset, partitions 0 to 3`."""
    what = {
        To.EARLIEST: "to the earliest offset",
        To.LATEST: "to the latest offset",
        To.TIME: f"to {time_text(spec.time)}",
        To.SHIFT: f"by {spec.shift or 0:+d}",
        To.OFFSET: f"to offset {spec.offset}",
        To.OFFSETS: f"to the offsets given for {partitions_text(spec.offsets or ())}",
    }[spec.to]
    return what if spec.partitions is None else f"{what}, {partitions_text(spec.partitions)}"


def time_text(time: float | None) -> str:
    """Format seconds since 1970 as RFC 3339, to Kafka's millisecond."""
    if time is None:
        return "no time"
    try:
        text = datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{time:.0f} s since 1970"
    return text.replace("+00:00", "Z").replace(".000Z", "Z")


def numbers(partitions: Iterable[int]) -> str:
    """Return numbers in order, runs drawn together: `0 to 3, 7`."""
    texts = (str(first) if first == last else f"{first} to {last}" for first, last in runs(partitions))
    return named(texts, NAMED)


def partitions_text(partitions: Collection[int]) -> str:
    """Return partitions by number: `partitions 0 to 3, 7`."""
    if not partitions:
        return "no partitions"
    return f"partition{'' if len(set(partitions)) == 1 else 's'} {numbers(partitions)}"


def _check_fields(spec: ResetSpec, topic: str) -> None:
    needed = _FIELD[spec.to]
    if needed is not None and getattr(spec, needed) is None:
        raise ResetError(f"{topic}: a reset to {spec.to.value} needs its {needed}; give it")
    for field in filter(None, _FIELD.values()):
        if field != needed and getattr(spec, field) is not None:
            raise ResetError(f"{topic}: a reset to {spec.to.value} takes no {field}; leave it out")


def _check_time(time: float, topic: str, now: float) -> None:
    if not time >= 0:  # NaN too. To Kafka -1 ms and -2 ms are names of the log's end and start.
        raise ResetError(
            f"{topic}: {time_text(time)} is before 1970; give a time since then, or go to the earliest offset"
        )
    if time > now + CLOCK_ALLOWANCE:
        raise ResetError(
            f"{topic}: {time_text(time)} lies ahead; it is {time_text(now)} now: give a time up to then, or go to the latest "
            "offset"
        )


def _check_offsets(spec: ResetSpec, partitions: Iterable[int], log: TopicLog) -> None:
    given = dict.fromkeys(log.ranges, spec.offset) if spec.to is To.OFFSET else spec.offsets or {}
    problems = []
    for partition in partitions:
        offset = given.get(partition)
        start, end = log.ranges[partition]
        if offset is not None and not start <= offset <= end:
            problems.append(f"{log.topic}/{partition}: offset {offset} is outside the log; valid is {start} to {end}")
    if problems:
        more = [f"and {len(problems) - NAMED} more partitions"] if len(problems) > NAMED else []
        raise ResetError("\n".join([*problems[:NAMED], *more]))


def _target(spec: ResetSpec, partition: int, old: int | None, log: TopicLog) -> int:
    """Return the new offset of one checked partition."""
    if spec.to is To.TIME and partition not in log.at_time:
        raise ResetError(
            f"{log.topic}/{partition}: the brokers were not asked where {time_text(spec.time)} begins; ask for that time"
        )
    start, end = log.ranges[partition]
    return {
        To.EARLIEST: start,
        To.LATEST: end,
        To.TIME: max(log.at_time.get(partition, start), start),  # retention may have deleted more since
        To.SHIFT: min(max((old or 0) + (spec.shift or 0), start), end),
        To.OFFSET: spec.offset or 0,
        To.OFFSETS: (spec.offsets or {}).get(partition, 0),
    }[spec.to]
