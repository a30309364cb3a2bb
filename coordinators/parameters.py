"""What id nodes say of coordinators: read with care, for other members' nodes may be damaged, or of another version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from inbound.topic_partition import TopicPartition

DYNAMIC, FIXED_COUNT, STATIC = "dynamic", "fixed-count", "static"

#: So many partitions or topics are named in one sentence; of the others only the number is said.
NAMED = 20


def is_dynamic(coordinator: Mapping[str, Any]) -> bool:
    """Whether a member counts as dynamic: also one of a kind that is not known here, such as a `module:Class`."""
    return coordinator.get("type") not in (STATIC, FIXED_COUNT)


def listed_by(coordinator: Mapping[str, Any]) -> frozenset[TopicPartition]:
    """Return the partitions that a static member lists, none for others; what cannot be read is left out."""
    partitions = coordinator.get("partitions")
    if coordinator.get("type") != STATIC or not isinstance(partitions, Mapping):
        return frozenset()
    return frozenset(
        TopicPartition(topic, number)
        for topic, numbers in partitions.items()
        if isinstance(topic, str) and isinstance(numbers, (list, tuple))
        for number in numbers
        if type(number) is int and number >= 0
    )


def count_of(coordinator: Mapping[str, Any]) -> int:
    """Return how many partitions per topic a fixed-count member wants; 0 for others, and where it cannot be read."""
    count = coordinator.get("count")
    return count if coordinator.get("type") == FIXED_COUNT and type(count) is int and count > 0 else 0


def is_damaged(coordinator: Mapping[str, Any]) -> bool:
    """Whether the parameters are not what a member of this kind writes."""
    if coordinator.get("type") == FIXED_COUNT:
        return count_of(coordinator) == 0
    if coordinator.get("type") != STATIC:
        return False
    partitions = coordinator.get("partitions")
    if not isinstance(partitions, Mapping) or not all(isinstance(n, (list, tuple)) for n in partitions.values()):
        return True
    return len(listed_by(coordinator)) != sum(map(len, partitions.values())) or not partitions


def described(coordinator: Mapping[str, Any]) -> str:
    """Return kind and parameters on one line for people: `fixed-count, count 4`; `static, orders 0-2, 5`."""
    kind = str(coordinator.get("type", DYNAMIC))
    if kind == STATIC and not is_damaged(coordinator):
        listed = sorted(listed_by(coordinator))
        topics = sorted({tp.topic for tp in listed})
        return f"{kind}, " + "; ".join(f"{t} {ranges(tp.partition for tp in listed if tp.topic == t)}" for t in topics)
    rest = ", ".join(f"{name} {value}" for name, value in coordinator.items() if name != "type")
    return f"{kind}, {rest}" if rest else kind


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers in order, runs of three and more as `first-last`: `0-2, 5, 6`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [[f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(number) for number in run] for run in runs]
    return ", ".join(part for run in parts for part in run)


def named(things: Iterable[object], most: int = NAMED) -> str:
    """Return things with commas between them, the first `most` of them."""
    every = [str(thing) for thing in things]
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")
