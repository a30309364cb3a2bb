"""Partitions left unclaimed for a while: unusable nodes, or operators' releases."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from inbound.coordinators.nodes import BadNodeError
from inbound.errors import ZkNodeError
from inbound.group.parts import MemberParts
from inbound.runtime.backoff import Backoff
from inbound.topic_partition import TopicPartition

RETRY = Backoff(5.0, 60.0)


@dataclass
class _Backoff:
    failures: int = 0
    due: float = 0.0  # clock time of the next try
    error: str = ""


class PartitionBackoff:
    """The backoffs of one channel's partitions.

    Controller's thread, where a method does not name another.
    """

    def __init__(self, parts: MemberParts) -> None:
        self._parts = parts
        self._of: dict[TopicPartition, _Backoff] = {}

    def failed(self, tp: TopicPartition, error: BadNodeError | ZkNodeError) -> None:
        """Log a partition's error, and leave the partition alone for a while.

        Raises:
            ZkNodeError: the node is not the partition's alone.
        """
        paths = self._parts.paths
        own = {path(*tp) for path in (paths.epoch, paths.owner, paths.offset)}
        if isinstance(error, ZkNodeError) and error.path not in own:
            raise error
        if self.rests(tp):
            return  # it is held, and was checked with the others
        backoff = self._of.setdefault(tp, _Backoff())
        backoff.failures += 1
        wait = RETRY.delay(backoff.failures)
        backoff.due = self._parts.clock.now() + wait
        backoff.error = str(error)
        self._parts.journal.note(
            "unreadable", f"its nodes cannot be used: {error}; looking again in {wait:.0f} s", tp, level=logging.ERROR
        )

    def succeeded(self, tp: TopicPartition) -> None:
        """Forget a partition's failures: its nodes could be used."""
        self._of.pop(tp, None)

    def forget(self, topic: str) -> None:
        """Retry a topic's partitions at once: an operator may have repaired them."""
        self._of = {tp: backoff for tp, backoff in self._of.items() if tp.topic != topic}

    def rests(self, tp: TopicPartition) -> bool:
        """Whether a partition's backoff is not over."""
        backoff = self._of.get(tp)
        return backoff is not None and backoff.due > self._parts.clock.now()

    def problem(self, tp: TopicPartition) -> str | None:
        """Return why a partition's nodes are unusable; None: usable. Any thread.

        Another member may have claimed it since: an error older than a retry would be is not reported.
        """
        backoff = self._of.get(tp)
        return backoff.error if backoff is not None and self._parts.clock.now() < backoff.due + RETRY.longest else None

    def problems(self) -> dict[str, str]:
        """Return the error of each partition with unusable nodes. Any thread."""
        return {str(tp): error for tp in sorted(dict(self._of)) if (error := self.problem(tp)) is not None}

    @property
    def resting(self) -> frozenset[TopicPartition]:
        """The partitions whose backoff is not over."""
        return frozenset(filter(self.rests, self._of))

    @property
    def next_try(self) -> float | None:
        """The clock time of the next retry; None: no partition backs off."""
        return min((self._of[tp].due for tp in self.resting), default=None)


#: Seconds for which a released partition is left to others by default: as long as the usual `rebalance_interval`. Other
#: members may have no room for such a partition, and it must not stay unread for good.
UNTIL_REBALANCE = 60.0


class ReleaseCooldown:
    """The partitions that one member leaves to others after a release.

    `clear` from any thread, the rest on the controller's.
    """

    def __init__(self) -> None:
        #: By partition: until when, and whether a rebalance ends it before.
        self._until: dict[TopicPartition, tuple[float, bool]] = {}
        self._members: frozenset[str] = frozenset()

    def add(self, tp: TopicPartition, now: float, seconds: float | None) -> None:
        """Leave `tp` to other members for some seconds.

        None: until a rebalance, at most `UNTIL_REBALANCE`.
        """
        self._until[tp] = (now + (UNTIL_REBALANCE if seconds is None else seconds), seconds is None)

    def clear(self) -> None:
        """Leave no partition to others: an operator asked for a rebalance."""
        self._until = {}

    def left(self, now: float, members: Collection[str]) -> frozenset[TopicPartition]:
        """Return the partitions still left to others.

        `members` are the group's: a change of them is a rebalance.
        """
        until, before, self._members = self._until, self._members, frozenset(members)
        moved = before != self._members and bool(before)
        over = {tp for tp, (at, ends) in until.items() if at <= now or (ends and moved)}
        for tp in over:
            until.pop(tp, None)
        return frozenset(until)

    def partitions(self) -> list[TopicPartition]:
        """Return partitions left to others, as last looked at. Any thread."""
        return sorted(dict(self._until))

    def due(self) -> float | None:
        """Return when a partition may be claimed again; None: none waits."""
        return min((at for at, _ in self._until.values()), default=None)
