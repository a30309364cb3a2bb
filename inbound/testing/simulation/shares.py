"""Who must own what in a group at rest: judged from the rules (design, rule 12), not with the product's planning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inbound.coordinators.base import ZkCoordinator
from inbound.coordinators.dynamic import DynamicCoordinator
from inbound.coordinators.fixed_count import FixedCountCoordinator
from inbound.coordinators.static import StaticCoordinator
from inbound.topic_partition import TopicPartition


@dataclass(frozen=True)
class Rights:
    """One member, in the order of seniority among its like."""

    name: str
    kind: str  # see `make`
    joined: int


def make(kind: str, topics: Sequence[str]) -> ZkCoordinator:
    """Return a coordinator: `dynamic`, `fixed-count N` of each topic, or `static N`: that partition of each topic."""
    name, _, number = kind.partition(" ")
    if name == "static":
        return StaticCoordinator({topic: [int(number)] for topic in topics})
    if name == "fixed-count":
        return FixedCountCoordinator(int(number))
    return DynamicCoordinator()


def wrong_shares(
    members: Sequence[Rights], partitions: Mapping[str, int], owners: Mapping[TopicPartition, str | None]
) -> str | None:
    """Return what is wrong about who owns what; None if it is as it must be. Every member reads every topic."""
    everything = [TopicPartition(topic, p) for topic, count in partitions.items() for p in range(count)]
    of = {member.name: member for member in members}
    for tp in everything:
        rightful = [m.name for m in members if m.kind == f"static {tp.partition}"]
        if rightful and owners.get(tp) not in rightful:
            return f"{tp} is listed by {', '.join(rightful)}, and {owners.get(tp)} owns it"
    listed = {tp for tp in everything if any(m.kind == f"static {tp.partition}" for m in members)}
    shared = [tp for tp in everything if tp not in listed]
    fixed = sorted((m for m in members if m.kind.startswith("fixed-count")), key=lambda m: m.joined)
    left: Counter[str] = Counter(tp.topic for tp in shared)
    for member in fixed:
        for topic in partitions:
            due = min(int(member.kind.split()[1]), left[topic])
            left[topic] -= due
            has = sum(owners.get(tp) == member.name and tp.topic == topic for tp in shared)
            if has != due:
                return f"{member.name} ({member.kind}) owns {has} partitions of {topic} instead of {due}"
    dynamic = [m.name for m in members if m.kind == "dynamic"]
    if not dynamic:
        return None
    unowned = [str(tp) for tp in shared if owners.get(tp) not in of]
    if unowned:
        return f"nobody owns {', '.join(unowned)}"
    counts = {name: sum(owners.get(tp) == name for tp in shared) for name in dynamic}
    return f"shares {counts}" if max(counts.values()) - min(counts.values()) > 1 else None
