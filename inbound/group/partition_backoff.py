"""Backoff for partitions whose nodes ZooKeeper refuses, or that cannot be read."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from inbound.coordinators.nodes import BadNodeError
from inbound.errors import ZkNodeError
from inbound.group.parts import MemberParts
from inbound.runtime.backoff import Backoff
from inbound.topic_partition import TopicPartition

#: How soon such a partition is tried again.
RETRY = Backoff(5.0, 60.0)


@dataclass
class _Backoff:
    failures: int = 0
    due: float = 0.0  # clock time of the next try
    error: str = ""


class PartitionBackoff:
    """The partitions of one channel. Controller's thread, where a method does not say another."""

    def __init__(self, parts: MemberParts) -> None:
        self._parts = parts
        self._of: dict[TopicPartition, _Backoff] = {}

    def failed(self, tp: TopicPartition, error: BadNodeError | ZkNodeError) -> None:
        """Name a partition, and leave it alone for a while.

        Raises:
            ZkNodeError: the node is not the partition's alone.
        """
        paths = self._parts.paths
        own = {path(*tp) for path in (paths.epoch, paths.owner, paths.offset)}
        if isinstance(error, ZkNodeError) and error.path not in own:
            raise error
        if self.rests(tp):
            return  # it is held, and was looked at with the others
        backoff = self._of.setdefault(tp, _Backoff())
        backoff.failures += 1
        wait = RETRY.delay(backoff.failures)
        backoff.due = self._parts.clock.now() + wait
        backoff.error = str(error)
        self._parts.journal.note(
            "unreadable", f"its nodes cannot be used: {error}; looking again in {wait:.0f} s", tp, level=logging.ERROR
        )

    def succeeded(self, tp: TopicPartition) -> None:
        """Its nodes could be used."""
        self._of.pop(tp, None)

    def forget(self, topic: str) -> None:
        """Try all partitions of this topic at once. An operator may have repaired them."""
        self._of = {tp: backoff for tp, backoff in self._of.items() if tp.topic != topic}

    def rests(self, tp: TopicPartition) -> bool:
        """Whether a partition is not tried yet."""
        backoff = self._of.get(tp)
        return backoff is not None and backoff.due > self._parts.clock.now()

    def problem(self, tp: TopicPartition) -> str | None:
        """Return why a partition's nodes cannot be used; None if they can. Any thread.

        Another member may have claimed it since: what is older than a try would be is no news.
        """
        backoff = self._of.get(tp)
        return backoff.error if backoff is not None and self._parts.clock.now() < backoff.due + RETRY.longest else None

    def problems(self) -> dict[str, str]:
        """Return why nodes cannot be used, for each such partition. Any thread."""
        return {str(tp): error for tp in sorted(dict(self._of)) if (error := self.problem(tp)) is not None}

    @property
    def resting(self) -> frozenset[TopicPartition]:
        """The partitions that are not tried yet."""
        return frozenset(filter(self.rests, self._of))

    @property
    def next_try(self) -> float | None:
        """The clock time at which the first of them is tried."""
        return min((self._of[tp].due for tp in self.resting), default=None)
