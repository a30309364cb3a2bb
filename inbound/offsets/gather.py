"""Puts a group's offsets together: what a configuration says of it, what ZooKeeper has, what the brokers say."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from inbound.clock import Clock
from inbound.config import ChannelConfig
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.kafka.base import LogClient
from inbound.offsets.changes import OffsetsError
from inbound.offsets.logs import ANSWER_SECONDS, Way, ask_logs, together
from inbound.offsets.model import ALL, First, GroupNodes, Logs, Row, Selection, rows_of
from inbound.offsets.nodes import group_names, read_group
from inbound.topic_names import chooser

#: Returns a client that asks the brokers in this way. May raise BrokerUnavailableError.
Connect = Callable[[Way], LogClient]


@dataclass
class Reads:
    """What a configuration says of a group: who reads what, and where that begins."""

    way: Way = field(default_factory=Way)
    channels: dict[str, str] = field(default_factory=dict)  # topic: the first channel that reads it
    begins: dict[str, First] = field(default_factory=dict)  # topic: where
    patterns: list[tuple[str, str, First]] = field(default_factory=list)  # pattern, channel, where

    def channel(self, topic: str) -> str:
        """Return the channel that reads a topic; empty: none of this configuration."""
        found = (name for pattern, name, _ in self.patterns if chooser((), pattern)(topic))
        return self.channels.get(topic) or next(found, "")

    def first(self, topics: Collection[str]) -> dict[str, First]:
        """Return where the group begins, by topic: those that are named, and those of `topics` that a pattern matches."""
        matched = {
            topic: first
            for pattern, _, first in reversed(self.patterns)
            for topic in topics
            if chooser((), pattern)(topic)
        }
        return matched | self.begins


def reads_of(channels: Mapping[str, ChannelConfig]) -> dict[str, Reads]:
    """Return what the channels of a configuration say, by group."""
    found: dict[str, Reads] = {}
    for name, channel in channels.items():
        if channel.group not in found:
            found[channel.group] = Reads(Way.of(channel))
        reads = found[channel.group]
        for topic in channel.topics:
            reads.channels.setdefault(topic, name)
            reads.begins.setdefault(topic, channel.auto_offset_reset)
        if channel.topics_pattern is not None:
            reads.patterns.append((channel.topics_pattern, name, channel.auto_offset_reset))
    return found


async def read_groups(
    zk: ZooKeeper, groups: Iterable[str] | None, reads: Mapping[str, Reads], selection: Selection = ALL
) -> list[GroupNodes]:
    """Return what ZooKeeper has of `groups`; None: of all there are, and of those in `reads`.

    Raises:
        OffsetsError: neither ZooKeeper nor `reads` knows one of `groups`.
        TransientError: ZooKeeper does not answer.
    """
    wanted = sorted({*await group_names(zk), *reads}) if groups is None else list(dict.fromkeys(groups))
    found = [await read_group(zk, group, selection) for group in wanted]
    for nodes in found:
        if not nodes.exists and nodes.group not in reads:
            known = ", ".join(sorted({*await group_names(zk), *reads})) or "none"
            raise OffsetsError(
                f"no group {nodes.group!r} in ZooKeeper, and none in this configuration; there are: {known}"
            )
    return found


def topics_of(nodes: GroupNodes, reads: Reads, selection: Selection = ALL) -> set[str]:
    """Return the topics that there is something to say of."""
    return {topic for topic in {*nodes.topics, *reads.begins} if selection.has(topic)}


def ask_for(
    groups: Iterable[GroupNodes],
    reads: Mapping[str, Reads],
    connect: Connect,
    clock: Clock,
    selection: Selection = ALL,
    seconds: float = ANSWER_SECONDS,
) -> dict[Way, Logs]:
    """Ask the brokers for the topics of `groups`, once in each way that they are read in. Blocks."""
    wanted: dict[Way, set[str]] = {}
    for nodes in groups:
        own = reads.get(nodes.group, Reads())
        wanted.setdefault(own.way, set()).update(topics_of(nodes, own, selection))
    return {
        way: ask_logs(lambda way=way: connect(way), topics, clock, seconds) if topics else Logs()  # type: ignore[misc]
        for way, topics in wanted.items()
    }


def rows_for(
    nodes: GroupNodes, reads: Mapping[str, Reads], logs: Mapping[Way, Logs], selection: Selection
) -> list[Row]:
    """Return the rows of a group."""
    own = reads.get(nodes.group, Reads())
    return rows_of(nodes, logs.get(own.way, Logs()), own.first(nodes.topics), selection)


def problems_of(logs: Mapping[Way, Logs], rows: Iterable[Row]) -> list[str]:
    """Return what is not known and why, a line for each."""
    unreadable = [note for row in rows if row.broken for note in row.notes if note.startswith("offset unreadable")]
    problem = together(list(logs.values())).problem
    return [*([problem] if problem is not None else []), *unreadable]
