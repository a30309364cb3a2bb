"""A proof's evidence from ZooKeeper and from Kafka's brokers.

ZooKeeper has commits, claims and owners; the brokers have topics, their ids and their logs' limits. The order matters while
a group runs, or progress would look like loss: first ZooKeeper, then the lengths of the ledger's files, then the ends of the
logs. So each commit has its lines within those lengths, and each line has its offsets below those ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from inbound.config import ChannelConfig
from inbound.coordinators.nodes import BadNodeError, decode_epoch, decode_offset
from inbound.coordinators.paths import GroupPaths
from inbound.coordinators.zookeeper import Call, Node, ZooKeeper
from inbound.errors import BrokerUnavailableError, ZkNodeError
from inbound.kafka.auth.access import resolve
from inbound.kafka.base import LogRange, ReadTo, TopicMeta, read_to
from inbound.kafka.python.client import KafkaPythonClient
from inbound.proof.model import NotedReset, ZooKeeperState
from inbound.topic_partition import TopicPartition

T = TypeVar("T")

#: The brokers' time to answer for all partitions. Seconds.
ANSWER_SECONDS = 30.0
#: Partitions whose nodes are read at a time.
_PIPELINED = 512

#: Connects, runs one coroutine over the connection, disconnects.
AskZooKeeper = Callable[[Callable[[ZooKeeper], Coroutine[Call[Any], None, T]]], T]


@dataclass(frozen=True, slots=True)
class Subject:
    """A group, and the topics of it to prove."""

    group: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None  # of topics, besides
    read_committed: bool = True
    at_most_once: bool = False  # a repeat breaks the promise

    @classmethod
    def of(cls, channel: ChannelConfig) -> Subject:
        """Return a channel's group, with all its topics."""
        options = channel.processor.options if channel.processor.type == "simple" else {}
        return cls(
            channel.group, tuple(channel.topics), channel.topics_pattern, channel.isolation == "read_committed",
            options.get("no_duplication") is True,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Coordinated:
    """ZooKeeper's data about a partition."""

    coordination: ZooKeeperState
    problem: str | None = None  # why a node cannot be used; then none of the data counts
    #: The offset that the log was read to, and the leader that wrote the record before it; None: not known.
    read_to: ReadTo | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """ZooKeeper's data about a group."""

    exists: bool
    partitions: Mapping[TopicPartition, Coordinated] = field(default_factory=dict)


async def read_group(zk: ZooKeeper, group: str, partitions: Collection[TopicPartition]) -> Group:
    """Read a group's commits, epochs and owners, of partitions that have any.

    Raises:
        TransientError: the connection, or the time, ended.
    """
    paths = GroupPaths(group)
    if await zk.get(paths.root) is None:
        return Group(exists=False)
    found = {}
    ordered = sorted(partitions)
    for at in range(0, len(ordered), _PIPELINED):
        # The commit is read first: claims and owners may be newer than it, never older.
        calls = [
            (tp, zk.get(paths.offset(*tp)), zk.get(paths.epoch(*tp)), zk.get(paths.owner(*tp)))
            for tp in ordered[at : at + _PIPELINED]
        ]
        for tp, offset, epoch, owner in calls:
            try:
                answer = _coordinated(paths, tp, await offset, await epoch, await owner)
            except (BadNodeError, ZkNodeError) as error:
                answer = Coordinated(ZooKeeperState(None, None, None, None, known=False), str(error))
            if answer is not None:
                found[tp] = answer
    return Group(True, found)


async def topics_of(zk: ZooKeeper, group: str) -> list[str]:
    """Return the topics that a group has offsets of."""
    return sorted(await zk.children(f"{GroupPaths(group).root}/offsets") or [])


def _coordinated(
    paths: GroupPaths, tp: TopicPartition, offset: Node | None, epoch: Node | None, owner: Node | None
) -> Coordinated | None:
    if offset is None and epoch is None and owner is None:
        return None
    claim = None if epoch is None else decode_epoch(paths.epoch(*tp), epoch.data)
    committed = None if offset is None else decode_offset(paths.offset(*tp), offset.data)
    return Coordinated(
        ZooKeeperState(
            committed=committed,
            mzxid=None if offset is None else offset.stat.mzxid,
            epoch=None if epoch is None else epoch.stat.version,
            owner=None if owner is None else owner.data.decode(errors="replace"),
            moved=NotedReset.noted_in(claim),
            topic_id=None if claim is None else claim.topic_id,
        ),
        read_to=None if claim is None else read_to(committed, claim.leader_epoch),
    )


class KafkaLogs(AbstractContextManager["KafkaLogs"]):
    """Reads topics and log limits from the brokers. One thread; close it."""

    def __init__(self, properties: Mapping[str, Any], *, read_committed: bool = True) -> None:
        """Connect.

        Raises:
            BrokerUnavailableError: no broker answers.
            ConfigError: the client refuses a property.
        """
        isolation = "read_committed" if read_committed else "read_uncommitted"
        self._where = resolve(properties).get("bootstrap.servers", "")
        self._client = KafkaPythonClient(properties, client_id="inbound-spark", isolation=isolation)

    def topics(self, names: Collection[str], pattern: str | None = None) -> dict[str, TopicMeta]:
        """Return the existing topics of these names, or of the pattern."""
        found = dict(self._client.topics(names, None))
        if pattern is not None:
            found.update(self._client.topics((), pattern))
        return found

    def limits(
        self, partitions: Iterable[TopicPartition], seconds: float = ANSWER_SECONDS
    ) -> dict[TopicPartition, LogRange]:
        """Return the logs' first offsets, and their ends or last stable offsets.

        Raises:
            BrokerUnavailableError: a leader does not answer in time.
        """
        left = set(partitions)
        found: dict[TopicPartition, LogRange] = {}
        deadline = time.monotonic() + seconds
        while left:
            answered = self._client.log_ranges(left)
            found.update(answered)
            left -= answered.keys()
            if left and not answered and time.monotonic() > deadline:
                one = min(left)
                raise BrokerUnavailableError(
                    f"Kafka at {self._where} did not say within {seconds:.0f} s where the logs of {len(left)} partitions "
                    f"begin and end, {one.topic}/{one.partition} among them; check that their leaders run"
                )
            if left and not answered:
                time.sleep(0.05)
        return found

    def cuts(self, read: Mapping[TopicPartition, ReadTo], seconds: float = ANSWER_SECONDS) -> dict[TopicPartition, int]:
        """Return where logs were cut below `read`; see `inbound.kafka.python.metadata.cuts`.

        Raises:
            BrokerUnavailableError: a leader does not answer in time.
        """
        found, silent = self._client.cuts(read, seconds)
        if silent:
            one = min(silent)
            raise BrokerUnavailableError(
                f"Kafka at {self._where} did not say within {seconds:.0f} s whether the logs of {len(silent)} partitions were "
                f"cut, {one.topic}/{one.partition} among them; check that their leaders run"
            )
        return found

    def offsets_at(
        self, partitions: Collection[TopicPartition], milliseconds: int
    ) -> Mapping[TopicPartition, int | None]:
        """Return each partition's first offset at or after this timestamp, or None."""
        return self._client.offsets_at(partitions, milliseconds)

    def close(self) -> None:
        self._client.close()

    def __exit__(self, *_: object) -> None:
        self.close()
