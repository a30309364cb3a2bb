"""Combines a group's offsets from configuration, ZooKeeper and brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from inbound.clock import Clock
from inbound.config import ChannelConfig, ReaderConfig
from inbound.coordinators.zookeeper import ZooKeeper
from inbound.errors import BrokerUnavailableError
from inbound.kafka.base import LogClient, LogRange, TopicMeta
from inbound.kafka.clients.choice import connector
from inbound.offsets.changes import OffsetsError
from inbound.offsets.model import ALL, First, GroupSnapshot, Logs, PartitionSelection, Row, rows_of
from inbound.offsets.nodes import group_names, read_group
from inbound.runtime.patterns import chooser
from inbound.topic_partition import TopicPartition

#: The time limit for all leaders together, and the interval of looks for their answers. Seconds.
ANSWER_SECONDS, _AGAIN = 10.0, 0.03


@dataclass(frozen=True)
class Way:
    """How a group reads: its client and isolation level."""

    client: str = "kafka-python"
    isolation: str = "read_committed"

    @classmethod
    def of(cls, channel: ChannelConfig) -> Way:
        """Return a channel's way."""
        return cls(channel.reader.client, channel.isolation)

    def connect(self, properties: Mapping[str, Any]) -> LogClient:
        """Return a client with the settings of channels.

        Raises:
            BrokerUnavailableError: no broker answers or accepts us.
        """
        reader = ReaderConfig.model_validate({"client": self.client})
        return connector(reader, properties, client_id="inbound-offsets", isolation=self.isolation)()


def ask_logs(
    connect: Callable[[], LogClient], topics: Collection[str], clock: Clock, seconds: float = ANSWER_SECONDS
) -> Logs:
    """Return the brokers' answers about topics; an error becomes `Logs.problem`."""
    try:
        with closing(connect()) as client:
            return ask_with(client, topics, clock, seconds)
    except BrokerUnavailableError as error:
        return Logs(problem=str(error))


def ask_with(client: LogClient, topics: Collection[str], clock: Clock, seconds: float = ANSWER_SECONDS) -> Logs:
    """Do as `ask_logs`, with a connected client. For one thread."""
    known: Mapping[str, TopicMeta] = {}
    ranges: dict[TopicPartition, LogRange] = {}
    deadline = clock.now() + seconds
    never = threading.Event()
    try:
        known = client.topics(topics, None)
        wanted = {TopicPartition(name, p) for name, meta in known.items() for p in range(meta.partitions)}
        while wanted:
            ranges |= client.log_ranges(wanted)
            wanted -= ranges.keys()
            if wanted and clock.now() >= deadline:
                return Logs(topics=known, ranges=ranges, problem=_unanswered(sorted(wanted), seconds))
            if wanted:
                clock.wait(never, _AGAIN)
    except BrokerUnavailableError as error:
        return Logs(topics=known, ranges=ranges, problem=str(error))
    return Logs(topics=known, ranges=ranges)


def together(answers: Sequence[Logs]) -> Logs:
    """Merge several answers; of one partition the last one counts."""
    problems = [answer.problem for answer in answers if answer.problem is not None]
    return Logs(
        topics={name: meta for answer in answers for name, meta in answer.topics.items()},
        ranges={tp: limits for answer in answers for tp, limits in answer.ranges.items()},
        problem="; ".join(dict.fromkeys(problems)) or None,
    )


def _unanswered(missing: Sequence[TopicPartition], seconds: float) -> str:
    first = ", ".join(map(str, missing[:5]))
    more = f" and {len(missing) - 5:,} more" if len(missing) > 5 else ""
    return f"Kafka: no leader has answered for {first}{more} within {seconds:g} s; see that its brokers run"


#: Returns a client of this way. May raise BrokerUnavailableError.
Connect = Callable[[Way], LogClient]


@dataclass
class Reads:
    """A group's channels, topics and first offsets in a configuration."""

    way: Way = field(default_factory=Way)
    channels: dict[str, str] = field(default_factory=dict)  # topic: the first channel that reads it
    begins: dict[str, First] = field(default_factory=dict)  # topic: its first offset
    patterns: list[tuple[str, str, First]] = field(default_factory=list)  # pattern, channel, first offset

    def channel(self, topic: str) -> str:
        """Return the channel that reads a topic; empty if there is none."""
        found = (name for pattern, name, _ in self.patterns if chooser((), pattern)(topic))
        return self.channels.get(topic) or next(found, "")

    def first(self, topics: Collection[str]) -> dict[str, First]:
        """Return the first offsets of named topics, and of matching `topics`."""
        matched = {
            topic: first
            for pattern, _, first in reversed(self.patterns)
            for topic in topics
            if chooser((), pattern)(topic)
        }
        return matched | self.begins


def reads_of(channels: Mapping[str, ChannelConfig]) -> dict[str, Reads]:
    """Return the groups of a configuration's channels, by name."""
    found: dict[str, Reads] = {}
    for name, channel in channels.items():
        reads = found.setdefault(channel.group, Reads(Way.of(channel)))
        for topic in channel.topics:
            reads.channels.setdefault(topic, name)
            reads.begins.setdefault(topic, channel.auto_offset_reset)
        if channel.topics_pattern is not None:
            reads.patterns.append((channel.topics_pattern, name, channel.auto_offset_reset))
    return found


async def read_groups(
    zk: ZooKeeper, groups: Iterable[str] | None, reads: Mapping[str, Reads], selection: PartitionSelection = ALL
) -> list[GroupSnapshot]:
    """Read groups from ZooKeeper; None: all, and those in `reads`.

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


def topics_of(nodes: GroupSnapshot, reads: Reads, selection: PartitionSelection = ALL) -> set[str]:
    """Return the topics that nodes or the configuration name."""
    return {topic for topic in {*nodes.topics, *reads.begins} if selection.has(topic)}


def ask_for(
    groups: Iterable[GroupSnapshot],
    reads: Mapping[str, Reads],
    connect: Connect,
    clock: Clock,
    selection: PartitionSelection = ALL,
    seconds: float = ANSWER_SECONDS,
) -> dict[Way, Logs]:
    """Ask the brokers for the topics of groups, once per way. Blocks."""
    wanted: dict[Way, set[str]] = {}
    for nodes in groups:
        own = reads.get(nodes.group, Reads())
        wanted.setdefault(own.way, set()).update(topics_of(nodes, own, selection))
    return {
        way: ask_logs(lambda way=way: connect(way), topics, clock, seconds) if topics else Logs()  # type: ignore[misc]
        for way, topics in wanted.items()
    }


def rows_for(
    nodes: GroupSnapshot, reads: Mapping[str, Reads], logs: Mapping[Way, Logs], selection: PartitionSelection
) -> list[Row]:
    """Return the rows of a group."""
    own = reads.get(nodes.group, Reads())
    return rows_of(nodes, logs.get(own.way, Logs()), own.first(nodes.topics), selection)


def problems_of(logs: Mapping[Way, Logs], rows: Iterable[Row]) -> list[str]:
    """Return a line for each unknown value, with its reason."""
    unreadable = [note for row in rows if row.broken for note in row.notes if note.startswith("offset unreadable")]
    problem = together(list(logs.values())).problem
    return [*([problem] if problem is not None else []), *unreadable]
